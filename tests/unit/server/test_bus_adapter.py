"""server/bus_adapter.py: passes reports of the bus to the driver."""

from __future__ import annotations

import asyncio

import pytest

from brokers import add_node
from cluster_bus import messages
from cluster_bus.codec import FrameError
from cluster_bus.handshake import Hello
from cluster_bus.node import HANDSHAKE
from disque_py.config.kinds import Seed
from disque_py.server import bus_adapter
from disque_py.server.bus_adapter import BusAdapter
from disque_py.server.start_error import StartError
from shells import make_shell, wire_of

OTHER = Hello(b"o" * 20, b"o" * 8, "", 7711, 17711, "0.1.0")


def in_loop(test, *seeds, **settings):
    """Run `await test(adapter, turns)` on a loop."""

    async def main():
        turns = make_shell(**settings)
        await test(BusAdapter(turns, turns.driver.membership, seeds), turns)
        turns.stop()

    asyncio.run(main())


async def turn_over(turns):
    """Let the current turn end. On a busy machine, a timer may have begun another one by then."""
    for _ in range(10):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if not turns.driver.is_open:
            return


def test_each_report_is_a_turn():
    async def test(adapter, turns):
        node = add_node(turns.driver.broker, 2)
        for report in (
            lambda: adapter.on_link_down(node),
            lambda: adapter.on_accept(OTHER, "127.0.0.1", "127.0.0.1"),
            lambda: adapter.on_stranger_gone(OTHER, "127.0.0.1"),
            lambda: adapter.on_incoming_lost(node),
            lambda: adapter.on_runs(node, []),
        ):
            report()
            assert turns.driver.is_open
            await turn_over(turns)
            assert not turns.driver.is_open
        assert turns.driver.turns >= 5  # The clock may cause further ones.

    in_loop(test)


def test_job_messages_reach_the_broker():
    async def test(adapter, turns):
        broker = turns.driver.broker
        node = add_node(broker, 2)
        adapter.on_runs(node, [[messages.INTEREST, [b"q", 3]]])
        assert broker.consumers.interest[b"q"] == {node: 3}

    in_loop(test)


def test_a_malformed_message_closes_the_link_and_is_counted_by_the_bus():
    async def test(adapter, turns):
        node = add_node(turns.driver.broker, 2)
        with pytest.raises(FrameError) as caught:
            adapter.on_runs(node, [[messages.GOTJOB, 17]])
        assert caught.value.reason == "malformed message"

    in_loop(test)


def test_the_interest_of_a_node_ends_with_its_link():
    async def test(adapter, turns):
        broker = turns.driver.broker
        node = add_node(broker, 2)
        adapter.on_runs(node, [[messages.INTEREST, [b"q", 3]]])
        adapter.on_incoming_lost(node)
        assert not broker.consumers.interest.get(b"q")

    in_loop(test)


def test_seeds_are_met_again_until_each_was_reached_once(monkeypatch):
    monkeypatch.setattr(bus_adapter, "SEED_SECONDS", 0.01)

    async def test(adapter, turns):
        adapter.meet_seeds()
        await turn_over(turns)
        first, second = wire_of(turns).dialed
        assert [(node.host, node.port, node.bus_port) for node in (first, second)] == [
            ("10.0.0.1", 7711, 17711),
            ("10.0.0.2", 7712, 5),
        ]
        assert adapter.on_link_up(first, OTHER, "10.0.0.1", "10.0.0.9") is not None
        assert list(adapter.seeds) == [("10.0.0.2", 7712)]
        turns.driver.membership.admission.expel(second)  # As after a handshake that took too long.
        await asyncio.sleep(0.05)
        assert len(wire_of(turns).dialed) == 3

    in_loop(test, Seed("10.0.0.1", 7711, 0), Seed("10.0.0.2", 7712, 5))


def test_a_seed_that_is_the_node_itself_counts_as_reached():
    async def test(adapter, turns):
        adapter.meet_seeds()
        await turn_over(turns)
        (found,) = wire_of(turns).dialed
        assert found.flags & HANDSHAKE
        assert adapter.on_link_up(found, adapter.hello(), "127.0.0.1", "127.0.0.1") is None
        assert not adapter.seeds

    in_loop(test, Seed("127.0.0.1", 7711, 0))


def test_a_node_that_stops_meets_no_more_seeds():
    async def test(adapter, turns):
        turns.stop()
        adapter.meet_seeds()
        assert turns.driver.turns == 0

    in_loop(test, Seed("10.0.0.1", 7711, 0))


def test_a_seed_without_a_possible_bus_port_is_refused():
    async def test(adapter, turns):
        with pytest.raises(StartError, match=r"10\.0\.0\.1:60000 needs a bus port"):
            BusAdapter(turns, turns.driver.membership, [Seed("10.0.0.1", 60000, 0)])

    in_loop(test)
