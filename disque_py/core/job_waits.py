"""Waiting for the ends of jobs: WAITJOB, and the messages of nodes for it.

A client waits until jobs are completed, canceled, errored or expired. Its node *registers* each id on all linked nodes
(WAITFOR). A node that knows the end of a job answers with JOBOVER, immediately or as soon as it hears of the end. A
registration lasts until the sender takes it back (NOWAIT) or its link breaks. It is repeated when a link comes up. The
asked node repeats its answers when its own link comes up. So nodes do not poll, and a wait costs one registration per
linked node and id.

A node that is asked also says what it has of each job: immediately (WAITIS), and when that changes later (JOBHAS). A
job is *unknown* when every known node is linked and none of them has it. All nodes are asked twice before that, because
a job may move from one node to another between their answers. A job is *expired* when a node says so and no linked node
has it any more. The second condition is needed because another node may have given the job a new TTL.

The first end that arrives counts and is never replaced. The result of a completed job comes with it (results.py). A
node may know an end in doubt (ends.py), and says so. Such an end counts only after all linked nodes were asked again
and no node knows a result.

A wait may end while some of its jobs are not over: at its time-out, or with ANY. Then its node asks once more for the
present statuses of these jobs, because those from the registration are old. Spec RW5, RW6, RW7, RW8, RW10.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from cluster_bus.messages import JOBHAS, JOBOVER, NOWAIT, WAITFOR, WAITIS
from cluster_bus.node import Node
from disque_py.core import changing, delivery, scan
from disque_py.core.asking import COPY, HAS_LEASED, HAS_QUEUED
from disque_py.core.broker import Broker
from disque_py.core.client import RUNNING, WAITS_FOR_ENDS, Client
from disque_py.core.ids import is_valid_id
from disque_py.core.job import ACKED, ACTIVE, QUEUED, Cancellation, Collection, Job
from disque_py.core.job_waits_state import UNKNOWN_JOB, Outcome, Wait, Waited
from disque_py.core.results import BYTES_MAX
from disque_py.event_format import CANCELED, COMPLETED, ERRORED, EXPIRED, STATUS_NAMES
from disque_py.resp.replies import array, bulk, error, nil_bulk

# The most ids of one message.
IDS_PER_MESSAGE: Final = 500
# The most ids that a node may register on another one, and for which its own clients may wait.
IDS_MAX: Final = 100_000
# A wait whose time is over waits this long for the present statuses.
REFRESH_MS: Final = 500
ERROR_BYTES_MAX: Final = 65_536

# A node's knowledge of a job in one byte: NOTHING, or a rank of asking.py times 16 plus the status.
NOTHING: Final = 0
RANK_SHIFT: Final = 4
STATUS_MASK: Final = 15
IS_OVER: Final = 255  # A JOBOVER was sent.
IS_DOUBTED: Final = 254  # A JOBOVER with an end in doubt was sent. This value is never in a message.
ENDS: Final = (COMPLETED, CANCELED, ERRORED, EXPIRED)


# -- what this node knows -----------------------------------------------------------------------------


def outcome_here(broker: Broker, job_id: bytes) -> Outcome | None:
    """Return the end of a job as this node knows it; None if it knows of no end."""
    job = broker.find(job_id)
    if job is not None:
        if job.state == ACKED:
            if not job.holders:
                return None  # An ack of a job that this node never held proves nothing.
            if isinstance(job.work, Cancellation):
                return CANCELED, None, changing.error_of(job)
            return COMPLETED, broker.results.get(job_id), None
        if job.state == ACTIVE and job.is_errored:
            return ERRORED, None, changing.error_of(job)
        return None
    result = broker.results.get(job_id)
    if result is not None:
        return COMPLETED, result, None
    status = broker.ends.get(job_id)
    return (status, None, None) if status else None


def is_doubted(broker: Broker, job_id: bytes, outcome: Outcome) -> bool:
    """Return whether another node may have the result of a job that ended here without one. Spec RW10."""
    if outcome[0] != COMPLETED or outcome[1] is not None:
        return False
    job = broker.find(job_id)
    if job is None:
        return broker.ends.is_doubted(job_id)
    return isinstance(job.work, Collection) and job.work.is_doubted


def has_here(broker: Broker, job_id: bytes) -> int:
    """Return this node's knowledge of a job that is not over here."""
    job = broker.find(job_id)
    if job is None:
        return NOTHING
    if job.state == ACKED and not job.holders:
        # The ack of a job that was never here may have come with a result, which is on its way to the holders.
        return COPY << RANK_SHIFT if job_id in broker.results.by_id else NOTHING
    return _rank(broker, job)


