"""commands/locks.py: LOCK."""

from __future__ import annotations

import pytest

from brokers import error_of, make_broker, make_client
from disque_py.core import voting
from disque_py.core.voter_list import VoterList
from voting_worlds import acquire, voters


def test_an_acquired_lock_is_shown_and_listed():
    """Spec CL9."""
    world = voters("abc")
    fence, attempt, left = acquire(world, "a", "one", lock="nightly", ATTEMPTS=3)
    assert (attempt, left) == (1, 2)
    reply = world.ask("b", "LOCK", "SHOW", "nightly")
    found = dict(zip(reply[::2], reply[1::2], strict=True))
    assert (found[b"owner"], found[b"fence"], found[b"attempt"]) == (b"one", fence, 1)
    assert 9_000 < found[b"ms-left"] <= 10_000
    assert world.ask("c", "LOCK", "LIST", "night*") == [b"nightly"]
    assert world.ask("c", "LOCK", "LIST", "day*") == []


def test_a_free_lock_is_nil():
    world = voters("abc")
    assert world.ask("a", "LOCK", "SHOW", "l") is None


def test_another_owner_gets_nil_at_once_or_after_its_time():
    world = voters("abc")
    acquire(world, "a", "one")
    assert acquire(world, "b", "two") is None
    began_ms = world.now_ms
    assert acquire(world, "b", "two", TIMEOUT=2_000) is None
    assert 2_000 <= world.now_ms - began_ms < 3_100


def test_a_waiting_worker_is_told_when_it_loses_the_permission():
    """Spec US8. Another owner gets the lock for which the worker waited."""
    world = voters("abc")
    fence = acquire(world, "a", "one")[0]
    world.ask("b", "ACL", "SETUSER", "ann", "on", "nopass", "~*", "+@consume")
    talker = world.client("b")
    talker.say("AUTH", "ann", "any")
    talker.say("LOCK", "ACQUIRE", "l", "two", 10_000, "TIMEOUT", 60_000)
    world.run(300)
    world.ask("b", "ACL", "SETUSER", "ann", "-lock|acquire")
    world.run(50)
    assert [str(reply) for reply in talker.replies] == [
        "b'OK'",
        "NOPERM this user has no permissions to run the 'lock|acquire' command",
    ]
    world.ask("a", "LOCK", "RELEASE", "l", "one", fence)
    world.run(1_000)
    assert acquire(world, "c", "three")[0] > fence
    assert len(talker.replies) == 2


def test_a_lock_is_extended_with_its_fence_only():
    """Spec CL1."""
    world = voters("abc")
    fence = acquire(world, "a", "one", ms=1_000)[0]
    world.run(800)
    assert world.ask("b", "LOCK", "EXTEND", "l", "one", fence, 1_000) == 1_000
    world.run(800)
    assert acquire(world, "c", "two") is None
    assert str(world.ask("b", "LOCK", "EXTEND", "l", "one", fence + 1, 1_000)) == "FENCED A later claim is known"
    world.run(300)
    assert str(world.ask("b", "LOCK", "EXTEND", "l", "one", fence, 1_000)) == "FENCED A later claim is known"


def test_a_lock_is_released_once():
    world = voters("abc")
    fence = acquire(world, "a", "one")[0]
    assert world.ask("b", "LOCK", "RELEASE", "l", "two", fence) == 0
    assert world.ask("b", "LOCK", "RELEASE", "l", "one", fence) == 1
    assert world.ask("b", "LOCK", "RELEASE", "l", "one", fence) == 0


def test_work_that_is_done_is_refused_to_all():
    """Spec CL9."""
    world = voters("abc")
    fence = acquire(world, "a", "one")[0]
    assert world.ask("a", "LOCK", "RELEASE", "l", "one", fence, "DONE", 5_000) == 1
    for owner in ("one", "two"):
        assert str(acquire(world, "b", owner)) == "LOCKDONE The work under this lock is done"
    world.run(5_100)
    assert acquire(world, "b", "two")[1] == 1


def test_the_last_attempt_is_told_and_no_other_follows():
    """Spec CL9."""
    world = voters("abc")
    assert acquire(world, "a", "one", ms=100, ATTEMPTS=1)[1:] == [1, 0]
    world.run(200)
    assert str(acquire(world, "b", "two", ATTEMPTS=1)) == "LOCKSPENT No attempts left for this lock"


