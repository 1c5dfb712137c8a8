"""simulator/checks/voters.py: the messages of voters are compared with the rules."""

from __future__ import annotations

import pytest

from cluster_bus.messages import CLAIM, CLAIM_IS, RECALL, RECALLED, RELEASE, VOTERS
from disque_py.core.grants import GRANTED, RENEWS
from disque_py.core.recalling import A_PAGE
from disque_py.core.voter_list import VoterList
from disque_py.simulator.checks.voters import VoterChecker
from disque_py.simulator.oracle import RuleBrokenError
from voting_worlds import acquire, id_of, voters

KEY, OWNER = b"Llock", b"owner"


@pytest.fixture
def world():
    """Voters a, b and c of the first list, and d."""
    return voters("abcd", "abc")


def watched(world):
    checker = VoterChecker(world)
    world.traffic.tap = checker.hear
    return checker


def claim(epoch, number=1, flags=0):
    return [CLAIM, (number, epoch, KEY, OWNER, 7, 1_000, 0, 0, flags)]


def granted(number=1):
    return [CLAIM_IS, (number, GRANTED, 7, OWNER, 7, 0, 1_000)]


def test_voters_that_keep_the_rules_are_left_alone(world):
    checker = watched(world)
    assert acquire(world, "d", "one", ms=60_000) is not None
    assert world.ask("a", "CLUSTER", "VOTERS", "ADD", id_of("d")) == b"OK"
    assert acquire(world, "c", "two") is None
    assert checker.told


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_grant_for_another_list_breaks_the_rule(world, epoch):
    """Spec CL4."""
    checker = watched(world)
    world.ask("a", "CLUSTER", "VOTERS", "ADD", id_of("d"))
    checker.hear("d", "b", [claim(epoch)])
    with pytest.raises(RuleBrokenError, match="a voter grants no claim of another list"):
        checker.hear("b", "d", [granted()])


def test_a_voter_that_has_been_restarted_is_not_judged(world):
    checker = watched(world)
    world.ask("a", "CLUSTER", "VOTERS", "ADD", id_of("d"))
    checker.hear("d", "b", [claim(1)])
    world.crash("b")
    world.restart("b")
    checker.hear("b", "d", [granted()])


def test_a_grant_before_the_copies_breaks_the_rule(world):
    """Spec CL5."""
    checker = watched(world)
    world.ask("a", "CLUSTER", "VOTERS", "ADD", id_of("d"))
    del checker.told["d", 2]
    checker.hear("a", "d", [claim(2)])
    with pytest.raises(RuleBrokenError, match="a voter copies the grants of the list before"):
        checker.hear("d", "a", [granted()])


def test_a_voter_that_goes_on_and_tells_its_grants_breaks_the_rule(world):
    """Spec CL5."""
    checker = watched(world)
    checker.hear("d", "b", [[RECALL, (1, 1, 0, True)]])
    with pytest.raises(RuleBrokenError, match="a voter that tells its grants has stopped"):
        checker.hear("b", "d", [[RECALLED, (1, A_PAGE, 0, [], True)]])


def test_a_second_list_of_an_epoch_breaks_the_rule(world):
    """Spec CL5."""
    checker = watched(world)
    one, other = (VoterList(2, lease_ms, {b"a" * 20: bytes(16)}, is_first=False) for lease_ms in (1_000, 2_000))
    checker.hear("a", "b", [[VOTERS, (one.packed(), None)]])
    with pytest.raises(RuleBrokenError, match="an epoch has one list of voters"):
        checker.hear("c", "b", [[VOTERS, (other.packed(), None)]])


def test_a_renewal_that_takes_its_claim_back_breaks_the_rule(world):
    """Spec CL2."""
    checker = watched(world)
    release = [RELEASE, (0, 1, KEY, OWNER, 7, 1, 0)]
    checker.hear("a", "b", [claim(1), claim(1, flags=RENEWS), release])  # The node failed to claim the key.
    checker.hear("d", "b", [claim(1, flags=RENEWS)])
    with pytest.raises(RuleBrokenError, match="a renewal that failed releases nothing"):
        checker.hear("d", "b", [release])
