"""Journal: what is written when, and what may be believed to be on disk.

A turn's records become a block, blocks are written in order by one lane of the disk, and whoever must not go ahead of
them asks for a *position*: `append` says where the turn ends, `ready_position` how far everything has come. What
"come" means is the policy (spec P1, P4):

    always     on disk; one fsync serves all that was written since the last one
    everysec   written, so that only a power cut can lose it; on disk at least once a second, and when the oldest
               unsynced record is over LATE_MS old, nothing goes ahead before it is
    no         written; the system decides when it is on disk

However long a disk takes: what is not even written dies with the process, so nobody goes ahead of that.

Blocks stay in memory until they are safe. After an error nothing is believed: a file whose write or fsync failed
is closed at the last position that is known to be good, and what came after is written again, into a new file of
the same segment. Until that works `level` says what has to be refused. A reserved file takes the acks of a full disk,
and what is recorded to win space back (reserve.py).

backlog.py has the blocks that are under way, chain.py the closed files. Knows no job, no clock and no file: Disk does
the work, the caller says what time it is. See docs/journal.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from persistence.disk import Disk
from persistence.records import DROPPED, IS_ALWAYS, Part, encode_block
from persistence.reserve import RESERVE_BYTES, Reserve
from persistence.trouble import FINE, NO_ACKS, NO_ADDS, NO_WRITES
from persistence.writing import ALWAYS, NO, Writing

__all__ = ["ALWAYS", "EVERYSEC", "NO", "Journal"]

EVERYSEC: Final = "everysec"

SEGMENT_BYTES: Final = 32 * 1024 * 1024
# A turn's records are split into blocks of about this size.
BLOCK_BYTES: Final = 1024 * 1024
# Unrecorded blocks that may gather in memory while the disk is in trouble; beyond, all that writes is refused.
BACKLOG_BYTES_MAX: Final = 256 * 1024 * 1024

SYNC_EVERY_MS: Final = 1_000
TICK_MS: Final = 20  # No sooner than this, whatever is late.
LATE_MS: Final = 2_000  # A power cut loses no more than this (spec P4).
REFUSE_MS: Final = 5_000
RETRY_MS: Final = 1_000


class Journal(Writing):
    """The writing end of a node's journal.

    number              segment that records of this turn go to: the place of a base
    position            end of what was appended
    written, synced     how far the disk has come
    error               what the disk said, while it is in trouble; level: what is refused therefore
    level               FINE, NO_ADDS, NO_ACKS or NO_WRITES
    delayed_syncs       times that a record was unsynced for LATE_MS (everysec)
    on_change           called from the loop when `ready_position` or `level` may have changed
    is_making_room      space is being won back on a full disk, which has to go on before there is a new reserved file
    is_incomplete       files of it are gone or damaged. Whoever knows what they said records it again
    watch               told of every turn's records, and of the position behind them
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
        reserve = Reserve(disk, reserve_bytes, is_there=has_reserve)
        super().__init__(disk, node, policy, on_change, files, reserve, segment_bytes)
        self.level = FINE
        self.delayed_syncs = 0
        self.watch: Callable[[list[list[Any]], int], None] | None = None
        self._was_late = False

    # -- appending ---------------------------------------------------------------------------------

    def append(self, runs: list[list[Any]]) -> int:
        """Take a turn's records, `[kind, item, …]` each; the position that its replies wait for."""
        # A block that says so promises it for what follows, too, up to the next block.
        flags = IS_ALWAYS if self.policy == ALWAYS and self._next_policy is None and not self._is_ending else 0
        position = self._enqueue(encode_block(runs, self.position, self.synced, self.wall_ms, flags))
        if self.watch is not None:
            self.watch(runs, position)
        if position - self._segment_start >= self._segment_bytes:
            self._next_segment()
        if self.level:
            self._judge()
        self._pump()
        return position

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
        """What lived in this closed segment was appended anew: remove its files when that is safe."""
        self._chain.drop(number, self.append([[DROPPED, number, *self._chain.gone_with(number)]]))

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
        return self.written

    def must_wait(self) -> bool:
        """Whether new replies wait for their records. In trouble, those that are still given need no disk."""
        return not self._is_failed

    def unsynced_ms(self) -> int:
        """Age of the oldest record that is not as safe as the policy wants it in the end; 0 if there is none.

        That is on disk; with `no`, written.
        """
        return self._backlog.oldest_ms(self.now_ms)

    @property
    def backlog_bytes(self) -> int:
        """Bytes of blocks that are not written."""
        return self._backlog.queued_bytes + (self._backlog.kept_bytes if self._is_writing else 0)

    @property
    def is_syncing(self) -> bool:
        """An fsync is under way."""
        return self._is_syncing or (self._is_busy and self.policy == ALWAYS)

    @property
    def trouble(self) -> str:
        """Why something is refused, in a few words; empty if nothing is."""
        if self.error or not self.level:
            return self.error
        done = "written" if self.policy == NO else "synced"
        return f"the disk is too slow, nothing was {done} for {self.unsynced_ms() // 1000} seconds"

    @property
    def is_closing(self) -> bool:
        """It is about to be closed."""
        return self._closing is not None

    @property
    def _is_ending(self) -> bool:
        """What comes after this journal will not be in it."""
        return self._closing is not None and not self._leaves_mark

    @property
    def is_on_reserve(self) -> bool:
        """The disk is full, and what is written goes to the reserved file, or to the room that it left."""
        return self._reserve.is_used

    @property
    def room_bytes(self) -> int:
        """How much can be written while `is_on_reserve`, if nobody else takes the room."""
        return max(0, self._room_end - self.position)

    # -- files of the journal ------------------------------------------------------------------------

    @property
    def files(self) -> list[Part]:
        """The closed files, in order."""
        return self._chain.files

    def hold(self) -> None:
        """No file is removed until `release`."""
        self._chain.hold()

    def release(self) -> None:
        """Files may be removed again, and those that were to be are."""
        self._chain.release(self.synced)

    def files_up_to(self, number: int) -> list[Part]:
        """The closed files up to this segment, oldest first; those that only wait to be removed included."""
        return self._chain.up_to(number)

    def parts_of(self, number: int) -> list[Part]:
        """The files of a closed segment."""
        return self._chain.parts_of(number)

    def written_parts(self, number: int) -> list[Part]:
        """The files of a segment, the one being written included, as far as they can be read."""
        parts = self._chain.parts_of(number)
        file = self._file
        if file is not None and file.number == number and self.written > file.start:
            parts.append(Part(number, file.part, file.start, self.written))
        return parts

    def has_segment(self, number: int) -> bool:
        """Whether files of this segment exist, or are being removed."""
        queue = self._backlog.queue
        first = queue[0].number if queue else self.number
        return self._chain.has_files(number) or first <= number <= self.number

    def closed_segments(self) -> list[int]:
        """Numbers of segments that are closed, on disk and not being dropped, oldest first."""
        return self._chain.before(self._file.number if self._file is not None else self.number)

    @property
    def may_remove(self) -> bool:
        """Whether dropping a segment is worth a try: each one costs a record, and the last may just have failed."""
        return self.now_ms >= self._remove_again_ms

    def when_closed(self, number: int, then: Callable[[OSError | None], None]) -> None:
        """Call `then` when this segment is closed and on disk, or with what prevents it for now."""
        if self.is_closed_up_to(number):
            then(None)
        elif self._is_failed or self.is_closed:
            then(OSError(self.error or "the journal is closed"))
        else:
            self._when_closed.append((number, then))

    @property
    def size(self) -> int:
        """Bytes of blocks in all files."""
        return self._chain.size + (self.position - (self._file.start if self._file is not None else self.synced))

    @property
    def size_left(self) -> int:
        """The same without the segments that are being dropped."""
        return self.size - self._chain.size_going

    def size_of(self, number: int) -> int:
        """Bytes of blocks in a segment."""
        size = sum(file.end - file.start for file in self._chain.parts_of(number))
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
        elif self._wants_allocation:
            if self.now_ms - self._failed_ms >= RETRY_MS:
                self._failed_ms = self.now_ms
                self._reserve.allocate(self._on_reserved)
        if self.policy == EVERYSEC and not self._is_failed:
            if self.synced < self.written and self.now_ms - self._sync_started_ms >= SYNC_EVERY_MS:
                self._sync_aside(may_leave=True)
            is_late = self.unsynced_ms() > LATE_MS
            self.delayed_syncs += is_late and not self._was_late
            self._was_late = is_late
        elif self._chain.is_dropping:
            self.hurry()
        self._judge()

    def next_ms(self) -> int | None:
        """When `tick` has to be called; None: when something is appended."""
        if self._is_failed or self._wants_allocation:
            return max(self._failed_ms + RETRY_MS, self.now_ms + TICK_MS)  # A disk that hangs makes nobody hurry.
        if self._backlog.has_ages:
            if self.policy == NO:
                return self.now_ms + SYNC_EVERY_MS  # Only a disk that hangs has something to say by then.
            return max(self._sync_started_ms + SYNC_EVERY_MS, self.now_ms + TICK_MS)
        return None

    def hurry(self) -> None:
        """Somebody waits for all of it to be on disk, whatever the policy."""
        if self.synced < self.position == self.written and self.policy != ALWAYS:
            self._sync_aside()

    def set_policy(self, policy: str) -> None:
        """`appendfsync` changed. Leaving `always` takes effect when the journal shows it on disk (spec J2)."""
        self._next_policy = None
        if policy == self.policy:
            return
        if self.policy == ALWAYS:
            self._next_policy = (policy, self._enqueue(encode_block([], self.position, self.synced, self.wall_ms, 0)))
            self._pump()
        else:
            self.policy = policy
            if policy == ALWAYS:
                self._pages = None  # Every write is a sync from now on, and that is the lane's.
                if self.synced < self.written:
                    self._sync_aside()
        self._on_change()

    def close(self, done: Callable[[OSError | None], None], *, leave_mark: bool) -> None:
        """Write and sync all, then say so; or say why not, and go on.

        leave_mark  the clean-shutdown mark (spec O3): the node ends, and nothing can happen any more. Without it
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

    # -- trouble -----------------------------------------------------------------------------------

    def _changed(self) -> None:
        self._judge()
        self._on_change()

    def _judge(self) -> None:
        """What has to be refused now."""
        if self._is_failed:
            level = NO_ACKS if self.policy == ALWAYS else NO_ADDS
            if self._backlog.queued_bytes > BACKLOG_BYTES_MAX:
                level = NO_WRITES
        elif self._reserve.is_used or self.unsynced_ms() > REFUSE_MS:
            level = NO_ADDS
        else:
            level = FINE
        if level != self.level:
            self.level = level
            self._on_change()
