"""Files of frames: small facts of a node that are appended and synced, such as queue settings and grants of claims.

    file    = the line "disque <title> 1", then frames
    frame   = length of the payload (u32) | crc32 of the payload (u32) | payload
    payload = msgpack array of items

Integers are big-endian. A write appends one frame and syncs it. So only the last frame can be torn, and nothing relied
on it yet. A power cut may keep any of its pages: its length may be missing while a part of its payload is there. A
broken frame is damage if a whole frame is behind it, and the whole file is refused. Items of newer versions are kept as
they are.

server/framed_store.py writes such a file; simulator/world/framed_disk.py plays its disk.
"""

# Stays Python: a rewrite runs in a thread, and compiled code would keep the loop from running meanwhile.
from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, NamedTuple

import msgpack  # type: ignore[import-untyped]  # It ships no types.

_FRAME: Final = struct.Struct(">II")
# The items in a frame of a rewritten file.
ITEMS_PER_FRAME: Final = 1_000

# One fact; its first values say what it is about.
Item = tuple[Any, ...]


class DamagedFileError(Exception):
    """The bytes are no such file; the text is the reason."""


class Contents(NamedTuple):
    """The contents of a file.

    items       all items, in the order of writing
    good_bytes  the length without a torn last frame
    """

    items: list[Any]
    good_bytes: int


class Format(NamedTuple):
    """The format of one file's items.

    title     names the file, in its first line and in messages
    fields    the least number of values in an item; further ones are of newer versions
    is_item   whether a value is an item
    latest    returns those that still count of all items of a file
    """

    title: str
    fields: int
    is_item: Callable[[Any], bool]
    latest: Callable[[Iterable[Any]], Iterable[Any]]

    @property
    def head(self) -> bytes:
        """The first line of a file."""
        return f"disque {self.title} 1\n".encode()

    def parse(self, data: bytes) -> Contents:
        """Return the items of a file. An empty file has none. DamagedFileError."""
        head = self.head
        if not data.startswith(head):
            if head.startswith(data):
                return Contents([], 0)  # The process ended while it made the file.
            if data.startswith(head[:-2]):
                raise DamagedFileError("it was written by a newer version")
            raise DamagedFileError(f"it does not begin as a file of {self.title}")
        items: list[Any] = []
        at = len(head)
        while at < len(data):
            found = _payload(data, at)
            if found is None:
                return Contents(items, at)
            items += self._items(found, at)
            at += _FRAME.size + len(found)
        return Contents(items, at)

    def _items(self, payload: bytes, at: int) -> list[Any]:
        try:
            found = msgpack.unpackb(payload, strict_map_key=False)
        except ValueError:
            found = None
        if not isinstance(found, list) or not all(map(self.is_item, found)):
            raise DamagedFileError(f"the frame at byte {at} holds something else than {self.title}")
        return [tuple(item[: self.fields]) for item in found]

    def rewritten(self, items: Iterable[Any]) -> bytes:
        """Return a file with the items that still count of these."""
        kept = iter(self.latest(items))
        parts = [self.head]
        while part := list(islice(kept, ITEMS_PER_FRAME)):
            parts.append(frame(part))
        return b"".join(parts)


def frame(items: Iterable[Any]) -> bytes:
    """Return one frame with these items."""
    payload: bytes = msgpack.packb(list(items))
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def _payload(data: bytes, at: int) -> bytes | None:
    """Return the payload of the frame there; None if it is torn. DamagedFileError."""
    if len(data) - at < _FRAME.size:
        return None
    length, crc = _FRAME.unpack_from(data, at)
    start = at + _FRAME.size
    payload = data[start : start + length]
    if length and len(payload) == length and zlib.crc32(payload) == crc:
        return payload
    if _has_frame(data, at + 1):
        raise DamagedFileError(f"the checksum at byte {at} does not match")
    return None


def _has_frame(data: bytes, at: int) -> bool:
    """Return whether a whole frame begins at `at` or behind it."""
    # A payload is a msgpack array. Few other places look like one behind a length that fits into the file.
    highest = re.escape(bytes(((len(data) - at) >> 24 & 0xFF,)))
    heads = re.compile(rb"(?=[\0-%b].{7}[\x90-\x9f\xdc\xdd])" % highest, re.DOTALL)
    for found in heads.finditer(data, at):
        length, crc = _FRAME.unpack_from(data, found.start())
        start = found.start() + _FRAME.size
        if 0 < length <= len(data) - start and zlib.crc32(data[start : start + length]) == crc:
            return True
    return False
