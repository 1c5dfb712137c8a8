"""A line that a person typed, as the words of a command.

The rules are the server's rules for inline commands (spec R1). An empty argument in quotes is kept, because a command
is sent as an array, which can have empty elements.
"""

from __future__ import annotations

from disque_py.resp import words as inline


class UnbalancedQuotesError(ValueError):
    """A quote that never ends, or that ends in the middle of a word."""


def split_line(line: str) -> list[bytes]:
    """Return the words of a line, with quotes and escapes resolved. Raises UnbalancedQuotesError."""
    try:
        return inline.split_words(line.encode("utf-8", "surrogateescape"))
    except inline.UnbalancedQuotesError as error:
        raise UnbalancedQuotesError("Invalid argument(s)") from error


def split_repeat(words: list[bytes]) -> tuple[int, list[bytes]]:
    """Return `<n> <command>` as (n, command), and a plain command as (1, command)."""
    if len(words) > 1 and words[0].isdigit() and int(words[0]) > 0:
        return int(words[0]), words[1:]
    return 1, words
