"""The history of one event log: all that its node gave it, and all that readers were told.

The world sees what a node appends before the disk does, so it knows what a restart has to find again. After a kill that
is all that was handed to the system; after a power cut it is all that a reader could have seen. Events that a cut took
are cut off here, too. Other events get their numbers, and no reader may ever have seen the lost ones.
"""

from __future__ import annotations

from typing import Any, Final

from disque_py.core.event_lines import Lines
from disque_py.event_format import DELIVERED, FIELDS_OF_ADDED, FIELDS_OF_NODE, VERSION_FIRST
from disque_py.simulator.oracle import RuleBrokenError

DELIVERED_ATTEMPT_AT: Final = 4


def job_of(event: Any) -> bytes:
    """The job an event is of; empty: the node's."""
    job_id: bytes = event[1] if len(event) > FIELDS_OF_NODE else b""
    return job_id


def version_of(event: Any) -> int:
    """The version of the job that an event of a job tells."""
    version: int = event[2] if len(event) > FIELDS_OF_ADDED else VERSION_FIRST
    return version


class Written:
    """One log; see the module.

    node        id of the node that began it
    first_seq   number of the first event the world has seen; earlier ones are unknown
    events      from there on, in order; `ends` has the position behind each, `moments` its node's wall clock
    lost_of     jobs of which events went with a process; a journal may have kept what they told of
    durable     number of the first event that was not known to be on disk, when its process ended
    safe        number of the first event that the end of its process may have cost
    has_hole    events were noted while it was closed: no process may go on with it
    told        the highest number below which readers were told that all can be read
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
        """Number of the next event."""
        return self.first_seq + len(self.events)

    def append(self, seq: int, events: list[Any], end: int, wall_ms: int) -> None:
        """A node gives its log these; `end` is the position behind them."""
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
        """A process goes on with it; what begins here is gone. How many that were. RuleBrokenError if it may not be."""
        if next_seq < self.safe or next_seq < self.told:
            raise RuleBrokenError(
                "events stay",
                f"{self.log_id} ends at {next_seq}; readers were told of {self.told}, {self.safe} were safe",
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
        self.ends = [0] * at  # It was read back. The next process counts positions from 0 again.
        return lost

    def last_of(self, job_id: bytes, codes: tuple[int, ...]) -> int:
        """Number of the last event of this job that has one of the codes; 0: there is none."""
        for seq in reversed(self.by_job.get(job_id, ())):
            if self.events[seq - self.first_seq][0] in codes:
                return seq
        return 0

    def delivery_of(self, job_id: bytes, since: int, attempt: int) -> int:
        """Number of the delivery that a client was told of: this attempt, or (0) the first one since it asked.

        It may have been delivered again before the answer left. Else the last one there was; 0: none.
        """
        events, first_seq = self.events, self.first_seq
        seqs = [seq for seq in self.by_job.get(job_id, ()) if events[seq - first_seq][0] == DELIVERED]
        if attempt:
            meant = [seq for seq in seqs if events[seq - first_seq][DELIVERED_ATTEMPT_AT] == attempt][-1:]
        else:
            meant = [seq for seq in seqs if seq >= since][:1]
        return (meant or seqs[-1:] or [0])[0]

    def end_of(self, seq: int) -> int:
        """The position behind this event."""
        return self.ends[seq - self.first_seq]

    def check_line(self, seq: int, line: bytes) -> None:
        """A reader got this line for this event; RuleBrokenError."""
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
