r"""Patterns of CONFIG GET, GETJOB … FROMMATCH and `disque-cli --pattern`.

They know `*`, `?`, `[a-z]`, `[^a]`, and `\` before a character that means itself.

Matching walks the text once and goes back only to the last `*`. So its time is at most length times length. A client's
pattern full of stars can't stall the server, as a regular expression could.
"""

from __future__ import annotations

from typing import Final

STAR: Final = None
# The most characters whose bits a `Glob` remembers.
MASKS_MAX: Final = 256
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


class Glob:
    """A pattern that is compared with many names, such as those of GETJOB … FROMMATCH.

    Each element of the pattern has a bit, and one number has the bits of all places that the text may have reached. So
    each character of the text is looked at once, whatever the pattern is.

    prefix   the characters that every matching text begins with
    """

    __slots__ = ("_elements", "_end", "_masks", "_stars", "prefix")

    def __init__(self, pattern: str) -> None:
        self._elements: list[tuple[tuple[tuple[str, str], ...], bool]] = []
        self._stars = 0
        self._masks: dict[str, int] = {}
        prefix: list[str] = []
        is_plain = True
        for element in _elements(pattern):
            if element is STAR:
                self._stars |= 1 << len(self._elements)
                is_plain = False
                continue
            ranges, is_excluded = element
            self._elements.append((ranges, is_excluded))
            is_plain = is_plain and not is_excluded and len(ranges) == 1 and ranges[0][0] == ranges[0][1]
            if is_plain:
                prefix.append(ranges[0][0])
        self._end = 1 << len(self._elements)
        self.prefix = "".join(prefix)

    def matches(self, text: str) -> bool:
        """Return whether the whole text matches, with case."""
        if not text.startswith(self.prefix):
            return False
        reached = 1
        stars = self._stars
        masks = self._masks
        for character in text:
            mask = masks.get(character)
            if mask is None:
                mask = self._mask(character)
            reached = (reached & mask) << 1 | reached & stars
            if not reached:
                return False
        return bool(reached & self._end)

    def _mask(self, character: str) -> int:
        """Return the bits of the elements that fit the character."""
        mask = 0
        for at, element in enumerate(self._elements):
            if _fits(element, character):
                mask |= 1 << at
        if len(self._masks) >= MASKS_MAX:
            self._masks.clear()
        self._masks[character] = mask
        return mask


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
