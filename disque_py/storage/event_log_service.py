"""Event log service: a node's log of events from start to end, as directives ask for it.

The service opens the log, continues it after a restart, and switches it on and off while the node runs. It closes a
log that can't be written, and begins a new one when the disk works again. The log never keeps the node from serving.
Without a folder, or with a disk that doesn't answer, the node runs without a log. INFO and the server's log say why,
and the service tries again.

A log has no gaps: its reader sees every transition that this node made from the log's first event on. So only a process
that goes on where the log ended may continue it. After unrecorded transitions (events switched off, disk errors) the
next log is a new one with another id.

At the end of a turn `record` gives the log the events that the core noted. Replies and messages wait until these are
written (node/output_commit.py, node/commit_position.py). Spec E4, E5.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from disque_py.core import events as core_events
from disque_py.core.client import Client
from disque_py.core.errors import CommandError
from disque_py.core.event_packing import Noted
from disque_py.event_format import STARTED
from disque_py.log_lines import line
from disque_py.node.turn import Driver
from disque_py.ports import LineMaker
from disque_py.storage.event_readers import NO_LOG, EventReaders, Outcome, Request
from persistence.disk import READING, Disk, Folder
from persistence.event_log import OPEN_NAME, SEGMENT_BYTES, EventLog, mark_closed
from persistence.event_reading import Found, open_log
from persistence.journal import ALWAYS
from persistence.records import FormatError

Fields = list[tuple[str, str | int]]

ID_BYTES: Final = 8
# A closed log can be read for this long before a new one takes its place.
NEW_LOG_AFTER_MS: Final = 30_000
# A folder that can't be opened is tried again after this, doubling.
RETRY_MS_MIN: Final = 5_000
RETRY_MS_MAX: Final = 300_000
# Events that may wait for a log that is being opened.
WAITING_MAX: Final = 100_000

OFF: Final = "off"
OPENING: Final = "opening"
ON: Final = "on"
CLOSED: Final = "closed"


class EventLogService:
    """The event log of one node.

    open_disk    opens the disk with the log's folder, and makes the folder if need be; OSError
    close_disk   called when the log is closed for good: the lock may be released
    is_there     whether there is such a folder
    state        OFF, OPENING, ON or CLOSED (wanted, but not possible at the moment)
    missed       how many events of this process are in no log
    """

    def __init__(
        self,
        driver: Driver,
        open_disk: Callable[[], Disk],
        close_disk: Callable[[], None],
        is_there: Callable[[], bool],
        notice: Callable[[str], None],
        maker: LineMaker | None = None,
        *,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.log: EventLog | None = None
        self.event_readers: EventReaders | None = None
        self.state = OFF
        self.trouble = ""
        self.missed = 0
        self._driver = driver
        self._broker = driver.broker
        self._open_disk = open_disk
        self._close_disk = close_disk
        self._is_there = is_there
        self._notice = notice
        self._maker = maker
        self._segment_bytes = segment_bytes
        self._disk: Disk | None = None
        self._position = 0
        self._needs_new = False  # Events went unrecorded: the log on disk may not be continued.
        self._is_closing = False
        self._retry_at_ms = 0
        self._retry_ms = RETRY_MS_MIN

    # -- life --------------------------------------------------------------------------------------

    def start(self, ready: Callable[[], None]) -> None:
        """Open the log, or mark an old one so that it is never continued. `ready` is called in any case."""
        if self._broker.settings.events:
            self._enable(ready)
            return
        if self._is_there():
            self._abandon(ready)
        else:
            ready()

    def _abandon(self, ready: Callable[[], None]) -> None:
        """Mark the log on disk as closed for good, because events are off."""

        def closed(outcome: OSError | None) -> None:
            if isinstance(outcome, OSError):
                self._notice(line("events-not-closed", reason=outcome.strerror or str(outcome)))
            self._close_disk()
            ready()

        try:
            disk = self._open_disk()
        except OSError as error:
            closed(error)
            return
        disk.start(READING, partial(_mark_found, mark=b"events were switched off\n"), closed)

    def started(self, reason: str) -> None:
        """Note the event STARTED: the node has loaded its jobs, or a log begins while it runs."""
        core_events.of_node(self._broker, STARTED, reason)

    def switch(self) -> None:
        """Apply CONFIG SET events."""
        if self._broker.settings.events:
            if self.state == OFF:
                if not self._is_closing:
                    self._enable(_ignore)
                self.started("events were switched on")
        elif self.state != OFF:
            self._disable()

    def _enable(self, ready: Callable[[], None]) -> None:
        self.state = OPENING
        if self._broker.events is None:
            self._broker.events = Noted()
        self._broker.event_source = self
        self._driver.attach_events(self)
        if self._disk is None:
            try:
                self._disk = self._open_disk()
            except OSError as error:
                self._failed(error.strerror or str(error))
                ready()
                return
        self._open(self._disk, ready)

    def _open(self, disk: Disk, ready: Callable[[], None]) -> None:
        new_id = self._broker.rng.randbytes(ID_BYTES).hex()
        needs_new = self._needs_new
        node = self._broker.me.id

        def work(folder: Folder) -> Found:
            try:
                if needs_new:
                    folder.remove(OPEN_NAME)
                return open_log(folder, new_id, node)
            except FormatError as error:
                raise OSError(str(error)) from error

        def opened(outcome: Found | OSError) -> None:
            self._driver.begin()
            if disk is not self._disk:
                return  # Switched off meanwhile.
            if isinstance(outcome, OSError):
                self._failed(outcome.strerror or str(outcome))
            elif self._needs_new and not needs_new:
                self._open(disk, ready)  # Opening took so long that events were dropped, so this log would have a gap.
                return
            else:
                self._opened(disk, outcome)
            ready()

        disk.start(READING, work, opened)

    def _opened(self, disk: Disk, found: Found) -> None:
        broker = self._broker
        settings = broker.settings
        for text in found.notices:
            self._notice(line("events-found", text=text))
        log = EventLog(
            disk,
            found.log_id,
            broker.me.id,
            self._changed,
            segments=found.segments,
            next_seq=found.next_seq,
            position=self._position,
            bytes_max=settings.events_max_bytes,
            age_ms_max=settings.events_max_age * 1000,
            segment_bytes=self._segment_bytes,
            syncs_each=settings.appendfsync == ALWAYS,
        )
        if self.event_readers is not None:
            self.event_readers.end()
        readers = self.event_readers.readers if self.event_readers is not None else {}
        tails = self.event_readers.tails if self.event_readers is not None else {}
        self.log = log
        self.event_readers = EventReaders(broker, log, disk, self._driver.begin, self._maker, self._notice)
        self.event_readers.readers = readers
        self.event_readers.tails = dict.fromkeys(tails, found.next_seq)
        self.state = ON
        self.trouble = ""
        self._needs_new = False
        self._retry_ms = RETRY_MS_MIN
        log.now_ms, log.wall_ms = broker.now_ms, broker.wall_ms
        self._driver.wait_for_events(log)
        log.begin()

    def _failed(self, reason: str) -> None:
        """Note that there is no log for now, and why."""
        if self.state != CLOSED or self.trouble != reason:
            self._notice(line("events-not-written", reason=reason))
        self.state = CLOSED
        self.trouble = reason
        self._retry_at_ms = self._broker.now_ms + self._retry_ms
        self._retry_ms = min(2 * self._retry_ms, RETRY_MS_MAX)

    def _changed(self) -> None:
        """Release what waited for the log, which has advanced or was closed. Readers go on within a turn."""
        log, event_readers = self.log, self.event_readers
        if (
            self.state == ON
            and log is not None
            and not log.error
            and (event_readers is None or not event_readers.is_awaited)
        ):
            self._driver.release()
            return
        self._driver.begin()
        if log is None:
            return
        if log.error and self.state == ON:
            self._needs_new = True
            self._position = log.position
            self.state = CLOSED
            self.trouble = log.error
            self._retry_at_ms = self._broker.now_ms + NEW_LOG_AFTER_MS
            self._notice(line("events-given-up", log=log.log_id, reason=log.error))
        if event_readers is not None:
            event_readers.advance()

    def _disable(self) -> None:
        """Apply CONFIG SET events no: write the noted events, and mark the log so that it is never continued."""
        self.record()
        self._broker.events = None
        self.state = OFF
        self.trouble = ""
        self._needs_new = True
        log, disk = self.log, self._disk
        if self.event_readers is not None:
            self.event_readers.end()
        self.log = self.event_readers = None
        self._broker.event_source = None
        self._disk = None
        self._is_closing = disk is not None

        def marked(_: OSError | None) -> None:
            self._is_closing = False
            self._close_disk()
            if self._broker.settings.events:
                self._enable(_ignore)

        def closed() -> None:
            self._driver.begin()
            if log is not None:
                self._position = log.position
            if disk is not None:
                disk.start(READING, lambda folder: mark_closed(folder, b"events were switched off\n"), marked)

        self._driver.detach_events()
        if log is not None:
            log.close(closed)
        else:
            closed()

    def close(self, done: Callable[[], None]) -> None:
        """Write all events, because the node ends."""
        self.record()
        if self.log is not None:
            self.log.close(done)
        elif self._needs_new:
            self._mark_incomplete(done)
        else:
            done()

    # -- turns -------------------------------------------------------------------------------------

    def record(self) -> None:
        """End a turn: give the log the events that the core noted."""
        broker = self._broker
        events = broker.events
        if events is None or not events.count:
            return
        if self.state == ON and self.log is not None:
            self.log.append_packed(events.take())
            self.log.await_write()
        elif self.state != OPENING or events.count > WAITING_MAX:
            self._drop()

    def _drop(self) -> None:
        events = self._broker.events
        if events is not None and events.count:
            self.missed += events.count
            self._broker.events = Noted()
            if not self._needs_new:
                self._needs_new = True
                self._mark_incomplete(_ignore)

    def _mark_incomplete(self, done: Callable[[], None]) -> None:
        """Mark the log that could not be opened: events are missing behind it, so no later process may continue it."""
        disk = self._disk
        if disk is None or self.log is not None:
            done()
            return
        mark = f"it could not be opened: {self.trouble}\n".encode()
        disk.start(READING, partial(_mark_found, mark=mark), lambda _: done())

    def set_clock(self, now_ms: int, wall_ms: int) -> None:
        """Begin a turn with this time."""
        log = self.log
        if log is not None:
            log.now_ms = now_ms
            log.wall_ms = wall_ms

    def tick(self) -> None:
        """Do the work that is due: trim the log, try a new one, answer readers that waited long enough."""
        if self.state == ON and self.log is not None:
            self.log.tick()
        elif self.state == CLOSED and self._broker.now_ms >= self._retry_at_ms:
            self._retry_at_ms = self._broker.now_ms + RETRY_MS_MAX
            self._drop()
            self._enable(_ignore)
            if self.state == OPENING:
                self.started("the log before was closed")
        if self.event_readers is not None:
            self.event_readers.tick()

    def next_ms(self) -> int | None:
        """Return when `tick` has to be called; None: at no certain time."""
        at_ms = self.log.next_ms() if self.log is not None else None
        if self.event_readers is not None:
            deadline_ms = self.event_readers.next_ms()
            if deadline_ms is not None and (at_ms is None or deadline_ms < at_ms):
                at_ms = deadline_ms
        return at_ms

    def set_limits(self) -> None:
        """Apply CONFIG SET events-max-bytes, events-max-age and appendfsync."""
        log, settings = self.log, self._broker.settings
        if log is not None:
            log.bytes_max = settings.events_max_bytes
            log.age_ms_max = settings.events_max_age * 1000
            log.syncs_each = settings.appendfsync == ALWAYS
            log.trim()

    # -- commands ----------------------------------------------------------------------------------

    def position(self) -> tuple[str, int, int, int]:
        """Return log id, first event, next durable event and bytes, for EVENTS INFO. CommandError without a log."""
        log = self._log()
        return log.log_id, log.first_seq, log.durable_seq, log.size

    def read(
        self,
        client: Client,
        argv: list[bytes],
        log_id: str,
        seq: int,
        count: int,
        bytes_max: int,
        block_ms: int,
        name: str,
        done: Outcome,
        *,
        is_packed: bool = False,
    ) -> None:
        """Run EVENTS READ. `block_ms` is how long it waits; -1: not at all, 0: for ever. CommandError."""
        log = self._log()
        if log_id != log.log_id:
            raise CommandError(f"NOLOG {log.log_id}")
        if seq > log.next_seq:
            raise CommandError(f"ERR event {seq} is behind the end of the log, which is {log.next_seq}")
        deadline_ms = self._broker.now_ms + block_ms if block_ms > 0 else block_ms
        assert self.event_readers is not None
        request = Request(seq, count, bytes_max, deadline_ms, done, is_packed=is_packed)
        self.event_readers.read(client, argv, request, name)

    def seek(self, wall_ms: int, done: Outcome) -> None:
        """Run EVENTS SEEK. CommandError."""
        self._log()
        assert self.event_readers is not None
        self.event_readers.seek(wall_ms, done)

    def tail(self, client: Client) -> None:
        """Run EVENTS TAIL. CommandError."""
        self._log()
        assert self.event_readers is not None
        self.event_readers.tail(client)

    def forget(self, client: Client) -> None:
        """Drop what a client waits for, because its connection is gone."""
        if self.event_readers is not None:
            self.event_readers.forget(client)

    def _log(self) -> EventLog:
        if self.log is None:
            raise CommandError(NO_LOG)
        return self.log

    def fields(self) -> Fields:
        """Return the fields of INFO events."""
        log, event_readers = self.log, self.event_readers
        fields: Fields = [
            ("events_enabled", int(self.state != OFF)),
            ("events_state", self.state),
            ("events_trouble", self.trouble),
            ("events_missed", self.missed),
        ]
        if log is None or event_readers is None:
            return fields
        now_ms = self._broker.now_ms
        fields += [
            ("events_log_id", log.log_id),
            ("events_first_seq", log.first_seq),
            ("events_durable_seq", log.durable_seq),
            ("events_next_seq", log.next_seq),
            ("events_bytes", log.size),
            ("events_segments", len(log.segments)),
            ("events_unwritten_bytes", log.unwritten_bytes),
            ("events_oldest_ms", log.segments[0].first_ms if log.segments else 0),
            ("events_fsyncs", log.syncs),
            ("events_lines_made", event_readers.lines_made),
            ("events_readers_waiting", len(event_readers.waiting)),
            ("events_tails", len(event_readers.tails)),
        ]
        for name, reader in event_readers.readers.items():
            lag = max(0, log.durable_seq - reader.seq)
            fields.append((f"events_reader_{name}", f"seq={reader.seq},lag={lag},idle_ms={now_ms - reader.asked_ms}"))
        return fields


def _mark_found(folder: Folder, mark: bytes) -> None:
    """Mark the log on disk as closed for good, if there is one that could be continued."""
    if OPEN_NAME in folder.names():
        mark_closed(folder, mark)


def _ignore() -> None:
    """Do nothing: no caller waits for the log."""
