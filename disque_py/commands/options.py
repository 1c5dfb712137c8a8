"""Reading arguments: integers, job ids, options.

An integer has an optional sign, leading zeros, no blanks, and 64 bits (spec R2). The empty string is 0, and parsing
stops at a NUL byte. Python's int() accepts more (underscores, blanks, other digits), so a pattern checks first.
"""

from __future__ import annotations

import re
from typing import Final

from disque_py.core.errors import BAD_ID, NOT_AN_INTEGER, SYNTAX, CommandError
from disque_py.core.fetch_options import TOKEN_BYTES_MAX
from disque_py.core.ids import ID_BYTES, is_valid_id

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
UINT64_MASK: Final = (1 << 64) - 1

# Spans are kept in milliseconds in 64 bits. Longer ones are refused, never cut (spec Q19).
SECONDS_MAX: Final = INT64_MAX // 1_000_000
MS_MAX: Final = 1000 * SECONDS_MAX
ATTEMPT_MAX: Final = 2**32 - 1
LEASEMS_ERROR: Final = "ERR LEASEMS must be a number of milliseconds > 0"
FENCE_ERROR: Final = "ERR FENCE must be a number > 0"
ATTEMPT_ERROR: Final = f"ERR ATTEMPT must be a number from 1 to {ATTEMPT_MAX}"
ONE_ID: Final = "ERR ATTEMPT and FENCE need exactly one job id"
# At the end of a long list of ids, this many words are searched for options.
OPTION_WORDS_MAX: Final = 64
LEASE_ERROR: Final = "ERR LEASE must be a number of seconds > 0"
TOKEN_ERROR: Final = f"ERR TOKEN must have 1 to {TOKEN_BYTES_MAX} bytes"

_INTEGER: Final = re.compile(rb"[+-]?[0-9]{1,40}")
# Nearly all integers in arguments are small, or were sent before. A look-up replaces a match and a conversion.
KNOWN_INTEGERS_MAX: Final = 4096
KNOWN_INTEGERS: Final[dict[bytes, int]] = {b"%d" % value: value for value in range(1025)}


def read_integer(word: bytes, error: str = NOT_AN_INTEGER) -> int:
    """Return a signed 64-bit integer. CommandError(error)."""
    value = KNOWN_INTEGERS.get(word)
    if value is not None:
        return value
    word = word.partition(b"\0")[0]
    if not word:
        return 0
    if not _INTEGER.fullmatch(word):
        raise CommandError(error)
    value = int(word)
    if not INT64_MIN <= value <= INT64_MAX:
        raise CommandError(error)
    if len(KNOWN_INTEGERS) < KNOWN_INTEGERS_MAX:
        KNOWN_INTEGERS[word] = value
    return value


def between(word: bytes, low: int, high: int, text: str) -> int:
    """Return an integer within these bounds, both included. CommandError(text)."""
    value = KNOWN_INTEGERS.get(word)
    if value is None:
        value = read_integer(word, text)
    if not low <= value <= high:
        raise CommandError(text)
    return value


def read_lease(word: bytes, text: str = LEASE_ERROR) -> int:
    """Return the seconds of a lease in milliseconds."""
    return 1000 * between(word, 1, SECONDS_MAX, text)


def read_ms(name: str, word: bytes) -> int:
    """Return a span in milliseconds, 0 or more, of the option of this name."""
    return between(word, 0, MS_MAX, f"ERR {name} must be a number of milliseconds >= 0")


def read_attempt(word: bytes) -> int:
    """Return the number of a delivery."""
    return between(word, 1, ATTEMPT_MAX, ATTEMPT_ERROR)


def read_fence(word: bytes) -> int:
    """Return the fence of a claim."""
    return between(word, 1, INT64_MAX, FENCE_ERROR)


def options_at(argv: list[bytes], words: frozenset[bytes]) -> int:
    """Return where the options behind a list of ids begin: at the first word that is one of these. Spec Y11."""
    for at in range(max(1, len(argv) - OPTION_WORDS_MAX), len(argv)):
        word = argv[at]
        if len(word) < ID_BYTES and word.lower() in words:
            return at
    return len(argv)


def read_token(word: bytes) -> bytes:
    """Return a token: any bytes, at most TOKEN_BYTES_MAX."""
    if not 0 < len(word) <= TOKEN_BYTES_MAX:
        raise CommandError(TOKEN_ERROR)
    return word


def read_timeout(word: bytes) -> int:
    """Return a time-out in milliseconds; 0 waits for ever."""
    value = read_integer(word, "ERR timeout is not an integer or out of range")
    if value < 0:
        raise CommandError("ERR timeout is negative")
    return value


def read_cursor(word: bytes) -> int:
    """Return a SCAN cursor: unsigned 64-bit decimal, empty is 0, a leading minus wraps."""
    text = word.partition(b"\0")[0]
    if not text:
        return 0
    if not _INTEGER.fullmatch(text):
        raise CommandError("ERR invalid cursor or option name")
    value = int(text)
    if not -UINT64_MASK <= value <= UINT64_MASK:
        raise CommandError("ERR invalid cursor or option name")
    return value & UINT64_MASK


def read_ids(argv: list[bytes]) -> list[bytes]:
    """Return all arguments as job ids. CommandError if one is malformed."""
    ids = argv[1:]
    for job_id in ids:
        if not is_valid_id(job_id):
            raise CommandError(BAD_ID)
    return ids


def value_of(argv: list[bytes], at: int) -> bytes:
    """Return the word after the option at `at`. CommandError if the option is the last word."""
    if at + 1 >= len(argv):
        raise CommandError(SYNTAX)
    return argv[at + 1]
