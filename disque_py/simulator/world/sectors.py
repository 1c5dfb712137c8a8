"""A file on a disk that may lose power: the readable content, the durable content, and the writes between them.

A disk writes a sector whole or not at all. It writes sectors in any order, and the length of a file separately. So
after a power cut, any subset of the unsynced sectors may be on disk, each with any content that it had since the sync.
Well-behaved disks keep the order and stop in the middle. The simulator draws both kinds of disks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final, TypeAlias

SECTOR_BYTES: Final = 512

Write: TypeAlias = tuple[int, bytes]  # offset, data


class SimFile:
    """One file, independent of its names.

    content  the readable content
    durable  the content that a power cut leaves, without `pending`
    pending  writes since the last sync, in order; each may have become durable or not
    links    number of names in all directories
    """

    __slots__ = ("content", "durable", "links", "pending")

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.durable = bytearray(content)
        self.pending: list[Write] = []
        self.links = 0

    def write(self, offset: int, data: bytes) -> None:
        """Write data. It is not durable before `sync`."""
        put(self.content, offset, data)
        self.pending.append((offset, data))

    def resize(self, size: int) -> None:
        """Cut the file, or fill it up with zeros. The change is not durable before `sync`."""
        fit(self.content, size)
        self.pending = [(offset, data[: size - offset]) for offset, data in self.pending if offset < size]

    def sync(self) -> None:
        """Make all writes since the last sync durable."""
        durable = self.durable
        for offset, data in self.pending:
            put(durable, offset, data)
        fit(durable, len(self.content))
        self.pending = []

    def sync_part(self, start: int, end: int) -> None:
        """Make the writes in this range durable, and the length. Other writes, and parts of writes, stay pending."""
        kept: list[Write] = []
        for offset, data in self.pending:
            first, last = max(start - offset, 0), min(end - offset, len(data))
            if first >= last:
                kept.append((offset, data))
                continue
            put(self.durable, offset + first, data[first:last])
            if first:
                kept.append((offset, data[:first]))
            if last < len(data):
                kept.append((offset + last, data[last:]))
        fit(self.durable, len(self.content))
        self.pending = kept

    def settle(self, rng: Random) -> None:
        """Make some pending writes durable. The rest never will be. The readable content stays the same."""
        if not self.pending and len(self.durable) == len(self.content):
            return
        extent = rng.randrange(4)
        if extent == 0:
            self.sync()
        elif extent == 1:
            self._settle_in_order(rng)
        elif extent == 2:
            self._settle_anyhow(rng)
        self.pending = []

    def copy(self) -> SimFile:
        """Return a copy of the file with the same pending writes."""
        copied = SimFile()
        copied.content = bytearray(self.content)
        copied.durable = bytearray(self.durable)
        copied.pending = list(self.pending)
        copied.links = self.links
        return copied

    def _settle_in_order(self, rng: Random) -> None:
        """Keep the first writes whole, and the next one in part."""
        durable = self.durable
        for offset, data in self.pending[: rng.randrange(len(self.pending) + 1)]:
            torn = offset, data
            if rng.randrange(len(self.pending)) == 0:
                end = offset + rng.randrange(len(data) + 1)
                if end < len(durable):  # A write inside the file tears between sectors, one at the end anywhere.
                    end -= end % SECTOR_BYTES
                torn = offset, data[: max(0, end - offset)]
            put(durable, *torn)
            if torn[1] is not data:
                return

    def _settle_anyhow(self, rng: Random) -> None:
        """Keep any of the sectors, and any of the lengths."""
        durable = self.durable
        lengths = len(durable), len(self.content)
        for offset, data in any_sectors(self.pending, rng):
            put(durable, offset, data)
        fit(durable, rng.choice((*lengths, rng.randint(min(lengths), max(lengths)))))


def put(content: bytearray, offset: int, data: bytes) -> None:
    """Write into the content, and fill a hole with zeros."""
    if not data:
        return
    hole = offset - len(content)
    if hole > 0:
        content.extend(bytes(hole))
    content[offset : offset + len(data)] = data


def fit(content: bytearray, length: int) -> None:
    """Cut the content, or fill it up with zeros."""
    del content[length:]
    content.extend(bytes(length - len(content)))


def any_sectors(writes: Sequence[Write], rng: Random) -> Iterator[Write]:
    """Yield, for each sector that was written n times, its first 0 to n writes."""
    counts: dict[int, int] = {}
    for offset, data in writes:
        for sector in sectors_of(offset, data):
            counts[sector] = counts.get(sector, 0) + 1
    left = {sector: rng.randint(0, count) for sector, count in counts.items()}
    for offset, data in writes:
        for sector in sectors_of(offset, data):
            if left[sector]:
                left[sector] -= 1
                start = max(offset, sector * SECTOR_BYTES)
                yield start, data[start - offset : (sector + 1) * SECTOR_BYTES - offset]


def sectors_of(offset: int, data: bytes) -> range:
    """Return the numbers of the sectors that a write touches."""
    return range(offset // SECTOR_BYTES, -(-(offset + len(data)) // SECTOR_BYTES))
