"""pipelines/recent_list.py: a capped list equals the top of the whole set, at every moment."""

from __future__ import annotations

import random

import pytest

from disque_py.spark.pipelines.recent_list import RecentList, changed, filled, most


def test_a_list_is_cut_when_it_is_a_fifth_too_long():
    full = filled([(at, f"m{at}") for at in range(12)], 10)
    assert (len(full.members), full.is_cut, most(10)) == (12, False, 12)
    cut = changed(full, {"new": 99}, 10)
    assert (len(cut.members), cut.is_cut, cut.members[0]) == (10, True, (99, "new"))


def test_members_below_a_cut_list_do_not_enter_it():
    cut = RecentList([(9, "a"), (8, "b")], True)
    assert changed(cut, {"old": 3}, 2) == cut


def test_a_removal_that_leaves_too_few_asks_for_the_source_only_when_there_are_others():
    assert changed(RecentList([(9, "a"), (8, "b")], True), {"a": None}, 2) is None
    assert changed(RecentList([(9, "a"), (8, "b")], False), {"a": None}, 2) == RecentList([(8, "b")], False)
    assert changed(RecentList([(9, "a"), (8, "b"), (7, "c")], True), {"a": None}, 2) == RecentList(
        [(8, "b"), (7, "c")], True
    )


@pytest.mark.parametrize("seed", range(30))
def test_the_list_is_the_top_of_the_set_at_every_moment(seed):
    """Members come, go and move up. The source drops late changes, as the merge does."""
    rng = random.Random(seed)
    limit = rng.randint(1, 6)
    source: dict[str, int] = {}
    recent = RecentList()
    refills = 0
    for now in range(1, 400):
        changes: dict[str, int | None] = {}
        for _ in range(rng.randint(1, 3)):
            member = f"m{rng.randint(0, 15)}"
            if rng.random() < 0.3:
                source.pop(member, None)
            else:
                source[member] = max(source.get(member, 0), now if rng.random() < 0.7 else rng.randint(0, now))
            changes[member] = source.get(member)
        result = changed(recent, changes, limit)
        if result is None:
            refills += 1
            result = filled([(at, member) for member, at in source.items()], limit)
        recent = result
        top = sorted(((at, member) for member, at in source.items()), reverse=True)
        assert recent.members == top[: len(recent.members)]
        assert len(recent.members) >= min(limit, len(top))
        assert len(recent.members) <= most(limit)
        assert recent.is_cut or len(recent.members) == len(top)
    assert refills < 400
