"""A machine's journal on its disk, from one process to the next.

The folder survives the process. Each run has its own SimDisk and its own JournalService, which is the server's code. A
process that dies leaves all that it had written. A power cut leaves all that was synced, perhaps with a torn tail
(folder.py).

This module records for every id when its base was recorded. So the checks know the age of a record that a power cut
takes. `replay` reads a copy of the folder, to compare the jobs that a restart would find with the jobs in memory.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

from disque_py.core import journaling
from disque_py.core.broker import Broker
from disque_py.core.job import WAIT_REPL, Job
from disque_py.core.restoring import Restoring
from disque_py.core.spilled import Spilled
from disque_py.simulator.checks.durability import DurabilityChecker
from disque_py.simulator.faults.disks import Health
from disque_py.simulator.oracle import RuleBrokenError
from disque_py.simulator.world.disk import SimDisk
from disque_py.simulator.world.folder import SimFolder
from disque_py.storage.journal_service import JournalService
from persistence.journal import ALWAYS, EVERYSEC, NO
from persistence.layouts import ID_AT, IS_DELIVERED, IS_GIVEN, IS_LEASED, IS_QUEUED
from persistence.records import JOB, STATE
from persistence.recovery import DamagedJournalError, Recovery

if TYPE_CHECKING:
    from collections.abc import Callable

    from disque_py.simulator.world.machine import Machine
    from persistence.disk import Disk

# Small, so that segments are closed, rewritten and dropped in a run of seconds.
SEGMENT_BYTES: Final = 40_000
# The limit of spec P4, plus some time for the disk and a turn.
LOST_MS_MAX: Final = 2_300
# A journal that failed tries again every second. The records that gathered in between take a moment.
RECOVERED_MS: Final = 3_000
RESERVE_BYTES: Final = 64 << 10
# Room for a journal that grows until its automatic rewrite (`auto-aof-rewrite-min-size`, 64 MiB), for the rewrite, and
# for the headers of many small files, each of which names all files before it. So only a fault makes this disk full.
CAPACITY_BYTES: Final = 256 << 20
POLICIES: Final = (ALWAYS, EVERYSEC, NO)  # The strongest first.
# The beginning of a refusal to start because of the disk, not because of the data on it (storage/loading.py).
DISK_ERROR: Final = "Can't read the journal: [Errno"


class JournalStorage:
    """A machine's journal, from one process to the next.

    folder       the content of the disk
    disk         the disk of this run
    journal_service   the server's journal service of this run
    recorded     id -> (the job, when its first base was recorded, or for an earlier run: when it was read)
    noted        ids for which this run has recorded anything
    durability   the checker of its promises; None until the journal is read
    is_loaded    this run has read the journal
    health       the health of the disk
    had_failure  the disk was full or failing. With everysec and no, acks were only in memory until the next write
    is_rotten    a bit of the journal was flipped, so a process that begins may find damage
    is_ill       the disk fails now, so a process that begins may end with an error of the disk
    had_policy   the policies that CONFIG SET gave to this process
    has_refused  this run's process ended with such an error; the end of the disk fault starts another process
    """

    def __init__(self, machine: Machine, rng: Random) -> None:
        self.machine = machine
        self.rng = rng
        self.folder = SimFolder(rng, CAPACITY_BYTES)
        # Some systems map files into memory. Other machines than in event_log_storage.py do so.
        self.folder.has_windows = ord(machine.name[0]) % 3 != 1
        self.disk: SimDisk
        self.journal_service: JournalService
        self.recorded: dict[bytes, tuple[Job | None, int]] = {}
        self.noted: dict[bytes, None] = {}
        self.is_loaded = False
        self.durability: DurabilityChecker | None = None
        self.health = Health()
        self.had_failure = False
        self.is_ill = False
        self.is_rotten = False
        self.has_refused = False
        self.had_policy: dict[str, None] = {}

    @property
    def policy(self) -> str:
        """Return the weakest `appendfsync` that this process has had."""
        had = [str(self.machine.settings["appendfsync"]), *self.had_policy]
        return max(had, key=POLICIES.index)

    def may_lose(self, *, power: bool) -> bool:
        """Return whether the end of this process may lose records that a client or node relies on."""
        if self.policy == ALWAYS:
            return False
        return power or (self.had_failure and self.is_excused())

    def is_excused(self) -> bool:
        """Return whether the disk has a fault, or had one a moment ago. Then the journal may not be written yet."""
        return not self.health.is_well(self.machine.world.now_ms - RECOVERED_MS)

    def lost_ms_max(self, at_ms: int) -> int:
        """Return the highest age of a record that a power cut may lose at this moment (spec P4)."""
        is_judged = self.policy == EVERYSEC and self.health.is_well(at_ms - LOST_MS_MAX - RECOVERED_MS)
        return LOST_MS_MAX if is_judged else 1 << 60

    # -- life --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a process. `load` follows soon."""
        self.recorded = {}
        self.noted = {}
        self.durability = None
        self.is_loaded = False
        self.has_refused = False
        self.had_policy = {}

    def load(self) -> None:
        """Read the journal before the node serves clients. Within a turn."""
        machine = self.machine
        self.journal_service = JournalService(
            machine.driver,
            self._open,
            self._closed,
            self._notice,
            segment_bytes=SEGMENT_BYTES,
            reserve_bytes=RESERVE_BYTES,
        )
        self.journal_service.start(self._ready, self._failed)

    def _open(self) -> Disk:
        run = self.machine.runs
        self.disk = SimDisk(self.folder, lambda span_ms, call: self._later(span_ms, call, run), self.rng)
        return self.disk

    def _later(self, span_ms: int, call: Callable[[], None], run: int) -> None:
        self.machine.world.later(span_ms, self.machine.aside, call, run)

    def _closed(self) -> None:
        """Do nothing: the journal is closed for good, and there is no lock to release here."""

    def _ready(self) -> None:
        self.is_loaded = True
        self.read_back()
        self.machine.loaded(has_journal=self.journal_service.last_load is not None)
        self.machine.world.watcher.on_loaded(self.machine)

    def reload(self, done: Callable[[OSError | None], None]) -> None:
        """Load all jobs again, for DEBUG LOADAOF. If the journal can't be read, the jobs in memory stay."""
        machine = self.machine
        machine.world.watcher.on_reload(machine)
        if machine.event_logs is not None:
            machine.event_logs.forget_versions()
        self.is_loaded = False
        run = machine.runs

        def over(failure: OSError | None) -> None:
            if machine.runs == run and machine.is_up:
                self.is_loaded = True
                if failure is None:
                    self.noted = {}
                    self.read_back()
                machine.world.watcher.on_loaded(machine)
            done(failure)

        self.journal_service.reload(over)

    def read_back(self) -> None:
        """Note that memory has the jobs of the journal."""
        now_ms = self.machine.world.now_ms
        self.recorded = {job_id: (job, now_ms) for shard in self.machine.broker.shards for job_id, job in shard.items()}
        self._watch()

    def _failed(self, reason: str) -> None:
        """Note that the process could not start.

        Damage is excused if a bit rotted, and an error of the disk while the disk has errors.
        """
        is_excused = self.is_ill if reason.startswith(DISK_ERROR) else self.is_rotten
        if not is_excused:
            raise RuleBrokenError("a node can read its journal", f"{self.machine.name}: {reason}", self.machine.name)
        self._notice(f"refuses to start: {reason}")
        self.has_refused = True
        # The current turn ends first.
        self.machine.world.later(0, self.machine.end_run, self.machine.runs, self._refused)

    def _refused(self) -> None:
        """End the process. If the disk is well again by now, begin the next one."""
        if not (self.is_ill or self.is_rotten):
            self.machine.start()

    def _notice(self, line: str) -> None:
        self.machine.world.trace.write(self.machine.world.now_ms, f"{self.machine.name}  {line}")

    def died(self, *, power: bool) -> None:
        """Note that the process is gone."""
        disk = getattr(self, "disk", None)
        if disk is not None:
            disk.crash()
        if power:
            self.folder.cut_power()
        else:
            self.folder.kill()

    # -- what must hold ----------------------------------------------------------------------------

    def _watch(self) -> None:
        """Note all records that the journal gets from now on."""
        journal = self.journal_service.journal
        if journal is None:
            return
        journal.watch = self._noted
        self.durability = DurabilityChecker(self.machine, journal)

    def _noted(self, runs: list[list[Any]], position: int) -> None:
        """Note records that the journal got."""
        recorded, noted, now_ms = self.recorded, self.noted, self.machine.world.now_ms
        if self.durability is not None:
            self.durability.note(runs, position)
        for run in runs:
            if run[0] == JOB:
                for item in run[1:]:
                    job_id: bytes = item[ID_AT]
                    job = self.machine.broker.find(job_id)
                    known = recorded.get(job_id)
                    if known is None or known[0] is not job:  # The job may have vanished and come again.
                        recorded[job_id] = (job, now_ms)
                    noted[job_id] = None
            elif run[0] == STATE:
                for item in run[1:]:
                    noted[item[ID_AT]] = None

    def is_off(self) -> bool:
        """Return whether no journal is written."""
        return self.journal_service.journal is None

    def is_complete(self) -> bool:
        """Return whether a journal is written that has all jobs."""
        return self.journal_service.journal is not None and not self.journal_service.refusal()

    def is_quiet(self) -> bool:
        """Return whether the disk has all that memory has, and no record is waiting to be written."""
        if not self.is_loaded:
            return False  # The log of events is opened first, so there may be no journal yet.
        broker, compaction = self.machine.broker, self.machine.driver.compaction
        journal = self.journal_service.journal
        return (
            journal is not None
            and not journal.error
            and journal.written == journal.position
            and not (broker.dirty or broker.outbox.gone.count or broker.outbox.pauses or broker.outbox.is_void)
            and compaction is not None
            and not compaction.is_first
        )

    def check_replay(self) -> None:
        """Check that memory equals a replay of the journal. Raises RuleBrokenError."""
        machine = self.machine
        found, former = replay(self.folder, machine)
        memory = {job.id: job for shard in machine.broker.shards for job in shard.values() if job.state != WAIT_REPL}
        for job_id in memory.keys() - found.keys():
            raise RuleBrokenError(
                "memory equals a replay", f"{memory[job_id]!r} of {machine.name} is not in its journal", job_id
            )
        for job_id, (job, flags) in found.items():
            known = memory.get(job_id)
            if known is None:
                raise RuleBrokenError(
                    "memory equals a replay", f"{job!r} of {machine.name} is in its journal only", job_id
                )
            known_flags = journaling.flags_of(known)
            if job_id not in self.noted:
                # After a restart, a queued job waits for its time. It does the same after another restart.
                flags &= ~IS_QUEUED
                known_flags &= ~IS_QUEUED
            if type(known.body) is not bytes:
                job.body = known.body  # The body is only on disk.
            said, kept = _state(machine, former, job, flags), _state(machine, former, known, known_flags)
            if type(job.body) is Spilled and job.body.size == len(known.body):
                said["body"] = kept["body"]  # The body is in a spill file. The job's consumer compares it.
            if said != kept:
                told = ", ".join(
                    f"{name} {kept[name]!r} and {said[name]!r}" for name in said if said[name] != kept[name]
                )
                raise RuleBrokenError(
                    "memory equals a replay", f"{known!r} of {machine.name}: memory and journal have {told}", job_id
                )


