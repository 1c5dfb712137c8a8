"""Patterns of the broker's users as regular expressions.

The broker's rules (docs/users.md) differ from those of a shell: `[^a]` is any byte but `a`, a backslash precedes a
literal character, and a set may lack its end. Patterns match bytes. The gateway needs them for the lists that it builds
itself. As in the broker, the time for a name is bounded, whatever the pattern is. Pure.
"""

from __future__ import annotations

import re
from typing import Final

# As in the broker: a pattern with `?` or a set matches no longer name.
NAME_BYTES_MAX: Final = 1_024
_SHORT: Final = b"(?!.{%d})" % (NAME_BYTES_MAX + 1)


def expression_of(pattern: bytes) -> re.Pattern[bytes] | None:
    """Return the expression that matches the same names; None if the pattern matches every name."""
    parts: list[bytes] = [b""]
    has_sets = False
    at = 0
    while at < len(pattern):
        char = pattern[at : at + 1]
        at += 1
        if char == b"*":
            parts.append(b"")
            continue
        if char == b"?":
            element, has_sets = b".", True
        elif char == b"[":
            at, element = _set(pattern, at)
            has_sets = True
        else:
            if char == b"\\" and at < len(pattern):
                char = pattern[at : at + 1]
                at += 1
            element = re.escape(char)
        parts[-1] += element
    if len(parts) > 1 and not any(parts):
        return None
    # A part between stars is searched for only once, from left to right. So many stars can't take much time.
    first, *middle = parts
    last = b".*" + middle.pop() if middle else b""
    text = first + b"".join([b"(?>.*?" + part + b")" for part in middle if part]) + last
    return re.compile((_SHORT if has_sets else b"") + text + rb"\Z", re.DOTALL)


def _set(pattern: bytes, at: int) -> tuple[int, bytes]:
    """Return the position behind a set that begins at `at`, and its expression."""
    is_excluded = pattern[at : at + 1] == b"^"
    at += is_excluded
    members: set[int] = set()
    while at < len(pattern) and pattern[at : at + 1] != b"]":
        if pattern[at : at + 1] == b"\\" and at + 1 < len(pattern):
            members.add(pattern[at + 1])
            at += 2
        elif pattern[at + 1 : at + 2] == b"-" and at + 2 < len(pattern):
            low, high = sorted((pattern[at], pattern[at + 2]))
            members.update(range(low, high + 1))
            at += 3
        else:
            members.add(pattern[at])
            at += 1
    chars = [char for char in range(256) if (char in members) != is_excluded]
    return at + 1, b"[" + b"".join([b"\\x%02x" % char for char in chars]) + b"]" if chars else b"(?!)"
