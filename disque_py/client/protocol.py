"""RESP on the client's side: commands to bytes, bytes to replies.

Pure. Commands are arrays of bulk strings; replies are parsed by hiredis into bytes, int, None,
lists of these, and `ReplyError` objects in the place where an error came (never raised here).
We stay in RESP2 (spec R4: RESP3 would change only nil and maps).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import hiredis

from disque_py.client.errors import ProtocolError, from_reply

# bytes | int | None | ReplyError | list of Reply: hiredis builds it, the parsers of results.py know its shape.
Reply: TypeAlias = Any
Word: TypeAlias = "str | bytes | bytearray | memoryview | int | float"


class NoReplyYet:
    """The type of NOTHING."""


NOTHING: Final = NoReplyYet()

# hiredis builds the whole command in C; a tuple of bytes only, because it knows no surrogates.
_pack: Final[Callable[..., bytes]] = hiredis.pack_command


def word(value: Word) -> bytes:
    """One argument as bytes; text becomes UTF-8 and bytes that `text()` could not decode come back as they were."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return b"%d" % value if isinstance(value, int) else repr(value).encode()
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"an argument is text, bytes or a number, not {type(value).__name__}")


def text(value: bytes) -> str:
    """Bytes as text without loss: queue names are binary safe, most are UTF-8."""
    return value.decode("utf-8", "surrogateescape")


def encode(argv: Sequence[bytes]) -> bytes:
    """One command as it goes over the wire."""
    return _pack(tuple(argv))


class Decoder:
    """Bytes in any pieces → replies, in order."""

    __slots__ = ("_reader",)

    def __init__(self) -> None:
        self._reader = hiredis.Reader(protocolError=ProtocolError, replyError=from_reply, notEnoughData=NOTHING)

    def feed(self, data: bytes) -> None:
        """Bytes as they came."""
        self._reader.feed(data)

    def next(self) -> Reply:
        """The next whole reply, or NOTHING. Raises ProtocolError."""
        return self._reader.gets()
