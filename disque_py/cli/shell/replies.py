"""Replies as a command line shows them, and the parser that finds them in a byte stream.

A library turns a reply into a Python value and drops its type on the wire. A shell needs the type: a status is printed
bare, a bulk string quoted, and RESP3 has more types. So a Reply keeps its kind. A scalar keeps its text exactly as it
came. An aggregate keeps its items in order, and a map is its keys and values in turn. The parser takes bytes in any
portions, and never parses a byte of a body twice.

Spec R4. RESP3's types are here because HELLO 3 asks for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STATUS: Final = "status"
ERROR: Final = "error"
INTEGER: Final = "integer"
BULK: Final = "bulk"
NIL: Final = "nil"
ARRAY: Final = "array"
MAP: Final = "map"
SET: Final = "set"
PUSH: Final = "push"
DOUBLE: Final = "double"
BOOLEAN: Final = "boolean"
BIG_NUMBER: Final = "big-number"
VERBATIM: Final = "verbatim"
ATTRIBUTE: Final = "attribute"  # Used only inside the parser: it describes the next reply, and is never shown.

_LINES: Final = {b"+": STATUS, b"-": ERROR, b":": INTEGER, b",": DOUBLE, b"#": BOOLEAN, b"(": BIG_NUMBER}
_BODIES: Final = {b"$": BULK, b"=": VERBATIM, b"!": ERROR}
_AGGREGATES: Final = {b"*": ARRAY, b"~": SET, b">": PUSH, b"%": MAP, b"|": ATTRIBUTE}

# Header lines, statuses and errors longer than this are not RESP. Without a limit, garbage on the port would be
# collected for ever.
LINE_BYTES_MAX: Final = 1 << 20
# A verbatim string starts with three letters of format and a colon.
VERBATIM_PREFIX_BYTES: Final = 4


class NotRespError(Exception):
    """Bytes that are not RESP; the text describes them. The stream can't be read any further."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply: its kind, and either the text of a scalar or the items of an aggregate."""

    kind: str
    text: bytes = b""
    items: tuple[Reply, ...] = ()

    @property
    def is_error(self) -> bool:
        """Whether the server refused the command."""
        return self.kind is ERROR

    def texts(self) -> list[bytes]:
        """Return the texts of the items, for a list of names."""
        return [item.text for item in self.items]

    def pairs(self) -> dict[bytes, Reply]:
        """Return the items of a map, or of a flat array of names and values, as a dict."""
        return {name.text: value for name, value in zip(self.items[::2], self.items[1::2], strict=False)}


class _Frame:
    """An aggregate whose items are still coming."""

    __slots__ = ("count", "items", "kind")

    def __init__(self, kind: str, count: int) -> None:
        self.kind = kind
        self.count = count
        self.items: list[Reply] = []


class ReplyParser:
    """A parser: `feed` takes bytes, and `take` returns replies."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._start = 0
        self._stack: list[_Frame] = []

    def feed(self, data: bytes) -> None:
        """Add bytes as they came from the network."""
        if self._start:
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += data

    def take(self) -> Reply | None:
        """Return the next complete reply, or None if more bytes are needed. Raises NotRespError."""
        while (element := self._element()) is not None:
            reply = self._attach(element)
            if reply is not None:
                return reply
        return None

    def _attach(self, element: Reply | _Frame) -> Reply | None:
        """Add an element to the aggregate that it belongs to. Return the reply if that completes it."""
        while True:
            if isinstance(element, _Frame):
                if element.count:
                    self._stack.append(element)
                    return None
                element = Reply(element.kind)
            if element.kind is not ATTRIBUTE:
                if not self._stack:
                    return element
                self._stack[-1].items.append(element)
            elif not self._stack:
                return None
            frame = self._stack[-1]
            if len(frame.items) < frame.count:
                return None
            self._stack.pop()
            element = Reply(frame.kind, b"", tuple(frame.items))

    def _element(self) -> Reply | _Frame | None:
        """Return a scalar, or a new aggregate; None while bytes are missing."""
        end = self._buffer.find(b"\r\n", self._start)
        if end < 0:
            if len(self._buffer) - self._start > LINE_BYTES_MAX:
                raise NotRespError("a reply line without an end")
            return None
        mark = bytes(self._buffer[self._start : self._start + 1])
        line = bytes(self._buffer[self._start + 1 : end])
        if mark in _BODIES:
            return self._body(_BODIES[mark], line, end + 2)
        self._start = end + 2
        if mark in _LINES:
            return Reply(_LINES[mark], line)
        if mark in _AGGREGATES:
            return _opened(_AGGREGATES[mark], _count(line))
        if mark == b"_":
            return Reply(NIL)
        raise NotRespError(f"a reply that starts with {mark!r}")

    def _body(self, kind: str, line: bytes, body_start: int) -> Reply | None:
        """Return a reply whose length comes first."""
        length = _count(line)
        if length < 0:
            self._start = body_start
            return Reply(NIL)
        end = body_start + length
        if len(self._buffer) < end + 2:
            return None
        text = bytes(self._buffer[body_start:end])
        self._start = end + 2
        return Reply(kind, text[VERBATIM_PREFIX_BYTES:] if kind is VERBATIM else text)


def _opened(kind: str, count: int) -> Reply | _Frame:
    if count < 0:
        return Reply(NIL)
    return _Frame(kind, 2 * count if kind in (MAP, ATTRIBUTE) else count)


def _count(line: bytes) -> int:
    try:
        return int(line)
    except ValueError:
        raise NotRespError(f"a length that reads {line[:32]!r}") from None


def encode(words: list[bytes]) -> bytes:
    """Return a command as the server reads it: an array of bulk strings."""
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"".join(parts)
