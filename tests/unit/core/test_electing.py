"""core/electing.py: the first list of voters, and the next ones."""

from __future__ import annotations

import pytest

from cluster_bus.messages import VOTE, VOTERS
from voting_worlds import acquire, id_of, shown, voters
from world import World


def epochs(world, names):
    return [world[name].claims.memory.list.epoch for name in names]


def test_the_first_list_reaches_all_nodes():
    """Spec CL7."""
    world = voters("abcd", "abc")
    assert epochs(world, "abcd") == [1] * 4
    assert shown(world, "d")[b"state"] == b"ready"
    assert str(world.ask("d", "CLUSTER", "VOTERS", "INIT", id_of("d"))) == "ERR there are voters already"


def test_a_first_list_needs_all_its_nodes():
    """Spec CL7."""
    world = World("ab")
    world.join()
    world.cut("a", "b")
    world.run(100)
    assert str(world.ask("a", "CLUSTER", "VOTERS", "INIT", id_of("a"), id_of("b"))).startswith("UNREACHABLE")


def test_a_voter_is_added_and_removed():
    """Spec CL5."""
    world = voters("abcd", "abc")
    assert world.ask("d", "CLUSTER", "VOTERS", "ADD", id_of("d")) == b"OK"
    assert world.ask("b", "CLUSTER", "VOTERS", "REMOVE", id_of("a")) == b"OK"
    assert shown(world, "a")[b"voters"] == [id_of("b"), id_of("c"), id_of("d")]
    assert epochs(world, "abcd") == [3] * 4


def test_a_new_voter_knows_the_grants_of_the_old_ones():
    """Spec CL5: a claim outlives all voters that granted it."""
    world = voters("abcdef", "abc")
    fence = acquire(world, "a", "one", ms=60_000)[0]
    for added, removed in (("d", "a"), ("e", "b"), ("f", "c")):
        assert world.ask("a", "CLUSTER", "VOTERS", "ADD", id_of(added)) == b"OK"
        assert world.ask("a", "CLUSTER", "VOTERS", "REMOVE", id_of(removed)) == b"OK"
    assert acquire(world, "a", "two") is None
    assert world.ask("d", "LOCK", "EXTEND", "l", "one", fence, 60_000) == 60_000


def test_a_minority_cannot_change_the_list():
    """Spec CL5."""
    world = voters("abc")
    world.cut("a", "b")
    world.cut("a", "c")
    assert str(world.ask("a", "CLUSTER", "VOTERS", "REMOVE", id_of("b"))).startswith("NOQUORUM")
    assert world.ask("b", "CLUSTER", "VOTERS", "REMOVE", id_of("a")) == b"OK"
    assert epochs(world, "abc") == [1, 2, 2]
    world.heal()
    world.until(world.is_meshed, 30_000)
    world.run(100)
    assert epochs(world, "abc") == [2] * 3


def test_a_list_that_was_accepted_is_finished_by_the_next_operator():
    """Spec CL5: the proposer died between accepting and telling."""
    world = voters("abcd", "abc")
    world.drop = lambda sender, receiver, kind, item: sender == "a" and kind == VOTERS
    talker = world.client("a")
    talker.say("CLUSTER", "VOTERS", "ADD", id_of("d"))
    world.until(lambda: epochs(world, "a") == [2])
    world.crash("a")
    world.run(100)
    world.drop = None
    world.run(20_000)
    assert epochs(world, "bc") == [1, 1]
    assert str(world.ask("b", "CLUSTER", "VOTERS", "LEASEMAX", 60)).startswith("BUSY")
    world.run(100)
    assert epochs(world, "bcd") == [2] * 3
    assert id_of("d") in shown(world, "b")[b"voters"]


def test_two_operators_at_once_change_the_list_one_after_the_other():
    world = voters("abcde", "abc")
    talkers = []
    for name, added in (("a", "d"), ("b", "e")):
        talkers.append(world.client(name))
        talkers[-1].say("CLUSTER", "VOTERS", "ADD", id_of(added))
    world.run(15_000)
    replies = sorted(str(talker.replies[0]) for talker in talkers)
    assert replies[-1] == "b'OK'"
    assert replies[0] in ("b'OK'", "BUSY a change of voters is under way")
    assert len({world[name].claims.memory.list.packed()[3][-1] for name in "abcde"}) == 1


def test_two_changes_at_one_node_are_two_proposals():
    """Spec CL5: a node's ballots differ, and only one command is answered with OK for an epoch."""
    world = voters("abcde", "abc")
    talkers = []
    for added in "de":
        talkers.append(world.client("a"))
        talkers[-1].say("CLUSTER", "VOTERS", "ADD", id_of(added))
    world.run(15_000)
    listed = [node_id for node_id in (b"d" * 20, b"e" * 20) if node_id in world["a"].claims.memory.list.voters]
    assert sum(talker.replies == [b"OK"] for talker in talkers) == len(listed) >= 1
    assert not world["a"].claims.memory.is_conflict


