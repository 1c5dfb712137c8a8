"""Values as text for people: durations, moments, numbers, bytes, bodies. Pure.

Most functions are filters of the console's templates. A missing value is shown as a dash. Values come from nodes and
programs, so a moment out of range or a text that is not JSON is no error.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, unquote

from markupsafe import Markup, escape

# The most bytes of a body that a page shows: in hexadecimal digits, and as text. Of any body, a page has only the
# beginning, because the gateway serves nothing else while it renders a page.
HEX_MAX: Final = 4096
TEXT_MAX: Final = 262_144
# The most characters of JSON with indentation. Deep arrays need far more characters with it than without it.
JSON_MAX: Final = 2 * TEXT_MAX
_SPANS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
_SIZES: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def span(ms: int | None) -> str:
    """Return milliseconds as a duration with at most two units."""
    if ms is None:
        return "–"
    for unit_ms, unit in _SPANS:
        if ms >= unit_ms:
            rest, below = ms % unit_ms, next((each for each in _SPANS if each[0] < unit_ms), None)
            more = f" {rest // below[0]} {below[1]}" if below is not None and rest >= below[0] and unit != "s" else ""
            return f"{ms // unit_ms} {unit}{more}"
    return f"{ms} ms"


def moment(ms: int | float | None) -> str:
    """Return Unix milliseconds as UTC."""
    if not ms:
        return "–"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return str(ms)


def number(value: Any) -> str:
    """Return a number with thin spaces between groups of digits."""
    if value is None:
        return "–"
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.1f}".replace(",", "\u202f")
    return f"{int(value):,}".replace(",", "\u202f") if isinstance(value, int | float) else str(value)


def size(count: Any) -> str:
    """Return bytes in a readable unit."""
    if not isinstance(count, int):
        return "–"
    for unit, name in _SIZES:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


def short(text: str, most: int = 80) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


# A field whose name ends with this has its value percent-encoded, as in an address. A form can't have bytes that are
# not UTF-8.
ESCAPED: Final = "%"
_SURROGATES: Final = re.compile(r"[\ud800-\udfff]")


def named(name: str) -> str:
    """Return a name as it is shown, with escapes for characters that can't be seen or that turn the text around.

    So no name looks like another one. A name of blanks only is in quotation marks, with a sign for each blank.
    """
    if name.isprintable() and not name.isspace() and name:
        return name
    escaped = "".join(letter if _is_seen(letter) else repr(letter)[1:-1] for letter in name)
    if any(letter.isprintable() and not letter.isspace() for letter in name) or _SURROGATES.search(name):
        return escaped
    return '"' + escaped.replace(" ", "\u2423") + '"'


def _is_seen(letter: str) -> bool:
    """Return whether a letter is shown as it is. The bytes of a name that are not UTF-8 are shown by `encoded`."""
    return letter.isprintable() or _SURROGATES.match(letter) is not None


def field(value: Any, name: str) -> Markup:
    """Return the attributes `name` and `value` of a field of a form."""
    text = typed(str(value))
    if text != value and isinstance(value, str):
        name += ESCAPED
    return Markup(f'name="{escape(name)}" value="{escape(text)}"')  # both are escaped


def has_other_bytes(text: str) -> bool:
    """Return whether a text has bytes that are not UTF-8, as surrogates."""
    return _SURROGATES.search(text) is not None


def typed(name: str) -> str:
    """Return the text that a user types for a name: the name, or as in an address if it is not UTF-8."""
    return quote(name, safe="", errors="surrogateescape") if _SURROGATES.search(name) else name


def without_escapes(lists: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the fields of a form, with the values of escaped ones."""
    found: dict[str, list[str]] = {}
    for name, values in lists.items():
        if name.endswith(ESCAPED):
            values = [unquote(value, errors="surrogateescape") for value in values]
        found.setdefault(name.removesuffix(ESCAPED), []).extend(values)
    return found


def encoded(page: str) -> bytes:
    """Return a page as UTF-8. Bytes of names that are not UTF-8 are shown as `\\xe9`."""
    try:
        return page.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub(_escape, page).encode()


def _escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number - 0xDC00:02x}" if 0xDC80 <= number <= 0xDCFF else "\ufffd"


def hexdump(body: bytes) -> str:
    """Return the beginning of a body as lines of offset, hexadecimal digits and characters."""
    lines = []
    for at in range(0, min(len(body), HEX_MAX), 16):
        part = body[at : at + 16]
        digits = " ".join(f"{byte:02x}" for byte in part)
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {digits:<47}  {letters}")
    if len(body) > HEX_MAX:
        lines.append(f"… {len(body) - HEX_MAX} more bytes")
    return "\n".join(lines)


def beginning(body: bytes) -> str:
    """Return the beginning of a body as text. Bytes that are not UTF-8 are U+FFFD."""
    text = body[:TEXT_MAX].decode("utf-8", "replace")
    if len(body) > TEXT_MAX:
        text += f"\n… {len(body) - TEXT_MAX} more bytes"
    return text


def pretty(body: bytes) -> str:
    """Return JSON with indentation; empty if the body is not JSON, or would be too long."""
    if len(body) > TEXT_MAX or body.lstrip()[:1] not in (b"{", b"["):
        return ""
    found: list[str] = []
    size = 0
    try:
        for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(json.loads(body.decode())):
            size += len(part)
            if size > JSON_MAX:
                return ""
            found.append(part)
    except (ValueError, RecursionError):
        return ""
    return "".join(found)
