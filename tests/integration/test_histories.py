"""The checks of recorded histories (histories.py, linearizability.py) find violations."""

from __future__ import annotations

import math

import pytest

from histories import Held, overlaps
from linearizability import ACQUIRE, EXTEND, RELEASE, UNKNOWN, Call, is_linearizable, unexplained


def test_a_history_with_an_overlap_or_a_wrong_fence_is_found():
    assert overlaps([Held(b"u", 1, 0, 1), Held(b"u", 2, 1, 2), Held(b"v", 1, 0, 2)]) == []
    assert overlaps([Held(b"u", 1, 0, 1.1), Held(b"u", 2, 1, 2)]) != []
    assert overlaps([Held(b"u", 2, 0, 1), Held(b"u", 1, 1, 2)]) != []


def acquire(owner, fence, began, ended, attempt=0, lease_s=10):
    return Call(ACQUIRE, b"lock", owner, fence, lease_s, began, ended, True, attempt)


def extend(owner, fence, began, ended, is_ok=True):
    return Call(EXTEND, b"lock", owner, fence, 10, began, ended, is_ok)


def release(owner, fence, began, ended, is_ok=True):
    return Call(RELEASE, b"lock", owner, fence, 0, began, ended, is_ok)


A, B = acquire("a", 1, 0, 1, 1), acquire("b", 2, 5, 6, 2)

GOOD = {
    "released first": [A, release("a", 1, 2, 3), B],
    "released meanwhile": [A, release("a", 1, 2, 5.5), B],
    "released without a reply": [A, release("a", 1, 2, math.inf, UNKNOWN), B],
    "a release that arrives late": [A, release("a", 1, 2, math.inf, UNKNOWN), extend("a", 1, 4, 4.5), B],
    "a lapsed lease": [A, acquire("b", 2, 5, 11, 2), extend("a", 1, 12, 13, False), release("a", 1, 13, 14, False)],
    "a renewal": [A, acquire("a", 1, 2, 3, 1), acquire("b", 2, 12, 13, 2)],
    "a refusal during the grant": [A, release("a", 1, 2, 3), B, extend("a", 1, 4, 5.5, False)],
    "lost tries that were counted": [A, release("a", 1, 2, 3), acquire("b", 7, 5, 6, 4)],
}
BAD = {
    "two owners": [A, B],
    "two owners at once": [acquire("a", 1, 0, 6, 1), acquire("b", 2, 0, 6, 2)],
    "released too late": [A, B, release("a", 1, 7, 8)],
    "extended before": [A, extend("a", 1, 4, 4.5), acquire("b", 2, 5, 13, 2)],
    "extended under an older fence": [A, release("a", 1, 2, 3), B, extend("a", 1, 7, 8)],
    "released twice": [A, release("a", 1, 2, 3), release("a", 1, 4, 5)],
    "the same fence": [A, release("a", 1, 2, 3), acquire("b", 1, 5, 6, 2)],
    "the same attempt": [A, release("a", 1, 2, 3), acquire("b", 2, 5, 6, 1)],
    "a new fence for its holder": [A, acquire("a", 2, 2, 3, 2)],
    "a refused holder": [A, extend("a", 1, 2, 3, False)],
    "a holder whose release is refused": [A, release("a", 1, 2, 3, False)],
}


@pytest.mark.parametrize("name", GOOD)
def test_replies_that_one_lock_could_give_are_linearizable(name):
    assert is_linearizable(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_replies_that_no_single_lock_gives_are_found(name):
    assert not is_linearizable(BAD[name])


def test_each_lock_has_an_order_of_its_own():
    other = [call._replace(name=b"other") for call in GOOD["a renewal"]]
    assert unexplained([*BAD["two owners"], *other]) == [b"lock"]
