"""core/voter_memory.py: everything that a voter keeps in its file."""

from __future__ import annotations

import pytest

from disque_py.core.voter_list import VoterList
from disque_py.core.voter_memory import BALLOT, FORGOTTEN, GRANT, LISTS, VoterMemory, is_item

A, MEMORY = b"a" * 20, b"m" * 16


def memory_with_all():
    memory = VoterMemory()
    memory.memory_id = MEMORY
    memory.list = VoterList(2, 60_000, {A: MEMORY}, is_first=False)
    memory.previous = VoterList(1, 60_000, {A: MEMORY}, is_first=True)
    memory.remembers = memory.has_copied = True
    memory.past = {1: True}
    memory.promised = memory.accepted = (3, A)
    memory.accepted_list = VoterList(3, 60_000, {A: MEMORY}, is_first=False)
    memory.grants.claim(b"k", b"a", 5, 100, 1, 1_000, 0, 0)
    memory.grants.floor = 3
    return memory


def test_a_file_gives_back_the_memory():
    """Spec CL3."""
    memory, again = memory_with_all(), VoterMemory()
    items = list(memory.items(0))
    assert all(map(is_item, items))
    for item in items:
        again.apply(item, 0)
    assert list(again.items(0))[:5] == items[:5]
    assert again.grants.running(b"k", 100) is not None


def test_a_new_list_makes_ballots_void():
    """Spec CL5: promises are for one epoch."""
    memory = memory_with_all()
    ballot = memory.item(BALLOT, b"", 0)
    memory.list = VoterList(3, 60_000, {A: MEMORY}, is_first=False)
    again = VoterMemory()
    again.apply(memory.item(LISTS, b"", 0), 0)
    again.apply(ballot, 0)
    assert again.promised == (0, b"")


def test_a_promise_outlives_a_change_of_the_same_list():
    """Spec CL5: such as the news that the grants were copied."""
    memory, again = memory_with_all(), VoterMemory()
    for kind in (LISTS, BALLOT, LISTS):
        again.apply(memory.item(kind, b"", 0), 0)
    assert again.promised == (3, A)


def test_a_forgotten_key_stays_forgotten():
    memory, again = memory_with_all(), VoterMemory()
    again.apply(memory.item(GRANT, b"k", 0), 0)
    memory.grants.forget(b"k")
    assert memory.item(GRANT, b"k", 0) == (FORGOTTEN, b"k")
    again.apply((FORGOTTEN, b"k"), 0)
    assert again.grants.highest(b"k") == 5


def test_a_memory_is_good_only_if_nothing_of_the_epoch_was_forgotten():
    """Spec CL5, CL6."""
    memory = memory_with_all()
    assert memory.is_good(2)
    assert memory.is_good(1)
    assert not memory.is_good(7)
    memory.has_copied = False
    assert not memory.is_good(2)


@pytest.mark.parametrize(
    "item", [None, (0,), (0, b"short"), (1, [1, None, True, True, True]), (2, [[1]]), (5, -1), (6, [1])]
)
def test_items_are_checked(item):
    assert not is_item(item)


def test_items_of_newer_versions_are_kept():
    assert is_item((99, "anything"))
