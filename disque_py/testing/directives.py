"""Keyword arguments as words of a server's command line.

`maxmemory="10mb"` becomes `--maxmemory 10mb`, and `appendonly=True` becomes `--appendonly yes`. The server checks the
directives; for an invalid one it ends with an error that names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

Value: TypeAlias = "str | int | float | bool | Sequence[str | int | float | bool]"

# Directives that this package sets, because it finds the ports and removes the directory.
OWN: Final = ("bind", "daemonize", "dir", "logfile", "port")


def words_of(directives: Mapping[str, Value]) -> list[str]:
    """Return the words for these directives. Raises TypeError for a directive that a test can't set."""
    words: list[str] = []
    for name, value in directives.items():
        directive = name.replace("_", "-")
        if directive in OWN:
            raise TypeError(f"{directive!r} is set by disque_py.testing; leave it out")
        values = [value] if isinstance(value, (str, int, float)) else value
        words += [f"--{directive}", *map(_word, values)]
    return words


def _word(value: str | float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
