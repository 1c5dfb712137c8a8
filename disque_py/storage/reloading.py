"""Reloading: all jobs are forgotten and read back from the journal (DEBUG LOADAOF).

What is forgotten can't be had back if the journal turns out to be unreadable. So it is read through before, and a
node whose disk fails says so and goes on with the jobs it has, and so does one whose journal is damaged: it records
them all again. If all is well everything is put on disk, memory is emptied, and the journal is read as at a start. A
disk that fails in between is waited for (storage/loading.py): the jobs are in the journal. Damage that was not there a moment
ago ends the node, as it would end a start.

Nobody is served in all that time: nothing may happen between what is read and what is read back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from disque_py.core.reset import flush
from disque_py.log_lines import tell
from disque_py.node.turn import Driver
from persistence.check import read
from persistence.disk import READING, Disk, Folder
from persistence.items import check_base, check_state
from persistence.journal import Journal
from persistence.records import JOB, STATE, Block, FormatError
from persistence.recovery import ADVICE, DamagedJournalError

HEALING: Final = "No job is lost, all are recorded again, in a new journal"

# ready, fail: reads the journal as at a start.
Load = Callable[[Callable[[], None], Callable[[str], None]], None]


class Reloading:
    """One of them, with a journal that has all jobs and is in no trouble; `done` hears how it ended, in a turn."""

    def __init__(
        self, driver: Driver, journal: Journal, disk: Disk, load: Load, done: Callable[[OSError | None], None]
    ) -> None:
        self._driver = driver
        self._journal = journal
        self._disk = disk
        self._load = load
        self._done = done
        self._written = 0

    def start(self) -> None:
        """Look whether it can be read."""
        self._driver.broker.is_loading = True
        self._written = self._journal.written
        self._disk.start(READING, self._check, self._checked)

    def _check(self, folder: Folder) -> str:
        """What is wrong with the journal; empty if nothing is."""
        try:
            recovery = read(folder, Sound())
        except (DamagedJournalError, FormatError) as broken:
            return str(broken)
        if recovery.position < self._written:
            return f"the journal ends at position {recovery.position}, and was written up to {self._written}. {ADVICE}"
        return ""

    def _checked(self, outcome: str | OSError) -> None:
        self._driver.begin()
        if self._driver.journal is not self._journal:
            self._done(OSError("the node ends"))  # No client is served any more: a restart relies on that.
        elif isinstance(outcome, OSError):
            self._go_on(outcome)
        elif outcome:
            self._journal.is_incomplete = True
            self._go_on(OSError(outcome.replace(ADVICE, HEALING)))
        else:
            self._journal.close(self._closed, leave_mark=True)

    def _go_on(self, failure: OSError) -> None:
        """With what memory has."""
        self._driver.broker.is_loading = False
        self._done(failure)

    def _closed(self, failure: OSError | None) -> None:
        driver = self._driver
        driver.begin()
        if failure is not None:
            self._go_on(failure)
            return
        output_commit = driver.output_commit
        if output_commit is not None and output_commit.journal is not None:
            output_commit.release_all()  # All their records are on disk.
        driver.detach()
        flush(driver.broker)
        self._load(self._loaded, self._broken)

    def _loaded(self) -> None:
        self._done(None)

    def _broken(self, why: str) -> None:
        host = self._driver.broker.host
        tell(host, "journal-not-reloaded", reason=why)
        self._done(OSError(why))
        host.shutdown()


class Sound:
    """A reader (persistence/check.py) that only sees whether records of jobs are such."""

    def take(self, number: int, block: Block) -> None:
        """A block; FormatError."""
        for run in block.runs:
            kind = run[0]
            if kind == JOB:
                for item in run[1:]:
                    check_base(item)
            elif kind == STATE:
                for item in run[1:]:
                    check_state(item)
