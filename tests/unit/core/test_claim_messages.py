"""core/claim_messages.py: the messages of claims, and the end of a turn for them."""

from __future__ import annotations

from brokers import host_of, make_broker
from disque_py.core import claim_messages, claiming, voting
from disque_py.core.claiming import WantedClaim
from disque_py.core.grants import GRANTED
from disque_py.core.voter_list import VoterList
from disque_py.node import dispatch


def test_a_single_voter_grants_its_own_claims_within_a_turn():
    """Spec CL3: with one write before the answer."""
    broker = make_broker()
    voting.learn(broker, VoterList(1, 60_000, {broker.me.id: voting.memory_id(broker)}, is_first=True), None)
    results = []
    claiming.claim(broker, WantedClaim(b"k", b"h", 1_000), results.append)
    assert results == []
    dispatch.settle(broker)
    assert results[0].outcome == GRANTED
    assert any(kind == 3 for kind, _ in host_of(broker).votes_file)


def test_a_turn_without_claims_writes_nothing():
    broker = make_broker()
    dispatch.settle(broker)
    assert host_of(broker).votes_file == []


def test_idle_keys_are_forgotten_on_disk_too():
    """Spec CL10."""
    broker = make_broker()
    broker.claims.memory.grants.put((b"k", b"h", 5, 0, 5, 0, 0, 0, 0, False, False), broker.now_ms)
    broker.now_ms += 61_000
    claim_messages.step(broker)
    dispatch.settle(broker)
    assert (4, b"k") in host_of(broker).votes_file
    assert (5, 5) in host_of(broker).votes_file
