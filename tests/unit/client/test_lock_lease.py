"""The lease of a lock, measured by the client's clock."""

from __future__ import annotations

from datetime import timedelta

import pytest

from disque_py.client.lock_lease import LockLease, OwnerName, lock_terms
from disque_py.client.options import ClientOptions
from disque_py.client.request import Lane
from disque_py.client.results import LockGrant

GRANT = LockGrant(7, 1, None)


def test_a_lease_is_measured_from_before_the_request_and_ends_early():
    """Spec CL8: one per cent allows for clock drift."""
    lease = LockLease(GRANT, 30.0, 100.0)
    assert lease.until == pytest.approx(129.7)
    assert lease.is_running(129.6)
    assert not lease.is_running(129.8)


def test_a_lease_is_extended_after_a_third_of_it():
    lease = LockLease(GRANT, 30.0, 100.0)
    assert lease.wake_at == pytest.approx(110.0)
    lease.extended(111.0)
    assert (lease.next_at, lease.until) == pytest.approx((121.0, 140.7))


def test_an_extension_that_failed_is_tried_again_soon_and_until_the_end():
    lease = LockLease(GRANT, 3.0, 100.0)
    lease.failed(101.5)
    assert lease.wake_at == pytest.approx(101.55)
    lease.failed(102.96)
    assert lease.wake_at == lease.until
    lease.is_lost = True
    assert not lease.is_running(101.0)


def test_an_extension_never_ends_a_lease_earlier():
    """The voters' grants are not shortened either (spec CL2)."""
    lease = LockLease(GRANT, 30.0, 100.0)
    lease.extended(99.0)
    assert lease.until == pytest.approx(129.7)


def test_an_extension_is_one_attempt_that_leaves_a_silent_node_soon():
    """The client can ask three other nodes before the lease ends."""
    terms = lock_terms("l", 3, None, None)
    request = terms.extend("me", GRANT)
    assert request.argv == (b"LOCK", b"EXTEND", b"l", b"me", b"7", b"3000")
    assert (request.lane, request.patience_s) == (Lane.OWN, 0.0)
    assert request.limit_s(terms.options(ClientOptions()).timeout) == pytest.approx(0.5)
    assert request.limit_s(0.2) == 0.2


def test_the_words_of_the_terms():
    terms = lock_terms("l", timedelta(seconds=2), 3, 0.5)
    assert terms.acquire("me", 0.0).argv == (b"LOCK", b"ACQUIRE", b"l", b"me", b"2000", b"ATTEMPTS", b"3")
    assert terms.acquire("me", 0.5).argv[5:7] == (b"TIMEOUT", b"500")
    assert terms.release("me", GRANT).argv == (b"LOCK", b"RELEASE", b"l", b"me", b"7")
    assert terms.release("me", GRANT, 60).argv[-2:] == (b"DONE", b"60000")


@pytest.mark.parametrize("wrong", [{"lease": 0}, {"lease": float("inf")}, {"timeout": -1}, {"attempts": 0}])
def test_numbers_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        lock_terms(**{"name": "l", "lease": 30, "attempts": None, "timeout": None, **wrong})


def test_a_forked_child_is_another_owner():
    """A name that the user gave is kept."""
    names = iter("abc")
    owner = OwnerName(None, lambda: next(names))
    assert [owner.in_process(1), owner.in_process(1), owner.in_process(2)] == ["a", "a", "b"]
    assert OwnerName("given", lambda: "other").in_process(3) == "given"
