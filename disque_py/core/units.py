"""Units: commands and subcommands, as permissions see them.

Each command of the table has its units (commands/permissions.py), and an `Access` finds the one of a request. Nothing
here knows users. Spec US2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

Words = Callable[[list[bytes]], list[bytes]]

# A longer word is no subcommand.
SUBCOMMAND_BYTES_MAX: Final = 64


class Unit(NamedTuple):
    """A command, or one of its subcommands, as permissions see it.

    name         as ACL rules write it: `qlen`, `config|get`
    categories   without @
    names        the names in a request; None: it has none
    makes        of these, the names that it may bring into being; None: none
    ids          words that may be ids of jobs
    tokens       words that may be tokens of deliveries
    is_change    the audit log has it
    """

    name: str
    categories: frozenset[str]
    names: Words | None = None
    makes: Words | None = None
    ids: Words | None = None
    tokens: Words | None = None
    is_change: bool = False


class Access:
    """The units of one command: one of its own name, or one per subcommand."""

    __slots__ = ("_by_word", "_only", "name", "units")

    def __init__(self, name: str, units: tuple[Unit, ...]) -> None:
        self.name = name
        self.units = units
        self._only: Unit | None = units[0] if units[0].name == name else None
        self._by_word = {unit.name.partition("|")[2].encode(): unit for unit in units}

    def unit(self, argv: list[bytes]) -> Unit | None:
        """Return the unit of a request; None for a subcommand that is unknown."""
        if self._only is not None:
            return self._only
        if len(argv) < 2 or len(argv[1]) > SUBCOMMAND_BYTES_MAX:
            return None
        return self._by_word.get(argv[1].lower())

    @property
    def categories(self) -> list[str]:
        """The categories of all its units, sorted."""
        return sorted({category for unit in self.units for category in unit.categories})
