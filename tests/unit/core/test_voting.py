"""core/voting.py: the voter: claims, lists of voters, and the file behind them."""

from __future__ import annotations

import errno

import pytest

from brokers import add_node, ask_parsed, fields_of, host_of, make_broker, make_client
from cluster_bus.messages import CLAIM, CLAIM_IS, VOTERS
from copies import sent, sent_of
from disque_py.core import claim_messages, voting
from disque_py.core.claims import note_change
from disque_py.core.grants import GRANTED, HELD, MUTE, NO_ROOM
from disque_py.core.voter_list import VoterList
from disque_py.core.voter_memory import BALLOT, GRANT, LISTS
from disque_py.node import dispatch
from voting_worlds import acquire, forget_votes, id_of, shown, voters

CLAIM_OF = (7, 1, b"k", b"holder", 100, 5_000, 0, 0, 0)


def voter_of(*, is_slow=False):
    """A broker that is a voter, and another node."""
    broker = make_broker()
    other = add_node(broker, 2)
    memory_id = voting.memory_id(broker)
    listed = {broker.me.id: memory_id, other.id: b"o" * 16}
    voting.learn(broker, VoterList(1, 60_000, listed, is_first=True), None)
    claim_messages.settle(broker)
    host_of(broker).is_slow = is_slow
    sent(broker)
    return broker, other


def answers(broker):
    claim_messages.settle(broker)
    return [item[:2] for _, item in sent_of(broker, CLAIM_IS)]


def trouble(broker):
    return fields_of(ask_parsed(broker, make_client(broker), "INFO", "persistence"))["votes_trouble"]


def test_a_grant_is_answered_when_it_is_on_disk():
    """Spec CL3."""
    broker, other = voter_of(is_slow=True)
    dispatch.receive(broker, other, [[CLAIM, CLAIM_OF]])
    assert answers(broker) == []
    host_of(broker).writing.pop()()
    assert answers(broker) == [(7, GRANTED)]


def test_claims_of_one_turn_share_a_write():
    """Spec CL3."""
    broker, other = voter_of(is_slow=True)
    dispatch.receive(broker, other, [[CLAIM, CLAIM_OF, (8, 1, b"l", *CLAIM_OF[3:])]])
    claim_messages.settle(broker)
    assert len(host_of(broker).writing) == 1


def test_a_refusal_names_the_grant_that_runs_and_the_highest_fence():
    """Spec CL1."""
    broker, other = voter_of()
    dispatch.receive(broker, other, [[CLAIM, CLAIM_OF]])
    claim_messages.settle(broker)
    sent(broker)
    dispatch.receive(broker, other, [[CLAIM, (8, 1, b"k", b"another", 200, 5_000, 0, 0, 0)]])
    ((_, answer),) = sent_of(broker, CLAIM_IS)
    assert answer[:5] == (8, HELD, 100, b"holder", 100)


def test_a_claim_of_another_epoch_is_answered_with_the_list():
    """Spec CL4."""
    broker, other = voter_of()
    dispatch.receive(broker, other, [[CLAIM, (7, 9, *CLAIM_OF[2:])]])
    claim_messages.settle(broker)
    assert [kind for _, kind, _ in sent(broker)] == [CLAIM_IS, VOTERS]


def test_a_node_that_is_not_a_voter_grants_nothing():
    broker = make_broker()
    other = add_node(broker, 2)
    voting.learn(broker, VoterList(1, 60_000, {other.id: b"o" * 16}, is_first=True), None)
    dispatch.receive(broker, other, [[CLAIM, CLAIM_OF]])
    assert answers(broker) == [(7, MUTE)]


def test_two_lists_of_one_epoch_are_a_conflict():
    """Spec CL4."""
    broker, other = voter_of()
    second = VoterList(1, 60_000, {other.id: b"o" * 16}, is_first=True)
    dispatch.receive(broker, other, [[VOTERS, (second.packed(), None)]])
    dispatch.receive(broker, other, [[CLAIM, CLAIM_OF]])
    assert answers(broker) == [(7, MUTE)]


def test_a_full_disk_delays_the_answer_and_loses_nothing():
    broker, other = voter_of()
    host_of(broker).failures["write_votes"] = OSError(errno.ENOSPC, "No space left on device")
    dispatch.receive(broker, other, [[CLAIM, CLAIM_OF]])
    assert answers(broker) == []
    assert trouble(broker) == "No space left on device"
    host_of(broker).failures.clear()
    broker.now_ms += voting.RETRY_MS
    voting.step(broker)
    assert answers(broker) == [(7, GRANTED)]
    assert trouble(broker) == ""


@pytest.mark.parametrize(
    "item",
    [
        (7, 1, b"", b"h", 100, 5_000, 0, 0, 0),
        (7, 1, b"k", b"", 100, 5_000, 0, 0, 0),
        (7, 1, b"k", b"h", -1, 5_000, 0, 0, 0),
        (7, 1, b"k", b"h", 100, 0, 0, 0, 0),
        (7, 1, b"k" * 5_000, b"h", 100, 5_000, 0, 0, 0),
        (7, 1, b"k", b"h"),
    ],
)
def test_a_malformed_claim_closes_the_link(item):
    broker, other = voter_of()
    with pytest.raises(dispatch.MalformedMessageError):
        dispatch.receive(broker, other, [[CLAIM, item]])


def test_a_grant_survives_the_death_of_all_voters():
    """Spec CL3."""
    world = voters("abc")
    fence = acquire(world, "a", "one")[0]
    for name in "abc":
        world.crash(name)
    for name in "abc":
        world.restart(name)
    world.until(world.is_meshed, 30_000)
    assert acquire(world, "b", "two") is None
    assert acquire(world, "b", "one")[0] == fence


