"""Commands with FENCE, which names the claim of a delivery; the messages ACKFENCED and CLAIM_NEWEST. Spec EX6.

A worker may go on after its lease has ended. By then another worker may have the job or its value, under a later claim
with a higher fence. So a node refuses a command whose fence is below the highest fence that it knows. A command with a
fence acts on the delivery with this fence, whichever node made the delivery. That is possible because every holder of
the job knows the fence and the claim's holder.

A node without the job passes an acknowledgement on, and the holders compare.

The holders of a job hear of a delivery with LEASED. A holder that was cut off, or was down, has missed it. So a node
tells the claims that it knows (CLAIM_NEWEST) to each newly linked node that holds the jobs. A holder that learns a
newer claim from this passes it on, because it may have made copies while it was cut off.
"""

from __future__ import annotations

from typing import Any, Final

from cluster_bus.messages import ACKFENCED, CLAIM_NEWEST
from cluster_bus.node import Node
from disque_py.core import changing, claim_stamps, client_acks, exclusive, lifecycle
from disque_py.core.broker import Broker
from disque_py.core.grants import FENCE_MAX
from disque_py.core.ids import is_valid_id
from disque_py.core.job import ACKED

# Result of an action whose fence is below a known fence. Nodes send it to each other.
IS_FENCED: Final = 2
DIGITS_MAX: Final = 20
# Jobs that are looked at per step, for a node that is told claims. There are ten steps per second.
TOLD_PER_STEP: Final = 1_000
# The most claims that a node keeps while it reads its journal.
EARLY_MAX: Final = 20_000


def ack(broker: Broker, job_id: bytes, fence: int, attempt: int, result: bytes | None = None) -> int:
    """Acknowledge the delivery under this claim. Return 1 or 0, like ACKJOB. The caller has compared the fence."""
    job = broker.find(job_id)
    if job is None:
        if job_id in broker.tombstones:
            exclusive.end_fenced(broker, job_id, fence)
        elif broker.cluster.linked:
            broker.send(broker.cluster.linked, ACKFENCED, (job_id, fence, attempt, result))
        return 0
    if attempt and client_acks.is_stale(job, attempt):
        return 0
    exclusive.end_fenced(broker, job_id, fence)
    exclusive.learn_fence(broker, job, fence)
    if result is None:
        return client_acks.ack_here(broker, job_id)
    return client_acks.ack_with_result(broker, job_id, attempt, result)


def cancel(broker: Broker, job_id: bytes, fence: int) -> int:
    """Cancel a job of this node, unless a later claim is known. Return 1, 0 or IS_FENCED. The claim ends, too."""
    job = broker.find(job_id)
    if job is None:
        exclusive.end_over(broker, job_id, fence)
        return 0
    if exclusive.is_fenced(job, fence):
        return IS_FENCED
    exclusive.end_fenced(broker, job_id, fence)
    exclusive.learn_fence(broker, job, fence)
    return client_acks.cancel_here(broker, job_id)


def read_fence(words: list[bytes]) -> int:
    """Return the fence from the words of an action. Raise ValueError."""
    fence = int(words[0]) if len(words[0]) <= DIGITS_MAX else 0
    if not 0 < fence <= FENCE_MAX:
        raise ValueError("an invalid fence")
    return fence


def on_ackfenced(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Acknowledge deliveries that clients named to a node without the jobs."""
    for job_id, fence, attempt, *later in items:
        result = later[0] if later else None
        if result is not None and type(result) is not bytes:
            raise ValueError("a result that is not bytes")
        if type(fence) is not int or type(attempt) is not int or not 0 < fence <= FENCE_MAX:
            raise ValueError("an invalid fence or attempt")
        job = broker.find(job_id)
        if job is None or job.state == ACKED:
            exclusive.end_same(broker, job_id, fence)
        elif not exclusive.is_fenced(job, fence):
            ack(broker, job_id, fence, attempt, result)


# -- nodes that were cut off --------------------------------------------------------------------------


def on_link_up(broker: Broker, node: Node) -> None:
    """Begin to tell a newly linked node the claims that it may have missed."""
    state = broker.exclusive
    ids = [*state.newest, *(job_id for job_id in state.running if job_id not in state.newest)]
    if ids:
        state.untold[node] = ids
        _tell_some(broker, node, ids)


def step(broker: Broker) -> None:
    """Tell more claims. Called ten times a second."""
    for node, ids in list(broker.exclusive.untold.items()):
        _tell_some(broker, node, ids)


def loaded(broker: Broker) -> None:
    """Note the claims that were told while the journal was read. Called before clients are served."""
    state = broker.exclusive
    early, state.early = state.early, []
    for sender, job_id, fence, own_fence, holder in early:
        _hear(broker, sender, job_id, fence, own_fence, holder)


def _tell_some(broker: Broker, node: Node, ids: list[bytes]) -> None:
    """Tell a node the claims of the last jobs of this list, and remove them from it."""
    part = ids[-TOLD_PER_STEP:]
    del ids[-TOLD_PER_STEP:]
    if not ids or not node.is_linked:
        del broker.exclusive.untold[node]
    if not node.is_linked:
        return  # The next link begins anew.
    nodes = broker.sets.only(node)
    for job_id in reversed(part):
        job = broker.find(job_id)
        if job is not None and node in job.holders:
            stamp = claim_stamps.stamp_of(job)
            if stamp is not None and stamp.holder:
                broker.send(nodes, CLAIM_NEWEST, (job_id, stamp.fence, stamp.own_fence, stamp.holder))


def on_claim_newest(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note the claims that this node has missed."""
    early = broker.exclusive.early
    for job_id, *words in items:
        if not is_valid_id(job_id):
            raise ValueError("a claim of no job")
        fence, own_fence, holder = claim_stamps.read_claim(words)
        if not broker.is_loading:
            _hear(broker, sender, job_id, fence, own_fence, holder)
        elif len(early) < EARLY_MAX:
            early.append((sender, job_id, fence, own_fence, holder))


def _hear(broker: Broker, sender: Node, job_id: bytes, fence: int, own_fence: int, holder: bytes) -> None:
    job = broker.find(job_id)
    if job is None or job.state == ACKED or fence <= claim_stamps.fence_of(job):
        return
    claim = (fence, own_fence, holder)
    claim_stamps.heard(broker, job, claim)
    changing.begin(broker, job)  # The claim's place in the journal is after the part.
    lifecycle.mark_dirty(broker, job)
    for node in broker.sets.others(job.holders):
        if node is not sender:
            broker.send(broker.sets.only(node), CLAIM_NEWEST, (job_id, *claim))