def _rank(broker: Broker, job: Job) -> int:
    if job.is_leased_here and job.requeue_at_ms > broker.now_ms:
        rank = HAS_LEASED
    else:
        rank = HAS_QUEUED if job.state == QUEUED else COPY
    return rank << RANK_SHIFT | scan.shown_status(broker, job)


# -- clients of this node -----------------------------------------------------------------------------


def begin(broker: Broker, client: Client, ids: list[bytes], timeout_ms: int, *, is_any: bool) -> bytes | None:
    """Let a client wait for the ends of jobs. Return the reply if there is no need to wait."""
    state = broker.job_waits
    wait = Wait(client, ids, is_any=is_any)
    fresh = []
    for job_id in wait.open:
        waited = state.waited.get(job_id)
        if waited is None:
            outcome = outcome_here(broker, job_id)
            if outcome is not None and _is_final(broker, job_id, outcome):
                wait.outcomes[job_id] = outcome
                continue
            waited = state.waited[job_id] = Waited()
            waited.outcome_here = outcome
            waited.has_here = has_here(broker, job_id) if outcome is None else NOTHING
            broker.ends.watched[job_id] = None
            fresh.append(job_id)
        waited.waits[wait] = None
    for job_id in wait.outcomes:
        del wait.open[job_id]
    state.register(wait)
    if fresh:
        _ask_all(broker, fresh)
        for job_id in fresh:
            _evaluate(broker, job_id)
    state.deadlines.now_ms = broker.now_ms
    if wait.is_done:
        if _is_told(broker, wait):
            reply = _reply(broker, wait)
            _leave(broker, wait)
            return reply
        wait.is_ending = True
        timeout_ms = REFRESH_MS
    client.waiting = WAITS_FOR_ENDS
    broker.waits.blocked_count += 1
    if timeout_ms:
        state.deadlines.set(wait, broker.now_ms + timeout_ms)
    return None


def _is_final(broker: Broker, job_id: bytes, outcome: Outcome) -> bool:
    """Return whether this end may be reported without asking other nodes."""
    return outcome[0] != EXPIRED and not is_doubted(broker, job_id, outcome)


def _is_told(broker: Broker, wait: Wait) -> bool:
    """Return whether each open job of a wait has a status: this node has the job, or all linked nodes have answered."""
    linked = broker.cluster.linked
    for job_id in wait.open:
        waited = broker.job_waits.waited[job_id]
        if not waited.has_here and any(node not in waited.known for node in linked):
            return False
    return True


def has_room(broker: Broker, ids: list[bytes]) -> bool:
    """Return whether clients of this node may wait for these jobs in addition."""
    return len(broker.job_waits.waited) + len(ids) <= IDS_MAX


def drop_client(broker: Broker, client: Client) -> None:
    """Forget the wait of a client that is gone."""
    wait = broker.job_waits.by_client.get(client)
    if wait is not None:
        broker.waits.blocked_count -= 1
        _leave(broker, wait)


def step(broker: Broker, count_max: int) -> int:
    """End waits whose time is over. Return how many were looked at."""
    state = broker.job_waits
    count = 0
    state.deadlines.now_ms = broker.now_ms
    for wait in state.deadlines.due(count_max):
        count += 1
        if wait.is_ending or not _refresh(broker, wait):
            _answer(broker, wait)
    if state.early and not broker.is_loading:
        early, state.early = state.early, []
        for sender, items in early:
            on_waitfor(broker, sender, items)
    return count


