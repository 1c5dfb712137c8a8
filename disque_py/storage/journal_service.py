"""Journal service: a node's journal from start to end, as directives and commands ask for it.

The service loads the journal at a start, switches it on and off while the node runs, and closes it with the
clean-shutdown mark. Server and simulator give it a disk. Loading, Journal, OutputCommit and Compaction do the work.
Spec J1, J4, O2, O4, P1, P2, P3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from disque_py.core.broker import Broker
from disque_py.core.restoring import Restoring, give_up_once
from disque_py.log_lines import line
from disque_py.node import dispatch
from disque_py.node.turn import Driver
from disque_py.storage.compaction import OK, Compaction
from disque_py.storage.journal_info import Fields, figures
from disque_py.storage.loading import Loading
from disque_py.storage.reloading import Reloading
from persistence.backup import Backup, Made
from persistence.disk import READING, Disk, Folder
from persistence.journal import RETRY_MS, SEGMENT_BYTES, Journal
from persistence.records import Part, parse_file_name
from persistence.recovery import RESTORED_NAME, Recovery
from persistence.reserved_segment import RESERVE_BYTES, RESERVE_NAME, keep_if_usable

Outcome = Callable[[str], None]

IN_TROUBLE: Final = "the journal can't be written: "


class JournalService:
    """The journal of one node.

    open_disk    opens the disk with the journal's directory, and makes the directory if need be; OSError
    close_disk   called when the journal is closed for good: the lock may be released
    last_load    the outcome of the last loading, for INFO; None before
    """

    def __init__(
        self,
        driver: Driver,
        open_disk: Callable[[], Disk],
        close_disk: Callable[[], None],
        notice: Callable[[str], None],
        *,
        segment_bytes: int = SEGMENT_BYTES,
        reserve_bytes: int = RESERVE_BYTES,
    ) -> None:
        self.last_load: Restoring | None = None
        self.load_ms = 0
        self._driver = driver
        self._broker: Broker = driver.broker
        self._open_disk = open_disk
        self._close_disk = close_disk
        self._notice = notice
        self._segment_bytes = segment_bytes
        self._reserve_bytes = reserve_bytes
        self._disk: Disk | None = None
        self._is_stopping = False
        self._rewritten = (-1, OK)  # Seconds and status of the last rewrite, of a journal that was switched off.
        self._last_number = 0
        # Calls that wait for a journal that is being switched on.
        self._starting: list[tuple[Callable[[Compaction], None], Outcome]] = []
        self._backups: set[str] = set()

    @property
    def journal(self) -> Journal | None:
        """The journal that is being written, if one is."""
        return self._driver.journal

    # -- start -------------------------------------------------------------------------------------

    def start(self, ready: Callable[[], None], fail: Callable[[str], None]) -> None:
        """Load the journal if there is one, and continue it with `appendonly yes`. OSError from `open_disk`."""
        settings = self._broker.settings
        wants_queues = settings.aof_enqueue_jobs_once
        if not settings.appendonly and not wants_queues:
            ready()
            return
        self._disk = self._open_disk()
        self._load(self._disk, wants_queues=wants_queues, ready=ready, fail=fail)

    def _load(
        self,
        disk: Disk,
        *,
        wants_queues: bool,
        ready: Callable[[], None],
        fail: Callable[[str], None],
        is_patient: bool = False,
    ) -> None:
        settings = self._broker.settings
        began_ms = self._broker.now_ms

        def open_journal(recovery: Recovery | None) -> Journal:
            stale = restoring.stale if (restoring := self._restoring()) is not None else set()
            stale |= restoring.dropped if restoring is not None else set()
            return self._attach(disk, recovery, {number for number in stale if recovery and _has(recovery, number)})

        def done(journal: Journal, restoring: Restoring) -> None:
            if wants_queues:
                self._spend_once(lambda: serve(restoring))
            else:
                serve(restoring)

        def serve(restoring: Restoring) -> None:
            self.last_load = restoring
            self.load_ms = self._broker.now_ms - began_ms
            self._driver.loading = None
            self._driver.begin()
            dispatch.loaded(self._broker)
            self._say_loaded(restoring)
            for node in self._broker.cluster.linked:
                self._driver.link_up(node)
            if settings.appendonly:
                ready()
            else:
                self.disable(lambda _: ready())

        self._driver.loading = Loading(
            self._broker,
            disk,
            open_journal,
            done,
            fail,
            self._notice,
            self._driver.wake,
            may_truncate=settings.aof_load_truncated,
            wants_queues=wants_queues,
            is_patient=is_patient,
        )
        self._driver.loading.start()

    def _spend_once(self, serve: Callable[[], None]) -> None:
        """Set `aof-enqueue-jobs-once` back to `no`, also in the config file, before clients are served.

        Otherwise a crash soon after would queue jobs again that were delivered meanwhile (spec O3).
        """
        host = self._broker.host
        self._broker.settings.aof_enqueue_jobs_once = False
        if not host.has_config_file():
            serve()
            return

        def spent(failure: OSError | None) -> None:
            if failure is not None:
                self._notice(line("enqueue-once-kept", reason=str(failure)))
            serve()

        host.rewrite_config(spent)

    def _restoring(self) -> Restoring | None:
        return self._driver.loading.restoring if self._driver.loading is not None else None

    def _attach(self, disk: Disk, recovery: Recovery | None, stale: set[int]) -> Journal:
        broker = self._broker
        journal = Journal(
            disk,
            broker.me.id,
            broker.settings.appendfsync,
            self._driver.journal_changed,
            files=recovery.chain() if recovery is not None else (),
            segment_bytes=self._segment_bytes,
            reserve_bytes=self._reserve_bytes,
            has_reserve=recovery is not None and recovery.has_reserve,
        )
        self._driver.attach(journal, Compaction(broker, journal, disk, self._driver.wake, stale), 1)
        return journal

    def _say_loaded(self, restoring: Restoring) -> None:
        broker = self._broker
        seconds = self.load_ms / 1000
        self._notice(
            line(
                "journal-loaded",
                jobs=broker.job_count,
                seconds=seconds,
                queued=restoring.queued,
                waiting=restoring.waiting,
                acked=broker.memory.acked_count,
                expired=restoring.expired,
            )
        )
        if restoring.lost:
            self._notice(line("journal-once-jobs", jobs=restoring.lost))

    # -- while the node runs -----------------------------------------------------------------------

    def switch(self) -> None:
        """Apply CONFIG SET appendonly. OSError if the journal can't be made."""
        if self._broker.settings.appendonly:
            self.enable()
        else:
            self.disable(lambda _: None)

    def enable(self) -> None:
        """Begin a new journal, and record all jobs in it. OSError."""
        if self._disk is not None:
            return  # The journal is on. Or it is being closed, and will then be opened again.
        disk = self._disk = self._open_disk()
        broker = self._broker

        def begin(outcome: list[str] | OSError) -> None:
            self._driver.begin()
            if isinstance(outcome, OSError):
                self._not_begun(outcome)
                return
            names = outcome
            keys = [key for name in names if (key := parse_file_name(name)) is not None]
            journal = Journal(
                disk,
                broker.me.id,
                broker.settings.appendfsync,
                self._driver.journal_changed,
                files=tuple(Part(number, part, 0, 0) for number, part in sorted(keys)),
                segment_bytes=self._segment_bytes,
                reserve_bytes=self._reserve_bytes,
                has_reserve=RESERVE_NAME in names,
            )
            compaction = Compaction(broker, journal, disk, self._driver.wake, set())
            journal.set_clock(broker.now_ms, broker.wall_ms)
            # Records of an earlier journal no longer count: the jobs in memory do. A segment number is never used
            # twice, even in another directory, because jobs still name their segment of the journal before.
            journal.number = max(journal.number, self._last_number)
            journal.restart()
            self._driver.attach(journal, compaction, journal.number)
            compaction.record_all()
            self._begun(compaction)

        def look(folder: Folder) -> list[str]:
            folder.remove("clean")
            keep_if_usable(folder)
            return folder.names()

        disk.start(READING, look, begin)

    def _not_begun(self, error: OSError) -> None:
        """Try again after a while, if a journal is still wanted then, because its directory could not be read."""
        self._notice(line("journal-not-made", reason=error.strerror or str(error)))
        self._disk = None
        self._close_disk()
        self._broker.schedule.call_at(self._broker.now_ms + RETRY_MS, self._try_again)
        starting, self._starting = self._starting, []
        for _, fail in starting:
            fail(error.strerror or str(error))

    def _try_again(self) -> None:
        """Begin a journal if one is wanted. If that fails, the next call comes after RETRY_MS."""
        if self._broker.settings.appendonly and not self._is_stopping:
            try:
                self.enable()
            except OSError as error:
                self._notice(line("journal-not-made", reason=error.strerror or str(error)))
                self._broker.schedule.call_at(self._broker.now_ms + RETRY_MS, self._try_again)

    def disable(self, done: Outcome) -> None:
        """Apply CONFIG SET appendonly no: write the records that replies wait for, then stop recording.

        Disk errors don't prevent it. Afterwards no command is refused because of the disk (spec Q27).
        """
        journal = self.journal
        disk = self._disk
        if journal is None or disk is None:
            if disk is not None and self._driver.loading is None:  # The journal is being switched on.
                self._when_attached(lambda _: self.disable(done), done)
            else:
                done("")
            return

        def closed(failure: OSError | None) -> None:
            self._driver.begin()
            if failure is not None:
                # From now on at-most-once jobs may be delivered without a record, and the journal can't say so any
                # more. A small file often still can. Else these jobs are given up: a restart could deliver them again.
                mark = b"%d\n" % journal.number
                disk.start(READING, lambda folder: folder.replace(RESTORED_NAME, mark), partial(marked, failure))
            else:
                over("")

        def marked(failure: OSError, outcome: OSError | None) -> None:
            self._driver.begin()
            if isinstance(outcome, OSError):
                give_up_once(self._broker)
            over(str(failure))

        def over(error: str) -> None:
            compaction = self._driver.compaction
            self._let_go()
            done(error)
            self._try_again()  # It may have been switched on again meanwhile.
            if compaction is not None:
                compaction.abandon()

        if journal.level:
            closed(OSError(journal.refusal_reason))
        else:
            journal.close(closed, leave_mark=False)

    def _let_go(self) -> None:
        output_commit = self._driver.output_commit
        if output_commit is not None and output_commit.journal is not None:
            self._last_number = output_commit.journal.number
            output_commit.journal.end_waiting(OSError("the journal was switched off meanwhile"))
        compaction = self._driver.compaction
        if compaction is not None:
            self._rewritten = (compaction.last_seconds, compaction.last_status)
        self._driver.detach()
        self._disk = None
        self._close_disk()

    def set_policy(self) -> None:
        """Apply CONFIG SET appendfsync."""
        journal = self.journal
        if journal is not None:
            journal.set_policy(self._broker.settings.appendfsync)

    def rewrite(self, when_over: Outcome | None = None) -> bool:
        """Start BGREWRITEAOF. Return False if one is running. With the journal off it is written once. OSError."""
        compaction = self._driver.compaction
        if compaction is not None:
            return compaction.start(when_over)
        if self._disk is not None:
            return False

        def over(error: str) -> None:
            if not self._broker.settings.appendonly:
                self.disable(when_over or _ignore)

        self.enable()
        self._when_attached(lambda started: started.when_over(over), when_over or _ignore)
        return True

    def reload(self, done: Callable[[OSError | None], None]) -> None:
        """Run DEBUG LOADAOF: write everything, empty memory, and read it back. LookupError without a journal.

        `done` gets the error of a journal that can't be written or read. Then memory is as it was.
        """
        journal = self.journal
        disk = self._disk
        if journal is None or disk is None:
            raise LookupError("there is no journal: CONFIG SET appendonly yes")

        refusal = self.refusal()
        if refusal or journal.is_closing:
            done(OSError(refusal or "the journal is being closed"))
            return

        def load(ready: Callable[[], None], fail: Callable[[str], None]) -> None:
            self._load(disk, wants_queues=False, ready=ready, fail=fail, is_patient=True)

        Reloading(self._driver, journal, disk, load, done).start()

    def backup(self, directory: str, beside: Mapping[str, bytes], done: Callable[[Made | OSError], None]) -> None:
        """Run JOURNAL BACKUP: copy the journal consistently into this directory while the node goes on.

        beside   the content of further files, by name
        """
        journal, disk, compaction = self.journal, self._disk, self._driver.compaction
        refusal = ""
        if journal is None or disk is None or compaction is None:
            refusal = "there is no journal: CONFIG SET appendonly yes"
        elif compaction.is_first or journal.is_incomplete:
            refusal = "the journal was just begun and doesn't have all jobs yet: try again when INFO says" + (
                " aof_state:on"
            )
        elif journal.level:
            refusal = IN_TROUBLE + journal.refusal_reason
        elif directory in self._backups:
            refusal = "a backup of this name is being made"
        if journal is None or disk is None or refusal:
            done(OSError(refusal))
            return

        def over(outcome: Made | OSError) -> None:
            self._backups.discard(directory)
            done(outcome)

        self._backups.add(directory)
        Backup(journal, disk, directory, beside, self._driver.begin, over).start()

    # -- end ---------------------------------------------------------------------------------------

    @property
    def is_being_filled(self) -> bool:
        """Whether a journal that is wanted does not have all jobs yet, and its disk works."""
        journal = self.journal
        compaction = self._driver.compaction
        if not self._broker.settings.appendonly or self._disk is None or self._driver.loading is not None:
            return False
        if journal is None or compaction is None:
            return True  # Its directory is being read.
        return (compaction.is_first or journal.is_incomplete) and not journal.level

    @property
    def place(self) -> tuple[int, int]:
        """How far the journal is recorded and synced."""
        journal = self.journal
        return (journal.position, journal.synced) if journal is not None else (0, 0)

    def refusal(self) -> str:
        """Return why SHUTDOWN would lose jobs; empty if it wouldn't."""
        journal = self.journal
        compaction = self._driver.compaction
        if journal is None or compaction is None:
            return ""
        if compaction.is_first or journal.is_incomplete:
            return "the journal was just begun and doesn't have all jobs yet"
        return IN_TROUBLE + journal.refusal_reason if journal.level else ""

    def rewrite_for_shutdown(self, done: Outcome) -> None:
        """Write all jobs into a fresh journal for SHUTDOWN REWRITE-AOF, also with the journal off."""

        def over(error: str) -> None:
            if error and not self._broker.settings.appendonly:
                self.disable(lambda _: done(error))
            else:
                done(error)

        journal, compaction = self.journal, self._driver.compaction
        if journal is None:
            try:
                self.enable()
            except OSError as error:
                done(error.strerror or str(error))
                return
            self._when_attached(lambda begun: begun.when_over(over), done)
        elif journal.is_closing and not self._is_stopping and compaction is not None:
            # CONFIG SET appendonly no came just before. A new journal is written when this one is closed.
            compaction.when_over(lambda _: self.rewrite_for_shutdown(done))
        else:
            self.rewrite(done)

    def _when_attached(self, then: Callable[[Compaction], None], fail: Outcome) -> None:
        compaction = self._driver.compaction
        if compaction is not None:
            then(compaction)
        elif self._disk is None:
            fail("the journal can't be made")
        else:
            self._starting.append((then, fail))

    def _begun(self, compaction: Compaction) -> None:
        starting, self._starting = self._starting, []
        for then, _ in starting:
            then(compaction)

    def close(self, done: Callable[[OSError | None], None]) -> None:
        """Write everything and the clean-shutdown mark, because the node ends."""
        journal = self.journal
        self._is_stopping = True
        if journal is None:
            done(None)
            return

        def closed(failure: OSError | None) -> None:
            self._driver.begin()
            if failure is None:
                # A restart relies on the mark: nothing came after it. This turn may have changed jobs before it learned
                # of the mark, or does so at its end. No record has these changes, so their messages are dropped: a job
                # that is handed over now would be in its queue again. `is_loading` refuses all input while the links
                # are being closed.
                self._broker.is_loading = True
                self._broker.outbox.messages.shut()
                self._let_go()
            done(failure)

        journal.close(closed, leave_mark=True)

    # -- INFO --------------------------------------------------------------------------------------

    def fields(self) -> Fields:
        """Return the fields of INFO persistence."""
        return figures(self._driver, self.last_load is not None, self.load_ms, self._rewritten)


def _ignore(_: str) -> None:
    """Ignore the outcome."""


def _has(recovery: Recovery, number: int) -> bool:
    return any(header.number == number for _, header, _ in recovery.files)
