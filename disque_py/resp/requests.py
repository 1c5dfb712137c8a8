"""Requests from bytes: RESP arrays of bulk strings, and inline commands.

`_careful` is the protocol: it knows all limits and error texts of spec R1, and can stop and resume at any byte. Nearly
all input is complete commands in their usual form. Compiled code reads these in one short loop (`whole_requests`). In
plain Python, and where a command is cut, `_fast` uses hiredis at a fifth of the cost.

The result of hiredis is used only if the careful parser would give the same. Otherwise the same bytes are read again
carefully. hiredis reserves memory for any declared array length. So input that could make it reserve too much goes to
the careful parser.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Sized
from itertools import chain
from types import FunctionType
from typing import Final

import hiredis
from mypy_extensions import i64

from disque_py.resp.words import UnbalancedQuotesError, split_words

INLINE_BYTES_MAX: Final = 65_536
ARGUMENTS_MAX: Final = 1_048_576
# Bytes of memory that an argument costs besides its content.
ARGUMENT_BYTES: Final = 56

_STAR: Final = 42
_DOLLAR: Final = 36
_ZERO: Final = 48
_NINE: Final = 9  # The value of the last digit.
_CR: Final = 13
_LF: Final = 10
_LENGTH: Final = re.compile(rb"[+-]?[0-9]{1,20}")
# Headers that may not reach hiredis: arrays of very many elements, other aggregates, and other types than bulk strings
# that it returns as bytes.
_DANGEROUS: Final = re.compile(rb"\n(?:[%~>|=+(]|\*[0-9]{6})").search
_DANGEROUS_START: Final = re.compile(rb"\*[0-9]{6}").match
_LONG_ARRAY: Final = re.compile(rb"\*[0-9]{6}").search
_DANGEROUS_CHARACTERS: Final = b"%~>|=+("
_UNUSUAL_LENGTH: Final = re.compile(rb"\n[$*](?:[^0-9]|0[0-9])").search
_UNUSUAL_START: Final = re.compile(rb"\*(?:[^0-9]|0[0-9])").match
# Every kilobyte, hiredis moves its unread bytes to the front. With many of them that costs more than reading.
_SLICE_BYTES: Final = 16_384
_INCOMPLETE: Final = object()


class RequestError(Exception):
    """A violation of the protocol. The client gets this text as an error, and its connection is closed."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class RequestParser:
    """A parser that turns bytes into requests. After `error` is set it reads no more.

    bulk_bytes_max   `proto-max-bulk-len`
    error            the text of a protocol error, "" while there is none
    """

    __slots__ = ("_argv", "_argv_bytes", "_left", "_need", "_parts", "_reader", "_size", "bulk_bytes_max", "error")

    def __init__(self, bulk_bytes_max: int) -> None:
        self.bulk_bytes_max = bulk_bytes_max
        self.error = ""
        self._reader = hiredis.Reader(notEnoughData=_INCOMPLETE)
        # An unfinished request: the arguments that were read, how many are missing, the length of the next one.
        self._argv: list[bytes] = []
        self._argv_bytes = 0
        self._left = 0
        self._parts: list[bytes] = []
        self._size = 0
        self._need = 0

    @property
    def pending_bytes(self) -> int:
        """The bytes that were received of an unfinished request."""
        return self._size + self._argv_bytes

    @property
    def is_idle(self) -> bool:
        """Whether the next byte begins a request."""
        return not self._left and not self._parts and not self.error

    @property
    def wants(self) -> int:
        """The bytes that the unfinished request still needs at least; 0 if that is unknown or none is unfinished."""
        return max(0, self._need - self._size) if self._parts else 0

    def feed(self, data: bytes) -> list[list[bytes]]:
        """Return the requests that are complete with these bytes, in order."""
        requests: list[list[bytes]] = []
        if self.error:
            return requests
        if self._parts:
            self._parts.append(data)
            self._size += len(data)
            if self._size < self._need:
                return requests
            data = b"".join(self._parts)
            self._parts = []
            self._size = 0
        at = 0
        try:
            if self._left:
                at = self._careful(data, 0, requests, is_one=True)
            if at < len(data) and not self._left and not self._parts:
                if data[at] == _STAR:
                    at = self._fast(data[at:] if at else data, at, requests)
                if at < len(data):
                    self._careful(data, at, requests, is_one=False)
        except RequestError as error:
            self.error = error.text
        return requests

    def _fast(self, data: bytes, offset: int, requests: list[list[bytes]]) -> int:
        """Read complete requests at the start of `data`. Return where the rest begins in the whole (`offset` + …)."""
        if len(data) > self.bulk_bytes_max:
            return offset
        if IS_COMPILED:
            whole = whole_requests(data)
            if whole is not None:
                requests += whole
                return offset + len(data)
        if _is_dangerous(data):
            return offset
        reader = self._reader
        found: list[list[bytes]] = []
        try:
            gets = reader.gets
            for start in range(0, len(data), _SLICE_BYTES):
                reader.feed(data[start : start + _SLICE_BYTES] if len(data) > _SLICE_BYTES else data)
                while (argv := gets()) is not _INCOMPLETE:
                    found.append(argv)
            arguments = list(chain.from_iterable(found))
            joined = b"".join(arguments)
            if not all(found):
                raise TypeError  # The two calls above do the same for anything but lists of bytes.
        except (TypeError, hiredis.ProtocolError, hiredis.ReplyError):
            self._reader = hiredis.Reader(notEnoughData=_INCOMPLETE)
            return offset
        # Surplus headers belong to one more request, which is unfinished.
        header = b"$" if _DOLLAR not in joined else b"\r\n$"
        if found and header not in joined and data.count(header) == len(arguments):
            last = arguments[-1]
            if data.endswith(b"$%d\r\n%b\r\n" % (len(last), last)):
                requests += found
                return offset + len(data)
        # The last request is unfinished, or looks so. The careful parser gets it, since it sees declared lengths.
        # hiredis doesn't tell where it begins, but that can be computed if lengths are written in the usual way.
        self._reader = hiredis.Reader(notEnoughData=_INCOMPLETE)
        if not found or _UNUSUAL_LENGTH(data) or _UNUSUAL_START(data):
            return offset
        requests += found
        return offset + len(joined) + _headers_bytes(arguments) + _headers_bytes(found) - 2 * len(found)

    def _careful(self, data: bytes, at: int, requests: list[list[bytes]], *, is_one: bool) -> int:
        """Read on from `at`, and keep an unfinished request. With `is_one` stop after the request under way."""
        size = len(data)
        while at < size or self._left:
            if not self._left:
                if data[at] != _STAR:
                    following = self._inline(data, at, requests)
                    if following < 0:
                        return self._keep(data, at, 0)
                    at = following
                    continue
                end = data.find(b"\r\n", at)
                if end < 0:
                    if size - at > INLINE_BYTES_MAX:
                        raise RequestError("ERR Protocol error: too big mbulk count string")
                    return self._keep(data, at, 0)
                count = _length(data[at + 1 : end])
                if count is None or count > ARGUMENTS_MAX:
                    raise RequestError("ERR Protocol error: invalid multibulk length")
                at = end + 2
                if count <= 0:
                    continue
                self._left = count
                self._argv = []
            while self._left:
                if at >= size:
                    return size
                if data[at] != _DOLLAR:
                    got = chr(data[at])
                    raise RequestError(f"ERR Protocol error: expected '$', got '{got}'")
                end = data.find(b"\r\n", at)
                if end < 0:
                    if size - at > INLINE_BYTES_MAX:
                        raise RequestError("ERR Protocol error: too big bulk count string")
                    return self._keep(data, at, 0)
                length = _length(data[at + 1 : end])
                if length is None or length < 0:
                    raise RequestError("ERR Protocol error: invalid bulk length")
                if length > self.bulk_bytes_max:
                    limit = f"at most {self.bulk_bytes_max} bytes (proto-max-bulk-len)"
                    raise RequestError(f"ERR Protocol error: invalid bulk length, {limit}")
                start = end + 2
                if size < start + length + 2:
                    return self._keep(data, at, start + length + 2 - at)
                self._argv.append(data[start : start + length])
                self._argv_bytes += length + ARGUMENT_BYTES
                at = start + length + 2
                self._left -= 1
            requests.append(self._argv)
            self._argv = []
            self._argv_bytes = 0
            if is_one:
                return at
        return at

    def _inline(self, data: bytes, at: int, requests: list[list[bytes]]) -> int:
        """Read one line. Return where the next one begins, or -1 if the line's end has not come."""
        end = data.find(b"\n", at)
        if end < 0:
            if len(data) - at > INLINE_BYTES_MAX:
                raise RequestError("ERR Protocol error: too big inline request")
            return -1
        if end - at > INLINE_BYTES_MAX:
            raise RequestError("ERR Protocol error: too big inline request")
        line = data[at:end]
        if line.endswith(b"\r"):
            line = line[:-1]
        if not line:
            return end + 1
        try:
            argv = [word for word in split_words(line) if word]
        except UnbalancedQuotesError:
            raise RequestError("ERR Protocol error: unbalanced quotes in request") from None
        if argv:
            requests.append(argv)
        return end + 1

    def _keep(self, data: bytes, at: int, need: int) -> int:
        rest = data[at:] if at else data
        if rest:
            self._parts = [rest]
            self._size = len(rest)
        self._need = need
        return len(data)


