"""Text that a person typed, as the words of a command.

The rules of the server's inline commands (spec R1), except that an empty
argument in quotes is kept: we send words as an array, where it can be said.
"""

from __future__ import annotations

import re
from typing import Final

_ESCAPES: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}

_HEX: Final = re.compile(rb"\\x([0-9a-fA-F]{2})")
_BLANKS: Final = b" \t\n\r\v\f\0"
# What has a meaning inside [..] of a regular expression and none in a glob; the dash has the same in both.
_CLASS_SPECIAL: Final = re.compile(r"[\\\[\]^&~|]")


class UnbalancedQuotesError(ValueError):
    """A quote that never ends, or that ends in the middle of a word."""


def split_words(line: str) -> list[bytes]:
    """The words of a line, quotes and escapes resolved. UnbalancedQuotesError if they can't be."""
    data = line.encode("utf-8", "surrogateescape")
    words: list[bytes] = []
    at = 0
    while True:
        while at < len(data) and data[at] in _BLANKS:
            at += 1
        if at == len(data):
            return words
        word, at = _word(data, at)
        words.append(word)


def _word(data: bytes, at: int) -> tuple[bytes, int]:
    """The word that starts at `at`, and where it ends."""
    word = bytearray()
    while at < len(data) and data[at] not in _BLANKS:
        char = data[at : at + 1]
        if char not in (b'"', b"'"):
            word += char
            at += 1
            continue
        inside, at = _double_quoted(data, at + 1) if char == b'"' else _single_quoted(data, at + 1)
        word += inside
        if at < len(data) and data[at] not in _BLANKS:
            raise UnbalancedQuotesError("Invalid argument(s)")
    return bytes(word), at


def _double_quoted(data: bytes, at: int) -> tuple[bytes, int]:
    inside = bytearray()
    while at < len(data):
        char = data[at : at + 1]
        if char == b'"':
            return bytes(inside), at + 1
        if char == b"\\" and (match := _HEX.match(data, at)):
            inside.append(int(match[1], 16))
            at = match.end()
        elif char == b"\\" and at + 1 < len(data):
            escaped = data[at + 1 : at + 2]
            inside += _ESCAPES.get(escaped, escaped)
            at += 2
        else:
            inside += char
            at += 1
    raise UnbalancedQuotesError("Invalid argument(s)")


def _single_quoted(data: bytes, at: int) -> tuple[bytes, int]:
    inside = bytearray()
    while at < len(data):
        if data.startswith(b"\\'", at):
            inside += b"'"
            at += 2
        elif data[at : at + 1] == b"'":
            return bytes(inside), at + 1
        else:
            inside.append(data[at])
            at += 1
    raise UnbalancedQuotesError("Invalid argument(s)")


def split_repeat(words: list[bytes]) -> tuple[int, list[bytes]]:
    """`<n> <command>` as (n, command); a plain command is (1, command)."""
    if len(words) > 1 and words[0].isdigit() and int(words[0]) > 0:
        return int(words[0]), words[1:]
    return 1, words


def glob_pattern(glob: str) -> re.Pattern[bytes]:
    r"""A pattern with `* ? [a-z] [^a] \x`, as CONFIG GET and --pattern take it, as a regular expression."""
    out = []
    at = 0
    while at < len(glob):
        char = glob[at]
        end = glob.find("]", at + 2) if char == "[" else -1
        if char == "*":
            out.append(".*")
        elif char == "?":
            out.append(".")
        elif end > 0:
            inside = glob[at + 1 : end]
            sign, inside = ("^", inside[1:]) if inside.startswith("^") and len(inside) > 1 else ("", inside)
            out.append("[" + sign + _CLASS_SPECIAL.sub(r"\\\g<0>", inside) + "]")
            at = end
        elif char == "\\" and at + 1 < len(glob):
            at += 1
            out.append(re.escape(glob[at]))
        else:
            out.append(re.escape(char))
        at += 1
    return re.compile("".join(out).encode("utf-8", "surrogateescape"), re.DOTALL)