def _refresh(broker: Broker, wait: Wait) -> bool:
    """Ask for the present statuses of jobs that are not over. Return whether the wait must go on for the answers.

    The wait ends when they have arrived, after REFRESH_MS at the latest.
    """
    waited = broker.job_waits.waited
    asked = [job_id for job_id in wait.open if waited[job_id].has_here >> RANK_SHIFT < HAS_QUEUED]
    if not asked or not broker.cluster.linked:
        return False
    # Without an answer yet, a job was asked for a moment ago: many clients may wait for the same jobs.
    asked = [job_id for job_id in asked if waited[job_id].known]
    for job_id in asked:
        waited[job_id].known.clear()
    _ask_all(broker, asked)
    wait.is_ending = True
    broker.job_waits.deadlines.set(wait, broker.now_ms + REFRESH_MS)
    return True


def refuse(broker: Broker, client: Client, text: str) -> None:
    """End the wait of a client with an error."""
    wait = broker.job_waits.by_client.get(client)
    if wait is not None:
        _end(broker, wait, error(text))


def _answer(broker: Broker, wait: Wait) -> None:
    """Answer a client that waits."""
    _end(broker, wait, _reply(broker, wait))


def _end(broker: Broker, wait: Wait, reply: bytes) -> None:
    client = wait.client
    broker.waits.blocked_count -= 1
    _leave(broker, wait)
    client.waiting = RUNNING
    client.blocked = None
    delivery.send(broker, client, reply)


def _reply(broker: Broker, wait: Wait) -> bytes:
    nil = nil_bulk(wait.client.protocol)
    entries = []
    for job_id in wait.ids:
        status, result, reason = wait.outcomes.get(job_id) or _unfinished(broker, job_id)
        name = STATUS_NAMES[status] if 0 <= status < len(STATUS_NAMES) else None
        entries.append(
            array(
                [
                    bulk(job_id),
                    bulk(name or "unknown"),
                    nil if result is None else bulk(result),
                    nil if reason is None else bulk(reason),
                ]
            )
        )
    return array(entries)


def _unfinished(broker: Broker, job_id: bytes) -> Outcome:
    """Return the status of a job without a reported end. It is the status on the node with the most knowledge."""
    waited = broker.job_waits.waited.get(job_id)
    outcome = outcome_here(broker, job_id)
    if outcome is not None and _is_final(broker, job_id, outcome):
        return outcome  # It ended in this turn.
    has = has_here(broker, job_id) if outcome is None else NOTHING
    if waited is not None:
        has = max([has, *[each for each in waited.known.values() if each != IS_OVER]])
        is_over = waited.is_doubted or (outcome is not None and outcome[0] == COMPLETED)
        if is_over and not has and all(node in waited.known for node in broker.cluster.linked):
            return COMPLETED, None, None
    job = broker.find(job_id)
    return has & STATUS_MASK, None, None if job is None else changing.error_of(job)


def _leave(broker: Broker, wait: Wait) -> None:
    """End a wait, and forget those of its ids for which no other client waits."""
    state = broker.job_waits
    state.deadlines.cancel(wait)
    state.by_client.pop(wait.client, None)
    for job_id in (*wait.open, *wait.outcomes):
        waited = state.waited.get(job_id)
        if waited is None:
            continue
        waited.waits.pop(wait, None)
        if not waited.waits:
            del state.waited[job_id]
            if job_id not in state.elsewhere:
                broker.ends.watched.pop(job_id, None)
            state.given_up.append(job_id)


# -- the end of a job ---------------------------------------------------------------------------------


def _over(broker: Broker, job_id: bytes, outcome: Outcome) -> None:
    """Report the end of a job to the clients of this node. The first reported end counts."""
    waited = broker.job_waits.waited.get(job_id)
    if waited is None:
        return
    for wait in list(waited.waits):
        if job_id in wait.open:
            del wait.open[job_id]
            wait.outcomes[job_id] = outcome
            waited.waits.pop(wait, None)
            if not wait.is_done or wait.client.waiting != WAITS_FOR_ENDS:
                continue
            if wait.open and wait.is_ending and not _is_refreshed(broker, wait):
                continue  # The answers are on their way.
            if not wait.open or wait.is_ending or not _refresh(broker, wait):
                _answer(broker, wait)
    if not waited.waits and broker.job_waits.waited.get(job_id) is waited:
        del broker.job_waits.waited[job_id]
        if job_id not in broker.job_waits.elsewhere:
            broker.ends.watched.pop(job_id, None)
        broker.job_waits.given_up.append(job_id)


