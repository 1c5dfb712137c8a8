"""Journal files for tests: one in the first format, which servers no longer write, and one in today's format.

`python tests/support/journal_files.py` writes tests/support/journals again. The files are in the repository, so that
later readers are tested with the files of earlier writers.
"""

from __future__ import annotations

import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import msgpack

JOURNALS = Path(__file__).parent / "journals"

NODE = bytes(range(20))
OTHER = b"\x02" * 20
WALL_MS = 1_700_000_000_000
QUEUED_ID = b"D-00010203-" + b"A" * 24 + b"-0001"
ACKED_ID = b"D-00010203-" + b"B" * 24 + b"-0001"
GONE_ID = b"D-00010203-" + b"C" * 24 + b"-0001"
ONCE_ID = b"D-00010203-" + b"D" * 24 + b"-0000"

IS_QUEUED, IS_DELIVERED, IS_ACKED, IS_LEASED, WAS_QUEUED = 1, 2, 4, 8, 16
HEADER_ALIGN = 512


def cut_zeros(folder: Any, name: str) -> int:
    """Cut the zeros off that a file has behind its last block, and return its new size."""
    size = len(folder.read(name, 0, folder.size(name)).rstrip(b"\0"))
    folder.truncate(name, size)
    return size


def header(version: int, described: list[Any]) -> bytes:
    """Return a header: magic, version, reserved, length and checksum of the description; the description; zeros."""
    body = msgpack.packb(described)
    head = struct.pack("<8sHHII", b"DISQUEPJ", version, 0, len(body), zlib.crc32(body)) + body
    return head + bytes(-len(head) % HEADER_ALIGN)


def block(position: int, runs: list[Any], *, synced: int = 0, wall_ms: int = WALL_MS, flags: int = 1) -> bytes:
    """Return a block: length, checksum; position, position on disk, wall clock, flags; runs in msgpack."""
    payload = msgpack.packb(runs)
    checked = struct.pack("<QQQI", position, synced, wall_ms, flags) + payload
    return struct.pack("<II", len(payload), zlib.crc32(checked)) + checked


def base(job_id: bytes, queue: bytes, body: bytes, *, retry_ms: int, flags: int, due_ms: int = -1) -> list[Any]:
    """Return a base: id, numbers, queue, body, holders, state."""
    numbers = struct.pack("<QQQQHHHI", WALL_MS * 1_000_000, 3_600_000, retry_ms, 0, 1, 0, 0, 0)
    return [job_id, numbers, queue, body, NODE, struct.pack("<Bq", flags, due_ms)]


def bases() -> list[Any]:
    """Return the bases of four queued jobs."""
    in_queue = IS_QUEUED | WAS_QUEUED
    return [
        base(QUEUED_ID, b"q", b"one", retry_ms=30_000, flags=in_queue),
        base(ACKED_ID, b"q", b"two", retry_ms=30_000, flags=in_queue),
        base(GONE_ID, b"q", b"three", retry_ms=30_000, flags=in_queue),
        base(ONCE_ID, b"once", b"four", retry_ms=0, flags=in_queue),
    ]


def segment(version: int) -> bytes:
    """Return a journal of one file: jobs come, one is delivered, one acknowledged, one ended; a queue is paused."""
    counters = b"" if version == 1 else struct.pack("<HH", 2, 3)
    leased = struct.pack("<BqI", IS_DELIVERED | IS_LEASED | WAS_QUEUED, 30_000, 1) + counters
    acked = struct.pack("<BqI", IS_DELIVERED | IS_ACKED | WAS_QUEUED, -1, 1) + counters
    first = block(0, [[1, *bases()]])
    second = block(
        len(first),
        [
            [3, [GONE_ID, 1]],
            [2, [QUEUED_ID, leased, None], [ACKED_ID, acked, NODE + OTHER]],
            [4, [b"q", 1, WALL_MS, OTHER]],
        ],
        synced=len(first),
        wall_ms=WALL_MS + 1_000,
    )
    return header(version, [1, 0, 0, [], NODE, WALL_MS]) + first + second


def main() -> int:
    """Write the files."""
    JOURNALS.mkdir(exist_ok=True)
    for version in (1, 2):
        (JOURNALS / f"v{version}.seg").write_bytes(segment(version))
    return 0


if __name__ == "__main__":
    sys.exit(main())
