"""Visible events: the lines of events that a client may see, by the queues of their jobs.

Lines of other queues are left out. A reader continues behind the last line that it got, so the end of a reply must say
how far the log was read. If the last line would be left out, it is replaced by a line with its number and moment and
the event `hidden`, and nothing else. Events of the node itself have no queue, and every reader gets them. Spec US6.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from json import dumps, loads
from typing import Final

# The first field of this name is the one of the event, because only numbers and an id come before it (event_lines.py).
_QUEUE: Final = re.compile(rb',"queue":(null|"(?:[^"\\]|\\.)*")')
# This character replaces bytes of a name that are not text. Such a name can't be checked, so the line is left out.
_NOT_TEXT: Final = "\N{REPLACEMENT CHARACTER}"
KEPT_FIELDS: Final = ("seq", "ts", "v")


def visible(data: bytes, may_name: Callable[[bytes], bool], *, says_end: bool = True) -> bytes:
    """Return the visible lines of `data`. With `says_end`, the result ends with the last line or its `hidden` form."""
    known: dict[bytes, bool] = {}
    kept: list[bytes] = []
    line = b""
    is_visible = True
    for line in data.splitlines(keepends=True):
        found = _QUEUE.search(line)
        quoted = found[1] if found is not None else b"null"
        is_visible = known[quoted] if quoted in known else _is_visible(quoted, may_name)
        known[quoted] = is_visible
        if is_visible:
            kept.append(line)
    if says_end and not is_visible:
        kept.append(_hidden(line))
    return b"".join(kept)


def _is_visible(quoted: bytes, may_name: Callable[[bytes], bool]) -> bool:
    name = loads(quoted)
    return name is None or (_NOT_TEXT not in name and may_name(name.encode("utf-8", "surrogatepass")))


def _hidden(line: bytes) -> bytes:
    fields = {name: value if name in KEPT_FIELDS else None for name, value in loads(line).items()}
    fields["event"] = "hidden"
    fields["meta"] = {}
    return dumps(fields, separators=(",", ":")).encode() + b"\n"
