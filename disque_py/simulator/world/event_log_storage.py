"""A machine's event log on its disk, from one process to the next.

The folder outlives the process. Each run has a SimDisk and an EventLogService of its own; the latter is the server's.
As in the server (server/node_lifecycle.py), the node listens to clients and reads its journal when the log is open, or
when the disk has had START_MS to open it.

All that the node gives its log is noted in event_log_history.py, too. The checks here answer three questions. When a
client is told something, is that in the log as safely as docs/events.md promises? When a process begins, does the log
go on where it may? At any time, do a node's jobs agree with its events?
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

from disque_py.core.job import QUEUED
from disque_py.event_format import (
    ACKED,
    DELETED,
    DELETED_COPY,
    DROPPED,
    EXPIRED_EVENT,
    FIELDS_OF_CHANGE,
    FLUSHED,
    LOST,
    PENDING,
)
from disque_py.simulator.checks.event_log_history import Written, job_of, version_of
from disque_py.simulator.faults.disks import Health
from disque_py.simulator.oracle import RuleBrokenError
from disque_py.simulator.world.disk import SimDisk
from disque_py.simulator.world.folder import SimFolder
from disque_py.storage.event_log_service import CLOSED, OFF, ON, OPENING, EventLogService
from persistence.event_reading import read_piece, segment_of
from persistence.event_records import decode_events

if TYPE_CHECKING:
    from collections.abc import Callable

    from disque_py.core.job import Job
    from disque_py.simulator.world.machine import Machine
    from persistence.disk import Disk
    from persistence.event_log import EventLog

# Small, so that segments are closed and dropped in a run of seconds.
SEGMENT_BYTES: Final = 20_000
# More than a log may ever be (plan.py): only a fault makes this disk full.
CAPACITY_BYTES: Final = 2 << 30
# server/event_storage.py: the node does not wait longer for a disk.
# A disk that has recovered has done all its work after so long.
WRITTEN_MS: Final = 1_000
START_MS: Final = 3_000
# So many fields of an event are compared with the disk; the rest is a dict that comes back as another type.
# After these a node has forgotten the job.
GONE_CODES: Final = (DELETED, DELETED_COPY, DROPPED, EXPIRED_EVENT, LOST)


class EventLogStorage:
    """A machine's events; see the module.

    folder       the content of the disk
    disk         the disk of this run
    service      the server's event log service of this run
    logs         all logs there were, by id; `current`: the one that is written, or was last
    is_whole     this run has had a log since it began to listen
    health       the health of the disk
    had_trouble  the disk was slow, full or failing, and no log has been written since: it may have been closed
    had_gap      the disk was in trouble once, so events may be in no log
    was_off      events were switched off since the log was begun
    lost         events that power cuts took
    missed       events that are in no log, as the services counted
    """

    def __init__(self, machine: Machine, rng: Random) -> None:
        self.machine = machine
        self.rng = rng
        self.folder = SimFolder(rng, CAPACITY_BYTES)
        # Some systems have files as memory, some have not.
        self.folder.has_windows = ord(machine.name[0]) % 3 != 0
        self.disk: SimDisk
        self.service: EventLogService
        self.logs: dict[str, Written] = {}
        self.current: Written | None = None
        self.is_whole = False
        self.health = Health()
        self.had_trouble = False
        self.had_gap = False
        self.was_off = False
        self.lost = 0
        self.missed = 0
        self._watched: EventLog | None = None
        self._versions: dict[bytes, tuple[int, Job | None]] = {}
        self._is_opened = False
        self._is_ended = True

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """The process begins, within a turn; its machine hears `listen` when it may serve."""
        machine = self.machine
        self.is_whole = False
        self._watched = None
        self._versions = {}
        self._is_opened = self._is_ended = False
        self.service = EventLogService(
            machine.driver,
            self._open,
            self._closed,
            lambda: bool(self.folder.names()),
            self._notice,
            segment_bytes=SEGMENT_BYTES,
        )
        run = machine.runs
        machine.world.later(START_MS, machine.aside, self._opened, run)
        self.service.start(self._opened)

    def _open(self) -> Disk:
        machine = self.machine
        run = machine.runs
        self.disk = SimDisk(
            self.folder, lambda span_ms, call: machine.world.later(span_ms, machine.aside, call, run), self.rng
        )
        return self.disk

    def _closed(self) -> None:
        """The log is closed for good; nothing is locked here."""

    def _notice(self, line: str) -> None:
        self.machine.world.trace.write(self.machine.world.now_ms, f"{self.machine.name}  {line}")

    def _opened(self) -> None:
        """The log is open, or can't be, or takes too long; the first of these counts."""
        if not self._is_opened:
            self._is_opened = True
            self.machine.open()
            self.is_whole = self.service.state == ON
            self.machine.listen()

    def started(self, *, has_journal: bool) -> None:
        """The node has its jobs, or knows that it has none."""
        self.service.started("journal loaded" if has_journal else "memory lost")

    def close(self, done: Callable[[], None]) -> None:
        """The process ends in order."""
        self.service.close(done)

    def died(self, *, power: bool) -> None:
        """The process is gone, or, once more, its machine has lost its power."""
        self.missed += self.service.missed
        disk = getattr(self, "disk", None)
        is_busy = disk is not None and any(lane.tasks for lane in disk.lanes)
        if disk is not None:
            disk.crash()
        current = self.current
        if current is not None:
            if is_busy or (power and not self.health.is_well(self.machine.world.now_ms - WRITTEN_MS)):
                current.has_hole = False  # That it was closed may not have got to the disk.
            log = self._watched
            if log is not None:
                is_written = not log.error and (not power or log.syncs_each)
                current.durable = log.durable_seq
                current.safe = log.written_seq if is_written else log.durable_seq
            elif power:
                current.safe = current.durable
        self._watched = None
        self.is_whole = False
        if power:
            self.folder.cut_power()
        else:
            self.folder.kill()

    # -- what is written ---------------------------------------------------------------------------

    def look(self) -> None:
        """A turn is about to end, its events are not in the log yet: there may be another log than before."""
        service = self.service
        if service.state != ON:
            self.is_whole = False
            self.was_off |= service.state == OFF
            if service.state == CLOSED and not self.had_trouble:
                raise RuleBrokenError(
                    "a disk in health keeps its log",
                    f"{self.machine.name} has none: {service.trouble}",
                    self.machine.name,
                )
            if self.current is not None and service.state == CLOSED:
                events = self.machine.broker.events
                self.current.has_hole |= events is not None and events.count > 0
        log = service.log
        if log is not None and log is not self._watched:
            self._meet(log)
        elif log is None:
            self._watched = None
        elif service.state == ON and self.had_trouble and self.health.is_well(self.machine.world.now_ms - WRITTEN_MS):
            self.had_trouble = False  # It is written, and the disk is well: what closes it now is no fault.

    def _meet(self, log: EventLog) -> None:
        """Another log is written from now on, or this one again, by another process."""
        known = self.logs.get(log.log_id)
        if known is not None:
            if known.has_hole:
                raise RuleBrokenError(
                    "a log goes on without a hole",
                    f"{self.machine.name} goes on with {known.log_id}",
                    self.machine.name,
                )
            self.lost += known.cut(log.next_seq)
            self._compare(known, log)
        else:
            before = self.current
            may_end = self.had_trouble or self.was_off or self._watched is not None
            # A node continues its own log; after CLUSTER RESET HARD it is another node.
            may_end |= before is not None and before.node != self.machine.membership.table.me.id
            if before is not None and before.safe > before.first_seq and not may_end:
                raise RuleBrokenError(
                    "a log goes on", f"{self.machine.name} begins another log than {before.log_id}", self.machine.name
                )
            known = self.logs[log.log_id] = Written(log.log_id, log.next_seq, self.machine.membership.table.me.id)
            self.was_off = False
        self.current = known
        self._watched = log
        log.watch = self._noted

    def _compare(self, known: Written, log: EventLog) -> None:
        """Check that the disk has the events that were written."""
        folder = self.folder.copy(self.machine.world.stream("replay"))
        seq = log.first_seq
        while seq < log.next_seq:
            segment = segment_of(log.segments, seq)
            piece = read_piece(folder, segment, seq, segment.durable_end)
            for block in piece.blocks:
                for event in decode_events(block.payload):
                    right = known.events[seq - known.first_seq] if seq >= known.first_seq else event
                    if (
                        tuple(event)[:FIELDS_OF_CHANGE] != tuple(right)[:FIELDS_OF_CHANGE]
                        and len(event) < FIELDS_OF_CHANGE + 1
                    ):
                        raise RuleBrokenError(
                            "events are read as they were written",
                            f"{seq} on the disk of {self.machine.name} is {event!r}, not {right!r}",
                        )
                    seq += 1

    def _noted(self, seq: int, events: list[Any], end: int) -> None:
        """The node gives its log these."""
        current, log = self.current, self._watched
        assert current is not None
        assert log is not None
        current.append(seq, events, end, log.wall_ms)
        versions = self._versions
        find = self.machine.broker.find
        has_forgotten = any(machine.forgot for machine in self.machine.world.machines.values())
        for event in events:
            job_id = job_of(event)
            if job_id:
                version, job = version_of(event), find(job_id)
                known, known_job = versions.get(job_id, (0, None))
                # Another object: the job was over here, and came again from a node that knows less. At the end of a
                # job there is no object to compare; it may have come again without an event.
                is_again = job is not None and job is not known_job
                is_end = job is None and version == known and event[0] in GONE_CODES
                if version <= known and not is_again and not is_end:
                    raise RuleBrokenError(
                        "versions rise", f"{event!r} on {self.machine.name}, which had {known}", job_id
                    )
                if event[0] in GONE_CODES or (has_forgotten and event[0] == ACKED):
                    # It may come again from a node that knows less: lost here, and yet taken over there; or done, and
                    # kept by a node that was forgotten, which counts as confirmed.
                    versions.pop(job_id, None)
                else:
                    versions[job_id] = version, job or known_job
            elif event[0] == FLUSHED:
                versions.clear()  # Jobs that come back come from nodes that know less.

    # -- what must hold ----------------------------------------------------------------------------

    def check_told(self, job_id: bytes, codes: tuple[int, ...], what: str) -> None:
        """Check that an event is in the log, as safely as the policy says, when a client is told of it."""
        current = self._writable()
        if current is not None:
            self._check(current, current.last_of(job_id, codes), job_id, what)

    def check_delivered(self, job_id: bytes, since: int, attempt: int) -> None:
        """Check the event of a delivery: of this attempt, or (0) one since the client asked (`next_seq`)."""
        current = self._writable()
        if current is not None:
            self._check(current, current.delivery_of(job_id, since, attempt), job_id, "delivery")

    def next_seq(self) -> int:
        """Number of the next event, as far as there is a log."""
        return 0 if self.current is None else self.current.next_seq

    def _writable(self) -> Written | None:
        """Return the log that a client may count on when it is told something."""
        log = self.service.log
        if not self.is_whole or log is None or log.is_closed or log is not self._watched:
            return None
        return self.current

    def _check(self, current: Written, seq: int, job_id: bytes, what: str) -> None:
        log = self._watched
        assert log is not None
        if not seq and job_id in current.lost_of:
            return  # No client was told then; the journal had its record already, and a token is answered from that.
        if not seq:
            raise RuleBrokenError(
                "every transition is in the log", f"{what} of {job_id!r} by {self.machine.name}, no event", job_id
            )
        commit_position = self.machine.driver.commit_position
        if commit_position is None or not commit_position.must_wait():
            return  # The journal is in trouble: what is still answered then waits for nothing.
        if current.end_of(seq) > log.written:
            raise RuleBrokenError(
                "no promise before its event",
                f"{what} of {job_id!r} by {self.machine.name}: event {seq} ends at {current.end_of(seq)},"
                f" written up to {log.written}",
                job_id,
            )

    def check_states(self) -> None:
        """Check that the events say of each waiting job that it is pending."""
        machine = self.machine
        if not self.is_whole or machine.broker.is_loading or self.service.state == OPENING:
            return
        for shard in machine.broker.shards:
            for job in shard.values():
                if job.state == QUEUED and job.status and job.status != PENDING:
                    raise RuleBrokenError(
                        "events tell the state", f"{job!r} of {machine.name} is queued, and {job.status}", job.id
                    )
