"""The history of one event log: all events that its node appended, and all events that readers got.

The world sees an appended event before the disk does. So it knows which events a restart must find again. After a kill
these are all events that were given to the system. After a power cut they are all events that a reader could have seen.
Events that a cut took are removed here, too. Other events get their numbers, so no reader may have seen the lost ones.
"""

from __future__ import annotations

from typing import Any, Final

from disque_py.core.event_lines import Lines
from disque_py.event_format import DELIVERED, FIELDS_OF_ADDED, FIELDS_OF_NODE, VERSION_FIRST
from disque_py.simulator.oracle import RuleBrokenError

DELIVERED_ATTEMPT_AT: Final = 4


def job_of(event: Any) -> bytes:
    """Return the job of an event; empty for an event of the node."""
    job_id: bytes = event[1] if len(event) > FIELDS_OF_NODE else b""
    return job_id


def version_of(event: Any) -> int:
    """Return the version of the job in a job's event."""
    version: int = event[2] if len(event) > FIELDS_OF_ADDED else VERSION_FIRST
    return version


class Written:
    """The history of one log.

    node        id of the node that began it
    first_seq   number of the first event that the world has seen; earlier ones are unknown
    events      the events from there on, in order
    ends, moments   for each event: the position behind it, and its node's wall clock
    lost_of     jobs whose events were lost with a process; a journal may have kept these transitions
    durable     number of the first event that was not known to be on disk when the process ended
    safe        number of the first event that may have been lost with the process
    has_hole    events were noted while the log was closed, so no process may continue it
    told        the highest `next` of a reply: readers were told that all events below it can be read
    read        lines that readers got, by number
    """

    __slots__ = (
        "_lines", "by_job", "durable", "ends", "events", "first_seq", "has_hole", "log_id", "lost_of", "moments",
        "node", "read", "safe", "told",
    )  # fmt: skip

    def __init__(self, log_id: str, first_seq: int, node: bytes = b"") -> None:
        self.log_id = log_id
        self.node = node
        self.first_seq = first_seq
        self.events: list[Any] = []
        self.ends: list[int] = []
        self.moments: list[int] = []
        self.by_job: dict[bytes, list[int]] = {}
        self.lost_of: dict[bytes, None] = {}
        self.durable = self.safe = self.told = first_seq
        self.has_hole = False
        self.read: dict[int, bytes] = {}
        self._lines = Lines()

    @property
    def next_seq(self) -> int:
        """Return the number of the next event."""
        return self.first_seq + len(self.events)

    def append(self, seq: int, events: list[Any], end: int, wall_ms: int) -> None:
        """Note events that a node appends to its log. `end` is the position behind them."""
        if seq != self.next_seq:
            raise RuleBrokenError(
                "events have numbers without gaps", f"{seq} instead of {self.next_seq} in {self.log_id}"
            )
        self.events += events
        self.ends += [end] * len(events)
        self.moments += [wall_ms] * len(events)
        by_job = self.by_job
        for event in events:
            job_id = job_of(event)
            if job_id:
                known = by_job.get(job_id)
                if known is None:
                    by_job[job_id] = [seq]
                else:
                    known.append(seq)
            seq += 1

    def cut(self, next_seq: int) -> int:
        """Drop the events from `next_seq` on, because a process continues the log there. Return their number.

        Raises RuleBrokenError if these events must not be lost.
        """
        if next_seq < self.safe or next_seq < self.told:
            raise RuleBrokenError(
                "events stay",
                f"{self.log_id} ends at {next_seq}; readers were told of {self.told}, safe were {self.safe}",
            )
        if next_seq > self.next_seq:
            raise RuleBrokenError(
                "events come from somewhere", f"{self.log_id} ends at {next_seq}, {self.next_seq} were written"
            )
        lost = self.next_seq - next_seq
        at = next_seq - self.first_seq
        for event in self.events[at:]:
            job_id = job_of(event)
            if job_id:
                self.by_job[job_id].pop()
                self.lost_of[job_id] = None
        del self.events[at:], self.moments[at:]
        self.ends = [0] * at  # All of these are on disk. The next process counts positions from 0 again.
        return lost

    def last_of(self, job_id: bytes, codes: tuple[int, ...]) -> int:
        """Return the number of the last event of this job with one of the codes; 0: there is none."""
        for seq in reversed(self.by_job.get(job_id, ())):
            if self.events[seq - self.first_seq][0] in codes:
                return seq
        return 0

    def delivery_of(self, job_id: bytes, since: int, attempt: int) -> int:
        """Return the number of the event of a delivery: of this attempt, or with 0 of the first one since the request.

        The job may have been delivered again before the reply left. If there is no such event, return the number of the
        last delivery; 0: none.
        """
        events, first_seq = self.events, self.first_seq
        seqs = [seq for seq in self.by_job.get(job_id, ()) if events[seq - first_seq][0] == DELIVERED]
        if attempt:
            meant = [seq for seq in seqs if events[seq - first_seq][DELIVERED_ATTEMPT_AT] == attempt][-1:]
        else:
            meant = [seq for seq in seqs if seq >= since][:1]
        return (meant or seqs[-1:] or [0])[0]

    def end_of(self, seq: int) -> int:
        """Return the position behind this event."""
        return self.ends[seq - self.first_seq]

    def check_line(self, seq: int, line: bytes) -> None:
        """Check and note the line that a reader got for this event. Raises RuleBrokenError."""
        known = self.read.setdefault(seq, line)
        if known != line:
            raise RuleBrokenError("a number means one event", f"{seq} in {self.log_id}: {known!r} and {line!r}")
        at = seq - self.first_seq
        if at < 0:
            return
        if at >= len(self.events):
            raise RuleBrokenError("events come from somewhere", f"no node wrote {seq} in {self.log_id}: {line!r}")
        [right] = self._lines.of(seq, self.moments[at], [self.events[at]])
        if right.encode() != line:
            raise RuleBrokenError("events are read as they were written", f"{line!r}, not {right!r}")
