"""Text of producers and workers on a terminal.

Names of queues, bodies, metadata and errors may contain any bytes, also commands that a terminal would obey.
"""

from __future__ import annotations

import json
from typing import Any


def visible(text: str) -> str:
    r"""Return text on one line, with everything that can't be printed as an escape, such as `\n`."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in text
    )


def visible_lines(text: str) -> str:
    """Return text in which line ends are the only characters that are obeyed."""
    return "\n".join(map(visible, text.split("\n")))


def visible_json(value: Any, *, is_dense: bool = False) -> str:
    r"""Return a value as one line of JSON, with everything that can't be printed as an escape, such as `\u009b`.

    is_dense   without blanks between the elements
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":") if is_dense else None)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
