"""`rename-command`, checked against the commands there are: a misspelled line would leave open what it should hide."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from disque_py.commands.table import COMMANDS
from disque_py.config.settings import DirectiveError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from disque_py.config.settings import Settings


def check_line(settings: Settings, name: str) -> None:
    """DirectiveError if the directive `name`, of the line that was just read, is a rename that can't be."""
    if name != "rename-command":
        return
    *earlier, (old, new) = settings.rename_command
    names = [command.name for command in COMMANDS]
    if old not in names:
        meant = get_close_matches(old, names, 1)
        raise DirectiveError(f"'{old}' is no command" + (f". Did you mean '{meant[0]}'?" if meant else ""))
    if old in dict(earlier):
        raise DirectiveError(f"'{old}' is renamed by an earlier line")
    if not new.isascii():
        raise DirectiveError(f"'{new}' is not ASCII")


def conflicts(renames: Sequence[tuple[str, str]]) -> list[str]:
    """The names that two commands would have, as sentences; commands may be swapped, so all lines must be known."""
    renamed = dict(renames)
    names = [renamed.get(command.name, command.name).lower() for command in COMMANDS]
    twice = dict.fromkeys(name for name in names if name and names.count(name) > 1)
    return [f"rename-command: two commands would be called '{name}'" for name in twice]
