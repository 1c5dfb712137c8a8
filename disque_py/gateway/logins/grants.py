"""Roles and principals: the operations that a caller may execute, and on which queues.

A grant is a role on a pattern of queue names, written `role:pattern`. `operate`, `bodies` and `consume` include `read`
on the same pattern, and `admin` includes everything. A principal has grants, and a client that talks to the cluster in
its name. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from disque_py.client import AsyncDisque

ROLES: Final = {
    "read": "figures, settings, states of jobs; no bodies and no metadata",
    "bodies": "bodies, metadata and events; includes read",
    "produce": "adding jobs",
    "consume": "taking and settling jobs; includes read",
    "operate": "purge, move, pause, redrive, settings, cancel, schedules; includes read",
    "admin": "everything, on every queue that the pattern names",
}
_INCLUDING: Final = {
    "read": frozenset(("read", "bodies", "consume", "operate", "admin")),
    **{role: frozenset((role, "admin")) for role in ("bodies", "produce", "consume", "operate", "admin")},
}


@dataclass(frozen=True, slots=True)
class Grant:
    """A role on the queues whose names match the pattern (`*`, `?`, `[ab]`).

    expression   of a pattern of the broker, which has other rules (broker_patterns.py); None: those of a shell
    """

    role: str
    pattern: str
    expression: re.Pattern[bytes] | None = field(default=None, repr=False, compare=False)

    def covers(self, queue: str) -> bool:
        """Return whether the name of a queue matches the pattern."""
        if self.expression is None:
            return fnmatchcase(queue, self.pattern)
        return self.expression.match(queue.encode("utf-8", "surrogateescape")) is not None

    def __str__(self) -> str:
        return f"{self.role}:{self.pattern}"


def grant_of(text: str) -> Grant:
    """Return the grant that a text names; a role alone applies to all queues. Raises ValueError."""
    role, colon, pattern = text.partition(":")
    if role not in ROLES:
        raise ValueError(f"there is no role {role!r} (roles: {', '.join(ROLES)})")
    if colon and not pattern:
        raise ValueError(f"the grant {text!r} names no queues; for all queues, write {role!r}")
    return Grant(role, pattern or "*")


ALL: Final = (Grant("admin", "*"),)


@dataclass(slots=True)
class Principal:
    """A caller that has logged in.

    name          for the audit log and for rates
    grants        its roles
    client        the client that acts in its name
    asks_broker   only the broker knows its rights, so this gateway passes operations on without a check
    """

    name: str
    grants: tuple[Grant, ...]
    client: AsyncDisque = field(repr=False)
    asks_broker: bool = False
    _found: dict[tuple[str, str], bool] = field(default_factory=dict, repr=False)

    def may(self, role: str, queue: str) -> bool:
        """Return whether it has the role on this queue."""
        found = self._found.get((role, queue))
        if found is None:
            roles = _INCLUDING[role]
            found = any(grant.role in roles and grant.covers(queue) for grant in self.grants)
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            self._found[role, queue] = found
        return found

    def may_somewhere(self, role: str) -> bool:
        """Return whether it has the role on any pattern."""
        roles = _INCLUDING[role]
        return any(grant.role in roles for grant in self.grants)

    def may_everywhere(self, role: str) -> bool:
        """Return whether it has the role on every queue."""
        roles = _INCLUDING[role]
        return any(grant.role in roles and grant.pattern == "*" for grant in self.grants)

    def visible(self, names: Iterable[str], role: str = "read") -> list[str]:
        """Return the names of queues on which it has the role."""
        if self.may_everywhere(role):
            return list(names)
        return [name for name in names if self.may(role, name)]


# The most answers that a principal remembers. Callers choose the names, so the number must have a limit.
FOUND_MAX: Final = 10_000
