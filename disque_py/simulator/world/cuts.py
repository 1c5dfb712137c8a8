"""Cuts: the directions between two machines in which no bytes pass, and whether the machines notice.

A *loud* cut breaks connections: both ends see it. A *silent* cut swallows frames. Several faults may cut the same
direction. It is open again when all of these cuts are mended.
"""

from __future__ import annotations

Direction = tuple[str, str]


class Cuts:
    """All cuts of a world. `loud`, `silent`: directions (from, to) -> how many faults cut them."""

    def __init__(self) -> None:
        self.loud: dict[Direction, int] = {}
        self.silent: dict[Direction, int] = {}

    def add(self, one: str, other: str, *, silently: bool) -> None:
        """Add one cut of this direction."""
        cuts = self.silent if silently else self.loud
        cuts[one, other] = cuts.get((one, other), 0) + 1

    def remove(self, one: str, other: str, *, silently: bool) -> bool:
        """Mend one cut, and return whether it was the last one of this direction."""
        cuts = self.silent if silently else self.loud
        left = cuts.get((one, other), 0) - 1
        if left > 0:
            cuts[one, other] = left
        elif left == 0:
            del cuts[one, other]
        return left == 0

    def clear(self) -> list[Direction]:
        """Mend all cuts, and return the directions of the silent ones."""
        freed = list(self.silent)
        self.loud.clear()
        self.silent.clear()
        return freed

    def are_loud(self, one: str, other: str) -> bool:
        """Return whether at least one direction is cut, so that no connection can be made."""
        return bool(self.loud) and ((one, other) in self.loud or (other, one) in self.loud)

    def are_silent(self, one: str, other: str) -> bool:
        """Return whether at least one direction swallows frames."""
        return bool(self.silent) and ((one, other) in self.silent or (other, one) in self.silent)
