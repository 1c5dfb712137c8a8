"""The client's side of RESP: commands to bytes, bytes to replies.

Commands are arrays of bulk strings. hiredis, or `plain_protocol` where hiredis is not installed, parses replies into
bytes, int, None and lists of these. An error becomes a `ReplyError` object in its place; it is never raised here. The
library uses RESP2 (spec R4: RESP3 would change only nil and maps). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from disque_py.client.errors import ProtocolError, from_reply

try:
    from hiredis import Reader, pack_command
except ImportError:  # A client-only installation, docs/packages.md. Its own classes have the same methods as hiredis'.
    from disque_py.client.plain_protocol import Reader, pack_command  # type: ignore[assignment]  # Other classes.

# bytes | int | None | ReplyError | list of Reply. hiredis builds it, and the parsers of results.py know its shape.
Reply: TypeAlias = Any
Word: TypeAlias = "str | bytes | bytearray | memoryview | int | float"


class NoReplyYet:
    """The type of NOTHING."""


NOTHING: Final = NoReplyYet()

# hiredis builds the whole command in C. It takes a tuple of bytes only, because it can't encode surrogates.
_pack: Final[Callable[..., bytes]] = pack_command


def word(value: Word) -> bytes:
    """Return one argument as bytes. Text becomes UTF-8; the bytes that `text()` could not decode are restored."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return b"%d" % value if isinstance(value, int) else repr(value).encode()
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"an argument must be text, bytes or a number, not {type(value).__name__}")


def text(value: bytes) -> str:
    """Return bytes as text without loss. Queue names are binary safe, though most are UTF-8."""
    return value.decode("utf-8", "surrogateescape")


def encode(argv: Sequence[bytes]) -> bytes:
    """Return the bytes of one command."""
    return _pack(tuple(argv))


class Decoder:
    """A parser that takes bytes in any pieces and returns replies in order.

    feed   takes in bytes from the connection
    next   returns the next whole reply, or NOTHING. Raises ProtocolError
    """

    __slots__ = ("feed", "next")

    def __init__(self) -> None:
        reader = Reader(protocolError=ProtocolError, replyError=from_reply, notEnoughData=NOTHING)
        # The reader's own methods: a method around each would cost a third of reading a short reply.
        self.feed: Callable[[bytes], None] = reader.feed
        self.next: Callable[[], Reply] = reader.gets
