r"""Words of a line, as in inline commands and config files.

Blanks separate words. Single and double quotes group characters into a word. Inside double quotes
`\n \r \t \b \a \\ \" \xHH` are escapes, inside single quotes only `\'` (spec R1). A closing quote ends its word. Words
are bytes, because `\xHH` may name any byte. Config files are text whose undecodable bytes are kept as surrogates.
"""

from __future__ import annotations

from typing import Final

ESCAPES: Final = {ord("n"): 10, ord("r"): 13, ord("t"): 9, ord("b"): 8, ord("a"): 7}
BLANKS: Final = b" \t\n\r\x0b\x0c"
HEX_DIGITS: Final = b"0123456789abcdefABCDEF"

# Words that need no quotes in a config line. All others are quoted, which is always right.
_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@,+=%*[]~^!?&|()<>;$")


class UnbalancedQuotesError(ValueError):
    """A quote is not closed, or a closing quote is followed by something other than a blank."""


def split_words(line: bytes) -> list[bytes]:
    """Return the words of one line. UnbalancedQuotesError. Only empty quotes give empty words."""
    if b'"' not in line and b"'" not in line:
        return line.split()
    words: list[bytes] = []
    at = 0
    end = len(line)
    while True:
        while at < end and line[at] in BLANKS:
            at += 1
        if at == end:
            return words
        word = bytearray()
        while at < end and line[at] not in BLANKS:
            if line[at] in b"\"'":
                at = _read_quoted(line, at, word)
                break
            word.append(line[at])
            at += 1
        words.append(bytes(word))


def _read_quoted(line: bytes, at: int, word: bytearray) -> int:
    """Append the text between the quote at `at` and its end to `word`. Return the position behind it."""
    quote = line[at]
    end = len(line)
    at += 1
    while at < end and line[at] != quote:
        if line[at] == ord("\\") and at + 1 < end and (quote == ord('"') or line[at + 1] == quote):
            digits = line[at + 2 : at + 4]
            if line[at + 1] == ord("x") and len(digits) == 2 and all(digit in HEX_DIGITS for digit in digits):
                word.append(int(digits, 16))
                at += 4
            else:
                word.append(ESCAPES.get(line[at + 1], line[at + 1]))
                at += 2
        else:
            word.append(line[at])
            at += 1
    if at >= end or (at + 1 < end and line[at + 1] not in BLANKS):
        raise UnbalancedQuotesError("unbalanced quotes")
    return at + 1


def split_text(line: str) -> list[str]:
    """Return the words of a line of text. UnbalancedQuotesError."""
    return [word.decode("utf-8", "surrogateescape") for word in split_words(line.encode("utf-8", "surrogateescape"))]


def quote_text(word: str) -> str:
    """Return the word as a config line needs it: bare if it is plain, else in double quotes with escapes."""
    data = word.encode("utf-8", "surrogateescape")
    if data and _PLAIN.issuperset(data):
        return word
    parts = ['"']
    for byte in data:
        if byte in b'\\"':
            parts.append("\\" + chr(byte))
        elif 32 <= byte < 127:
            parts.append(chr(byte))
        else:
            parts.append(f"\\x{byte:02x}")
    parts.append('"')
    return "".join(parts)
