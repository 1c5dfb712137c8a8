"""PAUSE: stop a queue's input, output or both, on this node or on all nodes.

With BCAST, the state is sent to all nodes. It has a version (wall clock, node id), and the later version wins. Nodes
remember it even when the pause has ended, so that nodes that join or were away learn it. Spec U1, U2, U3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from cluster_bus.messages import PAUSE
from cluster_bus.node import ID_BYTES, Node
from disque_py import event_format
from disque_py.core import events, lifecycle, requeue
from disque_py.core.broker import Broker
from disque_py.core.job import Job
from disque_py.core.queue import PAUSED_IN, PAUSED_OUT, Queue

# Deferred jobs that are looked at in one go when a pause ends, which takes about a millisecond.
RESUMED_PER_PART: Final = 500
# Versions of ended pauses are kept for nodes that were away. Beyond this many, the oldest is dropped.
ENDED_MAX: Final = 10_000
# The most queues with a state that was set with BCAST, and the most bytes of their names. Each paused queue is also a
# queue in memory.
VERSIONED_MAX: Final = 100_000
VERSIONED_BYTES_MAX: Final = 16 * 1024 * 1024
FULL: Final = (
    f"ERR too many queues were paused with BCAST, at most {VERSIONED_MAX} with {VERSIONED_BYTES_MAX} bytes of names:"
    " end some of these pauses (PAUSE queue none BCAST)"
)
# Far beyond any wall clock, and exact as a floating-point number.
VERSION_MS_MAX: Final = 1 << 53


def set_pause(broker: Broker, name: bytes, flags: int) -> None:
    """Apply a state on this node. If the queue does not exist, it is made only if the state is a pause."""
    queue = broker.queues.get(name)
    if queue is None:
        if not flags:
            return
        queue = broker.queue(name)
    if queue.paused == flags:
        return
    before = queue.paused
    queue.paused = flags
    broker.pauses.paused_count += bool(flags) - bool(before)
    broker.consumers.interest_due[queue] = None
    _record_soon(broker, name)
    if before & PAUSED_OUT and not flags & PAUSED_OUT:
        broker.wake(queue)
        broker.consumers.hint_due[queue] = None
        if queue.filters is not None:
            queue.filters.owe_hints()
    if before & PAUSED_IN and not flags & PAUSED_IN:
        _input_resumed(broker, queue)


def _input_resumed(broker: Broker, queue: Queue) -> None:
    """Queue the jobs whose queueing was deferred to the end of the pause. Very many of them are queued in parts."""
    parts = _resumed(broker, queue.name)
    if next(parts, broker) is not broker:
        broker.schedule.walk(parts)


def _resumed(broker: Broker, name: bytes) -> Iterator[None]:
    """Queue the deferred jobs of a queue, except those that another node has queued since.

    If the queue is paused again before the last part, the rest stays deferred.
    """
    looked = 0
    for job, requeue_at_ms in list(broker.pauses.deferred.items()):
        if job.terms.queue == name and broker.pauses.deferred.get(job) == requeue_at_ms:
            if is_paused_in(broker, job):
                return
            del broker.pauses.deferred[job]
            if job.requeue_at_ms == requeue_at_ms and requeue.is_queueable(job):
                events.note(broker, job, event_format.QUEUED)
                requeue.release(broker, job)
        looked += 1
        if looked >= RESUMED_PER_PART:
            looked = 0
            yield


def defer(broker: Broker, job: Job) -> None:
    """Defer the queueing of a job until the pause of its queue's input ends.

    The timer is remembered. If another node queues or delivers the job meanwhile, its message moves the timer, and the
    end of the pause does not queue the job.
    """
    lifecycle.end_lease(broker, job)
    if job.terms.retry_ms:
        lifecycle.postpone(broker, job, broker.now_ms + job.terms.retry_ms + broker.jitter())
        lifecycle.arm(broker, job)
    broker.pauses.deferred[job] = job.requeue_at_ms


def keep_pending(broker: Broker, job: Job) -> None:
    """Note that a job was pending before the restart, so a pause of its queue's input does not hold it back.

    The timer is remembered as in `defer`, but as a negative number.
    """
    broker.pauses.deferred[job] = -job.requeue_at_ms


def has_room(broker: Broker, name: bytes) -> bool:
    """Return whether there is room for a state of this queue. If necessary, forget ended pauses, oldest first."""
    if name in broker.pauses.versions:
        return True
    bytes_max = VERSIONED_BYTES_MAX - len(name)
    if bytes_max < 0:
        return False
    while broker.pauses.ended and not _is_within(broker, bytes_max):
        _forget_oldest(broker)
    return _is_within(broker, bytes_max)


def _is_within(broker: Broker, bytes_max: int) -> bool:
    return len(broker.pauses.versions) < VERSIONED_MAX and broker.pauses.name_bytes <= bytes_max


def _forget_oldest(broker: Broker) -> None:
    name = next(iter(broker.pauses.ended))
    del broker.pauses.ended[name]
    del broker.pauses.versions[name]
    broker.pauses.name_bytes -= len(name)


def broadcast(broker: Broker, name: bytes, flags: int) -> None:
    """Send the state to all nodes, with a version later than any known one. The caller has checked for room."""
    known = broker.pauses.versions.get(name)
    version_ms = min(max(broker.wall_ms, known[1] + 1 if known else 0), VERSION_MS_MAX)
    _remember(broker, name, flags, version_ms, broker.me.id)
    if broker.cluster.linked:
        broker.tell_pause(broker.cluster.linked, name)


def on_pause(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Merge a queue's state that was set with BCAST. The later version wins.

    If the sender's version is earlier than ours, send it ours: it asks (`ask`), or its wall clock is behind. A state
    that comes from the node that made it is passed on. That node may have no link to some of the others, and may be
    gone before it has one.
    """
    for name, flags, version_ms, version_node, *_ in items:
        if (
            type(name) is not bytes
            or type(flags) is not int
            or type(version_ms) is not int
            or type(version_node) is not bytes
            or len(version_node) > ID_BYTES
            or not 0 <= version_ms <= VERSION_MS_MAX
        ):
            raise ValueError("a pause that is not a name, flags and a version")
        known = broker.pauses.versions.get(name)
        if known is None and not version_ms:
            continue  # A question of a node that has forgotten the state. This node does not know it either.
        if known is not None and (known[1], known[2]) >= (version_ms, version_node):
            if (known[1], known[2]) != (version_ms, version_node):
                broker.tell_pause(broker.sets.only(sender), name)
            continue
        if not has_room(broker, name):
            broker.stats.ignored("pause of too many queues")
            continue
        state = flags & (PAUSED_IN | PAUSED_OUT)
        _remember(broker, name, state, version_ms, version_node)
        set_pause(broker, name, state)
        if sender.id == version_node:
            others = tuple(node for node in broker.cluster.linked if node is not sender)
            if others:
                broker.tell_pause(others, name)


