"""`rename-command`, checked against the commands there are: a misspelled line would leave open what it should hide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from disque_py.commands.table import COMMANDS
from disque_py.server.start_error import StartError

if TYPE_CHECKING:
    from collections.abc import Iterable


def check_renames(renames: Iterable[tuple[str, str]]) -> None:
    """StartError if a command is unknown, renamed twice, or if two would have the same name."""
    names = {command.name: command.name for command in COMMANDS}
    for old, new in renames:
        if names.get(old) != old:
            known = "is renamed by an earlier line" if old in names else "is no command"
            raise StartError(f"rename-command {old}: '{old}' {known}")
        if not new.isascii():
            raise StartError(f"rename-command {old}: '{new}' is not ASCII")
        names[old] = new.lower()
    used = [name for name in names.values() if name]
    for name in used:
        if used.count(name) > 1:
            raise StartError(f"rename-command: two commands would be called '{name}'")
