"""A new journal, written as a whole, for example by an import.

Blocks say that they were *not* written under `appendfsync always`. So a node that loads them takes no job as certain:
jobs wait for their retry, and at-most-once jobs are not queued (spec O5). A caller that knows that an at-most-once job
was never delivered adds it last, as `is_certain`.

The journal is complete only when `finish` has returned. Until then the caller keeps it in another folder (install.py).
"""

# Stays Python: runs in programs only, not in a node.
from __future__ import annotations

from typing import Any

from persistence.disk import Folder
from persistence.items import Facts, base_item
from persistence.journal import BATCH_BYTES_MAX, BLOCK_BYTES, SEGMENT_BYTES
from persistence.records import IS_ALWAYS, JOB, PAUSE, Part, encode_block, encode_header, file_name


class FreshJournal:
    """A writer of segments into an empty folder.

    node      the journal's node; a node with another id reads its own id into the sets of holders when it loads this
    wall_ms   the time in all its blocks
    """

    def __init__(self, folder: Folder, node: bytes, wall_ms: int, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.job_count = 0
        self._folder = folder
        self._node = node
        self._wall_ms = wall_ms
        self._segment_bytes = segment_bytes
        self._files: list[Part] = []
        self._name = ""
        self._start = self._position = self._header_bytes = 0
        self._items: list[Any] = [JOB]
        self._items_bytes = 0
        self._is_certain = False
        self._chunks: list[bytes] = []
        self._chunks_start = self._chunks_bytes = 0
        self._append([])  # Nothing after an uncertain block is certain because of blocks before it.

    def add(self, facts: Facts, *, is_certain: bool = False) -> None:
        """Add a job; certain jobs come after all others."""
        if is_certain != self._is_certain:
            assert is_certain, "an uncertain job after certain ones"
            self._flush_items()
            self._is_certain = True
        self._items.append(base_item(facts, self._wall_ms))
        self._items_bytes += len(facts.body) + len(facts.queue) + 200
        self.job_count += 1
        if self._items_bytes >= BLOCK_BYTES:
            self._flush_items()

    def pause(self, queue: bytes, flags: int, version_ms: int, version_node: bytes) -> None:
        """Add a queue's pause."""
        self._append([[PAUSE, (queue, flags, version_ms, version_node)]])

    def finish(self) -> None:
        """Bring all of it to disk; OSError."""
        self._flush_items()
        self._flush_chunks()
        self._folder.sync(self._name)

    def _flush_items(self) -> None:
        if len(self._items) > 1:
            self._append([self._items])
            self._items = [JOB]
            self._items_bytes = 0

    def _append(self, runs: list[list[Any]]) -> None:
        if not self._name or self._position - self._start >= self._segment_bytes:
            self._next_file()
        flags = IS_ALWAYS if self._is_certain else 0
        data = encode_block(runs, self._position, self._start, self._wall_ms, flags)
        self._chunks.append(data)
        self._chunks_bytes += len(data)
        self._position += len(data)
        if self._chunks_bytes >= BATCH_BYTES_MAX:
            self._flush_chunks()

    def _flush_chunks(self) -> None:
        if self._chunks:
            offset = self._header_bytes + self._chunks_start - self._start
            self._folder.write(self._name, offset, self._chunks)
            self._chunks = []
            self._chunks_start = self._position
            self._chunks_bytes = 0

    def _next_file(self) -> None:
        number = len(self._files) + 1
        if self._name:
            self._flush_chunks()
            self._folder.sync(self._name)
            self._files.append(Part(number, 0, self._start, self._position))
            number += 1
        self._start = self._chunks_start = self._position
        header = encode_header(number, 0, self._start, self._files, self._node, self._wall_ms)
        self._name = file_name(number)
        self._header_bytes = len(header)
        self._folder.create(self._name, header)
