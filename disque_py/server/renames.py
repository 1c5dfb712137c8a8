"""`rename-command`, checked against the table of commands: a misspelled line would leave its command exposed."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from disque_py.commands.table import COMMANDS
from disque_py.config.settings import DirectiveError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from disque_py.config.settings import Settings


def check_line(settings: Settings, name: str) -> None:
    """Check the last line read, of the directive `name`. DirectiveError if it is an impossible rename."""
    if name != "rename-command":
        return
    *earlier, (old, new) = settings.rename_command
    names = [command.name for command in COMMANDS]
    if old not in names:
        meant = get_close_matches(old, names, 1)
        raise DirectiveError(f"'{old}' is no command" + (f". Did you mean '{meant[0]}'?" if meant else ""))
    if old in dict(earlier):
        raise DirectiveError(f"'{old}' is renamed by an earlier line: remove one of the two")
    if not new.isascii():
        raise DirectiveError(f"'{new}' is not ASCII: choose another name")


def conflicts(renames: Sequence[tuple[str, str]]) -> list[str]:
    """Return a sentence for each name that two commands would have. Call this after all lines: names may be swapped."""
    renamed = dict(renames)
    names = [renamed.get(command.name, command.name).lower() for command in COMMANDS]
    twice = dict.fromkeys(name for name in names if name and names.count(name) > 1)
    return [f"rename-command: two commands would be called '{name}': choose another name for one" for name in twice]
