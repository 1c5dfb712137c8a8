"""WriteQueue: blocks on their way to the disk, and their ages.

A block is *queued* until it is given to the disk, and *kept* from then on until it is known to be safe. Blocks that
were written and not synced may turn out to be lost, and are queued again then (`give_back`). Ages are noted per moment,
not per block: all blocks of one moment have the same age.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Waiting(NamedTuple):
    """A block on its way: of this segment, between these positions. Its bytes are those of all parts, in order."""

    number: int
    start: int
    end: int
    parts: list[bytes]


class WriteQueue:
    """All blocks that are not safe yet.

    queue          not given to the disk, oldest first
    queued_bytes   the bytes of these
    kept_bytes     given to the disk, and not known to be safe
    """

    def __init__(self) -> None:
        self.queue: deque[Waiting] = deque()
        self.queued_bytes = 0
        self.kept_bytes = 0
        self._kept: deque[Waiting] = deque()
        # (end, when it was added), for blocks that are not safe.
        self._ages: deque[tuple[int, int]] = deque()

    def add(self, block: Waiting, now_ms: int) -> None:
        """Queue a new block."""
        assert block.start < block.end
        assert not self.queue or self.queue[-1].end == block.start
        self.queue.append(block)
        self.queued_bytes += block.end - block.start
        ages = self._ages
        if ages and ages[-1][1] == now_ms:
            ages[-1] = (block.end, now_ms)
        else:
            ages.append((block.end, now_ms))

    def take(self, number: int, bytes_max: int, end_max: int) -> list[bytes]:
        """Take the next blocks of this segment, about `bytes_max`, none that ends behind `end_max`; keep them."""
        queue = self.queue
        chunks: list[bytes] = []
        size = 0
        while queue and queue[0].number == number and size < bytes_max and queue[0].end <= end_max:
            block = queue.popleft()
            self._kept.append(block)
            chunks += block.parts
            size += block.end - block.start
        self.queued_bytes -= size
        self.kept_bytes += size
        return chunks

    def end_before(self, position: int) -> int:
        """Return the end of the last block given to the disk that ends no later than `position`; -1: none."""
        for block in reversed(self._kept):
            if block.end <= position:
                return block.end
        return -1

    def give_back(self) -> None:
        """Queue all kept blocks again, before the others: none of them is known to be safe."""
        assert not self._kept or not self.queue or self._kept[-1].end == self.queue[0].start
        self.queue.extendleft(reversed(self._kept))
        self.queued_bytes += self.kept_bytes
        self._kept.clear()
        self.kept_bytes = 0

    def on_synced(self, end: int) -> None:
        """Forget the blocks up to `end`: they are on disk."""
        kept = self._kept
        while kept and kept[0].end <= end:
            block = kept.popleft()
            self.kept_bytes -= block.end - block.start
        assert self.kept_bytes >= 0
        self.forget_ages(end)

    def forget_ages(self, end: int) -> None:
        """Forget how old the blocks up to `end` are."""
        ages = self._ages
        while ages and ages[0][0] <= end:
            ages.popleft()

    @property
    def has_ages(self) -> bool:
        """Whether any block is growing old."""
        return bool(self._ages)

    def oldest_ms(self, now_ms: int) -> int:
        """Return the age of the oldest block that is not safe; 0 if there is none."""
        return now_ms - self._ages[0][1] if self._ages else 0
