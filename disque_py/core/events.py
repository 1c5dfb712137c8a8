"""Events: the transitions of jobs, as the node that makes them notes them down.

A user sees a job in one of seven states (spec E2): invisible, pending, running, completed, canceled,
errored, expired. Whoever takes it from one to the next writes an event; who only learns of it writes nothing. Where
several make a transition alone (expiry, a requeue on both sides of a cut), each writes its own, and readers take equal
(job, version, event) as one. An ack of a job that a node never held writes nothing there: the holder that first learns
of it does.

`job.version` orders what happened to one job wherever it happened: raised to the highest seen plus one by each node
that changes the job, told with every message about it, journaled. It counts also where no events are written. A job
that was just made has version 1.

`broker.events` is there while events are written, None while they are not: the core notes down what happened
(event_packing.py), the end of the turn takes it (event_keeper.py). An event is a plain tuple, packed by msgpack:

    (code, job id, version, state left, ms in which it was entered, attempt, nacks, additional deliveries, creation
     time, queue, bytes of the body, what is rare: a dict)

and the three that nearly all events are have shorter ones of their own (see CODES). event_lines.py makes the lines of
the outside of them; docs/events.md describes those. Codes are on disk: one is never used for another meaning.
Spec E1, E2, E3.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from disque_py.core.job import ACKED as ACKED_HERE
from disque_py.core.job import QUEUED as QUEUED_HERE
from disque_py.core.job import WAIT_REPL
from disque_py.core.spilled import size_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from disque_py.core.broker import Broker
    from disque_py.core.job import Job

# The user's states, as `job.status`; UNKNOWN: this node has not seen the job enter its state.
UNKNOWN: Final = 0
INVISIBLE: Final = 1  # In no queue: its DELAY, a pause or a DEQUEUE holds it back.
PENDING: Final = 2  # In a queue of some node.
RUNNING: Final = 3  # With a consumer.
COMPLETED: Final = 4
CANCELED: Final = 5
ERRORED: Final = 6  # Given up here, not for ever: ENQUEUE, or another node, may bring it back.
EXPIRED: Final = 7

STATUS_NAMES: Final = (
    None,
    "invisible",
    "pending",
    "running",
    "completed",
    "canceled",
    "errored",
    "expired",
)

# Jobs looked at in one go when all of them are.
FORGOTTEN_PER_PART: Final = 5_000

VERSION_FIRST: Final = 1
# What another node may tell. A version has 32 bits where it is packed; nobody counts through the rest.
VERSION_MAX: Final = 2**31

# -- codes ------------------------------------------------------------------------------------------

ADDED: Final = 1  # (code, id, creation time, queue, bytes): queued at once, version 1
DELIVERED: Final = (
    2  # (code, id, version, entered, attempt, nacks, deliveries, creation time, queue, bytes): was pending
)
ACKED: Final = 3
ADDED_ANYHOW: Final = 4  # An ADDED with something rare, or with a version.
ADDED_INVISIBLE: Final = 5
QUEUED: Final = 6
REQUEUED: Final = 7
NACKED: Final = 8
NACKED_INVISIBLE: Final = 9
ENQUEUED: Final = 10
DEQUEUED: Final = 11
WORKING: Final = 12
DELETED: Final = 13
DELETED_COPY: Final = 14
EXPIRED_EVENT: Final = 15
DROPPED: Final = 16
LOST: Final = 17
# Of the node, not of a job: (code, dict).
STARTED: Final = 32
FLUSHED: Final = 33

# Name of the event, state entered.
CODES: Final[dict[int, tuple[str, int]]] = {
    ADDED: ("added", PENDING),
    DELIVERED: ("delivered", RUNNING),
    ACKED: ("acked", COMPLETED),
    ADDED_ANYHOW: ("added", PENDING),
    ADDED_INVISIBLE: ("added", INVISIBLE),
    QUEUED: ("queued", PENDING),
    REQUEUED: ("requeued", PENDING),
    NACKED: ("nacked", PENDING),
    NACKED_INVISIBLE: ("nacked", INVISIBLE),
    ENQUEUED: ("enqueued", PENDING),
    DEQUEUED: ("dequeued", INVISIBLE),
    WORKING: ("working", RUNNING),
    DELETED: ("deleted", CANCELED),
    DELETED_COPY: ("deleted", INVISIBLE),
    EXPIRED_EVENT: ("expired", EXPIRED),
    DROPPED: ("dropped", EXPIRED),
    LOST: ("lost", ERRORED),
    STARTED: ("started", UNKNOWN),
    FLUSHED: ("flushed", UNKNOWN),
}

_STATUS_OF: Final = tuple(CODES.get(code, ("", UNKNOWN))[1] for code in range(max(CODES) + 1))

Event = tuple[Any, ...]


def added(broker: Broker, job: Job, code: int) -> None:
    """The job exists from now on: its producer is about to be told (ADDED or ADDED_INVISIBLE). Its version stays."""
    events = broker.events
    if events is None:
        return
    if broker.settings.events_body and type(job.body) is bytes:
        events.append(event_of(job, ADDED_ANYHOW if code == ADDED else code, {"body": job.body}, left=UNKNOWN))
    elif code == ADDED and job.traits is None and job.version == VERSION_FIRST:
        events.added(job, size_of(job.body))
    else:
        events.append(event_of(job, ADDED_ANYHOW if code == ADDED else code, left=UNKNOWN))
    job.status = _STATUS_OF[code]
    job.since_ms = broker.wall_ms


def ended(broker: Broker, job: Job, code: int, error: str = "") -> None:
    """The job is over for this node (EXPIRED_EVENT, DELETED, LOST …), unless it was already, or was never promised."""
    if job.state != ACKED_HERE and job.state != WAIT_REPL:
        note(broker, job, code, {"error": error} if error else None)


def status_of(job: Job) -> int:
    """The state its users see. If it was not noted (after a restart, say), then as far as this node can tell."""
    if job.status:
        return job.status
    if job.state == QUEUED_HERE:
        return PENDING
    if job.state == ACKED_HERE:
        return COMPLETED
    if job.is_leased_here:
        return RUNNING
    if not job.was_queued:
        return INVISIBLE
    return RUNNING if job.is_delivered or job.attempt else PENDING


def note(broker: Broker, job: Job, code: int, rare: dict[str, Any] | None = None) -> None:
    """This node takes the job to another state; called while the job still is as it was, counters apart."""
    job.version += 1
    events = broker.events
    if events is not None:
        events.append(event_of(job, code, rare))
        job.status = _STATUS_OF[code]
        job.since_ms = broker.wall_ms


def acked(broker: Broker, job: Job) -> None:
    """`note` of an ACKED, written out: every ACKJOB comes by here."""
    job.version += 1
    events = broker.events
    if events is None:
        return
    body = job.body
    if job.traits is None and job.status:
        events.acked(job, len(body) if type(body) is bytes else size_of(body))
    else:
        events.append(event_of(job, ACKED))
    job.status = COMPLETED
    job.since_ms = broker.wall_ms


def event_of(job: Job, code: int, rare: dict[str, Any] | None = None, *, left: int | None = None) -> Event:
    """The event of a job that is about to change, or has just been added, with what is rare about both."""
    event = (
        code,
        job.id,
        job.version,
        status_of(job) if left is None else left,
        job.since_ms,
        job.attempt,
        job.nacks,
        job.deliveries,
        job.ctime,
        job.queue,
        size_of(job.body),
    )
    traits = job.traits
    if traits is None:
        return event if rare is None else (*event, rare)
    more = {} if rare is None else rare
    if traits.priority is not None:
        more["priority"] = traits.priority
    if traits.meta:
        more["meta"] = traits.meta
    return (*event, more)


def learn(broker: Broker, job: Job, status: int) -> None:
    """Another node took the job to this state."""
    if broker.events is not None and job.status != status:
        job.status = status
        job.since_ms = broker.wall_ms


def heard(job: Job, version: Any) -> None:
    """Another node told how far the job's version has come there; ValueError if that is none."""
    if type(version) is not int or not 0 <= version <= VERSION_MAX:
        raise ValueError("a version that is not a number")
    if version > job.version:
        job.version = version


def of_node(broker: Broker, code: int, reason: str) -> None:
    """Something happened to the node that concerns all jobs it has (STARTED, FLUSHED)."""
    if broker.events is not None:
        broker.events.append((code, {"reason": reason}))


def forget_states(broker: Broker) -> None:
    """Events are written again: what was noted of jobs' states before may be wrong by now. In parts."""
    _forget_states(broker, iter(broker.shards))


def _forget_states(broker: Broker, shards: Iterator[dict[bytes, Job]]) -> None:
    looked = 0
    for shard in shards:
        for job in shard.values():
            job.status = UNKNOWN
            job.since_ms = 0
        looked += len(shard)
        if looked >= FORGOTTEN_PER_PART:
            broker.schedule.call_at(broker.now_ms + 1, partial(_forget_states, broker, shards))
            return