def replay(folder: SimFolder, machine: Machine) -> tuple[dict[bytes, tuple[Job, int]], frozenset[bytes]]:
    """Return the jobs of a journal's folder by id, with their recorded flags, and the node's former ids."""
    chance = machine.world.stream("replay")
    copied = folder.copy(chance)
    broker = Broker(
        machine.membership, machine.broker.outbox.messages, machine.broker.settings, chance, machine.broker.host
    )
    broker.now_ms, broker.wall_ms = machine.broker.now_ms, machine.broker.wall_ms
    broker.sets = machine.broker.sets
    try:
        recovery = Recovery(copied)
        nodes = dict.fromkeys(header.node for _, header, _ in recovery.files)
        restoring = Restoring(broker, *nodes)
        while not recovery.is_finished:
            for number, block in recovery.step():
                restoring.block(number, block.wall_ms, block.flags, block.runs)
    except DamagedJournalError as damaged:
        raise RuleBrokenError("a node can read its journal", f"{machine.name}: {damaged}", machine.name) from damaged
    found = {
        job.id: (job, journaling.flags_of(job) | (IS_QUEUED if job.was_announced else 0))
        for shard in broker.shards
        for job in shard.values()
    }
    return found, frozenset(nodes) - {broker.me.id}


def _state(machine: Machine, former: frozenset[bytes], job: Job, flags: int) -> dict[str, Any]:
    """Return all that a restart must know of a job, except the moments of leases and retries."""
    if job.retry_ms:
        flags &= ~IS_GIVEN
    else:
        flags &= ~IS_LEASED  # The flag has another meaning until a restart is over (restoring.py).
        if flags & IS_GIVEN:
            flags |= IS_DELIVERED
    # Other nodes still use the id that this node had before CLUSTER RESET HARD. A replay takes that id for this node.
    me = machine.broker.me.id
    holders = {me if node.id in former else node.id for node in job.holders}
    return {
        "flags": flags & ~IS_GIVEN,
        "queue": job.queue,
        "body": job.body,
        "retry": job.retry_ms,
        # A forgotten node counts as confirmed (spec A8). The journal does not name it, and memory has it again only
        # when it comes back.
        "holders": sorted(node_id for node_id in holders if node_id not in machine.forgot),
        "attempt": job.attempt,
        "nacks": job.nacks,
        "deliveries": job.deliveries,
    }
