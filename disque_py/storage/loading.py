"""Loading: a node reads its journal and continues it in a new file, before it serves clients.

The disk reads and decodes one piece in a thread while the loop restores the piece before. Other work of the loop goes
on in between: clients that get -LOADING, heartbeats, INFO. When all pieces are read, every job is put in its place. The
fate of the at-most-once jobs is recorded and synced. Only then `done` is called. Before that, loading changes one thing
on disk: it removes the clean-shutdown mark first (spec O3).

If the disk is full, the start waits, and goes on by itself when there is room. Other disk errors end the start. A DEBUG
LOADAOF has no jobs in memory to return to (`is_patient`, storage/reloading.py), so an error ends that loading only
after PATIENCE_MS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from disque_py.core import pausing
from disque_py.core.broker import Broker
from disque_py.core.reset import flush
from disque_py.core.restoring import Restoring
from disque_py.core.spilling import is_behind
from disque_py.log_lines import line
from persistence.disk import WRITING, Disk, Folder
from persistence.disk_errors import FULL_DISK
from persistence.journal import Journal
from persistence.records import Block, FormatError
from persistence.recovery import ADVICE, RESTORED_NAME, DamagedJournalError, Recovery

RETRY_MS: Final = 1_000
PATIENCE_MS: Final = 30_000
REPORT_EVERY_MS: Final = 1_000

Pieces = list[tuple[int, Block]]


class Loading:
    """One start with a journal.

    open_journal   makes the Journal that continues the one that was read
    done, fail     called when loading is over, with the journal and what was restored, or with the reason
    wake           opens a turn, and has `step` called in the next
    may_truncate   aof-load-truncated
    wants_queues   aof-enqueue-jobs-once
    is_patient     an error of the disk doesn't end the loading at once
    trouble        the disk's error, while the loading waits for its end
    total_bytes, loaded_bytes, started_ms, records   for INFO and the progress line
    """

    def __init__(
        self,
        broker: Broker,
        disk: Disk,
        open_journal: Callable[[Recovery | None], Journal],
        done: Callable[[Journal, Restoring], None],
        fail: Callable[[str], None],
        notice: Callable[[str], None],
        wake: Callable[[], None],
        *,
        may_truncate: bool,
        wants_queues: bool,
        is_patient: bool = False,
    ) -> None:
        self.trouble = ""
        self.total_bytes = 0
        self.loaded_bytes = 0
        self.records = 0
        self.started_ms = broker.now_ms
        self.recovery: Recovery | None = None
        self.restoring: Restoring | None = None
        self._broker = broker
        self._disk = disk
        self._open_journal = open_journal
        self._done = done
        self._fail = fail
        self._notice = notice
        self._wake = wake
        self._may_truncate = may_truncate
        self._wants_queues = wants_queues
        self._is_patient = is_patient
        self._again: Callable[[], None] = self._start_over
        self._again_ms = 0  # When `_again` is called; 0: not at all.
        self._trouble_ms = broker.now_ms  # The moment at which the disk's trouble began.
        self._install: Iterator[None] | None = None
        self._journal: Journal | None = None
        self._recorded: Journal | None = None
        self._reported_ms = broker.now_ms
        self._position = -1
        self._is_held_up = False  # Until bodies that don't fit into memory have left it (spilling.py).

    def start(self) -> None:
        """Look which files there are, and begin to read them."""
        self._broker.is_loading = True
        self._again = self._start_over
        self._disk.start(WRITING, _checked(Recovery), self._surveyed)

    def _start_over(self) -> None:
        told = list(self._broker.outbox.pauses)
        flush(self._broker)
        pausing.ask(self._broker, told)
        self.records = self.loaded_bytes = 0
        self._is_held_up = False
        self.start()

    def _surveyed(self, outcome: Recovery | str | OSError) -> None:
        self._wake()
        if not isinstance(outcome, Recovery):
            self._end(outcome)
            return
        recovery = self.recovery = outcome
        self.restoring = Restoring(self._broker, *(header.node for _, header, _ in recovery.files))
        self.total_bytes = recovery.total_bytes
        self._broker.journal.first_place = (
            1  # All jobs that are read are in this journal, whatever their segment's number.
        )
        self._read()

    def _read(self) -> None:
        recovery = self.recovery
        assert recovery is not None
        self._disk.start(WRITING, _checked(lambda _: recovery.step()), self._got)

    def _got(self, outcome: Pieces | str | OSError) -> None:
        recovery, restoring = self.recovery, self.restoring
        assert recovery is not None
        assert restoring is not None
        self._wake()
        if not isinstance(outcome, list):
            self._end(outcome)
            return
        if outcome:
            self.loaded_bytes = recovery.done_bytes
            self._is_held_up = is_behind(self._broker)
            if not self._is_held_up:
                self._read()
        try:
            for number, block in outcome:
                self.records += restoring.block(number, block.wall_ms, block.flags, block.runs)
        except FormatError as broken:
            self._end(f"{broken}. {ADVICE}")
            return
        if outcome:
            self._report()
        else:
            self._all_read(recovery, restoring)

    def _report(self) -> None:
        now_ms = self._broker.now_ms
        if now_ms - self._reported_ms >= REPORT_EVERY_MS:
            self._reported_ms = now_ms
            percent = 100 * self.loaded_bytes / max(self.total_bytes, 1)
            self._notice(line("journal-loading", percent=percent, jobs=self._broker.job_count))

    def _all_read(self, recovery: Recovery, restoring: Restoring) -> None:
        self.trouble = ""
        lost = recovery.missing - restoring.dropped
        if lost:
            self._end(f"segment {min(lost)} of the journal is missing. {ADVICE}")
            return
        if recovery.torn is not None:
            name, offset, count = recovery.torn
            what = f"{name}: the last {count:,} bytes, from byte {offset} on, are an incomplete block"
            if not self._may_truncate:
                self._end(
                    f"{what}. Start with aof-load-truncated yes, or run `disque-check-journal repair`, to cut them off"
                )
                return
            self._notice(line("journal-cut", what=what))
        if recovery.unfinished is not None:
            name, offset, count = recovery.unfinished
            what = f"{name}: the last {count:,} bytes, from byte {offset} on, are a write that did not end"
            self._notice(line("journal-unfinished", what=what))
        self._install = restoring.finish(
            is_certain=recovery.is_clean,
            is_whole=recovery.torn is None,
            is_restored=recovery.is_restored,
            wants_queues=self._wants_queues,
        )

    def step(self) -> bool:
        """Continue to read, or to put jobs in place. Return whether there is more to do at once."""
        if self._again_ms and self._broker.now_ms >= self._again_ms:
            self._again_ms = 0
            self._again()
        if self._is_held_up and not is_behind(self._broker):
            self._is_held_up = False
            self._read()
        if self._install is not None:
            if next(self._install, self) is not self:
                return True
            self._install = None
            self._again = self._repair
            self._repair()
        journal = self._journal
        if journal is not None and self._position >= 0:
            if journal.synced >= self._position:
                self._recorded = journal
                self._journal = None
                if self.recovery is not None and self.recovery.is_restored:
                    # The effects of the restore on its jobs are on disk, so the mark of a restored journal can go.
                    self._again = self._unmark
                    self._unmark()
                else:
                    self._unmarked(None)
            else:
                if journal.error:
                    self._say_trouble(journal.refusal_reason)
                journal.hurry()
        return False

    def _repair(self) -> None:
        recovery = self.recovery
        assert recovery is not None
        self._disk.start(WRITING, _checked(lambda _: recovery.repair()), self._repaired)

    def _unmark(self) -> None:
        self._disk.start(WRITING, lambda folder: folder.remove(RESTORED_NAME), self._unmarked)

    def _repaired(self, outcome: str | OSError | None) -> None:
        self._wake()
        if outcome is not None:
            self._end(outcome)
            return
        self.trouble = ""
        self._journal = self._open_journal(self.recovery)

    def _unmarked(self, outcome: OSError | None) -> None:
        self._wake()
        if outcome is not None:
            self._end(outcome)
            return
        assert self._recorded is not None
        assert self.restoring is not None
        self._done(self._recorded, self.restoring)

    def recorded(self, position: int) -> None:
        """Note where the first turn with the new journal ends: clients are served when it is on disk up to there."""
        if self._position < 0:
            self._position = position

    def _end(self, reason: str | OSError) -> None:
        if isinstance(reason, OSError) and self._may_wait(reason):
            self._say_trouble(reason.strerror or str(reason))
            self._again_ms = self._broker.now_ms + RETRY_MS
            return
        self._fail(reason if isinstance(reason, str) else f"Can't read the journal: {reason}")

    def _may_wait(self, error: OSError) -> bool:
        if error.errno in FULL_DISK:
            return True
        return self._is_patient and (not self.trouble or self._broker.now_ms - self._trouble_ms < PATIENCE_MS)

    def _say_trouble(self, trouble: str) -> None:
        if not self.trouble:
            self._trouble_ms = self._broker.now_ms
        if trouble != self.trouble:
            self.trouble = trouble
            self._notice(line("journal-start-waits", reason=trouble))


def _checked(work: Callable[[Folder], Any]) -> Callable[[Folder], Any]:
    """Return `work` with damage of the journal as its result, in words; the disk passes on OSErrors by itself."""

    def checked(folder: Folder) -> Any:
        try:
            return work(folder)
        except (DamagedJournalError, FormatError) as broken:
            return str(broken)

    return checked
