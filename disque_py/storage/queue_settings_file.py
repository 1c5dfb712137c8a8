"""The file of queue settings as bytes.

    file    = the line "disque queue settings 1", then frames
    frame   = length of the payload (u32) | crc32 of the payload (u32) | payload
    payload = msgpack array of settings: [queue, field, value, counter, node id]

Integers are big-endian. A write appends one frame and syncs it, so only the last frame can be torn, and no client
had its answer to that change. A frame that is damaged with others behind it means that the file is damaged. That
is an error, and never half believed. Settings of newer versions are kept as they are. Spec QS3.

server/queue_settings_store.py writes the file; simulator/world/settings_disk.py plays its disk.
"""

# Stays Python: a rewrite runs in a thread, and compiled code would keep the loop from running meanwhile.
from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

import msgpack  # type: ignore[import-untyped]  # It ships no types.

from disque_py.core.queue_settings import Item, QueueSettingsTable, is_item

HEAD: Final = b"disque queue settings 1\n"
_NAME: Final = b"disque queue settings "
_FRAME: Final = struct.Struct(">II")
# A frame of a rewritten file has so many settings.
ITEMS_PER_FRAME: Final = 1_000


class DamagedFileError(Exception):
    """The bytes are no file of queue settings; the text is the reason."""


class Contents(NamedTuple):
    """The contents of a file.

    items       all settings, in the order of writing
    good_bytes  the length without a torn last frame
    """

    items: list[Item]
    good_bytes: int


def frame(items: Iterable[Item]) -> bytes:
    """Return one frame with these settings."""
    payload: bytes = msgpack.packb(list(items))
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def parse(data: bytes) -> Contents:
    """Return the settings of a file. An empty file has none. DamagedFileError."""
    if not data.startswith(HEAD):
        if HEAD.startswith(data):
            return Contents([], 0)  # It was being made.
        if data.startswith(_NAME):
            raise DamagedFileError("it was written by a newer version")
        raise DamagedFileError("it does not begin as a file of queue settings")
    items: list[Item] = []
    at = len(HEAD)
    while at < len(data):
        found = _payload(data, at)
        if found is None:
            return Contents(items, at)
        items += _items(found, at)
        at += _FRAME.size + len(found)
    return Contents(items, at)


def _payload(data: bytes, at: int) -> bytes | None:
    """Return the payload of the frame there; None if it is torn. DamagedFileError."""
    if len(data) - at < _FRAME.size:
        return None
    length, crc = _FRAME.unpack_from(data, at)
    start = at + _FRAME.size
    if start + length > len(data):
        return None
    payload = data[start : start + length]
    if length and zlib.crc32(payload) == crc:
        return payload
    if (length and start + length == len(data)) or not data[at:].strip(b"\0"):
        return None
    raise DamagedFileError(f"the checksum at byte {at} does not match")


def _items(payload: bytes, at: int) -> list[Item]:
    try:
        found = msgpack.unpackb(payload, strict_map_key=False)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(map(is_item, found)):
        raise DamagedFileError(f"the frame at byte {at} holds something else than settings")
    return [tuple(item[:5]) for item in found]


def rewritten(items: Iterable[Item]) -> bytes:
    """Return a file with the settings that still count of these."""
    table = QueueSettingsTable()
    for item in items:
        table.merge_version(item)
    kept = table.all_items()
    parts = [HEAD]
    while part := list(islice(kept, ITEMS_PER_FRAME)):
        parts.append(frame(part))
    return b"".join(parts)
