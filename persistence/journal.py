"""Journal: the writing end of a node's journal. Blocks become files, and replies learn when they may leave.

A turn's records become a block. Messages and replies that must not go ahead of them wait for a *position*: `append`
returns the end of the turn, and `ready_position` says how far everything has come. The policy decides what that means
(spec P1, P4):

    always     on disk; one fsync serves all that was written since the last one
    everysec   written, so that only a power cut can lose it; on disk at least once a second, on a busy node after
               SYNC_BYTES, and when the oldest unsynced record is over LATE_MS old, nothing goes ahead before it is
    no         written; the system decides when it is on disk

However long a disk takes, nothing goes ahead of unwritten records, because the death of the process would lose them.

Writing. With `everysec` and `no`, writing is copying to a *window* on the file, of which the disk prepares more before
it is needed (pages.py). So no reply waits, and no thread is woken for each turn, which would cost more than all the
rest. If nothing is ready in the window, and with `always`, one lane of the disk writes, in order, as much at a time as
has gathered. With `always` each write is a sync as well. With `everysec` an fsync runs beside the writing, once a
second. A segment's file is synced before the next file is begun, so only the state of the last one is ever in doubt.

With `always` the file has zeros behind its blocks, too, so that few writes make it longer (zeros.py).

A sync locks the pages that it writes, and the loop must not touch them. So the sync gets the pages before the one that
is being written, up to the end of a block. If there is little to sync, the sync gets all of it, and the lane writes
meanwhile. Blocks are contiguous, so a position determines a file offset.

Errors. Blocks stay in memory until they are safe. After an error no unsynced byte is trusted. The file is closed at the
last position that is known to be good, and later blocks are written again, into a new file of the same segment. The
same is done after a failed fsync, because another fsync that succeeds proves nothing. For the same reason no two syncs
of one file run at the same time: the system may report an error to only one of them. Until writing works, `level` says
which commands are refused. A reserved file takes the acks of a full disk, and the records of compaction
(reserved_segment.py); blocks written before are synced in their old place.

Before a file is begun, the journal checks that those before it are there: another volume may have been mounted
meanwhile. The content of missing files is then only in memory (`is_incomplete`), and has to be recorded again.

The end. Everything is synced, and a mark is left that names the journal's end. A record that comes while the mark is
being written removes the mark first: it must never name a position before the journal's end.

write_queue.py has the blocks in flight, closed_segments.py the closed files. This module knows no job, no clock and no
file: Disk does the work, the caller passes the time. See docs/journal.md.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from persistence.closed_segments import ClosedSegments
from persistence.disk import SYNCING, WRITING, Disk, Folder, Window
from persistence.disk_errors import FINE, FULL_DISK, NO_ACKS, NO_ADDS, NO_WRITES
from persistence.pages import PAGE_BYTES, READY_BYTES_MIN, Pages, map_pages, sync_pages
from persistence.records import DROPPED, IS_ALWAYS, Part, Run, encode_header, encode_parts, file_name, unpacked
from persistence.reserved_segment import RESERVE_BYTES, Reserve, become_segment
from persistence.write_queue import Waiting, WriteQueue
from persistence.zeros import Zeros, write_synced

ALWAYS: Final = "always"
EVERYSEC: Final = "everysec"
NO: Final = "no"

CLEAN_NAME: Final = "clean"

SEGMENT_BYTES: Final = 32 * 1024 * 1024
# A turn's records are split into blocks of about this size.
BLOCK_BYTES: Final = 1024 * 1024
# At most this many bytes are given to the disk at once; the rest gathers and goes with the next batch.
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
# Unwritten blocks that may gather in memory while the disk fails. Beyond this, all commands that write are refused.
UNWRITTEN_BYTES_MAX: Final = 256 * 1024 * 1024
# A sync of this much may leave out the last page: the bytes in it are hardly older than the ones after it.
LEAVING_BYTES_MIN: Final = 64 * 1024
NO_LIMIT: Final = 1 << 62

SYNC_EVERY_MS: Final = 1_000
# With `everysec` a busy node syncs earlier, after this much: the blocks in memory are then few enough that their memory
# is used again and again. To get fresh memory from the system for each block costs more than these syncs.
SYNC_BYTES: Final = 8 * 1024 * 1024
TICK_MS: Final = 20  # No tick comes sooner than this, whatever is late.
LATE_MS: Final = 2_000  # A power cut loses no more than this (spec P4).
REFUSE_MS: Final = 5_000
# If the time jumps by more than this while the disk has work, the process did not run, and the disk was asked nothing.
PAUSE_MS: Final = 2 * SYNC_EVERY_MS
RETRY_MS: Final = 1_000
REMOVE_AGAIN_MS: Final = 10_000


class _File(NamedTuple):
    """The file that is being written."""

    number: int
    part: int
    start: int
    header_bytes: int
    end_max: int  # no block may end behind this; only the reserved file has such a limit
    is_reserve: bool

    @property
    def name(self) -> str:
        return file_name(self.number, self.part)


class Journal:
    """The writing end of a node's journal.

    number              segment that records of this turn go to: the place of a base
    position            end of the appended blocks
    written, synced     how far the disk has come
    error               the disk's error, while writing fails
    level               FINE, NO_ADDS, NO_ACKS or NO_WRITES: which commands are refused
    delayed_syncs       times that a record was unsynced for LATE_MS (everysec)
    on_change           called from the loop when `ready_position` or `level` may have changed
    is_making_room      compaction is in progress on a full disk: no new reserved file takes the space it frees yet
    is_incomplete       files of it are gone or damaged; a caller that knows their records records them again
    watch               called with every turn's records, and with the position behind them

    A method that is called by the disk, in the loop, ends with `_changed`.
    """

    def __init__(
        self,
        disk: Disk,
        node: bytes,
        policy: str,
        on_change: Callable[[], None],
        *,
        files: tuple[Part, ...] = (),
        segment_bytes: int = SEGMENT_BYTES,
        reserve_bytes: int = RESERVE_BYTES,
        has_reserve: bool = False,
    ) -> None:
        self.node = node
        self.policy = policy
        self.number = max((file.number for file in files), default=0) + 1
        self.position = self.written = self.synced = max((file.end for file in files), default=0)
        self.error = ""
        self.level = FINE
        self.delayed_syncs = 0
        self.watch: Callable[[list[list[Any]], int], None] | None = None
        self.bytes_written = 0
        self.syncs = 0
        self.now_ms = 0
        self.wall_ms = 0
        self.is_closed = False
        self.is_incomplete = False
        self._disk = disk
        self._on_change = on_change
        self._write_queue = WriteQueue()
        self._chain = ClosedSegments(disk, self._on_removed, files)
        self._reserve = Reserve(disk, reserve_bytes, is_there=has_reserve)
        self._segment_bytes = segment_bytes
        self._segment_start = self.position
        self._file: _File | None = None
        self._pages: Pages | None = None
        self._is_longer = False  # The file has zeros behind its blocks.
        self._zeros = Zeros()
        self._is_busy = False
        self._is_brief = False  # The lane does what a quick disk ends in a moment.
        self._is_writing = False  # The lane writes: the loop may copy nothing to the same place.
        self._is_sealing = False  # The lane syncs all of the file: no other sync may run beside it.
        self._is_syncing = False
        self._is_syncing_all = False  # … the page that would be written, too.
        self._sync_started_ms = 0
        self._may_refuse_ms = 0  # A slow disk is no reason to refuse commands before this time.
        self._is_failed = False
        self._is_full = False
        # While the disk is full: the position up to which there should be room, in the reserved and removed files.
        self._room_end = 0
        # Compaction is in progress: no reserved file takes the space it frees before it is over.
        self.is_making_room = False
        self._failed_ms = 0
        self._remove_again_ms = 0
        # The segment that begins a new chain; 0: none does.
        self._fresh_from = 0
        # The policy that comes into force when the journal is on disk up to that position.
        self._next_policy: tuple[str, int] | None = None
        self._closing: Callable[[OSError | None], None] | None = None
        self._leaves_mark = False
        # The end that the clean-shutdown mark names, while it is being written or removed; else -1.
        self._mark_at = -1
        self._when_closed: list[tuple[int, Callable[[OSError | None], None]]] = []
        self._was_late = False

    def begin(self) -> None:
        """Make the first file."""
        self._pump()

    def set_clock(self, now_ms: int, wall_ms: int) -> None:
        """Pass the time. After a pause of the process, the disk gets some time before it counts as too slow."""
        if now_ms - self.now_ms > PAUSE_MS and self._write_queue.has_ages:
            self._may_refuse_ms = now_ms + REFUSE_MS - LATE_MS
        self.now_ms = now_ms
        self.wall_ms = wall_ms

    # -- appending ---------------------------------------------------------------------------------

    def append(self, runs: Sequence[Run]) -> int:
        """Append a turn's records; return the position that its replies wait for."""
        # A block with this flag promises `always` for all that follows, too, up to the next block.
        flags = IS_ALWAYS if self.policy == ALWAYS and self._next_policy is None and not self._is_ending else 0
        position = self._enqueue(encode_parts(runs, self.position, self.synced, self.wall_ms, flags))
        if self.watch is not None:
            self.watch([unpacked(run) for run in runs], position)
        if position - self._segment_start >= self._segment_bytes:
            self._next_segment()
        if self.level:
            self._set_level()
        self._pump()
        if self.policy == EVERYSEC and self.written - self.synced >= SYNC_BYTES and self._is_sync_due:
            self._sync_aside(may_leave=True)
        return position

    def rotate(self) -> int:
        """Close the segment, so that it can be copied or linked; return the number of the last closed one."""
        if self.position > self._segment_start:
            self._next_segment()
        if self._file is None or self._file.number < self.number:
            self.append([])  # Also the file of a full segment is closed only when the next one is begun.
        return self.number - 1

    def restart(self) -> int:
        """Void all earlier records: begin a new chain. Old files go when the new one is on disk."""
        self._next_segment()
        self._fresh_from = self.number
        return self.append([])

    def drop(self, number: int) -> None:
        """Remove the files of this closed segment when that is safe; its living records were appended again."""
        self._chain.drop(number, self.append([[DROPPED, number, *self._chain.gone_with(number)]]))

    def _enqueue(self, parts: list[bytes]) -> int:
        start = self.position
        assert self.synced <= self.written <= start
        assert self._segment_start <= start
        end = start
        for part in parts:
            end += len(part)
        self.position = end
        self._write_queue.add(Waiting(self.number, start, end, parts), self.now_ms)
        return end

    def _next_segment(self) -> None:
        self.number += 1
        self._segment_start = self.position

    # -- progress ----------------------------------------------------------------------------------

    def ready_position(self) -> int:
        """Return the position up to which all is as safe as the policy promises. Replies up to there may leave."""
        ready = self._ready_position()
        # If the mark is on disk, a restart assumes that no record came after it.
        return min(ready, self._mark_at) if self._mark_at >= 0 else ready

    def _ready_position(self) -> int:
        if self.policy == ALWAYS:
            return self.synced
        if self._is_failed:
            return self.written  # New replies wait for nothing (`must_wait`); those promised before do.
        if self.unsynced_ms() > LATE_MS and self.policy == EVERYSEC:
            return self.synced
        return self.written

    def must_wait(self) -> bool:
        """Whether new replies wait for their records. After an error, the replies still given need no disk."""
        return not self._is_failed

    def unsynced_ms(self) -> int:
        """Return the age of the oldest record that is not yet as safe as the policy requires; 0 if there is none.

        Safe is on disk; with `no`, written.
        """
        return self._write_queue.oldest_ms(self.now_ms)

    @property
    def has_unsynced(self) -> bool:
        """Return whether there is such a record."""
        return self._write_queue.has_ages

    @property
    def unwritten_bytes(self) -> int:
        """Return the bytes of blocks that are not written."""
        return self._write_queue.queued_bytes + (self._write_queue.kept_bytes if self._is_writing else 0)

    @property
    def is_syncing(self) -> bool:
        """Whether an fsync is in progress."""
        return self._is_syncing or (self._is_busy and self.policy == ALWAYS)

    @property
    def refusal_reason(self) -> str:
        """Return why commands are refused, in a few words; empty if none are."""
        if self.error or not self.level:
            return self.error
        done = "written" if self.policy == NO else "synced"
        return f"the disk is too slow, nothing was {done} for {self.unsynced_ms() // 1000} seconds"

    @property
    def is_closing(self) -> bool:
        """Whether it is about to be closed."""
        return self._closing is not None

    @property
    def _is_ending(self) -> bool:
        """Whether it is about to be closed without a mark: later changes of the node will not be in it."""
        return self._closing is not None and not self._leaves_mark

    @property
    def is_on_reserve(self) -> bool:
        """Whether the disk is full, and blocks go to the reserved file, or to the room that it left."""
        return self._reserve.is_used

    @property
    def room_bytes(self) -> int:
        """Return how much can be written while `is_on_reserve`, if no other program takes the room."""
        return max(0, self._room_end - self.position)

    # -- files of the journal ------------------------------------------------------------------------

    @property
    def files(self) -> list[Part]:
        """Return the closed files, in order."""
        return self._chain.files

    def hold(self) -> None:
        """Remove no file until `release`."""
        self._chain.hold()

    def release(self) -> None:
        """Allow removals again, and make those that waited."""
        self._chain.release(self.synced)

    def files_up_to(self, number: int) -> list[Part]:
        """Return the closed files up to this segment, oldest first; those that only wait to be removed included."""
        return self._chain.up_to(number)

    def parts_of(self, number: int) -> list[Part]:
        """Return the files of a closed segment."""
        return self._chain.parts_of(number)

    def written_parts(self, number: int) -> list[Part]:
        """Return the files of a segment, the one being written included, as far as they can be read."""
        parts = self._chain.parts_of(number)
        file = self._file
        if file is not None and file.number == number and self.written > file.start:
            parts.append(Part(number, file.part, file.start, self.written))
        return parts

    def has_segment(self, number: int) -> bool:
        """Whether files of this segment exist, are being removed, or will be made."""
        queue = self._write_queue.queue
        first = queue[0].number if queue else self.number
        return self._chain.has_files(number) or first <= number <= self.number

    def closed_segments(self) -> list[int]:
        """Return the segments that are closed, on disk and not being dropped, oldest first."""
        return self._chain.before(self._file.number if self._file is not None else self.number)

    @property
    def may_remove(self) -> bool:
        """Whether to try dropping a segment now: each try costs a record, and the last one may just have failed."""
        return self.now_ms >= self._remove_again_ms

    def when_closed(self, number: int, then: Callable[[OSError | None], None]) -> None:
        """Call `then` when this segment is closed and on disk, or with the error that prevents it for now."""
        if self.is_closed_up_to(number):
            then(None)
        elif self._is_failed or self.is_closed:
            then(OSError(self.error or "the journal is closed"))
        else:
            self._when_closed.append((number, then))

    def is_closed_up_to(self, number: int) -> bool:
        """Whether this segment and those before it are closed and on disk."""
        return self._file is not None and self._file.number > number

    def end_waiting(self, error: OSError | None) -> None:
        """Call the callbacks that wait for segments to be closed: all of them with an error, else the due ones."""
        waiting, self._when_closed = self._when_closed, []
        for number, then in waiting:
            if error is not None or self.is_closed_up_to(number):
                then(error)
            else:
                self._when_closed.append((number, then))

    @property
    def size(self) -> int:
        """Return the bytes of blocks in all files."""
        return self._chain.size + (self.position - (self._file.start if self._file is not None else self.synced))

    @property
    def size_left(self) -> int:
        """Return these bytes without the segments that are being dropped."""
        return self.size - self._chain.size_going

    def size_of(self, number: int) -> int:
        """Return the bytes of blocks in a segment."""
        size = sum(file.end - file.start for file in self._chain.parts_of(number))
        if self._file is not None and self._file.number == number:
            size += self.position - self._file.start
        return size

    # -- time --------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do the work that is due at `now_ms`, `wall_ms`: the fsync, the next try after an error, the level."""
        if self._is_failed:
            if self.now_ms - self._failed_ms >= RETRY_MS and not self._is_busy:
                self._failed_ms = self.now_ms
                self._open(on_reserve=self._wants_reserve)
        elif self._wants_allocation:
            if self.now_ms - self._failed_ms >= RETRY_MS:
                self._failed_ms = self.now_ms
                self._reserve.allocate(self._on_reserved)
        if self.policy == EVERYSEC and not self._is_failed:
            if self._is_sync_due:
                self._sync_aside(may_leave=True)
            is_late = self.unsynced_ms() > LATE_MS
            self.delayed_syncs += is_late and not self._was_late
            self._was_late = is_late
        elif self._chain.is_dropping:
            self.hurry()
        self._set_level()

    @property
    def _is_sync_due(self) -> bool:
        """Whether to begin the fsync of `everysec`, if none is in progress."""
        unsynced = self.written - self.synced
        if not unsynced or self._is_failed:
            return False
        return unsynced >= SYNC_BYTES or self.now_ms - self._sync_started_ms >= SYNC_EVERY_MS

    def next_ms(self) -> int | None:
        """Return when `tick` is due; None: not before a record is appended."""
        if self._is_failed or self._wants_allocation:
            return max(self._failed_ms + RETRY_MS, self.now_ms + TICK_MS)  # No busy loop on a disk that hangs.
        if self._write_queue.has_ages:
            if self.policy == NO:
                return self.now_ms + SYNC_EVERY_MS  # Only a disk that hangs has unwritten blocks by then.
            return max(self._sync_started_ms + SYNC_EVERY_MS, self.now_ms + TICK_MS)
        return None

    def await_write(self) -> None:
        """Let a write, or the preparation of one, end now if the disk is quick. Replies that wait for it go sooner."""
        if self._is_brief and not self.level:
            self._disk.wait(WRITING)

    def hurry(self) -> None:
        """Sync everything soon, whatever the policy: a caller waits for it."""
        if self.synced < self.position == self.written and self.policy != ALWAYS:
            self._sync_aside()

    def set_policy(self, policy: str) -> None:
        """Change `appendfsync`. Leaving `always` takes effect when the journal shows it on disk (spec J2)."""
        self._next_policy = None
        if policy == self.policy:
            return
        if self.policy == ALWAYS:
            self._next_policy = (policy, self._enqueue(encode_parts([], self.position, self.synced, self.wall_ms, 0)))
            self._pump()
        else:
            self.policy = policy
            if policy == ALWAYS:
                self._pages = None  # Every write is a sync from now on, which only the lane can do.
                if self.synced < self.written:
                    self._sync_aside()
        self._on_change()

    def close(self, done: Callable[[OSError | None], None], *, leave_mark: bool) -> None:
        """Write and sync all, then call `done`; or call it with the error, and go on.

        leave_mark  leave the clean-shutdown mark (spec O3): the node ends, and nothing can happen any more. Without it
                    the journal says instead that later changes are not known.
        """
        self._leaves_mark = leave_mark
        if not leave_mark:
            self._enqueue(encode_parts([], self.position, self.synced, self.wall_ms, 0))
        if self._is_failed:
            done(OSError(self.error))
            return
        self._closing = done
        self._pump()

    # -- refusals ----------------------------------------------------------------------------------

    def _changed(self) -> None:
        self._set_level()
        self._on_change()

    def _set_level(self) -> None:
        """Set the level: which commands are refused now."""
        if self._is_failed:
            level = NO_ACKS if self.policy == ALWAYS else NO_ADDS
            if self._write_queue.queued_bytes > UNWRITTEN_BYTES_MAX:
                level = NO_WRITES
        elif self._reserve.is_used or (self.unsynced_ms() > REFUSE_MS and self.now_ms >= self._may_refuse_ms):
            level = NO_ADDS
        else:
            level = FINE
        if level != self.level:
            self.level = level
            self._on_change()

    @property
    def _wants_reserve(self) -> bool:
        return self._is_full and self._reserve.is_there and self._write_queue.queued_bytes < self._reserve.size

    @property
    def _wants_allocation(self) -> bool:
        return (self._reserve.is_used or self._reserve.is_missing) and not self.is_making_room

    # -- writing -----------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Write at once as much as possible, and give the disk the rest, if it is idle."""
        if self._is_failed or self.is_closed:
            return
        if self._write_queue.queue:
            self._put()
        if self._is_busy:
            return
        if self._is_syncing and (self.policy == ALWAYS or self._is_between_files() or self._closing is not None):
            return  # Two fsyncs of one file at a time: an error would reach only one of them.
        if self._write_queue.queue:
            if self._is_between_files():
                self._open()
            elif self._file is not None:
                self._make_room(self._file)
        elif self._file is None:
            self._open()
        elif self._closing is not None:
            self._finish(self._file)
        elif self._pages is not None and not self._is_syncing_all and self._pages.is_short(self._offset(self._file)):
            self._prepare(self._file, self._pages, 0)

    def _is_between_files(self) -> bool:
        queue = self._write_queue.queue
        return self._file is None or bool(queue and queue[0].number != self._file.number)

    def _offset(self, file: _File) -> int:
        """Return the offset in the file of the next block."""
        queue = self._write_queue.queue
        return file.header_bytes + (queue[0].start if queue else self.position) - file.start

    def _put(self) -> None:
        """Write blocks here and now, as many as that is possible without waiting."""
        file, pages = self._file, self._pages
        if file is None or pages is None or self._is_writing or self._is_syncing_all:
            return
        write_queue = self._write_queue
        queue = write_queue.queue
        while queue and queue[0].number == file.number:
            block = queue[0]
            start = block.start
            end = block.end
            at = file.header_bytes + start - file.start
            if not pages.has_room(at, end - start, self.now_ms):
                return
            for part in block.parts:
                pages.window.put(at, part)
                at += len(part)
            write_queue.take(file.number, 1, file.end_max)
            assert start == self.written
            self.bytes_written += end - self.written
            self.written = end
            if self.policy == NO:
                write_queue.forget_ages(end)  # The blocks stay until the segment is closed: its fsync may fail.
        if self.error and not queue and not self._reserve.is_used:
            self.error = ""

    def _make_room(self, file: _File) -> None:
        """Have room prepared in the window for the next block, or have the lane write the block."""
        pages = self._pages
        block = self._write_queue.queue[0]
        size = block.end - block.start
        if pages is None or self._is_syncing_all or self._offset(file) + size > pages.window.size:
            self._write(file)
        else:
            self._prepare(file, pages, size)

    def _prepare(self, file: _File, pages: Pages, size: int) -> None:
        """Have more of the window made ready, at least `size` bytes."""
        start, end = pages.to_prepare(self._offset(file), size, self.now_ms)
        name = file.name
        window = pages.window
        began_ms = self.now_ms

        def prepared(outcome: OSError | None) -> None:
            self._is_busy = self._is_brief = False
            if self._file is not file:
                return  # The file was given up meanwhile.
            if isinstance(outcome, OSError):
                self._pages = None  # If the disk has no room, the next write finds out.
            elif pages is self._pages:
                pages.prepared(self._offset(file), start, end, began_ms)
            self._pump()
            self._changed()

        self._is_busy = self._is_brief = True
        self._disk.start(WRITING, lambda folder: folder.prepare(name, window, start, end), prepared)

    def _write(self, file: _File) -> None:
        start = self._write_queue.queue[0].start
        offset = file.header_bytes + start - file.start
        chunks = self._write_queue.take(file.number, BATCH_BYTES_MAX, file.end_max)
        if not chunks:
            if not self._is_syncing:  # Else the sync in progress comes here again.
                self._save_written(file, OSError(errno.ENOSPC, "No space left on device, nor in the reserved file"))
            return
        end = start
        for chunk in chunks:
            end += len(chunk)
        is_synced = self.policy == ALWAYS
        has_unsynced = max(self.synced, file.start) < start  # Another policy was in force a moment ago.
        name = file.name
        zeros = self._zeros_behind(file, offset + end - start) if is_synced else b""

        def work(folder: Folder) -> bool:
            if not is_synced:
                folder.write(name, offset, chunks)
                return False
            return write_synced(folder, name, offset, chunks, zeros, has_unsynced=has_unsynced)

        def written(outcome: bool | OSError) -> None:
            if zeros and self._file is file and not isinstance(outcome, OSError):
                self._zeros.written(offset + end - start + len(zeros), has_room=outcome)
            self._on_written(outcome if isinstance(outcome, OSError) else None, file, end, is_synced)

        self._is_busy = self._is_writing = self._is_brief = True
        self._disk.start(WRITING, work, written)

    def _zeros_behind(self, file: _File, end: int) -> bytes:
        """Return the zeros that a write up to the offset `end` should append to the file, if any."""
        if self._pages is not None or file.is_reserve or self._reserve.is_used:
            return b""
        zeros = self._zeros.behind(end, file.header_bytes + self._segment_bytes)
        if zeros:
            self._is_longer = True
        return zeros

    def _on_written(self, outcome: OSError | None, file: _File, end: int, is_synced: bool) -> None:
        self._is_busy = self._is_writing = self._is_brief = False
        if self._file is not file:
            return  # The file was given up meanwhile, since its fsync failed: these blocks are written again.
        if isinstance(outcome, OSError):
            if outcome.errno in FULL_DISK and self.written > self.synced and not self._is_syncing:
                self._save_written(file, outcome)
            else:
                self._fail(outcome)
            return
        assert self.written < end <= self.position
        self.bytes_written += end - self.written
        self.written = end
        if is_synced:
            self.syncs += 1
            self._note_safe(end)
        elif self.policy == NO:
            self._write_queue.forget_ages(end)  # The blocks stay until the segment is closed: its fsync may fail.
        if self.error and not self._reserve.is_used and not self._write_queue.queue:
            self.error = ""
        self._pump()
        self._changed()

    def _save_written(self, file: _File, error: OSError) -> None:
        """Sync the blocks that are already written, because the disk is full and these have their space.

        Otherwise they would have to be written a second time, in addition to the first. Bytes behind them are cut off:
        the rest of a reserved file is space for the next file.
        """
        end = self.written
        size = file.header_bytes + end - file.start
        self._pages = None  # No page may be touched behind the file's new end.

        def saved(outcome: OSError | None) -> None:
            self._is_busy = self._is_writing = self._is_sealing = False
            if self._file is not file:
                return
            if outcome is None:
                self._note_safe(end)
            self._fail(error)

        self._is_busy = self._is_writing = self._is_sealing = True
        self._disk.start(WRITING, lambda folder: folder.truncate(file.name, size), saved)

    def _note_safe(self, end: int) -> None:
        """Note that all up to `end` is on disk."""
        assert end <= self.written <= self.position
        if end > self.synced:
            self.synced = end
        assert self.synced <= self.written
        self._write_queue.on_synced(end)
        if self._next_policy is not None and self.synced >= self._next_policy[1]:
            self.policy = self._next_policy[0]
            self._next_policy = None
        self._chain.on_synced(self.synced)

    def _sync_aside(self, *, may_leave: bool = False) -> None:
        """Do the fsync of `everysec`: beside the writing, in a lane of its own.

        may_leave  the page that is being written may wait for the next sync
        """
        file = self._file
        if self._is_syncing or self._is_sealing or file is None or (self._is_busy and self._is_between_files()):
            return  # Two fsyncs of one file at a time: an error would reach only one of them.
        name = file.name
        pages = self._pages
        self._is_syncing = True
        self._sync_started_ms = self.now_ms
        if pages is None:
            end = self.written
            self._disk.start(
                SYNCING, lambda folder: folder.sync(name), lambda outcome: self._on_synced(outcome, file, end)
            )
            return
        end = self._end_to_sync(file, may_leave=may_leave)
        self._is_syncing_all = end == self.written
        window = pages.window
        origin = file.header_bytes - file.start
        part = origin + max(self.synced, file.start), origin + end
        again = pages.pass_by(origin + self.written)
        began_ms = self.now_ms

        def done(outcome: bool | OSError) -> None:
            if pages is self._pages and not isinstance(outcome, OSError):
                if outcome:
                    pages.ready_ms = began_ms
                else:
                    self._pages = None
            self._on_synced(outcome if isinstance(outcome, OSError) else None, file, end)

        self._disk.start(SYNCING, lambda folder: sync_pages(folder, name, window, part, again), done)

    def _end_to_sync(self, file: _File, *, may_leave: bool) -> int:
        """Return the end of all that is written, or of the last block before the page where the next byte goes."""
        written = self.written
        if not may_leave or self._is_writing or written - max(self.synced, file.start) < LEAVING_BYTES_MIN:
            return written
        at = file.header_bytes + written - file.start
        end = self._write_queue.end_before(written - at % PAGE_BYTES)
        return end if end > self.synced else written

    def _on_synced(self, outcome: OSError | None, file: _File, end: int) -> None:
        self._is_syncing = self._is_syncing_all = False
        if self._file is file:
            if isinstance(outcome, OSError):
                self._fail(outcome)
            else:
                self.syncs += 1
                self._note_safe(end)
        self._pump()
        self._changed()

    # -- files -------------------------------------------------------------------------------------

    def _open(self, *, on_reserve: bool = False) -> None:
        """Close the file and begin the next: of the next segment, or, after an error, of the same one."""
        queue = self._write_queue.queue
        number = queue[0].number if queue else self.number
        start = queue[0].start if queue else self.position
        part = self._chain.next_part(number)
        old = self._file
        closed = Part(old.number, old.part, old.start, start) if old is not None else None
        before: list[Part] = []
        if not 0 < self._fresh_from <= number:
            before = self._chain.files + ([closed] if closed is not None else [])
        header = encode_header(number, part, start, before, self.node, self.wall_ms)
        name = file_name(number, part)
        end_max = start + self._reserve.size - len(header) if on_reserve else NO_LIMIT
        file = _File(number, part, start, len(header), end_max, on_reserve)
        going = self._chain.dropping
        wanted = {file_name(each.number, each.part) for each in before if each.number not in going}
        end_old = self._ending(old, start) if old is not None else None
        # As many bytes are made ready as in the file before.
        ready = self._pages.wanted if self._pages is not None else READY_BYTES_MIN
        # With a window the file needs more room than its blocks.
        size = 0 if on_reserve or self._reserve.is_used or self.policy == ALWAYS else self._segment_bytes
        self._pages = None
        began_ms = self.now_ms

        def work(folder: Folder) -> list[str] | Window | None:
            if end_old is not None:
                end_old(folder)
            if lost := wanted.difference(folder.names()):
                return sorted(lost)
            if on_reserve:
                become_segment(folder, name, header)
            else:
                folder.create(name, header)
            return map_pages(folder, name, size, ready) if size else None

        def opened(outcome: list[str] | Window | OSError | None) -> None:
            pages = None
            if outcome is not None and not isinstance(outcome, OSError | list):
                pages = Pages(outcome, file.header_bytes, min(ready, outcome.size), began_ms, ready)
                outcome = None
            self._on_opened(outcome, file, closed, named, pages)

        self._is_busy = True
        named = frozenset(each.number for each in before)
        self._disk.start(WRITING, work, opened)

    def _ending(self, file: _File, end: int) -> Callable[[Folder], None]:
        """Return the work that puts all of the file on disk, with nothing behind its last block."""
        name = file.name
        size = file.header_bytes + end - file.start
        if self._is_longer:
            return lambda folder: folder.truncate(name, size)
        return lambda folder: folder.sync(name)

    def _on_opened(
        self,
        outcome: list[str] | OSError | None,
        file: _File,
        closed: Part | None,
        named: frozenset[int],
        pages: Pages | None,
    ) -> None:
        self._is_busy = False
        if isinstance(outcome, OSError):
            self._chain.mark_used(file.number, file.part)
            if file.is_reserve:
                self._reserve.is_there = False
            self._fail(outcome)
            return
        if outcome:
            self.is_incomplete = True
            self._chain.forget_files(outcome)
            self._open(on_reserve=file.is_reserve)
            self._changed()
            return
        if closed is not None:
            self._chain.files.append(closed)
            self._note_safe(closed.end)
        self._file = file
        self._pages = pages
        self._is_longer = pages is not None or file.is_reserve
        self._zeros.begin_file()
        self._chain.named = named
        self._chain.mark_used(file.number, file.part)
        if 0 < self._fresh_from <= file.number:
            self._fresh_from = 0
            self._chain.begin_anew()
        if file.is_reserve:
            self._reserve.mark_used()
            self._room_end = file.end_max
        self._is_failed = False
        if self._when_closed:
            self.end_waiting(None)
        if self.error and not self._write_queue.queue and not self._reserve.is_used:
            self.error = ""
        self._pump()
        self._changed()

    def _fail(self, error: OSError) -> None:
        """Trust nothing in this file beyond the position known to be good, and write the rest again elsewhere."""
        self.error = error.strerror or str(error)
        self._is_failed = True
        self._reserve.is_used = False
        self._failed_ms = self.now_ms
        floor = self.synced
        file = self._file
        if file is not None:
            self._file = self._pages = None
            if floor > file.start:
                self._chain.files.append(Part(file.number, file.part, file.start, floor))
        self._write_queue.give_back()
        assert floor <= self.written <= self.position
        self.written = floor
        self._mark_at = -1  # A mark that was written names a file that is not the last one when writing continues.
        self.end_waiting(error)
        self._is_full = error.errno in FULL_DISK
        if self._wants_reserve and not self._is_busy:
            self._open(on_reserve=True)
        self._changed()
        if self._closing is not None:
            closing, self._closing = self._closing, None
            closing(error)

    def _on_reserved(self) -> None:
        """Handle a new reserved file. While the disk was full, it proves that there is room again."""
        if self._reserve.is_used:
            self._reserve.is_used = False
            self._next_segment()
            self.error = ""
        self._changed()

    def _on_removed(self, outcome: OSError | None, size: int) -> None:
        if outcome is not None:
            self._remove_again_ms = self.now_ms + REMOVE_AGAIN_MS
        else:
            self._room_end += size
        self._changed()

    # -- the end --------------------------------------------------------------------------------------

    def _finish(self, file: _File) -> None:
        leaves_mark = self._leaves_mark
        end = self.position
        mark = b"%d %d %d\n" % (file.number, file.part, end)
        if leaves_mark:
            self._mark_at = end
        self._pages = None
        end_file = self._ending(file, end)

        def work(folder: Folder) -> None:
            end_file(folder)
            if leaves_mark:
                folder.replace(CLEAN_NAME, mark)

        def done(outcome: OSError | None) -> None:
            self._is_busy = self._is_sealing = False
            if isinstance(outcome, OSError):
                self._fail(outcome)
                return
            self._note_safe(end)
            if leaves_mark and end < self.position:
                self._take_mark_back()
                return
            self._mark_at = -1
            self.is_closed = True
            self.end_waiting(OSError("the journal was closed meanwhile"))
            closing, self._closing = self._closing, None
            if closing is not None:
                closing(None)

        self._is_busy = self._is_sealing = True
        self._disk.start(WRITING, work, done)

    def _take_mark_back(self) -> None:
        """Remove the mark, because records came while it was written; it is written again after them."""

        def done(outcome: OSError | None) -> None:
            self._is_busy = False
            if isinstance(outcome, OSError):
                self._fail(outcome)
                return
            self._mark_at = -1
            self._pump()
            self._changed()

        self._is_busy = True
        self._disk.start(WRITING, lambda folder: folder.remove(CLEAN_NAME), done)
