"""EventLog: the writing end of a log of events.

A turn's events are numbered and become a block. Messages and replies that must not go ahead of them wait for a
*position*. `ready_position` says how far all was written, so that the death of the process loses none of it. At least
once a second the events are synced. Only then may they be read (`durable_seq`): a power cut undoes no event that a
reader has seen. With `appendfsync always` every write is synced, and the position counts only then, as in the journal.

Writing is copying to a *window* on the file, of which the disk prepares more before it is needed (pages.py). So no
reply waits, and no thread is woken for each turn. Waking one costs more than any other step (50 of 170 us, at a job per
turn). If there is no window, or nothing is ready in it, blocks gather in a queue. The disk gets them in order, in one
lane, as many at a time as have gathered. Replies wait for that.

A log that can't be written is *closed*: after an error, or after a write that takes longer than STALL_MS. Then no reply
waits for it any more. Nothing is ever appended to it again, because events are missing from there on. The file `open`
is removed, which needs no space: without it a log is not continued. The file `closed` says why. Events that were on
disk can still be read. The next log has a new id.

Segments are removed, the oldest first, when there are more bytes than `bytes_max`, or when the youngest event of one is
older than `age_ms_max`. This module does not know what an event is, no clock and no file: Disk does the work, the
caller passes the time. Spec E4, E5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from persistence.disk import READING, SYNCING, WRITING, Disk, Folder, Window
from persistence.event_records import HEAD_BYTES, decode_events, encode_header, encode_packed, file_name, pack_events
from persistence.pages import READY_BYTES_MIN, Pages, map_pages, sync_pages
from persistence.zeros import Zeros, write_synced

SEGMENT_BYTES: Final = 16 * 1024 * 1024
# The log is removed one segment at a time. With a small limit the segments are smaller.
SEGMENTS_MIN: Final = 8
# At most this many bytes go to the disk at once; the rest gathers and goes with the next batch.
BATCH_BYTES_MAX: Final = 4 * 1024 * 1024
# An offset within a segment is remembered this often, so that finding a number reads no more than this.
MARK_BYTES: Final = 64 * 1024

SYNC_EVERY_MS: Final = 1_000
# No reply waits longer for a write. A write may include an fsync (`always`, a new file), or follow one (two full
# segments in a row), which takes seconds on a busy disk. A shorter limit would close logs needlessly, and readers would
# miss events.
STALL_MS: Final = 5_000
TRIM_EVERY_MS: Final = 1_000
# A node ticks every 100 ms. A node that did not tick for this long was stopped or busy, and can't judge its disk.
STOOD_STILL_MS: Final = 500

OPEN_NAME: Final = "open"
CLOSED_NAME: Final = "closed"


class Segment:
    """One file.

    first_seq          its first event
    first_ms, last_ms  wall clock of its header and of its youngest event, as far as known
    end                bytes written
    durable_end        bytes known to be on disk
    at                 where the next block goes: `end`, or behind a gap (pages.py)
    is_longer          the file is longer than `end` while it is written: zeros
    marks              (number of an event that begins a block, offset, wall clock ms), ascending, some way apart
    """

    __slots__ = ("at", "durable_end", "end", "first_ms", "first_seq", "is_longer", "last_ms", "marks", "name")

    def __init__(self, first_seq: int, first_ms: int, header_bytes: int) -> None:
        self.name = file_name(first_seq)
        self.first_seq = first_seq
        self.first_ms = self.last_ms = first_ms
        self.end = self.durable_end = self.at = header_bytes
        self.is_longer = False
        self.marks: list[tuple[int, int, int]] = [(first_seq, header_bytes, first_ms)]

    def mark(self, seq: int, offset: int, wall_ms: int) -> None:
        """Remember that a block begins here, if it is far enough from the last remembered one."""
        if offset - self.marks[-1][1] >= MARK_BYTES:
            self.marks.append((seq, offset, wall_ms))


class EventLog:
    """A log that is being written.

    log_id             16 bytes in hexadecimal digits
    next_seq           number of the next event; they begin with 1 and have no gaps
    durable_seq        number of the first event that may not be read yet
    written_seq        number of the first event that was not handed to the system yet
    position, written  bytes of blocks appended in this process, and handed to the system
    segments           the files, oldest first; the last one is written
    error              why the log was closed; empty while it is not
    on_change          called from the loop when any of this may have changed
    watch              called with what is appended: number of the first event, the events, the position behind them
    """

    def __init__(
        self,
        disk: Disk,
        log_id: str,
        node: bytes,
        on_change: Callable[[], None],
        *,
        segments: list[Segment] | None = None,
        next_seq: int = 1,
        position: int = 0,
        syncs_each: bool = False,
        bytes_max: int = 1 << 30,
        age_ms_max: int = 0,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.log_id = log_id
        self.node = node
        self.next_seq = self.durable_seq = next_seq
        self.position = self.written = position
        self.segments = segments if segments is not None else []
        self.error = ""
        self.is_closed = False
        self.syncs_each = syncs_each
        self.bytes_max = bytes_max
        self.age_ms_max = age_ms_max
        self.now_ms = 0
        self.wall_ms = 0
        self.syncs = 0
        self.watch: Callable[[int, list[Any], int], None] | None = None
        self._disk = disk
        self._on_change = on_change
        self._segment_bytes = segment_bytes
        self._file: Segment | None = None
        self._pages: Pages | None = None
        self._zeros = Zeros()
        # (parts of the block, their bytes, first event, how many, wall clock ms), not handed to the disk yet.
        self._queue: deque[tuple[list[bytes], int, int, int, int]] = deque()
        self.written_seq = next_seq
        self._is_busy = False
        self._is_opening = False
        # When the disk last did, or was given, some of the work that replies wait for.
        self._moved_ms = 0
        self._ticked_ms = 0
        self._is_syncing = False
        self._ending: Segment | None = None  # The full file that is brought to disk and cut to its length.
        self._synced_ms = 0
        self._trimmed_ms = 0
        self._closing: Callable[[], None] | None = None

    @property
    def first_seq(self) -> int:
        """Return the oldest event that can be read, or `durable_seq`: events that are not on disk can't be read."""
        return self.segments[0].first_seq if self.segments else self.durable_seq

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(segment.end for segment in self.segments)

    @property
    def unwritten_bytes(self) -> int:
        """Return how many bytes were appended and not handed to the system."""
        return self.position - self.written

    # -- appending ---------------------------------------------------------------------------------

    def append(self, events: list[Any]) -> None:
        """Number these events and have them written, as one block."""
        self.append_packed([(pack_events(events), len(events))] if events else [])

    def append_packed(self, parts: list[tuple[bytes, int]]) -> None:
        """Number a turn's events and have them written: a block of each (packed list of events, how many)."""
        if self.is_closed:
            return
        if self.position == self.written:
            self._moved_ms = self.now_ms
        seq = self.next_seq
        for payload, count in parts:
            block = encode_packed(payload, count, self.next_seq, self.durable_seq, self.wall_ms)
            size = HEAD_BYTES + len(payload)
            self.position += size
            if self._queue or not self._put(block, size, self.next_seq, count, self.wall_ms):
                self._queue.append((block, size, self.next_seq, count, self.wall_ms))
            self.next_seq += count
        if self.watch is not None:
            self.watch(seq, [event for payload, _ in parts for event in decode_events(payload)], self.position)
        if not self._is_busy:
            self._pump()

    def _put(self, block: list[bytes], size: int, seq: int, count: int, wall_ms: int) -> bool:
        """Write the block now, if that needs no waiting."""
        file, pages = self._file, self._pages
        if file is None or pages is None or self.syncs_each:
            return False
        at = file.at
        if not pages.has_room(at, size, self.now_ms) or (self._is_full(file) and not self._is_syncing):
            return False
        part_at = at
        for part in block:
            pages.window.put(part_at, part)
            part_at += len(part)
        file.mark(seq, at, wall_ms)
        file.last_ms = wall_ms
        file.end = file.at = at + size
        assert self.written + size <= self.position
        self.written += size
        self.written_seq = seq + count
        return True

    def ready_position(self) -> int:
        """Return the position up to which all is as safe as it will be. Messages that wait for it may leave."""
        return self.position if self.is_closed else self.written

    def await_write(self) -> None:
        """Let a write, or the preparation of one, end now if the disk is quick."""
        if self._is_busy and not self._is_opening:
            self._disk.wait(WRITING)

    def must_wait(self) -> bool:
        """Whether replies wait for their events."""
        return not self.is_closed

    # -- time --------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do the work that is due at `now_ms`, `wall_ms`: the sync, closing after a stalled write, old segments."""
        if self.is_closed:
            return
        if self.now_ms - self._ticked_ms > STOOD_STILL_MS:
            self._moved_ms = self.now_ms  # The node stood still, not the disk: the disk's time starts now.
        self._ticked_ms = self.now_ms
        if self._is_moving and self.now_ms - self._moved_ms > STALL_MS:
            self.fail(f"the disk has taken no write for {(self.now_ms - self._moved_ms) / 1000:.1f} seconds")
            return
        if self._needs_sync() and self.now_ms - self._synced_ms >= SYNC_EVERY_MS:
            self._sync()
        if self.now_ms - self._trimmed_ms >= TRIM_EVERY_MS:
            self._trimmed_ms = self.now_ms
            self.trim()

    def next_ms(self) -> int | None:
        """Return when `tick` is due; None: not before something is appended. Housekeeping calls it anyway."""
        if self.is_closed:
            return None
        if self._is_moving:
            return self._moved_ms + STALL_MS + 1
        return self._synced_ms + SYNC_EVERY_MS if self._needs_sync() and not self._is_syncing else None

    @property
    def _is_moving(self) -> bool:
        return self._is_busy or self.position > self.written

    def trim(self) -> None:
        """Drop the segments that are too many or too old; the file being written stays."""
        if self.is_closed:
            return
        size = self.size
        dropped: list[str] = []
        oldest_ms = self.wall_ms - self.age_ms_max if self.age_ms_max else -1
        while len(self.segments) > 1 and (
            (self.bytes_max and size > self.bytes_max) or self.segments[0].last_ms < oldest_ms
        ):
            first = self.segments[0]
            if first.durable_end < first.end or first is self._ending:
                break  # It is on its way to the disk.
            gone = self.segments.pop(0)
            size -= gone.end
            dropped.append(gone.name)
        if dropped:
            self._disk.start(READING, lambda folder: _remove(folder, dropped), lambda outcome: None)

    # -- writing -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Make the first file."""
        self._pump()

    def _pump(self) -> None:
        """Give the disk its next work, if it is idle."""
        if self._is_busy or self.is_closed:
            return
        file = self._file
        # Two syncs of one file at a time: an error would reach only one of them.
        if file is None:
            self._open(None)
        elif self._queue and not self._is_syncing and self._is_full(file):
            self._open(file)  # No earlier: at most two files may have blocks that are not on disk.
        elif self._queue:
            if self._is_syncing and self.syncs_each:
                return
            size = self._queue[0][1]
            pages = self._pages
            if pages is not None and not self.syncs_each and file.at + size <= pages.window.size:
                self._prepare(file, pages, size)
            else:
                self._write(file)
        elif self._closing is not None:
            if not self._is_syncing:
                self._finish(file)
        elif self._pages is not None and self._pages.is_short(file.at):
            self._prepare(file, self._pages, 0)

    def _is_full(self, file: Segment) -> bool:
        if file.end >= self._segment_limit():
            return True
        has_events = self.written_seq > file.first_seq
        return has_events and bool(self.age_ms_max) and self.wall_ms - file.first_ms > self.age_ms_max // SEGMENTS_MIN

    def _segment_limit(self) -> int:
        """Bytes of a segment."""
        return min(self._segment_bytes, self.bytes_max // SEGMENTS_MIN) if self.bytes_max else self._segment_bytes

    def _open(self, old: Segment | None) -> None:
        first_seq = self.written_seq
        header = encode_header(self.log_id, first_seq, self.node, self.wall_ms)
        segment = Segment(first_seq, self.wall_ms, len(header))
        name = segment.name
        size = 0 if self.syncs_each else self._segment_limit()
        wanted = self._pages.wanted if self._pages is not None else READY_BYTES_MIN
        self._pages = None
        began_ms = self.now_ms

        def work(folder: Folder) -> Window | None:
            folder.create(name, header)
            return map_pages(folder, name, size, wanted) if size else None

        self._is_busy = self._is_opening = True
        self._moved_ms = self.now_ms
        self._disk.start(WRITING, work, lambda outcome: self._on_opened(outcome, segment, old, began_ms, wanted))

    def _on_opened(
        self, outcome: Window | OSError | None, segment: Segment, old: Segment | None, began_ms: int, wanted: int
    ) -> None:
        self._is_busy = self._is_opening = False
        self._moved_ms = self.now_ms
        if isinstance(outcome, OSError):
            self.fail(_reason(outcome))
        if self.is_closed:
            return
        if outcome is not None and not isinstance(outcome, OSError):
            segment.is_longer = True
            self._pages = Pages(outcome, segment.end, min(wanted, outcome.size), began_ms, wanted)
        self._file = segment
        self._zeros.begin_file()
        self.segments.append(segment)
        if old is not None:
            self._end(old, segment.first_seq)
        self._pump()
        self._on_change()

    def _end(self, old: Segment, next_seq: int) -> None:
        """Sync the rest of the segment while the next one is written; no reply waits for that."""

        def done(outcome: OSError | None) -> None:
            self._is_syncing = False
            self._ending = None
            if isinstance(outcome, OSError):
                self.fail(_reason(outcome))
            if self.is_closed:
                return
            self._durable(old, old.end, next_seq)
            self._pump()
            self._on_change()

        self._is_syncing = True
        self._ending = old
        self._synced_ms = self.now_ms
        self._disk.start(SYNCING, lambda folder: end_file(folder, old), done)

    def _write(self, file: Segment) -> None:
        queue = self._queue
        chunks: list[bytes] = []
        size = 0
        offset = end = file.at
        while queue and size < BATCH_BYTES_MAX:
            block, block_bytes, seq, count, wall_ms = queue.popleft()
            file.mark(seq, end, wall_ms)
            file.last_ms = wall_ms
            chunks += block
            size += block_bytes
            end += block_bytes
            next_seq = seq + count
        name = file.name
        is_synced = self.syncs_each
        has_unsynced = file.durable_end < file.end  # `appendfsync always` came into force a moment ago.
        self._pages = None  # A thread writes now: the loop may copy nothing to the same place.
        zeros = self._zeros.behind(end, self._segment_limit()) if is_synced else b""
        if zeros:
            file.is_longer = True

        def work(folder: Folder) -> bool:
            if not is_synced:
                folder.write(name, offset, chunks)
                return False
            return write_synced(folder, name, offset, chunks, zeros, has_unsynced=has_unsynced)

        def written(outcome: bool | OSError) -> None:
            error = outcome if isinstance(outcome, OSError) else None
            if zeros and error is None:
                self._zeros.written(end + len(zeros), has_room=outcome is True)
            self._on_written(error, file, end, next_seq, size, is_synced)

        self._is_busy = True
        self._moved_ms = self.now_ms
        self._disk.start(WRITING, work, written)

    def _on_written(
        self, outcome: OSError | None, file: Segment, end: int, next_seq: int, size: int, is_synced: bool
    ) -> None:
        self._is_busy = False
        self._moved_ms = self.now_ms
        if isinstance(outcome, OSError):
            self.fail(_reason(outcome))
        if self.is_closed:
            return
        self.written += size
        assert self.written <= self.position
        file.end = file.at = end
        self.written_seq = next_seq
        if is_synced:
            self.syncs += 1
            self._synced_ms = self.now_ms
            self._durable(file, end, next_seq)
        self._pump()
        self._on_change()

    def _prepare(self, file: Segment, pages: Pages, size: int) -> None:
        """Have more of the window prepared, at least `size` bytes, and then put the waiting blocks there."""
        start, end = pages.to_prepare(file.at, size, self.now_ms)
        name = file.name
        window = pages.window
        began_ms = self.now_ms

        def prepared(outcome: OSError | None) -> None:
            self._is_busy = False
            self._moved_ms = self.now_ms
            if self.is_closed:
                return
            if isinstance(outcome, OSError):
                self._pages = None  # If the disk is broken, the next write finds out and says why.
            elif pages is self._pages:
                pages.prepared(file.at, start, end, began_ms)
                queue = self._queue
                while queue:
                    block = queue.popleft()
                    if not self._put(*block):
                        queue.appendleft(block)
                        break
            self._pump()
            self._on_change()

        self._is_busy = True
        self._moved_ms = self.now_ms
        self._disk.start(WRITING, lambda folder: folder.prepare(name, window, start, end), prepared)

    def _needs_sync(self) -> bool:
        return self._file is not None and self._file.durable_end < self._file.end

    def _sync(self) -> None:
        """Sync the file beside the writing, in a lane of its own."""
        file = self._file
        if self._is_syncing or file is None or self._is_opening or (self._is_busy and self.syncs_each):
            return
        end, next_seq, name = file.end, self.written_seq, file.name
        self._is_syncing = True
        self._synced_ms = self.now_ms
        durable_end = file.durable_end
        pages = self._pages
        window = pages.window if pages is not None else None
        again = 0, 0
        if pages is not None:
            file.at, again = pages.leave(end)

        def work(folder: Folder) -> bool:
            if window is None:
                folder.sync(name)
                return False
            return sync_pages(folder, name, window, (durable_end, end), again)

        def done(outcome: bool | OSError) -> None:
            self._is_syncing = False
            if isinstance(outcome, OSError):
                self.fail(_reason(outcome))
            if self.is_closed:
                return
            if pages is not None and pages is self._pages:
                if outcome is True:
                    file.at = pages.come_back(file.at, file.end, self.now_ms)
                else:
                    self._pages = None
            self.syncs += 1
            self._durable(file, end, next_seq)
            self._pump()
            self._on_change()

        self._disk.start(SYNCING, work, done)

    def _durable(self, file: Segment, end: int, next_seq: int) -> None:
        file.durable_end = max(file.durable_end, end)
        self.durable_seq = max(self.durable_seq, next_seq)

    # -- the end -----------------------------------------------------------------------------------

    def fail(self, reason: str) -> None:
        """Close the log: events are missing from here on. The reason is written to disk, if that works."""
        if self.is_closed:
            return
        self.error = reason
        self.is_closed = True
        self._queue.clear()
        mark = f"{self.log_id} {self.durable_seq} {reason}\n".encode()
        self._disk.start(WRITING, lambda folder: mark_closed(folder, mark), lambda outcome: None)
        closing, self._closing = self._closing, None
        if closing is not None:
            closing()
        self._on_change()

    def close(self, done: Callable[[], None]) -> None:
        """Write and sync all, then call `done`. If the log was closed after an error, call it at once."""
        if self.is_closed:
            done()
            return
        self._closing = done
        self._pump()

    def _finish(self, file: Segment) -> None:
        end, next_seq = file.end, self.written_seq

        def finished(outcome: OSError | None) -> None:
            self._is_busy = False
            if isinstance(outcome, OSError):
                self.fail(_reason(outcome))
                return
            self._durable(file, end, next_seq)
            self.is_closed = True
            closing, self._closing = self._closing, None
            if closing is not None:
                closing()

        self._is_busy = True
        self._moved_ms = self.now_ms
        self._pages = None
        self._disk.start(WRITING, lambda folder: end_file(folder, file), finished)


def mark_closed(folder: Folder, mark: bytes) -> None:
    """Mark a log so that nothing may be appended to it any more; the text of `mark` is for people."""
    folder.remove(OPEN_NAME)
    folder.replace(CLOSED_NAME, mark)


def end_file(folder: Folder, segment: Segment) -> None:
    """Bring all of the segment's blocks to disk, with nothing behind them."""
    if segment.is_longer:
        folder.truncate(segment.name, segment.end)
    else:
        folder.sync(segment.name)


def _remove(folder: Folder, names: list[str]) -> None:
    for name in names:
        folder.remove(name)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
