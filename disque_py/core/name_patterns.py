r"""Patterns of the names that a user may use: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a literal character.

Patterns and names are bytes, so `?` is one byte. A pattern is split at its stars. The first part must match the start
of the name, and the last part its end. The parts between them are searched for from left to right, each at the first
place where it matches. No part is searched for twice, so the time is linear in the length of the name. A pattern with
many stars can't stall the node.

A part without `?` and sets is found by `bytes.find`. Any other part has a fixed length, and becomes a regular
expression without repetition. A pattern with such parts matches only names of at most 1,024 bytes, so its time is
bounded. Spec US3.
"""

from __future__ import annotations

import re
from typing import Final

PATTERN_BYTES_MAX: Final = 1_024
# The longest name that a pattern with `?` or sets can match.
NAME_BYTES_MAX: Final = 1_024

# A part of a pattern between two stars: its text, its expression (None if the part is plain text), and its length.
_Part = tuple[bytes, re.Pattern[bytes] | None, int]


class NamePattern:
    """A pattern, ready for matching.

    text     the pattern as it was given
    is_all   whether it is `*`, which matches every name

    `_parts` are the parts that are not empty, and `_size` is the sum of their lengths. `_starts_open` and `_ends_open`
    say whether the pattern begins and ends with a star.
    """

    __slots__ = ("_ends_open", "_has_sets", "_parts", "_size", "_starts_open", "is_all", "text")

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.is_all = text == b"*"
        pieces = _cut(text)
        self._starts_open = len(pieces) > 1 and not pieces[0][2]
        self._ends_open = len(pieces) > 1 and not pieces[-1][2]
        self._parts = [part for part in pieces if part[2]]
        self._has_sets = any(part[1] is not None for part in self._parts)
        self._size = sum([part[2] for part in self._parts])
        if len(pieces) > 1 and not self._parts:
            self.is_all = True  # Several stars mean the same as one.

    def covers(self, pattern: bytes) -> bool:
        """Return whether every name that matches `pattern` certainly matches this pattern. False may mean "unknown".

        `pattern` may be one of a command, which matches characters instead of bytes (resp/glob.py). In such a pattern,
        `?` and sets may match characters of several bytes.
        """
        if self.is_all:
            return True
        literal, rest = _literal_of(pattern)
        if not rest:
            return self.matches(literal)
        if pattern == self.text:
            return not any(char in pattern for char in b"?[")
        own, own_rest = _literal_of(self.text)
        return own_rest == b"*" and literal.startswith(own)

    def is_apart(self, pattern: bytes) -> bool:
        """Return whether certainly no name matches both patterns, because they begin with different texts."""
        own, other = _literal_of(self.text)[0], _literal_of(pattern)[0]
        return not (own.startswith(other) or other.startswith(own))

    def matches(self, name: bytes) -> bool:
        """Return whether the whole name matches."""
        if self.is_all:
            return True
        size = len(name)
        if size < self._size or (self._has_sets and size > NAME_BYTES_MAX):
            return False
        parts = self._parts
        if not parts:
            return not name
        at = 0
        first, last = 0, len(parts)
        end = size
        if not self._starts_open:
            if not _fits(parts[0], name, 0):
                return False
            at = parts[0][2]
            first = 1
            if last == 1:
                return self._ends_open or at == size
        if not self._ends_open:
            last -= 1
            end -= parts[last][2]
            if end < at or not _fits(parts[last], name, end):
                return False
        for index in range(first, last):
            at = _find(parts[index], name, at, end)
            if at < 0:
                return False
            at += parts[index][2]
        return True


def _literal_of(pattern: bytes) -> tuple[bytes, bytes]:
    """Return the text with which every matching name begins, and the rest of the pattern."""
    literal = bytearray()
    at = 0
    while at < len(pattern) and pattern[at : at + 1] not in (b"*", b"?", b"["):
        if pattern[at : at + 1] == b"\\" and at + 1 < len(pattern):
            at += 1
        literal += pattern[at : at + 1]
        at += 1
    return bytes(literal), pattern[at:]


def _fits(part: _Part, name: bytes, at: int) -> bool:
    text, expression, size = part
    if expression is None:
        return name.startswith(text, at)
    return expression.match(name, at, at + size) is not None


def _find(part: _Part, name: bytes, at: int, end: int) -> int:
    text, expression, _ = part
    if expression is None:
        return name.find(text, at, end)
    found = expression.search(name, at, end)
    return -1 if found is None else found.start()


def _cut(text: bytes) -> list[_Part]:
    """Return the parts between the stars. The first or last part is empty if the pattern begins or ends with a star."""
    parts: list[_Part] = []
    literal = bytearray()
    expression: list[bytes] = []
    size = 0
    is_literal = True
    at = 0
    while True:
        char = text[at : at + 1]
        if not char or char == b"*":
            if size or not parts or not char:
                pattern = None if is_literal else re.compile(b"".join(expression), re.DOTALL)
                parts.append((bytes(literal), pattern, size))
            if not char:
                return parts
            literal, expression, size, is_literal = bytearray(), [], 0, True
            at += 1
            continue
        size += 1
        if char == b"?":
            is_literal = False
            expression.append(b".")
            at += 1
        elif char == b"[":
            is_literal = False
            at, element = _read_set(text, at + 1)
            expression.append(element)
        else:
            if char == b"\\" and at + 1 < len(text):
                at += 1
                char = text[at : at + 1]
            literal += char
            expression.append(re.escape(char))
            at += 1


def _read_set(text: bytes, at: int) -> tuple[int, bytes]:
    """Read a set `…]` from `at` on. Return the position behind it and its expression. A missing `]` is allowed."""
    is_excluded = text[at : at + 1] == b"^"
    at += is_excluded
    fitting = [False] * 256
    while at < len(text) and text[at] != 0x5D:
        if text[at] == 0x5C and at + 1 < len(text):
            at += 1
            fitting[text[at]] = True
            at += 1
        elif text[at + 1 : at + 2] == b"-" and at + 2 < len(text):
            low, high = sorted((text[at], text[at + 2]))
            for char in range(low, high + 1):
                fitting[char] = True
            at += 3
        else:
            fitting[text[at]] = True
            at += 1
    chars = [char for char in range(256) if fitting[char] != is_excluded]
    return at + 1, b"[" + b"".join([b"\\x%02x" % char for char in chars]) + b"]" if chars else b"(?!)"