def ask(broker: Broker, names: list[bytes]) -> None:
    """Ask the other nodes for the states of queues that were set with BCAST, because this node has forgotten them.

    A version of 0 is earlier than any, so a node that knows a state answers with it (`on_pause`).
    """
    for name in names:
        broker.send(broker.cluster.linked, PAUSE, (name, 0, 0, b""))


def on_link_up(broker: Broker, node: Node) -> None:
    """Send the states that were set with BCAST to a node that joins or was away."""
    only = broker.sets.only(node)
    for name in broker.pauses.versions:
        broker.tell_pause(only, name)


def _remember(broker: Broker, name: bytes, flags: int, version_ms: int, version_node: bytes) -> None:
    remember(broker, name, flags, version_ms, version_node)
    _record_soon(broker, name)


def _record_soon(broker: Broker, name: bytes) -> None:
    """Record the queue's state at the end of the turn. While the node loads, the record waits for its journal."""
    if broker.is_journaling or broker.is_loading:
        broker.outbox.pauses[name] = None


def restore(broker: Broker, name: bytes, flags: int, version_ms: int, version_node: bytes, told: int) -> None:
    """Apply a queue's state from the journal, unless another node has told a later one since the node started.

    flags   the state on this node
    told    the state that was set with BCAST, if there is a version
    """
    known = broker.pauses.versions.get(name)
    if known is not None and (known[1], known[2]) > (version_ms, version_node):
        return
    was_due = name in broker.outbox.pauses
    if version_ms:
        remember(broker, name, told, version_ms, version_node)
    set_pause(broker, name, flags)
    if not was_due:
        broker.outbox.pauses.pop(name, None)  # The journal has it.


def remember(broker: Broker, name: bytes, flags: int, version_ms: int, version_node: bytes) -> None:
    """Remember a queue's state that was set with BCAST, now or before this node started."""
    versions = broker.pauses.versions
    if name not in versions:
        broker.pauses.name_bytes += len(name)
    versions[name] = (flags, version_ms, version_node)
    ended = broker.pauses.ended
    ended.pop(name, None)
    if not flags:
        ended[name] = None
        if len(ended) > ENDED_MAX:
            _forget_oldest(broker)


def is_paused_in(broker: Broker, job: Job) -> bool:
    """Return whether the input of the job's queue is paused on this node."""
    queue = broker.queues.get(job.terms.queue)
    return queue is not None and bool(queue.paused & PAUSED_IN)
