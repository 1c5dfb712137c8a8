"""Events: the transitions of jobs, noted by the nodes that make them.

A user sees a job in one of seven states (spec E2): invisible, pending, running, completed, canceled, errored, expired.
The node that takes the job from one state to the next writes an event. A node that only learns of the transition writes
none. Several nodes may make the same transition independently, for example an expiry, or a requeue on both sides of a
partition. Then each writes its own event, and readers treat equal (job, version, event) as one. A node that takes an
ack of a job that it never held writes no event. The first holder that learns of the ack writes it.

`job.version` orders the changes of one job across all nodes. A node that changes the job raises it to one above the
highest version it has seen. Every message about the job carries the version, and the journal records it. The version
also rises while no events are written. A new job has version 1.

A job's `status` and `since_ms` are maintained whether or not events are written, because QLEN and QSTAT count by them.

`broker.events` is an object while events are written, else None. The core notes events in it (event_packing.py), and
the end of the turn takes them out (storage/event_log_service.py). event_format.py has the codes, the states and the
layout of events. event_lines.py converts events to the lines that docs/events.md describes.
Spec E1, E2, E3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.core.job import ACKED as ACKED_HERE
from disque_py.core.job import QUEUED as QUEUED_HERE
from disque_py.core.job import WAIT_REPL, Cancellation
from disque_py.core.spilled import size_of
from disque_py.event_format import (
    ACKED,
    ADDED,
    ADDED_ANYHOW,
    CANCELED,
    CANCELED_EVENT,
    CODES,
    COMPLETED,
    ERRORED,
    INVISIBLE,
    PENDING,
    RUNNING,
    UNKNOWN,
    UNKNOWN_EVENT,
    VERSION_FIRST,
)

if TYPE_CHECKING:
    from disque_py.core.broker import Broker
    from disque_py.core.job import Job

# The highest version that a node accepts from another one. A job's version has 31 bits (job.py), so there is room above
# this limit. No job is changed so often.
VERSION_MAX: Final = 2**31 - 2**16

_STATUS_OF: Final = tuple(CODES.get(code, UNKNOWN_EVENT)[1] for code in range(max(CODES) + 1))

Event = tuple[Any, ...]


def added(broker: Broker, job: Job, code: int) -> None:
    """Note that the job exists (ADDED or ADDED_INVISIBLE). Called just before its producer is told.

    The job's version does not change.
    """
    if job.attributes is not None and job.attributes.extras is not None:
        broker.batches.note_added(job)
    events = broker.events
    if events is None:
        pass
    elif broker.settings.events_body and type(job.body) is bytes:
        events.append(event_of(job, ADDED_ANYHOW if code == ADDED else code, {"body": job.body}, left=UNKNOWN))
    elif code == ADDED and job.attributes is None and job.version == VERSION_FIRST:
        body = job.body
        events.added(job, len(body) if type(body) is bytes else size_of(body))
    else:
        events.append(event_of(job, ADDED_ANYHOW if code == ADDED else code, left=UNKNOWN))
    job.status = _STATUS_OF[code]
    job.since_ms = broker.wall_ms


def ended(broker: Broker, job: Job, code: int, error: str = "") -> None:
    """Note that the job is over for this node (EXPIRED_EVENT, DELETED, LOST …).

    Do nothing if the job was over already, or if its producer never got a promise.
    """
    if job.state != ACKED_HERE and job.state != WAIT_REPL:
        note(broker, job, code, {"error": error} if error else None)


def status_of(job: Job) -> int:
    """Return the state that users see. If it was not noted, for example after a restart, derive it from the job."""
    if job.status:
        return job.status
    if job.state == QUEUED_HERE:
        return PENDING
    if job.state == ACKED_HERE:
        return CANCELED if isinstance(job.work, Cancellation) else COMPLETED
    if job.state == WAIT_REPL:
        return INVISIBLE
    part = job.part
    if part is not None and (part.is_errored or part.is_delayed):
        return ERRORED if part.is_errored else INVISIBLE
    if job.is_leased_here:
        return RUNNING
    if not job.was_queued:
        return INVISIBLE
    return RUNNING if job.is_delivered or job.attempt else PENDING


def note(broker: Broker, job: Job, code: int, rare: dict[str, Any] | None = None, *, left: int | None = None) -> None:
    """Note that this node takes the job to another state. Called before the job itself changes, except its counters.

    left   the state that the job leaves, if the job has already changed
    """
    job.version += 1
    events = broker.events
    if events is not None:
        events.append(event_of(job, code, rare, left=left))
    if job.attributes is not None and job.attributes.extras is not None:
        broker.batches.note(job, code, job.status if left is None else left, _STATUS_OF[code])
    job.status = _STATUS_OF[code]
    job.since_ms = broker.wall_ms


def acked(broker: Broker, job: Job) -> None:
    """Note an ACKED event. This is `note` with its calls inlined, because every ACKJOB comes here."""
    job.version += 1
    events = broker.events
    if events is not None:
        body = job.body
        result = broker.results.by_id.get(job.id) if broker.results.by_id else None
        if result is not None:
            events.append(event_of(job, ACKED, {"result_size": len(result.value)}))
        elif job.attributes is None and job.status:
            events.acked(job, len(body) if type(body) is bytes else size_of(body))
        else:
            events.append(event_of(job, ACKED))
    if job.attributes is not None and job.attributes.extras is not None:
        broker.batches.note(job, ACKED, job.status, COMPLETED)
    job.status = COMPLETED
    job.since_ms = broker.wall_ms


def canceled(broker: Broker, job: Job, error: str = "") -> None:
    """Note that a job was canceled that a node held. `error` says which job took its place, if one did."""
    note(broker, job, CANCELED_EVENT, {"error": error} if error else None)


def event_of(job: Job, code: int, rare: dict[str, Any] | None = None, *, left: int | None = None) -> Event:
    """Return the event of a job that is about to change or has just been added, with its rare fields."""
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
        job.terms.queue,
        size_of(job.body),
    )
    attributes = job.attributes
    if attributes is None:
        return event if rare is None else (*event, rare)
    more = {} if rare is None else rare
    if attributes.priority is not None:
        more["priority"] = attributes.priority
    meta = job.meta
    if meta:
        more["meta"] = meta
    return (*event, more)


def learn(broker: Broker, job: Job, status: int) -> None:
    """Note that another node took the job to this state."""
    if job.status != status:
        job.status = status
        job.since_ms = broker.wall_ms


def heard(job: Job, version: Any) -> None:
    """Merge the job's version from another node's message. Raise ValueError if it is not a number."""
    if type(version) is not int or not 0 <= version <= VERSION_MAX:
        raise ValueError("a version that is not a number")
    if version > job.version:
        job.version = version


def of_node(broker: Broker, code: int, reason: str) -> None:
    """Note an event of the node that concerns all its jobs (STARTED, FLUSHED)."""
    if broker.events is not None:
        broker.events.append((code, {"reason": reason}))
