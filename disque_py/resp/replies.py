"""Replies as bytes: RESP2, and the two types of RESP3 that nodes send.

After HELLO 3 only nil and maps differ (spec R4).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

OK: Final = b"+OK\r\n"
NIL_BULK: Final = b"$-1\r\n"
NIL_ARRAY: Final = b"*-1\r\n"
NIL_3: Final = b"_\r\n"
EMPTY_ARRAY: Final = b"*0\r\n"


def simple(text: str | bytes) -> bytes:
    """Return a simple string: `+text`."""
    return b"+%b\r\n" % (text.encode() if isinstance(text, str) else text)


def error(text: str) -> bytes:
    """Return an error: `-text`. Line ends in the text become blanks: they would break the protocol."""
    return b"-%b\r\n" % text.replace("\r", " ").replace("\n", " ").encode("utf-8", "surrogateescape")


def integer(value: int) -> bytes:
    """Return an integer: `:value`."""
    return b":%d\r\n" % value


def bulk(value: bytes | str) -> bytes:
    """Return a bulk string: `$length` and the bytes. Text becomes UTF-8."""
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    return b"$%d\r\n%b\r\n" % (len(value), value)


def array(items: Iterable[bytes]) -> bytes:
    """Return an array of items that are already encoded."""
    encoded = list(items)
    return b"*%d\r\n%b" % (len(encoded), b"".join(encoded))


def bulk_array(items: Iterable[bytes | str]) -> bytes:
    """Return an array of bulk strings."""
    return array([bulk(item) for item in items])


def pairs(items: Iterable[tuple[str | bytes, bytes]], protocol: int) -> bytes:
    """Return name-value pairs: a flat array in RESP2, a map in RESP3. Values are already encoded."""
    encoded = [bulk(name) + value for name, value in items]
    if protocol == 3:
        return b"%%%d\r\n%b" % (len(encoded), b"".join(encoded))
    return b"*%d\r\n%b" % (2 * len(encoded), b"".join(encoded))


def nil_bulk(protocol: int) -> bytes:
    """Return nil in place of a string: `$-1`, or `_` after HELLO 3."""
    return NIL_3 if protocol == 3 else NIL_BULK


def nil_array(protocol: int) -> bytes:
    """Return nil in place of an array: `*-1`, or `_` after HELLO 3."""
    return NIL_3 if protocol == 3 else NIL_ARRAY
