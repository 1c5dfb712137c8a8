"""Decode limit: counts the objects that a long frame would become, before any of them is made.

msgpack makes a list of 56 bytes from a single byte. So the longest frame that a node may send could become gigabytes
and stop the process for seconds. Honest frames are long because of jobs' bodies, and a body is one object. So a long
frame is scanned before it is decoded: the scan reads heads and skips what they announce. Short frames are not worth
the time: they can't become more than some megabytes.

Pure. It does not judge validity: msgpack itself finds bytes that are no msgpack.
"""

from __future__ import annotations

from typing import Final

# A run has at most 512 items (disque_py/node/turn.py). An item of a hand-over may be a hundred jobs of a few values.
OBJECTS_MAX: Final = 1 << 18

# Heads followed by the length of their content: how many bytes the length has, and how many more to skip.
_SKIPPED: Final = {
    0xC4: (1, 0),
    0xC5: (2, 0),
    0xC6: (4, 0),  # bytes
    0xD9: (1, 0),
    0xDA: (2, 0),
    0xDB: (4, 0),  # text
    0xC7: (1, 1),
    0xC8: (2, 1),
    0xC9: (4, 1),  # extensions, which have a type
}
# Heads followed by a count: how many bytes it has, and objects per counted one.
_COUNTED: Final = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
# Heads followed by a fixed number of bytes; nil, false and true have none.
_FIXED: Final = {
    0xCA: 4,
    0xCB: 8,
    0xCC: 1,
    0xCD: 2,
    0xCE: 4,
    0xCF: 8,
    0xD0: 1,
    0xD1: 2,
    0xD2: 4,
    0xD3: 8,
    0xD4: 2,
    0xD5: 3,
    0xD6: 5,
    0xD7: 9,
    0xD8: 17,
}


def has_few_objects(payload: bytes | bytearray | memoryview, objects_max: int = OBJECTS_MAX) -> bool:
    """Return whether this msgpack holds at most `objects_max` objects, as far as it can be read."""
    at, end = 0, len(payload)
    due = 1  # Objects that were announced and not seen yet.
    seen = 0
    while due and at < end:
        due -= 1
        seen += 1
        if seen > objects_max:
            return False
        head = payload[at]
        at += 1
        if head < 0x80 or head >= 0xE0:
            continue
        if head < 0x90:
            due += 2 * (head & 0x0F)
        elif head < 0xA0:
            due += head & 0x0F
        elif head < 0xC0:
            at += head & 0x1F
        elif head in _SKIPPED:
            length_bytes, more = _SKIPPED[head]
            at += length_bytes + more + int.from_bytes(payload[at : at + length_bytes], "big")
        elif head in _COUNTED:
            length_bytes, per_count = _COUNTED[head]
            due += per_count * int.from_bytes(payload[at : at + length_bytes], "big")
            at += length_bytes
        else:
            at += _FIXED.get(head, 0)
    return True
