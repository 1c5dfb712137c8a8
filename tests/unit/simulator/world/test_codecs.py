"""Versions of the bus protocol in one cluster."""

from __future__ import annotations

import pytest

from cluster_bus.codec import Decoder, encode_run, frame
from cluster_bus.messages import GOTJOB, HINT, LEASED, NOWAIT, PING, QUEUED
from disque_py.simulator.world.codecs import NEW, NEW_FIELD, OLD, PREVIOUS, renewed
from disque_py.simulator.world.world import World
from simulated import ask


def test_the_new_version_sends_one_more_field_of_each_job():
    """Items with positions get another one. Heartbeats, bare ids and lists of ids stay the same."""
    data = frame(NEW, [encode_run(QUEUED, [(b"id", 1, 2)]), encode_run(GOTJOB, [b"id"]), encode_run(PING, [[{}, []]])])
    [runs] = Decoder(versions=(NEW, NEW)).feed(renewed(data))
    assert runs == [[QUEUED, [b"id", 1, 2, NEW_FIELD]], [GOTJOB, b"id"], [PING, [{}, []]]]
    [runs] = Decoder(versions=(NEW, NEW)).feed(renewed(frame(NEW, [encode_run(NOWAIT, [[b"id"]])])))
    assert runs == [[NOWAIT, [b"id"]]]


def test_an_item_without_its_last_positions_gets_no_new_one():
    """It would be read as a missing one, such as the number of jobs in a HINT, or the claim of a delivery."""
    data = frame(NEW, [encode_run(HINT, [(b"q", 1, 2, 3), (b"q", 1, 2, 3, 4)]), encode_run(LEASED, [(b"id", 1, 2)])])
    [runs] = Decoder(versions=(NEW, NEW)).feed(renewed(data))
    assert runs == [[HINT, [b"q", 1, 2, 3], [b"q", 1, 2, 3, 4, NEW_FIELD]], [LEASED, [b"id", 1, 2]]]


@pytest.mark.parametrize(("older", "newer"), [(PREVIOUS, OLD), (OLD, NEW), (PREVIOUS, NEW)])
def test_nodes_of_both_versions_work_together(older, newer):
    """Two nodes that know the new version use it, all others the old one. Jobs travel and are collected."""
    world = World("")
    for name, version in (("a", older), ("b", newer), ("c", newer)):
        world.add(name, version=version)
    world.join()
    spoken = {
        (machine.name, node.host): node.protocol
        for machine in world.machines.values()
        for node in machine.membership.table.linked
    }
    assert {pair for pair, version in spoken.items() if version == newer} == {("b", "c"), ("c", "b")}
    job_id = ask(world, "b", "ADDJOB", "q", "x", 0, "REPLICATE", 3, "RETRY", 1)
    assert ask(world, "a", "GETJOB", "TIMEOUT", 500, "FROM", "q") == [[b"q", job_id, b"x"]]
    assert ask(world, "c", "ACKJOB", job_id) == 1
    world.run(3_000)
    assert [machine.broker.job_count for machine in world.running()] == [0, 0, 0]
