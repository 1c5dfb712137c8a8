"""Spill service: takes bodies out of memory and brings them back, as the core asks for it.

The core chooses the bodies (core/spilling.py), and the store keeps them (persistence/spill.py). The service connects
the two at the end of each turn. `settle` runs before the turn is recorded: it reads bodies and frees places. `write`
runs after it: it writes bodies that may leave memory. The outcome of disk work opens a turn, in which the readers of
the bodies go on.

A disk that can't be written stops the spilling and nothing else. Bodies stay in memory, INFO and log say why, and after
a while a fresh file is tried. Until then the limits of maxmemory hold as without spilling.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from disque_py.core import spilling
from disque_py.core.broker import Broker
from disque_py.core.job import Job
from disque_py.core.spilled import Body, Spilled, Unread, released
from disque_py.log_lines import line
from persistence.disk import Disk
from persistence.disk_errors import PASSING
from persistence.spill import FILE_BYTES, Found, Place, SpillStore

if TYPE_CHECKING:
    from disque_py.core.spilled import Reader

# A batch has at most this many bytes. It is written when it has BATCH_BYTES_MIN, or on a small node a 64th of
# maxmemory.
BATCH_BYTES: Final = 1 << 20
BATCH_BYTES_MIN: Final = 256 << 10
BATCH_SHARE: Final = 64
# Bytes being written at a time: enough to keep the disk busy, few enough not to fill memory.
WRITING_BYTES_MAX: Final = 8 << 20
# Bodies read in one piece of work.
READ_BYTES: Final = 1 << 20
# A disk that failed is tried again after this, doubling.
RETRY_MS_MIN: Final = 1_000
RETRY_MS_MAX: Final = 32_000
# How often the service looks for files with much dead space.
LOOK_EVERY_MS: Final = 1_000


class SpillService:
    """One node's bodies on disk.

    begin   opens a turn
    wake    opens one, and has the tick come soon
    """

    def __init__(
        self,
        broker: Broker,
        disk: Disk,
        begin: Callable[[], None],
        wake: Callable[[], None],
        notice: Callable[[str], None],
        *,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self.store = SpillStore(disk, file_bytes)
        self._broker = broker
        self._begin = begin
        self._wake = wake
        self._notice = notice
        self._epoch = 0  # Grows when all jobs are forgotten together: the disk work in progress is void then.
        self._retry_at_ms = 0
        self._retry_ms = RETRY_MS_MIN
        self._copying = 0  # The file whose living bodies are copied; `_offset` is the place in it.
        self._offset = 0
        self._is_scanning = False
        self._looked_ms = 0

    def open(self) -> None:
        """Remove the files of an earlier process. From then on bodies may leave memory."""

        def opened(failure: OSError | None) -> None:
            self._begin()
            if failure is not None:
                self._fail(failure)
            self.switch()

        self.store.open(opened)

    def switch(self) -> None:
        """Apply `maxmemory-spill`. Bodies on disk are read from there in any case."""
        self._broker.spill.is_on = self._broker.settings.maxmemory_spill
        self._broker.apply_maxmemory()

    def close(self) -> None:
        """Remove the files, because the node ends."""
        self.store.clear()

    # -- a turn's end ------------------------------------------------------------------------------

    def settle(self) -> None:
        """Free and read places on disk, before the turn is recorded."""
        broker = self._broker
        spill = broker.spill
        if spill.is_void:
            spill.is_void = False
            self._epoch += 1
            self._copying = 0
            self.store.clear()
        if spill.unread and not (broker.is_journaling or broker.is_loading):
            self._lose()  # With a journal, the bodies are looked for there (storage/body_recovery.py).
        if spill.heads:
            spilling.read_ahead(broker)
        if spill.readings:
            self._read()
        if spill.released:
            places, spill.released = spill.released, []
            for place in places:
                self.store.release(place.file, place.size)
        if spill.blocked_producers:
            spilling.let_in(broker)

    def write(self) -> None:
        """Write bodies that may leave memory, after the turn was recorded."""
        broker = self._broker
        spill = broker.spill
        if spill.files or self.store.files:
            spill.files = len(self.store.files)
            spill.file_bytes = self.store.size
            if broker.now_ms - self._looked_ms >= LOOK_EVERY_MS:
                self._looked_ms = broker.now_ms
                self._look_for_space()
            elif self._copying:
                self._copy()
        if not broker.memory.is_spilling:
            return
        if len(spill.fresh) >= spilling.CHUNK or spill.older:
            spilling.tidy_fresh(broker)
        if spill.trouble and (broker.now_ms < self._retry_at_ms or spill.writing):
            return
        wanted = spilling.excess(broker)
        worth = min(BATCH_BYTES_MIN, broker.settings.maxmemory // BATCH_SHARE)
        if wanted < worth or spill.writing_bytes >= WRITING_BYTES_MAX:
            return
        wanted = min(wanted, BATCH_BYTES)
        jobs = spilling.take_fresh(broker, wanted)
        size = sum([len(job.body) for job in jobs])
        if size < wanted and not spill.fresh and not spill.older:
            jobs += spilling.seek(broker, wanted - size)
        if jobs:
            self._write(jobs)

    # -- out ---------------------------------------------------------------------------------------

    def _write(self, jobs: list[Job]) -> None:
        spill = self._broker.spill
        batch: list[tuple[Job, Body]] = []
        entries: list[tuple[bytes, bytes]] = []
        if not spill.writing:
            spill.wrote_ms = self._broker.now_ms
        for job in jobs:
            body = job.body
            if type(body) is bytes and job not in spill.writing:
                spill.writing[job] = None
                spill.writing_bytes += len(body)
                batch.append((job, body))
                entries.append((job.id, body))
        if not entries:
            return
        epoch = self._epoch

        def written(outcome: list[Place] | OSError) -> None:
            self._wake()
            self._written(epoch, batch, outcome)

        self.store.write(entries, written)

    def _written(self, epoch: int, batch: list[tuple[Job, Body]], outcome: list[Place] | OSError) -> None:
        broker = self._broker
        spill = broker.spill
        if isinstance(outcome, OSError):
            self._fail(outcome)
            if not self._is_void(epoch):
                for job, body in batch:
                    spill.writing.pop(job, None)
                    spill.writing_bytes -= len(body)
                spill.fresh += [job for job, _ in batch]
            return
        if spill.trouble:
            spill.trouble = ""
            self._retry_ms = RETRY_MS_MIN
            self._notice(line("spill-recovered"))
        release = self.store.release
        for (job, body), place in zip(batch, outcome, strict=True):
            if self._is_void(epoch):
                release(place.file, place.size)
                continue
            spill.writing_bytes -= place.size
            if type(body) is not bytes or not spilling.gone(broker, job, body, Spilled.at(*place)):
                release(place.file, place.size)

    def _fail(self, error: OSError) -> None:
        """Note that the disk takes no bodies now: they stay in memory, and it is tried again after a while."""
        spill = self._broker.spill
        reason = error.strerror or str(error)
        if not spill.trouble:
            self._notice(line("spill-failed", reason=reason))
        elif self._broker.now_ms >= self._retry_at_ms:
            self._retry_ms = min(2 * self._retry_ms, RETRY_MS_MAX)
        spill.trouble = reason
        self._retry_at_ms = self._broker.now_ms + self._retry_ms

    # -- back --------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Read the bodies that were asked for, in pieces. A body that is in memory by now is handed out at once."""
        broker = self._broker
        while broker.spill.readings:
            readings, broker.spill.readings = broker.spill.readings, []
            piece: list[tuple[Job, Reader, Spilled]] = []
            size = 0
            for job, reader in readings:
                body = job.body
                if type(body) is Spilled:
                    piece.append((job, reader, body))
                    size += body.size
                    if size >= READ_BYTES:
                        self._start_reading(piece)
                        piece, size = [], 0
                else:
                    self._wake()
                    reader(broker, job, body if type(body) is bytes and body else None)
            if piece:
                self._start_reading(piece)

    def _start_reading(self, piece: list[tuple[Job, Reader, Spilled]]) -> None:
        epoch = self._epoch

        def read(bodies: list[bytes | OSError]) -> None:
            self._wake()
            broker = self._broker
            for (job, reader, place), body in zip(piece, bodies, strict=True):
                if self._is_void(epoch):
                    reader(broker, job, None)
                elif not isinstance(body, OSError):
                    broker.spill.read += 1
                    reader(broker, job, body)
                elif job.body is not place:  # The body has another place by now, or is back, or its job is over.
                    broker.spill.readings.append((job, reader))
                elif body.errno in PASSING:
                    broker.schedule.call_at(broker.now_ms + RETRY_MS_MIN, partial(self._ask_again, epoch, job, reader))
                else:
                    broker.spill.unread[Unread(job, reader, place, body.strerror or str(body))] = None

        self.store.read([(job.id, Place(place.file, place.offset, place.size)) for job, _, place in piece], read)

    def _is_void(self, epoch: int) -> bool:
        """Return whether all jobs were forgotten since this epoch, perhaps in the turn that is open now."""
        return epoch != self._epoch or self._broker.spill.is_void

    def _lose(self) -> None:
        """Give up bodies that can't be read: without a journal they are in no other place."""
        broker = self._broker
        unread, broker.spill.unread = broker.spill.unread, {}
        for each in unread:
            if each.job.body is each.place:
                spilling.lost(broker, each.job, each.reason)
                each.reader(broker, each.job, None)
            else:
                broker.spill.readings.append((each.job, each.reader))

    def _ask_again(self, epoch: int, job: Job, reader: Reader) -> None:
        """Read a body again whose read failed for a passing reason."""
        if not self._is_void(epoch):
            self._broker.spill.readings.append((job, reader))
        else:
            reader(self._broker, job, None)

    # -- winning back space ------------------------------------------------------------------------

    def _look_for_space(self) -> None:
        """Look for a file with so much dead space that its living bodies are worth copying."""
        if not self._copying and not self._broker.spill.trouble:
            self._copying = self.store.sparse()
            self._offset = 0
            if self._copying:
                self._copy()

    def _copy(self) -> None:
        """Scan the next part of the file whose living bodies are copied."""
        if self._is_scanning or self._broker.spill.trouble:
            return
        number = self._copying
        if number not in self.store.files:
            self._copying = 0
            return
        self._is_scanning = True
        epoch = self._epoch

        def scanned(outcome: tuple[list[Found], int] | OSError) -> None:
            self._wake()
            if self._is_void(epoch) or isinstance(outcome, OSError):
                self._is_scanning = False
                self._copying = 0
                return
            found, self._offset = outcome
            if not self._offset:
                self._copying = 0
            self._move(epoch, found)

        self.store.scan(number, self._offset, scanned)

    def _move(self, epoch: int, found: list[Found]) -> None:
        """Write the living ones of these bodies again."""
        broker = self._broker
        moving: list[tuple[Job, Spilled]] = []
        entries: list[tuple[bytes, bytes]] = []
        for key, place, body in found:
            job = broker.find(key)
            if job is not None and type(job.body) is Spilled and job.body == Spilled.at(*place):
                moving.append((job, job.body))
                entries.append((key, body))
        if not entries:
            self._is_scanning = False
            return

        def written(outcome: list[Place] | OSError) -> None:
            self._wake()
            self._is_scanning = False
            if isinstance(outcome, OSError):
                self._fail(outcome)
                return
            for (job, old), place in zip(moving, outcome, strict=True):
                if not self._is_void(epoch) and job.body is old:
                    released(broker, old)
                    broker.memory.spilled_count += 1
                    broker.spill.bytes_on_disk += place.size
                    job.body = Spilled.at(*place)
                else:
                    self.store.release(place.file, place.size)

        self.store.write(entries, written)
