"""Replies as text: formatted for people, raw for pipes, CSV and JSON for other programs.

Spec X2. Every function returns bytes, because bodies are bytes, with the line end of its format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Final

from disque_py.cli.shell.replies import (
    ARRAY,
    BIG_NUMBER,
    BOOLEAN,
    BULK,
    DOUBLE,
    ERROR,
    INTEGER,
    MAP,
    NIL,
    PUSH,
    SET,
    STATUS,
    VERBATIM,
    Reply,
)
from disque_py.cli.visible import visible, visible_json, visible_lines

FORMATTED: Final = "formatted"
RAW: Final = "raw"
CSV: Final = "csv"
JSON: Final = "json"

_ESCAPES: Final = {0x22: b'\\"', 0x5C: b"\\\\", 0x0A: b"\\n", 0x0D: b"\\r", 0x09: b"\\t", 0x07: b"\\a", 0x08: b"\\b"}
_QUOTED: Final = [
    _ESCAPES.get(byte) or (bytes([byte]) if 32 <= byte < 127 else b"\\x%02x" % byte) for byte in range(256)
]

_EMPTY: Final = {ARRAY: b"(empty list or set)\n", PUSH: b"(empty list or set)\n", SET: b"(empty set)\n"}
_SIGNS: Final = {ARRAY: b") ", PUSH: b") ", SET: b"~ ", MAP: b"# "}

# The replies of these commands are lines of text for people. They are printed as they are, also on a terminal.
_TEXT_REPLIES: Final = frozenset(
    {
        (b"INFO",),
        (b"CLUSTER", b"NODES"),
        (b"CLUSTER", b"INFO"),
        (b"CLIENT", b"LIST"),
        (b"LATENCY", b"GRAPH"),
        (b"LATENCY", b"DOCTOR"),
    }
)

# The replies of these commands are names and values in turn, which RESP2 and some commands send as a flat array.
_PAIRED_REPLIES: Final = frozenset(
    {
        (b"SHOW",),
        (b"QSTAT",),
        (b"CONFIG", b"GET"),
        (b"EVENTS", b"INFO"),
        (b"QUEUE", b"GET"),
        (b"BATCH", b"SHOW"),
        (b"BATCH", b"WAIT"),
        (b"SCHEDULE", b"GET"),
        (b"LOCK", b"SHOW"),
        (b"QTASK", b"SHOW"),
        (b"CLUSTER", b"VOTERS"),
    }
)
# The field of a job whose value is names and values in turn.
_PAIRED_FIELD: Final = b"meta"


@dataclass(frozen=True, slots=True)
class Style:
    """A way to print replies: one of the four formats, and the delimiter between elements in raw output."""

    format: str = RAW
    delimiter: bytes = b"\n"

    def render(self, words: Sequence[bytes], reply: Reply) -> bytes:
        """Return the whole output for the reply to a command, with its line end."""
        if self.format is JSON:
            return as_json(with_objects(words, reply)) + b"\n"
        if self.format is RAW or replies_with_text(words):
            text = as_raw(reply, self.delimiter) + b"\n"
            return as_lines(text) if self.format is FORMATTED else text
        if self.format is CSV:
            return as_csv(reply) + b"\n"
        return as_formatted(reply)


def replies_with_text(words: Sequence[bytes]) -> bool:
    """Return whether the reply of this command is text for people."""
    return _is_in(_TEXT_REPLIES, words)


def _is_in(commands: Set[tuple[bytes, ...]], words: Sequence[bytes]) -> bool:
    """Return whether the table names this command, alone or with its subcommand."""
    upper = tuple(word.upper() for word in words[:2])
    return upper in commands or upper[:1] in commands


def with_objects(words: Sequence[bytes], reply: Reply) -> Reply:
    """Return the reply of a command with its flat arrays of names and values as maps."""
    if _is_in(_PAIRED_REPLIES, words):
        return _as_map(reply)
    if words[0].upper() == b"JSCAN" and len(reply.items) == 2:
        cursor, rows = reply.items
        return replace(reply, items=(cursor, replace(rows, items=tuple(map(_as_map, rows.items)))))
    return reply


def _as_map(reply: Reply) -> Reply:
    """Return an array of names and values as a map; any other reply as it is."""
    if reply.kind is not ARRAY or len(reply.items) % 2:
        return reply
    items = list(reply.items)
    for index in range(0, len(items), 2):
        if items[index].text == _PAIRED_FIELD:
            items[index + 1] = _as_map(items[index + 1])
    return Reply(MAP, items=tuple(items))


def name_shower(style_format: str) -> Callable[[bytes], bytes]:
    """Return the function that shows a name in this format: quoted, as JSON, or bare."""
    if style_format is FORMATTED or style_format is CSV:
        return quoted
    if style_format is JSON:
        return lambda name: as_json(Reply(BULK, name))
    return lambda name: name


def quoted(text: bytes) -> bytes:
    """Return the text in double quotes, with escapes for everything except printable ASCII."""
    return b'"%b"' % b"".join(map(_QUOTED.__getitem__, text))


def as_line(text: bytes) -> bytes:
    """Return a status or an error for people, on one line. An error may repeat words of another program."""
    return visible(text.decode("utf-8", "backslashreplace")).encode()


def as_lines(text: bytes) -> bytes:
    """Return text for people, which may have several lines."""
    return visible_lines(text.decode("utf-8", "backslashreplace").replace("\r\n", "\n")).encode()


def as_formatted(reply: Reply, prefix: bytes = b"") -> bytes:
    """Return a reply for people; `prefix` is the indentation of lines after the first."""
    scalar = _FORMATTED_SCALARS.get(reply.kind)
    if scalar is not None:
        return scalar(reply.text) + b"\n"
    if not reply.items:
        return _EMPTY.get(reply.kind, b"(empty hash)\n")
    step = 2 if reply.kind is MAP else 1
    width = len(str(len(reply.items) // step))
    sign = _SIGNS[reply.kind]
    inner = prefix + b" " * (width + len(sign))
    parts = []
    for number, start in enumerate(range(0, len(reply.items), step), 1):
        parts.append(b"%b%b%b" % (prefix if start else b"", str(number).rjust(width).encode(), sign))
        if step == 2:
            parts.append(as_formatted(reply.items[start], inner).removesuffix(b"\n") + b" => ")
        parts.append(as_formatted(reply.items[start + step - 1], inner))
    return b"".join(parts)


_FORMATTED_SCALARS: Final[dict[str, Callable[[bytes], bytes]]] = {
    STATUS: as_line,
    ERROR: lambda text: b"(error) " + as_line(text),
    INTEGER: lambda text: b"(integer) " + text,
    BULK: quoted,
    NIL: lambda text: b"(nil)",
    DOUBLE: lambda text: b"(double) " + text,
    BOOLEAN: lambda text: b"(true)" if text == b"t" else b"(false)",
    BIG_NUMBER: lambda text: b"(big number) " + text,
    VERBATIM: as_lines,
}


def as_raw(reply: Reply, delimiter: bytes) -> bytes:
    """Return values as they are, with nested arrays flattened. An error ends with an additional line end."""
    if reply.kind is ERROR:
        return reply.text + b"\n"
    if reply.kind is BOOLEAN:
        return b"true" if reply.text == b"t" else b"false"
    if reply.kind is MAP:
        pairs = zip(reply.items[::2], reply.items[1::2], strict=True)
        return delimiter.join(b" ".join((as_raw(k, delimiter), as_raw(v, delimiter))) for k, v in pairs)
    if reply.items:
        return delimiter.join(as_raw(item, delimiter) for item in reply.items)
    return reply.text


def as_csv(reply: Reply) -> bytes:
    """Return comma-separated values, flattened. NIL is followed by a line end, as in the original."""
    if reply.kind is NIL:
        return b"NIL\n"
    if reply.kind is ERROR:
        return b"ERROR," + quoted(reply.text)
    if reply.kind in (INTEGER, DOUBLE, BIG_NUMBER):
        return reply.text
    if reply.kind is BOOLEAN:
        return b"true" if reply.text == b"t" else b"false"
    if reply.kind in _SIGNS:
        return b",".join(as_csv(item) for item in reply.items)
    return quoted(reply.text)


def as_json(reply: Reply) -> bytes:
    """Return one JSON value on one line; an error is an object with the one member `error`."""
    return visible_json(json_value(reply), is_dense=True).encode()


def json_value(reply: Reply) -> Any:
    """Return a reply as a value that json.dumps takes."""
    if reply.kind is NIL:
        return None
    if reply.kind is ERROR:
        return {"error": json_text(reply.text)}
    if reply.kind in (INTEGER, BIG_NUMBER):
        return int(reply.text)
    if reply.kind is BOOLEAN:
        return reply.text == b"t"
    if reply.kind is DOUBLE:
        # JSON has no infinity and no NaN.
        return json_text(reply.text) if reply.text.lstrip(b"-") in (b"inf", b"nan") else float(reply.text)
    if reply.kind is MAP:
        pairs = zip(reply.items[::2], reply.items[1::2], strict=True)
        return {json_text(as_raw(name, b" ")): json_value(value) for name, value in pairs}
    if reply.kind in _SIGNS:
        return [json_value(item) for item in reply.items]
    return json_text(reply.text)


def json_text(text: bytes) -> str:
    r"""Return UTF-8 text, with other bytes as `\xNN`, because JSON has no bytes."""
    return text.decode("utf-8", "backslashreplace")
