"""Body recovery: a body that can't be read from its spill file is taken from the journal.

Spill files are written once, never synced and never copied. But with a journal no body leaves memory before its job's
base is recorded, body included (core/spilling.py). `job.place` names the base's segment. So a body is lost only when it
is in neither place: the segment was read up to the last byte written, and the job is not in it.

An error while the journal is read does not mean that the body is lost. If the directory is away, or the disk fails for
a moment, the search is repeated every second, TRIES_MAX times. While the journal itself can't be written, or the record
has not been written yet, it is repeated without limit. The readers of the body wait meanwhile. The segment may be
rewritten during the search: then the base is in a later segment, and is looked for there.

A recovered body stays in memory until memory is scarce again. Its place in the spill file is given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from disque_py.core import spilling
from disque_py.core.broker import Broker
from disque_py.core.spilled import Unread
from disque_py.log_lines import tell
from persistence.disk import READING, Disk
from persistence.disk_errors import PASSING
from persistence.search import Search

if TYPE_CHECKING:
    from collections.abc import Callable

    from persistence.journal import Journal

RETRY_MS: Final = 1_000
TRIES_MAX: Final = 5
# One line in the log reports many recoveries: it is written at most this often.
LOG_EVERY_MS: Final = 60_000


class BodyRecovery:
    """The search for bodies in one journal. `broker.spill.unread` has the bodies to look for.

    wake   opens a turn, and has `step` called soon
    """

    def __init__(self, broker: Broker, journal: Journal, disk: Disk, wake: Callable[[], None]) -> None:
        self._broker = broker
        self._journal = journal
        self._disk = disk
        self._wake = wake
        self._search: Search | None = None
        self._number = 0
        self._written = 0  # The journal's written position when the search began.
        self._wanted: dict[bytes, list[Unread]] = {}
        self._retry_at_ms = 0
        self._logged_ms = -LOG_EVERY_MS

    def step(self) -> None:
        """Begin a search if bodies are wanted and no search is under way."""
        broker = self._broker
        if self._search is not None or broker.now_ms < self._retry_at_ms:
            return
        number = 0
        for each in list(broker.spill.unread):
            if self._is_settled(each):
                continue
            number = number or each.job.place
            if each.job.place == number:
                if each.position < 0:
                    each.position = self._journal.position
                self._wanted.setdefault(each.job.id, []).append(each)
        if number:
            self._number = number
            self._written = self._journal.written
            self._search = Search(self._journal.written_parts(number), set(self._wanted))
            self._go_on(self._search)

    def _is_settled(self, each: Unread) -> bool:
        """Return whether a body need not be looked for: its job is over, it is back or elsewhere, or in no journal."""
        broker, job = self._broker, each.job
        if broker.find(job.id) is not job:
            self._hear(each, None)
        elif job.body is not each.place:
            del broker.spill.unread[each]
            broker.spill.readings.append((job, each.reader))
        elif job.place < broker.journal.first_place:
            self._lost(each, each.reason)
        else:
            return False
        return True

    def _go_on(self, search: Search) -> None:
        if search.is_over:
            self._over()
        else:
            self._disk.start(READING, search.step, self._on_read)

    def _on_read(self, outcome: list[tuple[bytes, bytes]] | OSError) -> None:
        self._wake()
        search = self._search
        assert search is not None
        if isinstance(outcome, OSError):
            self._failed(outcome)
            return
        for job_id, body in outcome:
            wanted = self._wanted.get(job_id)
            if wanted is not None and wanted[0].place.size == len(body):
                search.ids.discard(job_id)
                del self._wanted[job_id]
                for each in self._still_unread(wanted):
                    self._found(each, body)
        if not self._broker.is_journaling:
            self._wanted = {}  # The journal was switched off, and its disk is being closed.
        if self._wanted:
            self._go_on(search)
        else:
            self._search = None

    def _found(self, each: Unread, body: bytes) -> None:
        broker, job = self._broker, each.job
        if broker.find(job.id) is not job or job.body is not each.place:
            return  # The body is not wanted any more, or is now in another place: the next step handles that.
        if broker.now_ms - self._logged_ms >= LOG_EVERY_MS:
            self._logged_ms = broker.now_ms
            tell(broker.host, "spill-rescued", reason=each.reason)
        spilling.rescued(broker, job, body)
        self._hear(each, body)

    def _over(self) -> None:
        """End a search: the segment was read up to its end. A body that was not found is elsewhere by now, or lost."""
        number, written = self._number, self._written
        for each in self._end_search():
            if each.job.place == number and each.position > written:
                self._retry_at_ms = self._broker.now_ms + RETRY_MS
            elif each.job.place == number and not self._is_settled(each):
                self._lost(each, f"{each.reason}; it is not in the journal")

    def _failed(self, error: OSError) -> None:
        number = self._number
        for each in self._end_search():
            if each.job.place != number:
                continue  # The segment was removed while it was read.
            each.tries += not self._journal.level and error.errno not in PASSING
            if each.tries < TRIES_MAX:
                self._retry_at_ms = self._broker.now_ms + RETRY_MS
            elif not self._is_settled(each):
                self._lost(each, f"{each.reason}; nor from the journal: {error.strerror or error}")

    def _end_search(self) -> list[Unread]:
        """End the search. Return the bodies that were not found and are still wanted."""
        self._search = None
        wanted, self._wanted = self._wanted, {}
        return self._still_unread([each for readers in wanted.values() for each in readers])

    def _still_unread(self, wanted: list[Unread]) -> list[Unread]:
        unread = self._broker.spill.unread
        return [each for each in wanted if each in unread]

    def _lost(self, each: Unread, reason: str) -> None:
        spilling.lost(self._broker, each.job, reason)
        self._hear(each, None)

    def _hear(self, each: Unread, body: bytes | None) -> None:
        del self._broker.spill.unread[each]
        each.reader(self._broker, each.job, body)
