"""A machine's event log on its disk, from one process to the next.

The folder survives the process. Each run has its own SimDisk and its own EventLogService, which is the server's code.
As in the server (server/node_lifecycle.py), the node listens to clients and reads its journal when the log is open, or
when the disk has had START_MS to open it.

All events that the node gives to its log are also recorded in event_log_history.py. The checks here answer three
questions. When a client is told of a transition, is its event in the log as safely as docs/events.md promises? When a
process begins, does the log continue where it should? At any time, do a node's jobs agree with its events?
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
# More than the largest log (plan.py), so that only a fault makes this disk full.
CAPACITY_BYTES: Final = 2 << 30
# A disk that has recovered has done all its work after this time.
WRITTEN_MS: Final = 1_000
# A node does not wait longer for a disk (server/event_storage.py).
START_MS: Final = 3_000
# After one of these events, a node has forgotten the job.
GONE_CODES: Final = (DELETED, DELETED_COPY, DROPPED, EXPIRED_EVENT, LOST)


class EventLogStorage:
    """A machine's events, from one process to the next.

    folder       the content of the disk
    disk         the disk of this run
    service      the server's event log service of this run
    logs         all logs so far, by id
    current      the log that is being written, or was written last
    is_whole     this run has always had a log since it began to listen
    health       the health of the disk
    had_trouble  the disk was slow, full or failing, and no event was written since, so the log may be closed
    had_gap      the disk had a fault at some time, so events may be in no log
    was_off      events were switched off after the log was begun
    lost         number of events that power cuts took
    missed       number of events that are in no log, as the services counted
    """

    def __init__(self, machine: Machine, rng: Random) -> None:
        self.machine = machine
        self.rng = rng
        self.folder = SimFolder(rng, CAPACITY_BYTES)
        # Some systems can map files into memory, others can't.
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
        """Begin a process. Within a turn. `listen` of its machine is called when the node may serve clients."""
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
        """Do nothing: the log is closed for good, and there is no lock to release here."""

    def _notice(self, line: str) -> None:
        self.machine.world.trace.write(self.machine.world.now_ms, f"{self.machine.name}  {line}")

    def _opened(self) -> None:
        """Begin to listen: the log is open, or failed, or takes too long. Only the first of these calls counts."""
        if not self._is_opened:
            self._is_opened = True
            self.machine.open()
            self.is_whole = self.service.state == ON
            self.machine.listen()

    def started(self, *, has_journal: bool) -> None:
        """Note that the node has read its jobs, or has no journal."""
        self.service.started("journal loaded" if has_journal else "memory lost")

    def close(self, done: Callable[[], None]) -> None:
        """Close the log, because the process ends in an orderly way."""
        self.service.close(done)

    def died(self, *, power: bool) -> None:
        """Note that the process is gone. For a power cut this is called a second time."""
        self.missed += self.service.missed
        disk = getattr(self, "disk", None)
        is_busy = disk is not None and any(lane.tasks for lane in disk.lanes)
        if disk is not None:
            disk.crash()
        current = self.current
        if current is not None:
            if is_busy or (power and not self.health.is_well(self.machine.world.now_ms - WRITTEN_MS)):
                current.has_hole = False  # The note that it was closed may not have reached the disk.
            log = self._watched
            if log is not None:
                current.durable = log.durable_seq
                # With `always` each write is durable, except those from the moment before `always` came into force.
                current.safe = log.durable_seq if power or log.error else log.written_seq
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
        """Note the log in use. A turn is about to end, and its events are not in the log yet."""
        service = self.service
        if service.state != ON:
            self.is_whole = False
            self.was_off |= service.state == OFF
            if service.state == CLOSED and not self.had_trouble:
                raise RuleBrokenError(
                    "a disk in health keeps its log",
                    f"{self.machine.name} has no log: {service.trouble}",
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
            self.had_trouble = False  # The log is written and the disk is well, so no earlier fault can close it now.

    def _meet(self, log: EventLog) -> None:
        """Note that a new log is in use, or that a new process continues a log."""
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
                    "a log goes on", f"{self.machine.name} begins a new log after {before.log_id}", self.machine.name
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

    def forget_versions(self) -> None:
        """Expect any version of each job next, because the journal that is loaded again lacks progress."""
        self._versions = {}

    def forget_version(self, job_id: bytes) -> None:
        """Expect any version of a job whose creation failed. No event says so, and it may come again from elsewhere."""
        self._versions.pop(job_id, None)

    def _noted(self, seq: int, events: list[Any], end: int) -> None:
        """Note events that the node gives to its log."""
        current, log = self.current, self._watched
        assert current is not None
        assert log is not None
        current.append(seq, events, end, log.wall_ms)
        find = self.machine.broker.find
        has_forgotten = any(machine.forgot for machine in self.machine.world.machines.values())
        for event in events:
            job_id = job_of(event)
            if job_id:
                version, job = version_of(event), find(job_id)
                known, known_job = self._versions.get(job_id, (0, None))
                # If the object is another one, the job was over here and came again from a node that knows less. At
                # the end of a job there is no object to compare; the job may have come again without an event.
                is_again = job is not None and job is not known_job
                is_end = job is None and version == known and event[0] in GONE_CODES
                if version <= known and not is_again and not is_end:
                    raise RuleBrokenError(
                        "versions rise", f"{event!r} on {self.machine.name}, which had {known}", job_id
                    )
                if event[0] in GONE_CODES or (has_forgotten and event[0] == ACKED):
                    # It may come again from a node that knows less. Either it was lost here although the other node
                    # took it over, or it is done and a forgotten node, which counts as confirmed, kept it.
                    self._versions.pop(job_id, None)
                else:
                    self._versions[job_id] = version, job or known_job
            elif event[0] == FLUSHED:
                self._versions.clear()  # Jobs that come back now come from nodes that know less.

    # -- what must hold ----------------------------------------------------------------------------

    def check_told(self, job_id: bytes, codes: tuple[int, ...], what: str) -> None:
        """Check that an event is in the log, as safely as the policy promises, when a client is told of it."""
        current = self._writable()
        if current is not None:
            self._check(current, current.last_of(job_id, codes), job_id, what)

    def check_delivered(self, job_id: bytes, since: int, attempt: int) -> None:
        """Check the event of a delivery: of this attempt, or with 0 any attempt since the request (`since`)."""
        current = self._writable()
        if current is not None:
            self._check(current, current.delivery_of(job_id, since, attempt), job_id, "delivery")

    def next_seq(self) -> int:
        """Return the number of the next event, if there is a log."""
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
            return  # The event is older, and no client was told then. A token is answered from the journal's record.
        if not seq:
            raise RuleBrokenError(
                "every transition is in the log", f"{what} of {job_id!r} by {self.machine.name}, no event", job_id
            )
        commit_position = self.machine.driver.commit_position
        if commit_position is None or not commit_position.must_wait():
            return  # The journal has a fault. Replies that are still given then don't wait for the log.
        if current.end_of(seq) > log.written:
            raise RuleBrokenError(
                "no promise before its event",
                f"{what} of {job_id!r} by {self.machine.name}: event {seq} ends at {current.end_of(seq)},"
                f" written up to {log.written}",
                job_id,
            )

    def check_states(self) -> None:
        """Check that each queued job is pending according to its events."""
        machine = self.machine
        if not self.is_whole or machine.broker.is_loading or self.service.state == OPENING:
            return
        for shard in machine.broker.shards:
            for job in shard.values():
                if job.state == QUEUED and job.status and job.status != PENDING:
                    raise RuleBrokenError(
                        "events tell the state", f"{job!r} of {machine.name} is queued, but {job.status}", job.id
                    )
