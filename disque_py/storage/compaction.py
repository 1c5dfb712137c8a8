"""Compaction: decides when segments of the journal are rewritten, dropped or begun anew.

persistence/rewrite.py rewrites one segment and knows no job. core/journaling.py knows which records still count. This
module starts them: for BGREWRITEAOF, for `auto-aof-rewrite-percentage` with `auto-aof-rewrite-min-size`, and for a
journal that was switched on with jobs in memory. As time passes it drops segments that are entirely dead.

On a full disk only the room in the reserved file counts. Segments whose living records fit there are rewritten
immediately, however small the journal is. The segment that is being written is one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from disque_py.core import journaling
from disque_py.core.broker import SHARDS, Broker
from disque_py.core.job import WAIT_REPL, Job
from disque_py.core.spilled import Spilled
from disque_py.log_lines import tell
from disque_py.storage.body_recovery import BodyRecovery
from persistence.disk import Disk
from persistence.journal import Journal
from persistence.rewrite import DEAD_SHARE_MIN, Rewrite, chosen, fitting, unread_prefix

LOOK_EVERY_MS: Final = 200
LIVE_TIMES_MAX: Final = 2
# Jobs recorded per step when the journal is switched on: about two milliseconds.
JOBS_PER_STEP: Final = 500
# Bytes of spilled bodies (core/spilling.py) that are read at a time for it.
READING_BYTES_MAX: Final = 4 << 20

OK: Final = "ok"
ERROR: Final = "err"


class Compaction:
    """The state behind INFO's aof_rewrite_* fields.

    base_size       living bytes after the last rewrite, or at the start
    last_seconds    how long the last rewrite took; -1: there was none
    last_status     ok or err
    """

    def __init__(self, broker: Broker, journal: Journal, disk: Disk, wake: Callable[[], None], stale: set[int]) -> None:
        self.base_size = 0
        self.last_seconds = -1
        self.last_status = OK
        self.is_scheduled = False
        self._broker = broker
        self._journal = journal
        self._disk = disk
        self._wake = wake
        self._stale = broker.journal.stale_places = stale
        self._recovery = BodyRecovery(broker, journal, disk, wake)
        self._rewrite: Rewrite | None = None
        self._closing = -1  # The segment that has to be closed before a rewrite can begin; 0: any; -1: none begins.
        self._wants_everything = False
        self._snapshot: Iterator[bool] | None = None
        self._recorded = -1  # Where the snapshot's records end; -1: it goes on.
        self._reading = 0
        self._started_ms = 0
        self._size_before = 0
        self._looked_ms = 0
        self._when_over: list[Callable[[str], None]] = []
        self._measure()

    @property
    def is_running(self) -> bool:
        """Return whether a rewrite, or the first recording of all jobs, is under way."""
        return self._rewrite is not None or self._snapshot is not None or self._closing >= 0

    @property
    def is_first(self) -> bool:
        """Return whether the journal was switched on and doesn't have all jobs yet (`wait-rewrite`)."""
        return self._snapshot is not None

    @property
    def running_seconds(self) -> int:
        """The age of the rewrite that runs; -1 if none runs."""
        return (self._broker.now_ms - self._started_ms) // 1000 if self.is_running else -1

    @property
    def progress(self) -> tuple[int, int]:
        """(segments done, segments in all) of the rewrite that runs."""
        rewrite = self._rewrite
        return (rewrite.segments_done, rewrite.segments_total) if rewrite is not None else (0, 0)

    def start(self, when_over: Callable[[str], None] | None = None) -> bool:
        """Rewrite all segments with dead bytes. Return False if a rewrite runs; with `when_over` another follows it."""
        if self.is_running and when_over is None:
            return False
        self._wake()
        if when_over is not None:
            self._when_over.append(when_over)
        if self.is_running:
            self.is_scheduled = True
            return False
        if self._journal.is_on_reserve:
            self.is_scheduled = True  # On a full disk, segments that fit into the reserve come first.
            return True
        self._begin(everything=True)
        return True

    def when_over(self, then: Callable[[str], None]) -> None:
        """Call `then`, with an error or an empty text, when the present rewrite has ended."""
        self._when_over.append(then)

    def record_all(self) -> None:
        """Record all jobs in a new journal, a part per turn."""
        self._started_ms = self._broker.now_ms
        self._size_before = self._journal.size_left
        self._snapshot = self._record_all()
        self._wake()

    def _begin_anew(self) -> None:
        """Begin a new journal with the jobs in memory, because files of this one are gone or damaged.

        Otherwise the next start would fail.
        """
        broker, journal = self._broker, self._journal
        tell(broker.host, "journal-damaged")
        journal.is_incomplete = False
        journal.restart()
        broker.journal.first_place = journal.number
        broker.journal.live_bytes.clear()
        broker.journal.live_records.clear()
        self._stale.clear()
        self._rewrite = None
        self._closing = -1
        self._recorded = -1
        self.record_all()

    def _record_all(self) -> Iterator[bool]:
        """Record all jobs in parts. Yield whether there is more to do at once: False while bodies are being read."""
        broker = self._broker
        dirty = size = 0
        for number in range(SHARDS):  # Not over the list: a FLUSHALL in between replaces it.
            for job in list(broker.shards[number].values()):
                if job.place >= broker.journal.first_place or job.state == WAIT_REPL:
                    continue
                dirty += 1
                body = job.body
                if type(body) is not Spilled:
                    journaling.record_soon(broker, job)
                    continue
                size += body.size
                self._reading += 1
                broker.spill.readings.append((job, self._on_read))
                while size > READING_BYTES_MAX and self._reading:
                    yield False
                if not self._reading:
                    size = 0
            if dirty >= JOBS_PER_STEP:
                dirty = 0
                yield True
        while self._reading:
            yield False
        self._keep_pauses()
        for name in list(broker.tokens.by_name):
            broker.tokens.record_again(name)
        for at, job_id in enumerate(list(broker.producers.keys.over)):
            broker.producers.keys.record_again(job_id, 0)
            if at % JOBS_PER_STEP == 0:
                yield True
        for _ in broker.batches.record_all():
            yield True
        for at, job_id in enumerate(list(broker.results.by_id)):
            broker.results.record_again(job_id, 0)
            if at % JOBS_PER_STEP == 0:
                yield True
        yield True

    def _on_read(self, broker: Broker, job: Job, body: bytes | None) -> None:
        self._reading -= 1
        journaling.record_read(broker, job, body)

    def step(self) -> bool:
        """Continue the work under way, or look for due work. Return whether there is more to do at once."""
        if self._broker.spill.unread:
            self._recovery.step()
        if self._journal.is_incomplete and not self._broker.is_loading:
            self._begin_anew()
        if self._snapshot is not None:
            if self._journal.level:
                # A journal that is written once is given up: without it, this node refuses nothing because of the disk.
                if not self._broker.settings.appendonly:
                    self._snapshot = None
                    self._recorded = -1
                    self._ended(self._journal.refusal_reason)
                return False
            if self._recorded < 0:
                has_more = next(self._snapshot, None)
                if has_more is not None:
                    return has_more
                self._recorded = self._journal.position
            # `aof_state:on` says that all jobs are on disk, so it waits for that.
            if self._journal.synced < self._recorded:
                self._journal.hurry()
                return False
            self._snapshot = None
            self._recorded = -1
            self._ended("")
            return False
        if self._closing >= 0:
            if not self._journal.is_closed_up_to(self._closing):
                return False  # The disk wakes us when the segment is closed.
            self._choose()
        rewrite = self._rewrite
        if rewrite is not None:
            if self._journal.is_on_reserve and not self._journal.is_making_room:
                rewrite.give_up("the disk is full")  # Its living records may not fit into the reserve.
            has_more = rewrite.step()
            if rewrite.is_over:
                self._rewrite = None
                self._ended(rewrite.error)
                if rewrite.is_damaged:
                    self._journal.is_incomplete = True
            return has_more
        if self.is_scheduled and not self._journal.is_on_reserve:
            self.is_scheduled = False
            self._begin(everything=True)
        elif self._broker.now_ms - self._looked_ms >= LOOK_EVERY_MS:
            self._looked_ms = self._broker.now_ms
            self._look()
        return False

    def _look(self) -> None:
        journal = self._journal
        live = self._broker.journal.live_bytes
        if journal.level and not journal.is_on_reserve:
            return
        for number in [number for number in self._stale if not journal.has_segment(number)]:
            self._stale.discard(number)  # A FLUSHALL began anew.
        prefix = unread_prefix(journal, self._broker.journal.live_records, self._stale)
        if prefix and journal.may_remove:
            self._keep_pauses()
            for number in prefix:
                journal.drop(number)
        for number in [number for number in live if number not in self._stale and not journal.has_segment(number)]:
            del live[number]
            self._broker.journal.live_records.pop(number, None)
        if journal.is_on_reserve:
            self._make_room()
            return
        settings = self._broker.settings
        percentage = settings.auto_aof_rewrite_percentage
        size = journal.size_left
        if percentage and size > settings.auto_aof_rewrite_min_size:
            base = max(self.base_size, 1)
            if (size - base) * 100 >= base * percentage:
                self._begin(everything=False)
        if size < self.base_size:
            self.base_size = size

    def _make_room(self) -> None:
        """Rewrite segments into the reserved room, because the disk is full."""
        journal = self._journal
        if not journal.may_remove:
            return
        number = -1
        if not self._fitting():
            number = journal.number
            if not self._is_worth_it(number) or self._live_room() <= self._broker.journal.live_bytes.get(number, 0):
                return
        journal.is_making_room = True
        self._started_ms = self._broker.now_ms
        self._size_before = self._journal.size_left
        self._closing = journal.rotate() if number >= 0 else 0
        self._wants_everything = False
        self._wake()

    def _live_room(self) -> int:
        """Return how many living bytes can be recorded again on a full disk."""
        return self._journal.room_bytes // LIVE_TIMES_MAX

    def _fitting(self) -> list[int]:
        return fitting(self._journal, self._broker.journal.live_bytes, self._stale, self._live_room())

    def _is_worth_it(self, number: int) -> bool:
        size = self._journal.size_of(number)
        return size - self._broker.journal.live_bytes.get(number, 0) > size * DEAD_SHARE_MIN

    def _keep_pauses(self) -> None:
        """Record all pauses again, because their records may be in a segment that is dropped.

        That includes versions of pauses that are over, so that an older pause stays known as older.
        """
        broker = self._broker
        for name, queue in broker.queues.items():
            if queue.paused:
                broker.outbox.pauses[name] = None
        for name in broker.pauses.versions:
            broker.outbox.pauses[name] = None

    def _begin(self, *, everything: bool) -> None:
        journal = self._journal
        self._started_ms = self._broker.now_ms
        self._size_before = self._journal.size_left
        # Only closed segments are rewritten; in a small journal the one being written is all there is.
        self._closing = journal.rotate() if everything or self._is_worth_it(journal.number) else 0
        self._wants_everything = everything
        self._wake()

    def _choose(self) -> None:
        journal = self._journal
        if journal.is_making_room:
            numbers = self._fitting()
        else:
            numbers = chosen(journal, self._broker.journal.live_bytes, everything=self._wants_everything)
            numbers += [each for each in journal.closed_segments() if each in self._stale and each not in numbers]
        self._rewrite = Rewrite(journal, self._disk, self._keep, self._wake, numbers, self._stale)
        self._closing = -1

    def _keep(self, number: int, kind: int, item: Any, may_matter: bool) -> None:
        journaling.keep(self._broker, number, kind, item, may_matter=may_matter)

    def _measure(self) -> None:
        """Set `base_size`, which the journal's growth is compared with.

        Many bytes may be dead already, of jobs that came and went since the rewrite began. So the base is at most twice
        the living bytes. The factor leaves room for records that live_bytes does not count (nodes, states).
        """
        self.base_size = min(self._journal.size_left, LIVE_TIMES_MAX * sum(self._broker.journal.live_bytes.values()))

    def _ended(self, error: str) -> None:
        self.last_seconds = (self._broker.now_ms - self._started_ms) // 1000
        self.last_status = ERROR if error else OK
        self._journal.is_making_room = False
        if error:
            tell(self._broker.host, "journal-rewrite-failed", reason=error)
        else:
            tell(
                self._broker.host,
                "journal-rewritten",
                seconds=self.last_seconds,
                before=self._size_before,
                after=self._journal.size_left,
            )
        self._measure()
        if not self.is_scheduled:
            self._end_waiting(error)

    def abandon(self) -> None:
        """End all calls that wait for a rewrite, because the journal is closed."""
        self._end_waiting("the journal was switched off meanwhile")

    def _end_waiting(self, error: str) -> None:
        waiting, self._when_over = self._when_over, []
        for when_over in waiting:
            when_over(error)