def test_an_owner_that_has_the_lock_gets_no_attempt_beyond_its_limit():
    """Spec CL9: voters that copy a grant may count it as a later attempt than the voter that granted it (seed 6787)."""
    world = voters("abc")
    acquire(world, "a", "one", ms=100)
    world.run(200)
    fence, number, _ = acquire(world, "a", "two", ms=1_000)
    assert number == 2
    assert str(acquire(world, "b", "two", ATTEMPTS=1)) == "LOCKSPENT No attempts left for this lock"
    assert acquire(world, "b", "two", ATTEMPTS=2) == [fence, 2, 0]


def test_a_node_in_a_minority_answers_noquorum_within_a_second():
    world = voters("abc")
    world.cut("a", "b")
    world.cut("a", "c")
    for words in (
        ("ACQUIRE", "l", "one", 100),
        ("EXTEND", "l", "one", 5, 100),
        ("RELEASE", "l", "one", 5),
        ("SHOW", "l"),
    ):
        began_ms = world.now_ms
        assert str(world.ask("a", "LOCK", *words)) == "NOQUORUM no majority of the voters answered"
        assert world.now_ms - began_ms <= 1_100


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("ACQUIRE", "l", "", 100), "ERR name and owner have 1 to 1024 bytes"),
        (("ACQUIRE", "l" * 1_025, "o", 100), "ERR name and owner have 1 to 1024 bytes"),
        (("ACQUIRE", "l", "o", 0), "ERR the lease must be a number of milliseconds > 0"),
        (("ACQUIRE", "l", "o", 60_001), "ERR the lease is above claim-lease-max"),
        (("ACQUIRE", "l", "o", 100, "ATTEMPTS", -1), "ERR ATTEMPTS must be a number from 0 to 1000000000"),
        (("ACQUIRE", "l", "o", 100, "TIMEOUT", "x"), "ERR TIMEOUT must be a number of milliseconds >= 0"),
        (("ACQUIRE", "l", "o", 100, "NOW"), "ERR syntax error: 'NOW'"),
        (("ACQUIRE", "l", "o"), "ERR syntax error: 'o'"),
        (("RELEASE", "l", "o", 5, "DONE", 0), "ERR DONE must be a number of milliseconds > 0"),
        (("RELEASE", "l", "o", 5, "GONE", 5), "ERR syntax error: 'GONE'"),
        (("EXTEND", "l", "o", 0, 5), "ERR the fence must be a number from 1 to 4611686018427387904"),
        (("STEAL", "l"), "ERR syntax error: 'STEAL'"),
    ],
)
def test_wrong_arguments_are_refused(words, error):
    broker = make_broker()
    voting.learn(broker, VoterList(1, 60_000, {broker.me.id: voting.memory_id(broker)}, is_first=True), None)
    assert error_of(broker, make_client(broker), "LOCK", *words) == error


def test_the_last_of_repeated_options_counts():
    world = voters("abc")
    fence, _, left = world.ask("a", "LOCK", "ACQUIRE", "l", "o", 500, "ATTEMPTS", 9, "TIMEOUT", 1, "ATTEMPTS", 3)
    assert left == 2
    assert world.ask("a", "LOCK", "RELEASE", "l", "o", fence, "DONE", 9_000, "DONE", 100) == 1
    world.run(300)
    assert acquire(world, "b", "two")[1] == 1


def test_without_voters_a_lock_is_refused():
    broker = make_broker()
    for words in (("ACQUIRE", "l", "o", 100), ("SHOW", "l"), ("LIST",)):
        assert error_of(broker, make_client(broker), "LOCK", *words) == "NOQUORUM no voters configured"


def test_an_invented_fence_gets_nothing():
    """Spec CL1."""
    world = voters("abc")
    assert str(world.ask("a", "LOCK", "EXTEND", "l", "one", 1 << 61, 1_000)) == "FENCED A later claim is known"
    assert acquire(world, "b", "two")[0] < 1 << 60


def test_one_voter_alone_cannot_end_the_work():
    """Spec CL9: no majority has confirmed the end of the work."""
    world = voters("abc")
    item = (b"Ll", b"one", 5, 0, 5, 0, 0, 0, 60_000, False, False)
    world["a"].claims.memory.grants.put(item, world["a"].now_ms)
    assert acquire(world, "b", "two") is not None


def test_a_released_lock_is_not_shown_on_account_of_one_voter():
    world = voters("abc")
    fence = acquire(world, "a", "one")[0]
    item = (b"Ll", b"one", fence, 60_000, fence, 0, 0, 0, 0, True, False)
    assert world.ask("a", "LOCK", "RELEASE", "l", "one", fence) == 1
    world["c"].claims.memory.grants.put(item, world["c"].now_ms)
    reply = world.ask("b", "LOCK", "SHOW", "l")
    assert reply is None or dict(zip(reply[::2], reply[1::2], strict=True))[b"owner"] is None
