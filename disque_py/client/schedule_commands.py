"""Commands about schedules: jobs at the times of a cron expression, or at regular intervals. Pure. Spec SD10.

The cluster keeps a schedule and adds its jobs, so no program has to run for it. Any node takes these commands. A
schedule's jobs have the options of ADDJOB (job_options.py). `run_schedule` adds a job at once, and a second execution
would add a second job, so it is not repeated after a broken connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias, Unpack

from disque_py.client.arguments import ADD_TIMEOUT_MS, QUEUE_SET_MS, Body
from disque_py.client.job_options import Copies, JobOptions, option_words
from disque_py.client.protocol import Reply, text, word
from disque_py.client.request import Lane, Repeat, Request
from disque_py.client.spans import SECOND, Seconds, milliseconds, seconds, whole

Catchup: TypeAlias = Literal["none", "last", "all"]
Overlap: TypeAlias = Literal["allow", "skip"]

_UNITS: Final = (("ms", timedelta(milliseconds=1)), ("", SECOND))


@dataclass(slots=True)
class ScheduleInfo:
    """The answer to SCHEDULE GET.

    name          its name
    cron          the expression; None for a schedule of `every`
    every         the span between ticks; None for a cron expression
    time_zone     IANA name
    catchup       the missed ticks that get their job later: none, last or all
    overlap       skip: a tick gets no job while the job before it is not over; or allow
    queue         queue of the jobs
    body          body of the jobs
    options       options of the jobs, as words of ADDJOB
    paused        whether it is paused: no tick gets a job until it is resumed
    next          the next tick; None while it is paused, or if there is none
    last          the last tick that was recorded; None if none was
    last_id       the job of the last tick that had one
    fired         ticks with a job
    missed        ticks without one
    behind        known nodes that have not confirmed its newest state
    more          fields that this library does not know
    """

    name: str
    cron: str | None
    every: timedelta | None
    time_zone: str
    catchup: str
    overlap: str
    queue: str
    body: bytes
    options: list[str]
    paused: bool
    next: datetime | None
    last: datetime | None
    last_id: str | None
    fired: int
    missed: int
    behind: int
    more: dict[str, Any] = field(default_factory=dict, repr=False)


def schedule(
    name: str | bytes,
    queue: str | bytes,
    body: Body = b"",
    *,
    cron: str | None = None,
    every: Seconds | None = None,
    time_zone: str | None = None,
    catchup: Catchup | None = None,
    overlap: Overlap | None = None,
    replicate: Copies | None = None,
    zones: int | None = None,
    batch: str | bytes | None = None,
    **options: Unpack[JobOptions],
) -> Request[str]:
    """Add a job at each tick of a schedule (SCHEDULE SET) → OK. An older schedule of this name is replaced.

    name           name of the schedule
    queue          queue of the jobs
    body           body of the jobs; text becomes UTF-8. Empty by default
    cron           expression of five fields (minute hour day month weekday), or six with seconds in front. None by
                   default: `every` is needed
    every          seconds between two ticks, or a timedelta of at least a second. None by default: `cron` is needed
    time_zone      IANA name of the expression's time zone; by default UTC
    catchup        which missed ticks get their job later: "last", the default, "all" or "none"
    overlap        "skip": a tick gets no job while the job before it is neither over nor errored; "allow" by default
    replicate      number of copies of each job, or "quorum": a majority of the node's data centre; by default the node
                   chooses
    zones          number of zones that have a copy of each job; by default any number
    batch          name of the batch that each job belongs to; None, the default: none
    delay          seconds until a job is queued; by default it is queued immediately. Times may be a `timedelta`
    retry          seconds without an ack after which a job is queued again; by default the node chooses
    ttl            seconds after which a job is dropped; by default the node chooses
    maxlen         a tick waits while the queue has this many jobs or more; by default there is no limit
    priority       place in the queue, lower first; by default the time of creation
    meta           names and values that travel with each job; None by default
    attempts       deliveries after which a job fails for good; by default any number
    backoff        delays after failures, a `Backoff` or text; by default the node chooses

    When the call returns, the schedule is on the node's disk, and linked nodes have had up to a second to confirm it.
    Raises ReplyError for an expression, a time zone or an option that is refused, and ValueError unless exactly one of
    `cron` and `every` is given.

        client.schedule("nightly", "reports", cron="30 2 * * MON-FRI", time_zone="Europe/Berlin")
        client.schedule("heartbeat", "health", b"ping", every=timedelta(seconds=30))
    """
    if (cron is None) == (every is None):
        raise ValueError("one of cron and every is needed")
    argv = [b"SCHEDULE", b"SET", word(name)]
    if cron is not None:
        argv += (b"CRON", word(cron))
    if every is not None:
        is_span = isinstance(every, timedelta)
        argv += (b"EVERY", b"%dms" % milliseconds("every", every) if is_span else b"%d" % seconds("every", every))
    for option, value in ((b"TZ", time_zone), (b"CATCHUP", catchup), (b"OVERLAP", overlap)):
        if value is not None:
            argv += (option, word(value))
    argv += (b"QUEUE", word(queue), b"BODY", word(body))
    argv += option_words("schedule", {"replicate": replicate, "zones": zones, "batch": batch, **options})
    return Request(tuple(argv), text, lane=Lane.ADDS, wait_ms=QUEUE_SET_MS)


def schedule_info(name: str | bytes) -> Request[ScheduleInfo | None]:
    """Describe a schedule (SCHEDULE GET) → a `ScheduleInfo`; None if there is none of this name.

    name   name of the schedule
    """
    return Request((b"SCHEDULE", b"GET", word(name)), read_schedule)


def schedules(pattern: str | None = None) -> Request[list[str]]:
    """List schedules (SCHEDULE LIST) → their names, sorted.

    pattern   only names that match it: `*`, `?`, `[a-z]`; by default all names
    """
    argv = (b"SCHEDULE", b"LIST") if pattern is None else (b"SCHEDULE", b"LIST", word(pattern))
    return Request(argv, _names)


def pause_schedule(name: str | bytes) -> Request[bool]:
    """Pause a schedule: its ticks get no jobs until it is resumed (SCHEDULE PAUSE) → whether it exists.

    name   name of the schedule
    """
    return _changed(b"PAUSE", name)


def resume_schedule(name: str | bytes) -> Request[bool]:
    """Resume a schedule (SCHEDULE RESUME) → whether it exists.

    Ticks during the pause get no jobs later, and do not count as missed.

    name   name of the schedule
    """
    return _changed(b"RESUME", name)


def delete_schedule(name: str | bytes) -> Request[bool]:
    """Delete a schedule (SCHEDULE DEL) → whether it existed. Its jobs stay.

    name   name of the schedule
    """
    return _changed(b"DEL", name)


def run_schedule(name: str | bytes) -> Request[str]:
    """Add a job of a schedule now, in addition to its ticks (SCHEDULE RUN) → the job's id.

    name   name of the schedule

    Raises ReplyError if there is no such schedule, and the errors of `add_job`. It is not repeated when its answer is
    lost, unless the client was made with `retry_unsafe`.
    """
    return Request((b"SCHEDULE", b"RUN", word(name)), text, Repeat.ASK, Lane.ADDS, wait_ms=ADD_TIMEOUT_MS)


def next_ticks(name: str | bytes, count: int = 10) -> Request[list[datetime]]:
    """List the next ticks of a schedule (SCHEDULE NEXT) → moments in UTC; empty without such a schedule.

    A paused schedule has next ticks, too.

    name    name of the schedule
    count   number of ticks, at most 1000; 10 by default
    """
    return Request((b"SCHEDULE", b"NEXT", word(name), b"COUNT", b"%d" % whole("count", count)), _moments)


def _changed(form: bytes, name: str | bytes) -> Request[bool]:
    return Request((b"SCHEDULE", form, word(name)), bool, lane=Lane.ADDS, wait_ms=QUEUE_SET_MS)


def _names(reply: Reply) -> list[str]:
    return [text(name) for name in reply]


def _moment(unix_ms: int | None) -> datetime | None:
    return (
        None
        if unix_ms is None
        else datetime.fromtimestamp(unix_ms // 1000, UTC) + timedelta(milliseconds=unix_ms % 1000)
    )


def _moments(reply: Reply) -> list[datetime]:
    return [moment for moment in map(_moment, reply) if moment is not None]


def _every(shown: bytes | None) -> timedelta | None:
    if shown is None:
        return None
    value = text(shown)
    unit = next(span for suffix, span in _UNITS if value.endswith(suffix))
    return int(value.removesuffix("ms")) * unit


def read_schedule(reply: Reply) -> ScheduleInfo | None:
    """Return SCHEDULE GET's answer; None for a name that has no schedule."""
    if reply is None:
        return None
    known: Mapping[str, Any] = {text(reply[at]): reply[at + 1] for at in range(0, len(reply), 2)}
    pairs = dict(known)
    cron, last_id = pairs.pop("cron"), pairs.pop("last-id")
    return ScheduleInfo(
        name=text(pairs.pop("name")),
        cron=None if cron is None else text(cron),
        every=_every(pairs.pop("every")),
        time_zone=text(pairs.pop("tz")),
        catchup=text(pairs.pop("catchup")),
        overlap=text(pairs.pop("overlap")),
        queue=text(pairs.pop("queue")),
        body=pairs.pop("body"),
        options=_names(pairs.pop("options")),
        paused=bool(pairs.pop("paused")),
        next=_moment(pairs.pop("next")),
        last=_moment(pairs.pop("last")),
        last_id=None if last_id is None else text(last_id),
        fired=pairs.pop("fired"),
        missed=pairs.pop("missed"),
        behind=pairs.pop("behind"),
        more=pairs,
    )