def _evaluate(broker: Broker, job_id: bytes) -> None:
    """Decide whether the end of a job is known, from the knowledge of this node and of the others."""
    waited = broker.job_waits.waited.get(job_id)
    if waited is None:
        return
    known = waited.known
    linked = broker.cluster.linked
    is_answered = all(node in known for node in linked)
    outcome = waited.outcome_here
    if outcome is not None and _is_final(broker, job_id, outcome):
        _over(broker, job_id, outcome)
        return
    if waited.has_here or not is_answered or any(known[node] not in (NOTHING, IS_OVER) for node in linked):
        return
    if waited.is_doubted or (outcome is not None and outcome[0] == COMPLETED):
        # An earlier answer may be older than the end. So all nodes are asked once more for the result.
        if not linked or waited.was_asked_twice:
            _over(broker, job_id, (COMPLETED, None, None))
        else:
            _ask_again(broker, job_id, waited)
        return
    if waited.is_expired or outcome is not None:
        _over(broker, job_id, (EXPIRED, None, None))
        return
    if len(linked) < broker.cluster.size - 1:
        return  # A node that is not linked may know the job.
    if linked and not waited.was_asked_twice:
        _ask_again(broker, job_id, waited)
        return
    _over(broker, job_id, UNKNOWN_JOB)


def _ask_again(broker: Broker, job_id: bytes, waited: Waited) -> None:
    waited.was_asked_twice = True
    waited.known.clear()
    _ask_all(broker, [job_id])


def _look_again(broker: Broker, ids: list[bytes]) -> None:
    """Look at waits after a message with news of these jobs: some need only present statuses, and some jobs are over.

    A wait that needs statuses looks at all of its jobs. So this is called once per message, not once per job.
    """
    waited = broker.job_waits.waited
    ending = {wait: None for job_id in ids if job_id in waited for wait in waited[job_id].waits if wait.is_ending}
    for wait in ending:
        if wait.client.waiting == WAITS_FOR_ENDS and _is_refreshed(broker, wait):
            _answer(broker, wait)
    for job_id in ids:
        _evaluate(broker, job_id)


def _is_refreshed(broker: Broker, wait: Wait) -> bool:
    waited = broker.job_waits.waited
    linked = broker.cluster.linked
    return all(all(node in waited[job_id].known for node in linked) for job_id in wait.open)


def settle(broker: Broker) -> None:
    """End a turn: report the jobs that changed in it, and take back registrations."""
    state = broker.job_waits
    noted = broker.ends.noted
    if noted:
        broker.ends.noted = {}
        for job_id in noted:
            _tell(broker, job_id)
            if broker.find(job_id) is None:
                broker.results.job_is_over(job_id)
    if state.given_up:
        ids = [job_id for job_id in dict.fromkeys(state.given_up) if job_id not in state.waited]
        state.given_up = []
        linked = broker.cluster.linked
        for at in range(0, len(ids) if linked else 0, IDS_PER_MESSAGE):
            broker.send(linked, NOWAIT, ids[at : at + IDS_PER_MESSAGE])


def _tell(broker: Broker, job_id: bytes) -> None:
    """Tell clients and nodes that wait for a job what this node knows of it now."""
    state = broker.job_waits
    outcome = outcome_here(broker, job_id)
    has = NOTHING if outcome is not None else has_here(broker, job_id)
    waited = state.waited.get(job_id)
    if waited is not None:
        waited.outcome_here = outcome
        waited.has_here = has
        _look_again(broker, [job_id])
    nodes = state.elsewhere.get(job_id)
    if nodes is None:
        return
    for node, told in list(nodes.items()):
        only = broker.sets.only(node)
        if outcome is not None:
            if told != IS_OVER:
                nodes[node] = _tell_over(broker, only, job_id, outcome, is_again=told == IS_DOUBTED)
        elif told != IS_OVER and bool(told) != bool(has):
            nodes[node] = has
            broker.send(only, JOBHAS, (job_id, has))


