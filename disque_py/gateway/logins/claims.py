"""Claims: the roles that the claims of a token give.

    [[claim]]
    name = "groups"
    value = "mail-team"
    grants = ["operate:mail-*"]

A dot in a name selects a field of an object: `realm_access.roles`. A rule matches if the claim is the value, or a list
with the value. The claims `scope` and `scp` are texts whose words are separated by spaces. The value `*` matches any
claim of the name. A token has the grants of all rules that match. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from disque_py.gateway.logins.grants import Grant

WORDS: Final = ("scope", "scp")
ANY: Final = "*"


@dataclass(frozen=True, slots=True)
class ClaimRule:
    """Grants for tokens whose claim of this name has this value."""

    name: str
    value: str
    grants: tuple[Grant, ...]

    def holds(self, claims: dict[str, Any]) -> bool:
        """Return whether these claims have the value."""
        values = values_of(self.name, claims)
        return bool(values) if self.value == ANY else self.value in values


def values_of(name: str, claims: dict[str, Any]) -> list[str]:
    """Return the texts of a claim. The claim's name itself may have dots, as in `https://example.com/roles`."""
    found: Any = claims.get(name)
    if found is None and "." in name:
        found = claims
        for part in name.split("."):
            found = found.get(part) if isinstance(found, dict) else None
    if isinstance(found, str):
        return found.split() if name in WORDS else [found]
    if isinstance(found, list):
        return [each for each in found if isinstance(each, str)]
    if isinstance(found, bool):
        return [str(found).lower()]
    return [str(found)] if isinstance(found, int) else []


def grants_of_claims(rules: Iterable[ClaimRule], claims: dict[str, Any]) -> tuple[Grant, ...]:
    """Return the grants of all rules that match."""
    return tuple(dict.fromkeys(grant for rule in rules if rule.holds(claims) for grant in rule.grants))
