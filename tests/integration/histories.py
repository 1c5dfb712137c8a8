"""Recorded histories of things that only one holder may have at a time: locks, and jobs of exclusive queues."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import NamedTuple


class Held(NamedTuple):
    """A span in which its holder had something, in seconds of one clock of the machine."""

    name: bytes
    fence: int
    began: float
    ended: float


def overlaps(history: Collection[Held]) -> list[tuple[Held, Held]]:
    """Return successive spans of one name that overlap, or whose fences are in the wrong order."""
    found = []
    for name in {held.name for held in history}:
        ordered = sorted((held for held in history if held.name == name), key=lambda held: held.began)
        found += [pair for pair in pairwise(ordered) if pair[1].began < pair[0].ended or pair[1].fence <= pair[0].fence]
    return found
