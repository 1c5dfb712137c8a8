"""Reloading: a node forgets all jobs and reads them back from the journal (DEBUG LOADAOF).

Forgotten jobs would be lost if the journal turned out to be unreadable. So the journal is checked first. If the disk
fails, the node says so and goes on with the jobs in memory. If the journal is damaged, it does the same, and records
all jobs again. If all is well, everything is written, memory is emptied, and the journal is read as at a start.

If the disk fails after that, the node waits for it (storage/loading.py), because the jobs are only in the journal.
Damage that appears after the check ends the node, as it would end a start.

Clients are not served in all that time: no job may change between the check and the reading (spec J7).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from disque_py.core import incremental
from disque_py.core.errors import LOADING
from disque_py.core.reset import flush
from disque_py.log_lines import tell
from disque_py.node import dispatch
from disque_py.node.turn import Driver
from persistence.check import read
from persistence.disk import READING, Disk, Folder
from persistence.items import check_base, check_state
from persistence.journal import Journal
from persistence.records import JOB, STATE, Block, FormatError
from persistence.recovery import ADVICE, DamagedJournalError

HEALING: Final = "No job is lost, all are recorded again, in a new journal"

# Reads the journal as at a start, and calls `ready` or `fail`.
Load = Callable[[Callable[[], None], Callable[[str], None]], None]


class Reloading:
    """One reloading. The journal has all jobs and is in no trouble. `done` gets the outcome, within a turn."""

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
        """Check whether the journal can be read."""
        broker = self._driver.broker
        broker.is_loading = True
        incremental.refuse_running(broker, LOADING)
        self._written = self._journal.written
        self._disk.start(READING, self._check, self._checked)

    def _check(self, folder: Folder) -> str:
        """Return the damage of the journal in words; empty if there is none."""
        try:
            recovery = read(folder, RecordShapes())
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
        """Continue with the jobs in memory."""
        dispatch.loaded(self._driver.broker)
        self._done(failure)

    def _closed(self, failure: OSError | None) -> None:
        driver = self._driver
        driver.begin()
        if failure is not None:
            self._go_on(failure)
            return
        driver.detach()  # All records are on disk.
        flush(driver.broker)
        self._load(self._loaded, self._broken)

    def _loaded(self) -> None:
        self._done(None)

    def _broken(self, why: str) -> None:
        host = self._driver.broker.host
        tell(host, "journal-not-reloaded", reason=why)
        self._done(OSError(why))
        host.shutdown()


class RecordShapes:
    """A reader for persistence/check.py that only checks the shape of job records."""

    def take(self, number: int, block: Block) -> None:
        """Check a block. FormatError."""
        for run in block.runs:
            kind = run[0]
            if kind == JOB:
                for item in run[1:]:
                    check_base(item)
            elif kind == STATE:
                for item in run[1:]:
                    check_state(item)
