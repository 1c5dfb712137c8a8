"""Recorded histories of what is held by one holder at a time: locks, and jobs of exclusive queues."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import NamedTuple


class Held(NamedTuple):
    """A time in which something was held, as its holder saw it by one clock of the machine, in seconds."""

    name: bytes
    fence: int
    began: float
    ended: float


def overlaps(history: Collection[Held]) -> list[tuple[Held, Held]]:
    """Return neighbours of one name that were held at the same time, or whose fences are in a wrong order."""
    found = []
    for name in {held.name for held in history}:
        ordered = sorted((held for held in history if held.name == name), key=lambda held: held.began)
        found += [pair for pair in pairwise(ordered) if pair[1].began < pair[0].ended or pair[1].fence <= pair[0].fence]
    return found
