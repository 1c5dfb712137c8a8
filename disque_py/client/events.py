"""The EVENTS commands: one node's log of job transitions, as lines and as typed events (docs/events.md).

A log belongs to a node and has an id. Its events are numbered without gaps. A program stores the log's id and the next
event's number together with its own results, and resumes there. So these commands concern one node: pass `node`, or use
a client of that node alone. Lines stay bytes until `events` is called, because parsing JSON costs more than all the
rest. Pure.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields
from typing import Any, Final

from disque_py.client.address import Address
from disque_py.client.protocol import Reply, text, word
from disque_py.client.request import Lane, Request
from disque_py.client.spans import Milliseconds, milliseconds, whole

# The limits of one read, by default.
COUNT: Final = 10_000
MAX_BYTES: Final = 1 << 20
# The wait of one read of a tail, before it is repeated. Longer silence means a dead node.
TAIL_BLOCK_MS: Final = 10_000


@dataclass(slots=True)
class EventLog:
    """The answer to EVENTS INFO: the log of events of a node.

    log     id of the log
    first   number of the oldest event that can be read
    next    number of the first event that can't be read yet
    bytes   size of the log on disk
    more    further fields
    """

    log: str
    first: int
    next: int
    bytes: int
    more: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(slots=True)
class Event:
    """One transition of a job, or an event of the node itself (then `job_id` is None).

    seq           number of the event in its log
    ts, since     Unix milliseconds: the moment of the event, and the moment when the job entered the state that it
                  leaves (None: not known)
    event         name of the event, such as `added` or `delivered`
    ctime         the job's creation, milliseconds times 1,000,000 plus a sequence
    queue         name of the job's queue
    from_state, to_state   the states before and after the event; None if it is about the node
    version       number of the job's changes on all nodes, this one included
    attempt       number of deliveries so far
    nacks         how often the job was queued again because of a NACK
    deliveries    how often it was queued again for another reason
    error         the reason, in events that are failures
    meta          the job's metadata
    body_size     bytes of its body
    v             version of the format
    worker        reserved, always None
    priority      a lower number is served first
    more          further fields, of newer nodes or rare events: `reason`, `body`
    """

    seq: int
    ts: int
    event: str
    job_id: str | None = None
    ctime: int | None = None
    queue: str | None = None
    version: int | None = None
    from_state: str | None = None
    to_state: str | None = None
    since: int | None = None
    attempt: int | None = None
    nacks: int | None = None
    deliveries: int | None = None
    priority: int | None = None
    error: str | None = None
    worker: str | None = None
    meta: dict[str, str] = field(default_factory=dict)
    body_size: int | None = None
    v: int = 1
    more: dict[str, Any] = field(default_factory=dict, repr=False)


_SEQ: Final = re.compile(rb'\{"seq": ?([0-9]+)')
_FIELDS: Final = frozenset(each.name for each in fields(Event)) - {"more"}


def event_of(line: bytes | str) -> Event:
    """Return the event of a line. Unknown fields are in `more`. Raises ValueError for a line that is not an event."""
    found = json.loads(line)
    if not isinstance(found, dict) or not {"seq", "ts", "event"} <= found.keys():
        raise ValueError(f"not an event: {line[:100]!r}")
    more = {name: found.pop(name) for name in list(found) if name not in _FIELDS}
    return Event(**found, more=more)


@dataclass(slots=True)
class EventLines:
    """The answer to EVENTS READ: complete lines, from event `seq` of `log` on; none if there are no more yet."""

    log: str
    seq: int
    lines: bytes

    def __len__(self) -> int:
        return self.lines.count(b"\n")

    @property
    def next(self) -> int:
        """The number of the event after these. Events that the client's user may not see have numbers, too."""
        last = _SEQ.match(self.lines, self.lines.rfind(b"\n", 0, -1) + 1)
        return self.seq if last is None else int(last[1]) + 1

    def events(self) -> list[Event]:
        """Return the lines as events."""
        return [event_of(line) for line in self.lines.splitlines()]


def events_info(*, node: Address | None = None) -> Request[EventLog]:
    """Ask for a node's event log (EVENTS INFO) → its id, and the range of events that can be read.

    node   the node whose log it is; by default the one that commands go to

    Raises NoEventLogError.
    """
    return Request((b"EVENTS", b"INFO"), _log, node=node, is_pinned=node is not None)


def events_read(
    log: str,
    seq: int,
    *,
    count: int = COUNT,
    max_bytes: int = MAX_BYTES,
    block_ms: Milliseconds | None = None,
    reader: str = "",
    node: Address | None = None,
) -> Request[EventLines]:
    """Read lines of an event log (EVENTS READ) → lines from event `seq` on, at least one if there is one.

    The node may return fewer lines although there are more. An empty answer means that there are no more.

    log         the log's id, from `events_info`
    seq         the number of the first event to read
    count       number of events at most, 10000 by default
    max_bytes   bytes of lines, approximately, at most; 1048576 by default
    block_ms    milliseconds to wait for the first one, 0 for ever; by default it does not wait
    reader      a name under which INFO shows how many events this reader is behind; none by default
    node        the node whose log it is; by default the one that commands go to

    Raises EventsTrimmedError when the event is gone, NoEventLogError when the node has another log or none.
    """
    seq = whole("seq", seq)
    argv = [b"EVENTS", b"READ", word(log), b"%d" % seq, b"COUNT", b"%d" % whole("count", count)]
    argv += (b"MAXBYTES", b"%d" % whole("max_bytes", max_bytes))
    wait_ms = None if block_ms is None else milliseconds("block_ms", block_ms)
    if wait_ms is not None:
        argv += (b"BLOCK", b"%d" % wait_ms)
    if reader:
        argv += (b"READER", word(reader))
    return Request(
        tuple(argv),
        lambda reply: EventLines(log, seq, bytes(reply or b"")),
        lane=Lane.PLAIN if wait_ms is None else Lane.OWN,
        wait_ms=wait_ms,
        node=node,
        is_pinned=node is not None,
    )


def events_seek(ms: int, *, node: Address | None = None) -> Request[int]:
    """Find the first event at or after a moment (EVENTS SEEK) → its number, or that of the next event.

    ms     the moment, in Unix milliseconds
    node   the node whose log it is; by default the one that commands go to

    Raises NoEventLogError.
    """
    return Request((b"EVENTS", b"SEEK", b"%d" % whole("ms", ms)), int, node=node, is_pinned=node is not None)


def _log(reply: Reply) -> EventLog:
    pairs = {text(name): value for name, value in zip(reply[::2], reply[1::2], strict=True)}
    return EventLog(
        log=text(pairs.pop("log-id")),
        first=int(pairs.pop("first-seq")),
        next=int(pairs.pop("next-seq")),
        bytes=int(pairs.pop("bytes")),
        more=pairs,
    )
