"""Text of producers and workers on a terminal.

Names of queues, bodies, metadata and errors may contain any bytes, also commands that a terminal would obey.
"""

from __future__ import annotations


def visible(text: str) -> str:
    r"""Return text on one line, with everything that can't be printed as an escape, such as `\n`."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in text
    )
