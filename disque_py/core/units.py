"""Units: commands and subcommands as the objects of permissions.

Each command of the table has its units (commands/permissions.py). An `Access` finds the unit of a request. This module
knows no users. Spec US2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

Words = Callable[[list[bytes]], list[bytes]]
Test = Callable[[list[bytes]], bool]

# A longer word is not a subcommand.
SUBCOMMAND_BYTES_MAX: Final = 64


class Unit(NamedTuple):
    """A command or one of its subcommands, as an object of permissions.

    name         the name in ACL rules: `qlen`, `config|get`
    categories   the categories, without @
    names        returns the names in a request; None: requests have none
    makes        returns those of the names that the request may create: queues, or a topic; None: it creates none
    awaits       returns the queues among them into which the node itself may bring jobs later: by ticks of a schedule,
                 as dead letters, …; None: there are none
    ids          returns the words that may be ids of jobs; None: requests have none
    tokens       returns the words that may be tokens of deliveries; None: requests have none
    is_change    returns whether a request changes something, so that the audit log records it; None: requests only read
    """

    name: str
    categories: frozenset[str]
    names: Words | None = None
    makes: Words | None = None
    awaits: Words | None = None
    ids: Words | None = None
    tokens: Words | None = None
    is_change: Test | None = None


class Access:
    """The units of one command: one with the command's name, or one per subcommand."""

    __slots__ = ("_by_word", "_only", "name", "units")

    def __init__(self, name: str, units: tuple[Unit, ...]) -> None:
        self.name = name
        self.units = units
        self._only: Unit | None = units[0] if units[0].name == name else None
        self._by_word = {unit.name.partition("|")[2].encode(): unit for unit in units}

    def unit(self, argv: list[bytes]) -> Unit | None:
        """Return the unit of a request; None if its subcommand is unknown."""
        if self._only is not None:
            return self._only
        if len(argv) < 2 or len(argv[1]) > SUBCOMMAND_BYTES_MAX:
            return None
        return self._by_word.get(argv[1].lower())

    @property
    def categories(self) -> list[str]:
        """The categories of all these units, sorted."""
        return sorted({category for unit in self.units for category in unit.categories})
