"""Journal: what is written when, and what may be believed to be on disk.

A turn's records become a block, blocks are written in order by one lane of the disk, and whoever must not go ahead of
them asks for a *position*: `append` says where the turn ends, `ready_position` how far everything has come. What
"come" means is the policy (semantics.md, section 8):

    always     on disk; one fsync serves all that was written since the last one
    everysec   written, so that only a power cut can lose it; on disk at least once a second, and when the oldest
               unsynced record is over LATE_MS old, nothing goes ahead before it is
    no         written; the system decides when it is on disk

With the last two a stalled disk holds nobody longer than STALL_MS until LATE_MS are over.

Blocks stay in memory until they are safe. After an error nothing is believed: a file whose write or fsync failed
is closed at the last position that is known to be good, and what came after is written again, into a new file of
the same segment. Until that works `level` says what has to be refused. With `always` a reserved file, whose
blocks were allocated in good times, takes the acks of a full disk.

Knows no job, no clock and no file: Disk does the work, the caller says what time it is. See docs/journal.md.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from persistence.disk import READING, SYNCING, WRITING, Disk, Folder
from persistence.records import (
    DROPPED,
    IS_ALWAYS,
    Part,
    encode_block,
    encode_header,
    file_name,
)
from persistence.trouble import FINE, NO_ACKS, NO_ADDS, NO_WRITES

ALWAYS: Final = "always"
EVERYSEC: Final = "everysec"
NO: Final = "no"

SEGMENT_BYTES: Final = 32 * 1024 * 1024
# A turn's records are split into blocks of about this size.
BLOCK_BYTES: Final = 1024 * 1024
# Bytes given to the disk in one go; the rest gathers and goes with the next.
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
# The reserved file: room for some 100,000 acks.
RESERVE_BYTES: Final = 8 * 1024 * 1024
RESERVE_NAME: Final = "reserve"
CLEAN_NAME: Final = "clean"
# Unrecorded blocks that may gather in memory while the disk is in trouble; beyond, all that writes is refused.
BACKLOG_BYTES_MAX: Final = 256 * 1024 * 1024

SYNC_EVERY_MS: Final = 1_000
STALL_MS: Final = 20
LATE_MS: Final = 2_000  # A power cut loses no more than this (semantics.md, section 8).
REFUSE_MS: Final = 5_000
RETRY_MS: Final = 1_000
REMOVE_AGAIN_MS: Final = 10_000

FULL_DISK: Final = frozenset((errno.ENOSPC, errno.EDQUOT))


class _Waiting(NamedTuple):
    """A block on its way to the disk."""

    number: int
    start: int
    end: int
    data: bytes


class _File(NamedTuple):
    """The file that is being written."""

    number: int
    part: int
    start: int
    header_bytes: int
    room: int  # bytes of blocks that fit; 0: as many as the disk takes

    @property
    def name(self) -> str:
        return file_name(self.number, self.part)


class Journal:
    """The writing end of a node's journal.

    number              segment that records of this turn go to: the place of a base
    position            end of what was appended
    written, synced     how far the disk has come
    files               closed files that make up the journal with the one being written
    error               what the disk said, while it is in trouble; level: what is refused therefore
    level               FINE, NO_ADDS, NO_ACKS or NO_WRITES
    delayed_syncs       times that a record was unsynced for LATE_MS (everysec)
    on_change           called from the loop when `ready_position` or `level` may have changed
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
        self.files = list(files)
        self.number = max((file.number for file in files), default=0) + 1
        self.position = self.written = self.synced = max((file.end for file in files), default=0)
        self.error = ""
        self.level = FINE
        self.delayed_syncs = 0
        self.bytes_written = 0
        self.syncs = 0
        self.now_ms = 0
        self.wall_ms = 0
        self._disk = disk
        self._on_change = on_change
        self._segment_bytes = segment_bytes
        self._segment_start = self.position
        self._file: _File | None = None
        self._queue: deque[_Waiting] = deque()
        self._queued_bytes = 0
        self._kept: deque[_Waiting] = deque()
        self._kept_bytes = 0
        # (end, when it was appended), for what is not synced yet.
        self._ages: deque[tuple[int, int]] = deque()
        self._is_busy = False
        self._is_syncing = False
        self._sync_started_ms = 0
        self._was_late = False
        self._is_failed = False
        self._is_full = False
        self._failed_ms = 0
        # The last part of each segment that has a file.
        self._last_part: dict[int, int] = {}
        for file in files:
            self._last_part[file.number] = max(self._last_part.get(file.number, -1), file.part)
        self._fresh_from = 0
        self._next_policy: tuple[str, int] | None = None
        self._reserve_bytes = reserve_bytes
        self._has_reserve = has_reserve
        self._is_on_reserve = False
        self._is_allocating = False
        self._closing: Callable[[OSError | None], None] | None = None
        self._leaves_mark = False
        # Where the clean-shutdown mark says that the journal ends, while it is being written or taken back; else -1.
        self._mark_at = -1
        self.is_closed = False
        # Segments whose DROPPED record is on its way: number -> its position.
        self._drops: deque[tuple[int, int]] = deque()
        self._removing: set[int] = set()
        self._remove_again_ms = 0
        # Segments that the header of the file being written names.
        self._named: frozenset[int] = frozenset()
        # While somebody copies files none is removed; these would have been.
        self._holds = 0
        self._held: list[list[Part]] = []
        self._when_closed: list[tuple[int, Callable[[OSError | None], None]]] = []

    def begin(self) -> None:
        """Make the first file."""
        self._pump()

    # -- appending ---------------------------------------------------------------------------------

    def append(self, runs: list[list[Any]]) -> int:
        """Take a turn's records, `[kind, item, …]` each; the position that its replies wait for."""
        # A block that says so promises it for what follows, too, up to the next block.
        flags = IS_ALWAYS if self.policy == ALWAYS and self._next_policy is None and not self._is_ending else 0
        position = self._enqueue(encode_block(runs, self.position, self.synced, self.wall_ms, flags))
        if position - self._segment_start >= self._segment_bytes:
            self._next_segment()
        if self.level:
            self._judge()
        self._pump()
        return position

    def _enqueue(self, data: bytes) -> int:
        start = self.position
        self.position = end = start + len(data)
        self._queue.append(_Waiting(self.number, start, end, data))
        self._queued_bytes += len(data)
        ages = self._ages
        if ages and ages[-1][1] == self.now_ms:
            ages[-1] = (end, self.now_ms)
        else:
            ages.append((end, self.now_ms))
        return end

    def rotate(self) -> int:
        """Close the segment, so that it can be copied or linked; the number of the last closed one."""
        if self.position > self._segment_start:
            self._next_segment()
        if self._file is None or self._file.number < self.number:
            self.append([])  # The file of a full segment, too, is closed only when the next one is begun.
        return self.number - 1

    def restart(self) -> int:
        """All that was recorded so far is void: begin a new chain; old files go when the new one is on disk."""
        self._next_segment()
        self._fresh_from = self.number
        return self.append([])

    def drop(self, number: int) -> None:
        """What lived in this closed segment was appended anew: remove its files when that is safe.

        The record says so of all segments that are gone and that the newest header still names: the record that said
        it of them first may be in a segment that is dropped itself.
        """
        left = {file.number for file in self.files}
        gone = sorted((self._named - left | self._going) - {number})
        self._drops.append((number, self.append([[DROPPED, number, *gone]])))

    def when_closed(self, number: int, then: Callable[[OSError | None], None]) -> None:
        """Call `then` when this segment is closed and on disk, or with what prevents it for now."""
        if self._file is not None and self._file.number > number:
            then(None)
        elif self._is_failed or self.is_closed:
            then(OSError(self.error or "the journal is closed"))
        else:
            self._when_closed.append((number, then))

    def end_waiting(self, error: OSError | None) -> None:
        """Tell those who wait for segments to be closed: with an error all of them, else those whose segment is."""
        number = self._file.number if self._file is not None else 0
        waiting, self._when_closed = self._when_closed, []
        for wanted, then in waiting:
            if error is not None or wanted < number:
                then(error)
            else:
                self._when_closed.append((wanted, then))

    def hold(self) -> None:
        """No file is removed until `release`."""
        self._holds += 1

    def release(self) -> None:
        """Files may be removed again, and those that were to be are."""
        self._holds -= 1
        if not self._holds:
            held, self._held = self._held, []
            for files in held:
                self._remove_files(files)
            self._safe(self.synced)

    def files_up_to(self, number: int) -> list[Part]:
        """The closed files up to this segment, oldest first; those that only wait to be removed included."""
        held = [file for files in self._held for file in files if file not in self.files]
        return sorted(file for file in (*held, *self.files) if file.number <= number)

    def has_segment(self, number: int) -> bool:
        """Whether files of this segment exist, or are being removed."""
        first = self._queue[0].number if self._queue else self.number
        return number in self._last_part or first <= number <= self.number

    def is_closed_up_to(self, number: int) -> bool:
        """Whether this segment and those before it are closed, on disk."""
        return self._file is not None and self._file.number > number

    @property
    def may_remove(self) -> bool:
        """Whether dropping a segment is worth a try: each one costs a record, and the last may just have failed."""
        return self.now_ms >= self._remove_again_ms

    def closed_segments(self) -> list[int]:
        """Numbers of segments that are closed, on disk and not being dropped, oldest first."""
        current = self._file.number if self._file is not None else self.number
        return sorted({file.number for file in self.files if file.number < current} - self._going)

    @property
    def _going(self) -> set[int]:
        """Segments that are being dropped: the record is on its way to the disk, or their files are being removed."""
        return {number for number, _ in self._drops} | self._removing

    def parts_of(self, number: int) -> list[Part]:
        """The files of a closed segment."""
        return [file for file in self.files if file.number == number]

    def _next_segment(self) -> None:
        self.number += 1
        self._segment_start = self.position

    # -- how far we are ----------------------------------------------------------------------------

    def ready_position(self) -> int:
        """Everything up to here is as safe as the policy promises; what waits for it may go."""
        ready = self._ready_position()
        # With the mark on disk a restart believes that nothing came after it.
        return min(ready, self._mark_at) if self._mark_at >= 0 else ready

    def _ready_position(self) -> int:
        if self.policy == ALWAYS:
            return self.synced
        if self._is_failed:
            return self.written  # What is allowed now waits for nothing (`must_wait`); what was promised before does.
        if self.unsynced_ms() > LATE_MS and self.policy == EVERYSEC:
            return self.synced
        if self.written < self.position and self._unwritten_ms() > STALL_MS:
            return self.position
        return self.written

    def must_wait(self) -> bool:
        """Whether new replies wait for their records. In trouble, those that are still given need no disk."""
        return not self._is_failed

    def unsynced_ms(self) -> int:
        """Age of the oldest record that is not known to be on disk; 0 if there is none, or nobody wants to know."""
        return self.now_ms - self._ages[0][1] if self._ages and self.policy != NO else 0

    def _unwritten_ms(self) -> int:
        for end, at_ms in self._ages:
            if end > self.written:
                return self.now_ms - at_ms
        return 0

    @property
    def backlog_bytes(self) -> int:
        """Bytes of blocks that are not written."""
        return self._queued_bytes + (self._kept_bytes if self._is_busy else 0)

    @property
    def is_syncing(self) -> bool:
        """An fsync is under way."""
        return self._is_syncing or (self._is_busy and self.policy == ALWAYS)

    @property
    def trouble(self) -> str:
        """Why something is refused, in a few words; empty if nothing is."""
        if self.error or not self.level:
            return self.error
        return f"the disk is too slow, nothing was synced for {self.unsynced_ms() // 1000} seconds"

    @property
    def _wants_reserve(self) -> bool:
        return self._is_full and self.policy == ALWAYS and self._has_reserve

    @property
    def _wants_allocation(self) -> bool:
        return not self._has_reserve and self._reserve_bytes > 0

    @property
    def _is_ending(self) -> bool:
        """What comes after this journal will not be in it."""
        return self._closing is not None and not self._leaves_mark

    @property
    def is_on_reserve(self) -> bool:
        """The disk is full, and what is written goes to the reserved file."""
        return self._is_on_reserve

    @property
    def size(self) -> int:
        """Bytes of blocks in all files."""
        closed = sum(file.end - file.start for file in self.files)
        return closed + (self.position - (self._file.start if self._file is not None else self.synced))

    @property
    def size_left(self) -> int:
        """The same without the segments that are being dropped."""
        going = self._going
        return self.size - sum(file.end - file.start for file in self.files if file.number in going)

    def size_of(self, number: int) -> int:
        """Bytes of blocks in a segment."""
        size = sum(file.end - file.start for file in self.files if file.number == number)
        if self._file is not None and self._file.number == number:
            size += self.position - self._file.start
        return size

    # -- time --------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Time passed (`now_ms` and `wall_ms` are set): the fsync that is due, the next try, what is late."""
        if self._is_failed:
            if self.now_ms - self._failed_ms >= RETRY_MS and not self._is_busy:
                self._failed_ms = self.now_ms
                self._open(on_reserve=self._wants_reserve)
        elif self._is_on_reserve or (self.policy == ALWAYS and self._wants_allocation):
            if self.now_ms - self._failed_ms >= RETRY_MS:
                self._failed_ms = self.now_ms
                self._allocate()
        if self.policy == EVERYSEC and not self._is_failed:
            if self.synced < self.written and self.now_ms - self._sync_started_ms >= SYNC_EVERY_MS:
                self._sync_aside()
            is_late = self.unsynced_ms() > LATE_MS
            self.delayed_syncs += is_late and not self._was_late
            self._was_late = is_late
        elif self._drops:
            self.hurry()
        self._judge()

    def next_ms(self) -> int | None:
        """When `tick` has to be called; None: when something is appended."""
        if self._is_failed or self._is_on_reserve or (self.policy == ALWAYS and self._wants_allocation):
            return max(self._failed_ms + RETRY_MS, self.now_ms + STALL_MS)  # A disk that hangs makes nobody hurry.
        if self.written < self.position and self.policy != ALWAYS:
            return self.now_ms + STALL_MS
        if self._ages and self.policy != NO:
            return max(self._sync_started_ms + SYNC_EVERY_MS, self.now_ms + STALL_MS)
        return None

    def hurry(self) -> None:
        """Somebody waits for all of it to be on disk, whatever the policy."""
        if self.synced < self.position == self.written and self.policy != ALWAYS:
            self._sync_aside()

    def set_policy(self, policy: str) -> None:
        """`appendfsync` changed. Leaving `always` takes effect when the journal shows it on disk (section 5)."""
        self._next_policy = None
        if policy == self.policy:
            return
        if self.policy == ALWAYS:
            self._next_policy = (policy, self._enqueue(encode_block([], self.position, self.synced, self.wall_ms, 0)))
            self._pump()
        else:
            self.policy = policy
            if policy == ALWAYS and self.synced < self.written:
                self._sync_aside()
        self._on_change()

    def close(self, done: Callable[[OSError | None], None], *, leave_mark: bool) -> None:
        """Write and sync all, then say so; or say why not, and go on.

        leave_mark  the clean-shutdown mark (section 5): the node ends, and nothing can happen any more. Without it
                    the journal says instead that what comes after it is not known.
        """
        self._leaves_mark = leave_mark
        if not leave_mark:
            self._enqueue(encode_block([], self.position, self.synced, self.wall_ms, 0))
        if self._is_failed:
            done(OSError(self.error))
            return
        self._closing = done
        self._pump()

    # -- writing -----------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Give the disk what there is, if it has nothing to do."""
        if self._is_busy or self._is_failed or self.is_closed:
            return
        if self._is_syncing and (self.policy == ALWAYS or self._is_between_files() or self._closing is not None):
            return  # Two fsyncs of one file at a time: an error would reach only one of them.
        if self._queue:
            if self._is_between_files():
                self._open()
            elif self._file is not None:
                self._write(self._file)
        elif self._file is None:
            self._open()
        elif self._closing is not None:
            self._finish(self._file)

    def _is_between_files(self) -> bool:
        return self._file is None or bool(self._queue and self._queue[0].number != self._file.number)

    def _write(self, file: _File) -> None:
        chunks: list[bytes] = []
        size = 0
        start = self._queue[0].start
        offset = file.header_bytes + start - file.start
        while self._queue and self._queue[0].number == file.number and size < BATCH_BYTES_MAX:
            block = self._queue[0]
            if file.room and block.end - file.start > file.room:
                break
            self._queue.popleft()
            self._kept.append(block)
            chunks.append(block.data)
            size += len(block.data)
        if not chunks:
            self._fail(OSError(errno.ENOSPC, "No space left on device, nor in the reserved file"))
            return
        self._queued_bytes -= size
        self._kept_bytes += size
        end = start + size
        is_synced = self.policy == ALWAYS
        name = file.name

        def work(folder: Folder) -> None:
            folder.write(name, offset, chunks)
            if is_synced:
                folder.sync(name)

        self._is_busy = True
        self._disk.start(WRITING, work, lambda outcome: self._on_written(outcome, file, end, is_synced))

    def _on_written(self, outcome: OSError | None, file: _File, end: int, is_synced: bool) -> None:
        self._is_busy = False
        if self._file is not file:
            return  # Given up meanwhile, since its fsync failed: these blocks are written again.
        if isinstance(outcome, OSError):
            self._fail(outcome)
            return
        self.bytes_written += end - self.written
        self.written = end
        if is_synced:
            self.syncs += 1
            self._safe(end)
        elif self.policy == NO:
            self._ages_until(end)  # The blocks stay until the segment is closed: its fsync may fail.
        if self.error and not self._is_on_reserve and not self._queue:
            self._recovered()
        self._pump()
        self._on_change()

    def _safe(self, end: int) -> None:
        """All up to here is on disk."""
        if end > self.synced:
            self.synced = end
        self._forget_kept(end)
        self._ages_until(end)
        if self._next_policy is not None and self.synced >= self._next_policy[1]:
            self.policy = self._next_policy[0]
            self._next_policy = None
        while self._drops and not self._holds and self._drops[0][1] <= self.synced:
            self._remove(self._drops.popleft()[0])

    def _forget_kept(self, end: int) -> None:
        kept = self._kept
        while kept and kept[0].end <= end:
            self._kept_bytes -= len(kept.popleft().data)

    def _ages_until(self, end: int) -> None:
        ages = self._ages
        while ages and ages[0][0] <= end:
            ages.popleft()

    def _remove(self, number: int) -> None:
        self._remove_files([file for file in self.files if file.number == number])

    def _remove_files(self, files: list[Part]) -> None:
        if self._holds:
            self._held.append(files)
            return
        names = [file_name(file.number, file.part) for file in files]
        numbers = {file.number for file in files}
        self._removing |= numbers

        def work(folder: Folder) -> None:
            for name in names:
                folder.remove(name)

        def done(outcome: OSError | None) -> None:
            self._removing -= numbers
            # A file that can't be removed stays part of the chain: what is gone there must stay known as gone.
            if isinstance(outcome, OSError):
                self._remove_again_ms = self.now_ms + REMOVE_AGAIN_MS
            else:
                self.files = [file for file in self.files if file not in files]
                for file in files:
                    self._last_part.pop(file.number, None)
            self._on_change()

        self._disk.start(READING, work, done)

    def _sync_aside(self) -> None:
        """The fsync of `everysec`: beside the writing, in a lane of its own."""
        file = self._file
        if self._is_syncing or file is None or (self._is_busy and self._is_between_files()):
            return
        end = self.written
        name = file.name
        self._is_syncing = True
        self._sync_started_ms = self.now_ms
        self._disk.start(SYNCING, lambda folder: folder.sync(name), lambda outcome: self._on_synced(outcome, file, end))

    def _on_synced(self, outcome: OSError | None, file: _File, end: int) -> None:
        self._is_syncing = False
        if self._file is file:
            if isinstance(outcome, OSError):
                self._fail(outcome)
            else:
                self.syncs += 1
                self._safe(end)
        self._pump()
        self._on_change()

    # -- files -------------------------------------------------------------------------------------

    def _open(self, *, on_reserve: bool = False) -> None:
        """Close the file and begin the next: of the next segment, or, after trouble, of the same one."""
        number = self._queue[0].number if self._queue else self.number
        start = self._queue[0].start if self._queue else self.position
        part = self._last_part.get(number, -1) + 1
        old = self._file
        closed = Part(old.number, old.part, old.start, start) if old is not None else None
        before = [] if 0 < self._fresh_from <= number else [*self.files, *([closed] if closed is not None else [])]
        header = encode_header(number, part, start, before, self.node, self.wall_ms)
        name = file_name(number, part)
        file = _File(number, part, start, len(header), self._reserve_bytes - len(header) if on_reserve else 0)

        def work(folder: Folder) -> None:
            if old is not None:
                folder.sync(old.name)
            if on_reserve:
                folder.rename(RESERVE_NAME, name)
                folder.write(name, 0, [header])
                folder.sync(name)
            else:
                folder.create(name, header)

        self._is_busy = True
        named = frozenset(each.number for each in before)
        self._disk.start(WRITING, work, lambda outcome: self._on_opened(outcome, file, closed, named))

    def _on_opened(self, outcome: OSError | None, file: _File, closed: Part | None, named: frozenset[int]) -> None:
        self._is_busy = False
        if isinstance(outcome, OSError):
            # Something of that name may be there now, and would be in the way of every other try.
            self._last_part[file.number] = file.part
            if file.room:
                self._has_reserve = False
            self._fail(outcome)
            return
        if closed is not None:
            self.files.append(closed)
            self._safe(closed.end)
        self._file = file
        self._named = named
        self._last_part[file.number] = file.part
        if 0 < self._fresh_from <= file.number:
            self._fresh_from = 0
            old, self.files = self.files, []
            for number in sorted({part.number for part in old}):
                self._remove_files([part for part in old if part.number == number])
        if file.room:
            self._has_reserve = False
            self._is_on_reserve = True
        self._is_failed = False
        if self._when_closed:
            self.end_waiting(None)
        if self.error and not self._queue and not self._is_on_reserve:
            self._recovered()
        self._judge()
        self._pump()
        self._on_change()

    def _fail(self, error: OSError) -> None:
        """Believe nothing of this file beyond what is known to be good, and write the rest again elsewhere."""
        self.error = error.strerror or str(error)
        self._is_failed = True
        self._is_on_reserve = False
        self._failed_ms = self.now_ms
        floor = self.synced
        file = self._file
        if file is not None:
            self._file = None
            self._last_part[file.number] = max(self._last_part.get(file.number, -1), file.part)
            if floor > file.start:
                self.files.append(Part(file.number, file.part, file.start, floor))
        self._queue.extendleft(reversed(self._kept))
        self._queued_bytes += self._kept_bytes
        self._kept.clear()
        self._kept_bytes = 0
        self.written = floor
        self._mark_at = -1  # If it is there, it means a file that is not the last one any more when this goes on.
        self.end_waiting(error)
        self._is_full = error.errno in FULL_DISK
        if self._wants_reserve and not self._is_busy:
            self._open(on_reserve=True)
        self._judge()
        self._on_change()
        if self._closing is not None:
            closing, self._closing = self._closing, None
            closing(error)

    def _recovered(self) -> None:
        self.error = ""
        self._judge()

    def _allocate(self) -> None:
        """Have a reserved file: kept in good times, and the proof that there is room again after bad ones."""
        if self._is_allocating:
            return
        self._is_allocating = True
        size = self._reserve_bytes

        def done(outcome: OSError | None) -> None:
            self._is_allocating = False
            if isinstance(outcome, OSError) and outcome.errno != errno.EEXIST:
                return
            self._has_reserve = True
            if self._is_on_reserve:
                self._is_on_reserve = False
                self._next_segment()
                self._recovered()
            self._on_change()

        self._disk.start(READING, lambda folder: folder.allocate(RESERVE_NAME, size), done)

    def _finish(self, file: _File) -> None:
        name = file.name
        leaves_mark = self._leaves_mark
        end = self.position
        mark = b"%d %d %d\n" % (file.number, file.part, end)
        if leaves_mark:
            self._mark_at = end

        def work(folder: Folder) -> None:
            folder.sync(name)
            if leaves_mark:
                folder.replace(CLEAN_NAME, mark)

        def done(outcome: OSError | None) -> None:
            self._is_busy = False
            if isinstance(outcome, OSError):
                self._fail(outcome)
                return
            self._safe(end)
            if leaves_mark and end < self.position:
                self._take_mark_back()
                return
            self._mark_at = -1
            self.is_closed = True
            self.end_waiting(OSError("the journal was closed meanwhile"))
            closing, self._closing = self._closing, None
            if closing is not None:
                closing(None)

        self._is_busy = True
        self._disk.start(WRITING, work, done)

    def _take_mark_back(self) -> None:
        """Something was recorded while the mark was written: it goes before that does, and is written anew after it."""

        def done(outcome: OSError | None) -> None:
            self._is_busy = False
            if isinstance(outcome, OSError):
                self._fail(outcome)
                return
            self._mark_at = -1
            self._pump()
            self._on_change()

        self._is_busy = True
        self._disk.start(WRITING, lambda folder: folder.remove(CLEAN_NAME), done)

    def _judge(self) -> None:
        """What has to be refused now."""
        if self._is_failed:
            level = NO_ACKS if self.policy == ALWAYS else NO_ADDS
            if self._queued_bytes > BACKLOG_BYTES_MAX:
                level = NO_WRITES
        elif self._is_on_reserve or self.unsynced_ms() > REFUSE_MS:
            level = NO_ADDS
        else:
            level = FINE
        if level != self.level:
            self.level = level
            self._on_change()