def whole_requests(data: bytes) -> list[list[bytes]] | None:
    """Return the requests, if these bytes are nothing but whole ones in their usual form; None: a parser must look.

    This costs a tenth of what preparing and checking bytes for hiredis does, in compiled code. In plain Python it costs
    half of that for one request, and more for several: a pipeline is for hiredis there.
    """
    size: i64 = len(data)
    requests: list[list[bytes]] = []
    words: list[bytes] = []
    at: i64 = 1
    left: i64 = 0
    try:
        if data[0] != _STAR:
            return None
        while True:
            number: i64 = data[at] - _ZERO
            if number < 0 or number > _NINE:
                return None
            at += 1
            byte: i64 = data[at]
            while byte != _CR:
                byte -= _ZERO
                if not number or byte < 0 or byte > _NINE or number > size:
                    return None
                number = number * 10 + byte
                at += 1
                byte = data[at]
            if data[at + 1] != _LF:
                return None
            at += 2
            if not left:
                if not number or number > ARGUMENTS_MAX:
                    return None
                left = number
            else:
                end = at + number
                if end + 2 > size or data[end] != _CR or data[end + 1] != _LF:
                    return None
                words.append(data[at:end])
                at = end + 2
                left -= 1
                if not left:
                    if at == size:
                        return [*requests, words]
                    if not IS_COMPILED or data[at] != _STAR:
                        return None
                    requests.append(words)
                    words = []
                    at += 1
                    continue
            if data[at] != _DOLLAR:
                return None
            at += 1
    except IndexError:
        return None  # The last request is not complete.


def _is_dangerous(data: bytes) -> bool:
    """Return whether these bytes must not reach hiredis. Single characters are searched first: that is quicker."""
    for character in _DANGEROUS_CHARACTERS:
        if character in data:
            return bool(_DANGEROUS(data) or _DANGEROUS_START(data))
    return _LONG_ARRAY(data) is not None


def _length(text: bytes) -> int | None:
    if not text:
        return 0
    if not _LENGTH.fullmatch(text):
        return None
    return int(text)


def _headers_bytes(counted: Sequence[Sized]) -> int:
    """Return the bytes of the headers and line ends around these arguments: `$3`, CRLF, and CRLF for each."""
    total = 0
    for one in counted:
        size = len(one)
        total += 6 if size < 10 else 7 if size < 100 else 8 if size < 1000 else 5 + len(str(size))
    return total


# A compiled function is a builtin one.
IS_COMPILED: Final = not isinstance(_length, FunctionType)
