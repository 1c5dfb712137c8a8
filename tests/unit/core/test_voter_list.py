"""core/voter_list.py: the voters of an epoch."""

from __future__ import annotations

import pytest

from disque_py.core.voter_list import VoterList, unpack_list

A, B, C = b"a" * 20, b"b" * 20, b"c" * 20
MEMORY = b"m" * 16


def list_of(*ids, epoch=1):
    return VoterList(epoch, 60_000, dict.fromkeys(ids, MEMORY), is_first=True)


@pytest.mark.parametrize(("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_majority_is_more_than_half(count, majority):
    assert list_of(*[bytes([at]) * 20 for at in range(count)]).majority == majority


def test_a_list_travels_in_the_order_of_its_ids():
    made = list_of(C, A, B)
    again = unpack_list(made.packed())
    assert list(again.voters) == [A, B, C]
    assert again.is_same(made)
    assert not again.is_same(list_of(A, B))


@pytest.mark.parametrize(
    "value",
    [
        None,
        [1, 60_000, True],
        [0, 60_000, True, [[A, MEMORY]]],
        [1, 0, True, [[A, MEMORY]]],
        [1, 60_000, 1, [[A, MEMORY]]],
        [1, 60_000, True, []],
        [1, 60_000, True, [[A]]],
        [1, 60_000, True, [[A[:19], MEMORY]]],
        [1, 60_000, True, [[A, MEMORY[:3]]]],
        [1, 60_000, True, [[1, MEMORY]]],
    ],
)
def test_another_nodes_list_is_checked(value):
    with pytest.raises(ValueError, match=r"voter|epoch"):
        unpack_list(value)
