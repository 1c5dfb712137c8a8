"""Commands with FENCE, which names the claim of a delivery; the message ACKFENCED. Spec EX6.

A worker may go on after its lease has ended. By then another worker may have the job or its value, under a later claim
with a higher fence. So a node refuses a command whose fence is below the highest fence that it knows. A command with a
fence acts on the delivery with this fence, whichever node made the delivery. That is possible because every holder of
the job knows the fence and the claim's holder.

A node without the job passes an acknowledgement on, and the holders compare.
"""

from __future__ import annotations

from typing import Any, Final

from cluster_bus.messages import ACKFENCED
from cluster_bus.node import Node
from disque_py.core import client_acks, exclusive
from disque_py.core.broker import Broker
from disque_py.core.grants import FENCE_MAX
from disque_py.core.job import ACKED

# Result of an action whose fence is below a known fence. Nodes send it to each other.
IS_FENCED: Final = 2
DIGITS_MAX: Final = 20


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
