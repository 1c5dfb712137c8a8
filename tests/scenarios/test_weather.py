"""Random days (weather.py), a few of each kind of weather. Many more, or one that failed, by hand: see there."""

from __future__ import annotations

import pytest

from weather import Day

KINDS = {
    "fair": ({"faults": False}, 2),
    "storms": ({}, 10),
    "crashes": ({"nodes": "abcd", "crashes": True}, 6),
    "leaving": ({"nodes": "abcd", "leaving": True}, 3),
    "forgetting": ({"nodes": "abcde", "crashes": True, "forgetting": True}, 2),
    "losses": ({"losses": True}, 2),
    "pauses": ({"pauses": True}, 2),
    "silence": ({"silence": True}, 2),
    "pressure": ({"pressure": True}, 2),
    "jumps": ({"jumps": True, "short": True}, 2),
    "seven": ({"nodes": "abcdefg", "crashes": True}, 1),
}
STEPS = 100


@pytest.mark.parametrize("kind", KINDS)
def test_a_day_of(kind):
    """Nothing promised is lost, nothing at-most-once comes twice, and at last all that is done is gone."""
    switches, days = KINDS[kind]
    for seed in range(days):
        Day(seed, **switches).play(STEPS)


def test_the_same_day_passes_the_same_way_twice():
    """A seed tells everything: which messages went where, in which order."""
    days = [Day(4, nodes="abcd", crashes=True, pauses=True, losses=True) for _ in range(2)]
    for day in days:
        day.play(60)
    assert days[0].world.trace == days[1].world.trace
    assert len(days[0].world.trace) > 300