def test_a_voter_that_lost_its_file_is_mute_until_leases_are_over():
    """Spec CL6."""
    world = voters("abc")
    assert world.ask("a", "CLUSTER", "VOTERS", "LEASEMAX", 30) == b"OK"
    forget_votes(world, "c")
    world.until(world.is_meshed, 30_000)
    assert shown(world, "a")[b"mute"] == [id_of("c")]
    world.run(25_000)
    assert shown(world, "a")[b"mute"] == [id_of("c")]
    world.run(7_000)
    assert shown(world, "a")[b"mute"] == []


def test_a_voter_that_votes_again_is_shown_until_the_list_changes():
    """Spec CL6: it takes no part in the choice of the next list."""
    world = voters("abc")
    assert world.ask("a", "CLUSTER", "VOTERS", "LEASEMAX", 5) == b"OK"
    forget_votes(world, "c")
    world.run(10_000)
    for name in "abc":
        assert shown(world, name)[b"recovered"] == [id_of("c")]
    assert world.ask("a", "CLUSTER", "VOTERS", "LEASEMAX", 5) == b"OK"
    assert shown(world, "b")[b"recovered"] == []


def test_a_reset_node_is_a_voter_without_memory_if_it_comes_back():
    """Spec CL6."""
    world = voters("abc")
    assert world.ask("c", "CLUSTER", "RESET") == b"OK"
    world.meet("a", "c")
    world.until(world.is_meshed, 30_000)
    world.run(200)
    assert shown(world, "a")[b"mute"] == [id_of("c")]


def test_a_power_cut_in_a_write_makes_a_voter_mute():
    """Spec CL6: its end was repaired."""
    world = voters("abc")
    disk = world.machines["c"].votes_disk
    world.crash("c")
    disk.data += b"\0\0\0\7torn"
    world.restart("c")
    world.until(world.is_meshed, 30_000)
    assert shown(world, "a")[b"mute"] == [id_of("c")]


def test_lists_are_written_before_the_ballots_of_their_epoch():
    """Spec CL5: else a restart would forget the promise."""
    broker, _ = voter_of()
    for kind in (BALLOT, GRANT, LISTS):
        note_change(broker, kind, b"k" if kind == GRANT else b"")
    before = len(host_of(broker).votes_file)
    claim_messages.settle(broker)
    assert [kind for kind, _ in host_of(broker).votes_file[before:]][:2] == [LISTS, BALLOT]


def test_answers_to_a_process_that_is_gone_are_not_sent():
    broker, other = voter_of(is_slow=True)
    dispatch.receive(broker, other, [[CLAIM, CLAIM_OF]])
    claim_messages.settle(broker)
    other.run = b"next run"
    host_of(broker).writing.pop()()
    assert answers(broker) == []


def test_a_fence_far_ahead_of_the_clock_is_refused():
    """One clock that is wrong by centuries must not use up the fences of a key."""
    broker, other = voter_of()
    dispatch.receive(broker, other, [[CLAIM, (7, 1, b"k", b"h", 1 << 61, 5_000, 0, 0, 0)]])
    assert answers(broker) == [(7, NO_ROOM)]


def test_a_voter_that_cannot_write_says_so():
    broker, other = voter_of()
    broker.claims.trouble = "No space left on device"
    dispatch.receive(broker, other, [[CLAIM, CLAIM_OF]])
    assert answers(broker) == [(7, MUTE)]


def test_lists_of_two_clusters_are_a_conflict_on_disk_too():
    """Spec CL4."""
    broker, other = voter_of()
    second = VoterList(5, 60_000, {other.id: b"o" * 16}, is_first=True, origin=b"another!")
    dispatch.receive(broker, other, [[VOTERS, (second.packed(), None)]])
    claim_messages.settle(broker)
    assert not voting.may_vote(broker)
    lists = [value for kind, value in host_of(broker).votes_file if kind == LISTS]
    assert lists[-1][5]
    reset = VoterList(1_001, 60_000, {broker.me.id: voting.memory_id(broker)}, is_first=True, origin=b"another!")
    dispatch.receive(broker, other, [[VOTERS, (reset.packed(), None)]])
    assert voting.may_vote(broker)


def test_a_file_that_was_moved_away_is_written_anew():
    """Spec CL3, CL6: the process has its whole memory, so this voter is not mute after a restart."""
    broker, other = voter_of()
    dispatch.receive(broker, other, [[CLAIM, CLAIM_OF]])
    assert answers(broker) == [(7, GRANTED)]
    host = host_of(broker)
    host.votes_file = []
    host.failures["write_votes"] = FileNotFoundError(errno.ENOENT, "No such file or directory")
    sent(broker)
    dispatch.receive(broker, other, [[CLAIM, (8, 1, b"another", *CLAIM_OF[3:])]])
    assert answers(broker) == []
    host.failures.clear()
    broker.now_ms += voting.RETRY_MS
    voting.step(broker)
    assert answers(broker) == [(8, GRANTED)]
    again = make_broker()
    voting.start(again, host.votes_file, is_repaired=False)
    assert again.claims.memory.memory_id == broker.claims.memory.memory_id
    assert again.claims.memory.remembers
    assert sorted(again.claims.memory.grants.records) == [b"another", b"k"]


def test_a_node_that_leaves_its_cluster_forgets_whom_it_refused():
    broker, other = voter_of()
    dispatch.receive(broker, other, [[CLAIM, CLAIM_OF]])
    claim_messages.settle(broker)
    dispatch.receive(broker, other, [[CLAIM, (8, 1, b"k", b"another", 200, 5_000, 0, 0, 0)]])
    assert broker.claims.refused == {b"k": {other: None}}
    voting.forget_all(broker)
    assert not broker.claims.refused