def _tell_over(
    broker: Broker, nodes: tuple[Node, ...], job_id: bytes, outcome: Outcome, *, is_again: bool = False
) -> int:
    """Tell nodes an end, unless they know that it is in doubt and it still is. Return what they know now."""
    if not is_doubted(broker, job_id, outcome):
        broker.send(nodes, JOBOVER, (job_id, *outcome))
        return IS_OVER
    if not is_again:
        broker.send(nodes, JOBOVER, (job_id, *outcome, 1))
    return IS_DOUBTED


# -- other nodes --------------------------------------------------------------------------------------


def _ask_all(broker: Broker, ids: list[bytes]) -> None:
    linked = broker.cluster.linked
    if linked:
        _ask(broker, linked, ids)


def _ask(broker: Broker, nodes: tuple[Node, ...], ids: list[bytes]) -> None:
    """Register ids on nodes."""
    state = broker.job_waits
    while state.asked:  # A node whose own link was not up yet could not answer. It says what it has on its next link.
        number = next(iter(state.asked))
        if any(job_id in state.waited for job_id in state.asked[number][0]):
            break
        del state.asked[number]
    for at in range(0, len(ids), IDS_PER_MESSAGE):
        state.number += 1
        part = ids[at : at + IDS_PER_MESSAGE]
        state.asked[state.number] = (part, dict.fromkeys(nodes))
        broker.send(nodes, WAITFOR, (state.number, part))


