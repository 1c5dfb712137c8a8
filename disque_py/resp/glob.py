r"""Patterns of CONFIG GET and `disque-cli --pattern`.

They know `*`, `?`, `[a-z]`, `[^a]`, and `\` before a character that means itself.

Matching walks the text once and goes back only to the last `*`. So its time is at most length times length. A client's
pattern full of stars can't stall the server, as a regular expression could.
"""

from __future__ import annotations

from typing import Final

STAR: Final = None
# One element of a pattern: STAR, or the ranges of characters that match and whether they are excluded instead.
Element = tuple[tuple[tuple[str, str], ...], bool] | None


def matches(pattern: str, text: str, *, ignore_case: bool = False) -> bool:
    """Return whether the whole text matches the pattern. With ignore_case both are compared in lower case."""
    if ignore_case:
        pattern, text = pattern.lower(), text.lower()
    elements = _elements(pattern)
    at = position = 0
    star = resume = -1
    while position < len(text):
        element = elements[at] if at < len(elements) else ((), False)
        if element is STAR:
            star, resume = at, position
            at += 1
        elif _fits(element, text[position]):
            at += 1
            position += 1
        elif star >= 0:
            resume += 1
            at, position = star + 1, resume
        else:
            return False
    return at == len(elements) or (at == len(elements) - 1 and elements[at] is STAR)


def _fits(element: tuple[tuple[tuple[str, str], ...], bool], character: str) -> bool:
    ranges, is_excluded = element
    return any(low <= character <= high for low, high in ranges) != is_excluded


def _elements(pattern: str) -> list[Element]:
    elements: list[Element] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "*":
            if not elements or elements[-1] is not STAR:  # Several stars in a row mean the same as one.
                elements.append(STAR)
        elif character == "?":
            elements.append(((), True))
        elif character == "[":
            at, element = _read_set(pattern, at + 1)
            elements.append(element)
            continue
        else:
            if character == "\\" and at + 1 < len(pattern):
                at += 1
            elements.append((((pattern[at], pattern[at]),), False))
        at += 1
    return elements


def _read_set(pattern: str, at: int) -> tuple[int, Element]:
    """Read `…]` from `at` on. Return the position behind it, and the element. The pattern's end closes the bracket."""
    is_excluded = pattern[at : at + 1] == "^"
    at += is_excluded
    ranges: list[tuple[str, str]] = []
    while at < len(pattern) and pattern[at] != "]":
        if pattern[at] == "\\" and at + 1 < len(pattern):
            at += 1
            ranges.append((pattern[at], pattern[at]))
            at += 1
        elif pattern[at + 1 : at + 2] == "-" and at + 2 < len(pattern):
            low, high = sorted((pattern[at], pattern[at + 2]))
            ranges.append((low, high))
            at += 3
        else:
            ranges.append((pattern[at], pattern[at]))
            at += 1
    return at + 1, (tuple(ranges), is_excluded)