def test_an_operator_who_hangs_up_leaves_nothing():
    world = voters("abc")
    world.drop = lambda sender, receiver, kind, item: kind == VOTE
    talker = world.client("a")
    talker.say("CLUSTER", "VOTERS", "LEASEMAX", 60)
    world.until(lambda: bool(world["a"].claims.rounds), 3_000)
    talker.hang_up()
    assert not world["a"].claims.rounds


def test_a_reset_makes_a_new_first_list():
    """Spec CL7."""
    world = voters("abc")
    acquire(world, "a", "one", ms=60_000)
    world.crash("b")
    world.crash("c")
    world.run(1_000)
    assert "may be handed out again" in str(world.ask("a", "CLUSTER", "VOTERS", "RESET", id_of("a")))
    assert world.ask("a", "CLUSTER", "VOTERS", "RESET", "FORCE", id_of("a")) == b"OK"
    assert epochs(world, "a") == [1_001]
    assert acquire(world, "a", "two") is None  # The only voter remembers.


@pytest.mark.parametrize(
    ("words", "reply"),
    [
        (("ADD", id_of("a")), f"ERR {id_of('a').decode()} is a voter"),
        (("REMOVE", id_of("b")), f"ERR {id_of('b').decode()} is no voter"),
        (("REMOVE", id_of("a")), "ERR the last voter cannot be removed"),
        (("ADD", "abc"), "ERR Unknown node abc"),
        (("LEASEMAX", "0"), "ERR LEASEMAX must be a number of seconds from 1 to 4503599627370"),
        (("LEASEMAX", "4503599627371"), "ERR LEASEMAX must be a number of seconds from 1 to 4503599627370"),
        (("NONSENSE",), "ERR syntax error: 'NONSENSE'"),
        (("ADD",), "ERR Wrong CLUSTER subcommand or number of arguments"),
    ],
)
def test_wrong_arguments_change_nothing(words, reply):
    world = voters("ab", "a")
    assert str(world.ask("a", "CLUSTER", "VOTERS", *words)) == reply
    assert epochs(world, "ab") == [1, 1]


def test_the_longest_lease_max_can_be_used():
    """Spec CL9: a lock with that lease, whose count is kept for as long."""
    world = voters("abcd", "abc")
    longest = 4_503_599_627_370
    assert world.ask("a", "CLUSTER", "VOTERS", "LEASEMAX", longest) == b"OK"
    fence, attempt, _ = acquire(world, "a", "one", ms=1_000 * longest)
    assert attempt == 1
    assert world.ask("b", "LOCK", "EXTEND", "l", "one", fence, 1_000 * longest) == 1_000 * longest
    assert world.ask("a", "CLUSTER", "VOTERS", "ADD", id_of("d")) == b"OK"
    world.run(500)
    assert world["d"].claims.memory.has_copied
    assert acquire(world, "d", "two") is None
    assert world.ask("c", "LOCK", "RELEASE", "l", "one", fence, "DONE", 1_000 * longest) == 1


def test_a_voter_without_memory_begins_anew_with_the_next_list():
    """Spec CL5, CL6."""
    from voting_worlds import forget_votes

    world = voters("abc")
    forget_votes(world, "c")
    world.until(world.is_meshed, 30_000)
    assert world.ask("a", "CLUSTER", "VOTERS", "LEASEMAX", 60) == b"OK"
    world.run(500)
    assert shown(world, "a")[b"mute"] == []


def two_clusters():
    """Two clusters with a first list each: abc and de."""
    world = World("abcde")
    for first, *others in ("abc", "de"):
        for name in others:
            world.meet(first, name)
    world.run(3_000)
    for names in ("abc", "de"):
        assert world.ask(names[0], "CLUSTER", "VOTERS", "INIT", *map(id_of, names)) == b"OK"
    world.run(200)
    return world


@pytest.mark.parametrize("saw_conflict", [False, True])
def test_a_node_that_missed_a_reset_adopts_its_list(saw_conflict):
    """Spec CL4, CL7: it must not bring the conflict of the two clusters back."""
    world = two_clusters()
    if not saw_conflict:
        world.crash("e")
    world.meet("a", "d")
    world.run(5_000)
    assert shown(world, "a")[b"state"] == shown(world, "d")[b"state"] == b"conflict"
    if saw_conflict:
        world.crash("e")
    assert world.ask("a", "CLUSTER", "VOTERS", "RESET", "FORCE", *map(id_of, "abc")) == b"OK"
    world.run(1_000)
    assert world.ask("a", "CLUSTER", "VOTERS", "LEASEMAX", 60) == b"OK"  # Its list is not a first one.
    world.restart("e")
    world.run(30_000)
    assert [shown(world, name)[b"state"] for name in "abcde"] == [b"ready"] * 5
    assert epochs(world, "abcde") == [1_002] * 5
    assert acquire(world, "e", "one") is not None