def on_waitfor(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Register jobs for which clients of another node wait, and answer what this node knows of them."""
    state = broker.job_waits
    for number, ids, *_ in items:
        if type(number) is not int or type(ids) not in (list, tuple) or len(ids) > IDS_PER_MESSAGE:
            raise ValueError("an invalid registration")
        if any(type(job_id) is not bytes or not is_valid_id(job_id) for job_id in ids):
            raise ValueError("an invalid job id")
    if broker.is_loading:
        state.early.append((sender, [(number, list(ids)) for number, ids, *_ in items]))
        return
    only = broker.sets.only(sender)
    for number, ids, *_ in items:
        answer = bytearray()
        for job_id in ids:
            outcome = outcome_here(broker, job_id)
            if outcome is not None:
                has = _tell_over(broker, only, job_id, outcome)
                answer.append(IS_OVER)
            else:
                has = has_here(broker, job_id)
                answer.append(has)
            if not state.may_register(sender, job_id, IDS_MAX):
                broker.stats.ignored("registration of too many jobs")
                continue
            state.elsewhere.setdefault(job_id, {})[sender] = has
            broker.ends.watched[job_id] = None
        broker.send(only, WAITIS, (number, bytes(answer)))


def on_waitis(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note another node's knowledge of jobs for which clients here wait."""
    state = broker.job_waits
    for number, answer, *_ in items:
        asked = state.asked.get(number)
        if asked is None or sender not in asked[1]:
            broker.stats.ignored("answer to a registration that is over")
            continue
        ids, nodes = asked
        if type(answer) is not bytes or len(answer) != len(ids):
            raise ValueError("a byte for each job was expected")
        del nodes[sender]
        if not nodes:
            del state.asked[number]
        for job_id, has in zip(ids, answer, strict=True):
            _note_has(broker, sender, job_id, has)
        _look_again(broker, ids)


def on_jobhas(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note that another node has a job now, or no longer has it."""
    ids = []
    for job_id, has, *_ in items:
        if type(has) is not int or not NOTHING <= has < IS_OVER:
            raise ValueError("a byte for a job was expected")
        waited = broker.job_waits.waited.get(job_id)
        if waited is not None and has:
            waited.was_asked_twice = False
        _note_has(broker, sender, job_id, has)
        ids.append(job_id)
    _look_again(broker, ids)


def _note_has(broker: Broker, node: Node, job_id: bytes, has: int) -> None:
    waited = broker.job_waits.waited.get(job_id)
    if waited is not None:
        waited.known[node] = has


def on_jobover(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note the end of a job for which clients here wait."""
    for job_id, status, result, reason, *later in items:
        if status not in ENDS:
            raise ValueError("an invalid end of a job")
        if result is not None and (type(result) is not bytes or len(result) > BYTES_MAX):
            raise ValueError("an invalid result")
        if reason is not None and (type(reason) is not bytes or len(reason) > ERROR_BYTES_MAX):
            raise ValueError("an invalid error of a job")
        waited = broker.job_waits.waited.get(job_id)
        if waited is None:
            broker.job_waits.given_up.append(job_id)  # The sender does not know that our clients no longer wait.
        elif status == EXPIRED or (later and later[0] == 1):
            waited.is_expired = waited.is_expired or status == EXPIRED
            waited.is_doubted = waited.is_doubted or status == COMPLETED
            waited.known[sender] = IS_OVER
            _look_again(broker, [job_id])
        else:
            _over(broker, job_id, (status, result, reason))


def on_nowait(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Forget registrations of another node."""
    for ids in items:
        if type(ids) not in (list, tuple) or any(type(job_id) is not bytes for job_id in ids):
            raise ValueError("invalid job ids")
        for job_id in ids:
            broker.job_waits.forget(broker.ends, sender, job_id)


def on_link_up(broker: Broker, node: Node) -> None:
    """Register all ids on a newly linked node, and repeat our answers to its registrations, one part at a time."""
    state = broker.job_waits
    if state.waited:
        broker.schedule.walk(_registered(broker, node, list(state.waited)))
    if state.counts.get(node):
        ids = [job_id for job_id, nodes in state.elsewhere.items() if node in nodes]
        broker.schedule.walk(_told_again(broker, node, ids))


def _registered(broker: Broker, node: Node, ids: list[bytes]) -> Iterator[None]:
    for at in range(0, len(ids), IDS_PER_MESSAGE):
        part = [job_id for job_id in ids[at : at + IDS_PER_MESSAGE] if job_id in broker.job_waits.waited]
        if part and node.is_linked:
            _ask(broker, broker.sets.only(node), part)
        yield


def _told_again(broker: Broker, node: Node, ids: list[bytes]) -> Iterator[None]:
    state = broker.job_waits
    for at in range(0, len(ids), IDS_PER_MESSAGE):
        for job_id in ids[at : at + IDS_PER_MESSAGE]:
            nodes = state.elsewhere.get(job_id)
            if nodes is not None and node in nodes and node.is_linked:
                outcome = outcome_here(broker, job_id)
                if outcome is not None:
                    nodes[node] = _tell_over(broker, broker.sets.only(node), job_id, outcome)
                else:
                    nodes[node] = has_here(broker, job_id)
                    broker.send(broker.sets.only(node), JOBHAS, (job_id, nodes[node]))
        yield


def on_link_lost(broker: Broker, node: Node) -> None:
    """Forget the answers of a node whose link broke in either direction. It is asked again when it is linked."""
    state = broker.job_waits
    for number, (_, nodes) in list(state.asked.items()):
        nodes.pop(node, None)
        if not nodes:
            del state.asked[number]
    for waited in state.waited.values():
        waited.known.pop(node, None)
    if state.waited:
        broker.ends.noted.update(dict.fromkeys(state.waited))


def on_incoming_lost(broker: Broker, node: Node) -> None:
    """Forget the registrations of a node whose link to us broke, and repeat our own, because its answers may be lost.

    If the node can't answer yet, it answers when its link is up again.
    """
    broker.job_waits.forget_node(broker.ends, node)
    on_link_lost(broker, node)
    if node.is_linked and broker.job_waits.waited:
        broker.schedule.walk(_registered(broker, node, list(broker.job_waits.waited)))


def forgotten(broker: Broker, node: Node) -> None:
    """Look at all jobs again, because a node has left the table and fewer nodes have to be asked."""
    broker.job_waits.forget_node(broker.ends, node)
    on_link_lost(broker, node)
