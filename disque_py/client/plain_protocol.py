"""RESP2 in plain Python: the parser and the writer that `protocol` uses where hiredis is not installed.

A program that only uses the client library needs no compiled package: `pip install --no-deps disque-py` is enough. Both
have the part of hiredis' interface that the library uses. The parser keeps the elements of an array that has not
arrived completely, so a reply in many pieces is read only once. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

END: Final = b"\r\n"

# A line has a number, a status or an error. The node's own lines are shorter than this by far.
LINE_BYTES_MAX: Final = 65_536
# As many as hiredis reads.
DEPTH_MAX: Final = 8


def pack_command(argv: tuple[bytes, ...]) -> bytes:
    """Return an array of bulk strings."""
    parts = [b"*%d\r\n" % len(argv)]
    for argument in argv:
        parts += (b"$%d\r\n" % len(argument), argument, END)
    return b"".join(parts)


class Reader:
    """A parser that takes bytes in any pieces and returns replies in order.

    protocolError   makes the exception for bytes that are not RESP
    replyError      makes the object that represents an error reply
    notEnoughData   returned while the next reply is not complete
    """

    __slots__ = ("_at", "_buffer", "_error", "_not_yet", "_open", "_reply_error")

    def __init__(
        self,
        *,
        protocolError: Callable[[str], Exception],  # noqa: N803, hiredis' name
        replyError: Callable[[str], Any],  # noqa: N803
        notEnoughData: object,  # noqa: N803
    ) -> None:
        self._error = protocolError
        self._reply_error = replyError
        self._not_yet = notEnoughData
        self._buffer = bytearray()
        self._at = 0
        self._open: list[tuple[int, list[Any]]] = []  # Arrays that lack elements, outermost first.

    def feed(self, data: bytes) -> None:
        """Take in bytes from the connection."""
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data

    def gets(self) -> Any:
        """Return the next whole reply, or `notEnoughData`. Raises `protocolError`."""
        while True:
            value = self._value()
            if value is self._not_yet:
                return value
            while self._open:
                size, elements = self._open[-1]
                if value is not elements:
                    elements.append(value)
                if len(elements) < size:
                    break
                self._open.pop()
                value = elements
            else:
                return value

    def _value(self) -> Any:
        """Return one scalar, or the new list of an array that is open now."""
        buffer, at = self._buffer, self._at
        end = buffer.find(END, at)
        if end < 0:
            if len(buffer) - at > 0:
                self._check_kind(buffer[at : at + 1])
            # A bulk string's body is skipped by its size, so only a line can be this long.
            if len(buffer) - at > LINE_BYTES_MAX:
                raise self._error("Protocol error, a line without an end")
            return self._not_yet
        kind = bytes(buffer[at : at + 1])
        line = bytes(buffer[at + 1 : end])
        self._check_kind(kind)
        if kind == b"+":
            self._at = end + 2
            return line
        if kind == b"-":
            self._at = end + 2
            return self._reply_error(line.decode("utf-8", "replace"))
        number = self._number(line)
        if kind == b":":
            self._at = end + 2
            return number
        if number < -1:
            raise self._error("Protocol error, a negative size")
        if number == -1:
            self._at = end + 2
            return None
        if kind == b"$":
            return self._bulk(end + 2, number)
        self._at = end + 2
        return self._array(number)

    def _bulk(self, begin: int, size: int) -> Any:
        buffer = self._buffer
        if len(buffer) < begin + size + 2:
            return self._not_yet
        if buffer[begin + size : begin + size + 2] != END:
            raise self._error("Protocol error, a bulk string of another size")
        self._at = begin + size + 2
        return bytes(memoryview(buffer)[begin : begin + size])

    def _array(self, size: int) -> list[Any]:
        if len(self._open) >= DEPTH_MAX:
            raise self._error(f"Protocol error, arrays are more than {DEPTH_MAX} deep")
        elements: list[Any] = []
        self._open.append((size, elements))
        return elements

    def _check_kind(self, kind: bytes | bytearray) -> None:
        if kind not in (b"+", b"-", b":", b"$", b"*"):
            raise self._error(f"Protocol error, got {bytes(kind)!r} as reply type byte")

    def _number(self, line: bytes) -> int:
        digits = line.removeprefix(b"-")
        if not digits.isdigit() or len(digits) > 19:
            raise self._error(f"Protocol error, not a number: {line[:20]!r}")
        return int(line)
