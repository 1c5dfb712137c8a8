"""Workload: clients report their replies to the oracle, and go on when connections break."""

from __future__ import annotations

from dataclasses import replace

import pytest

from disque_py.simulator.clients.connection import words
from disque_py.simulator.clients.kinds import KINDS
from disque_py.simulator.clients.workload import Line
from disque_py.simulator.oracle import Oracle, RuleBrokenError
from disque_py.simulator.plan import ClientPlan
from simulated import joined, small_plan


@pytest.fixture
def world():
    return joined("ab")


@pytest.fixture
def plan():
    return small_plan(3, nodes=2)


def actor(kind, world, plan, oracle):
    return KINDS[kind](world, oracle, plan, ClientPlan(0, kind))


def test_producers_add_and_consumers_acknowledge(world, plan):
    """Jobs are delivered with their own bodies, and most of them acknowledged."""
    oracle = Oracle()
    for kind in ("producer", "consumer", "consumer"):
        actor(kind, world, plan, oracle).begin()
    world.run(3_000)
    assert oracle.added > 10
    assert oracle.delivered > 10
    assert oracle.acked > 5


def test_a_client_goes_elsewhere_when_its_node_dies(world, plan):
    """Its open requests get no reply."""
    oracle = Oracle()
    producer = actor("producer", world, plan, oracle)
    producer.begin()
    world.run(3_000)
    assert producer.line is not None
    dead = producer.line.machine
    dead.die()
    added = oracle.added
    world.run(10_000)
    assert producer.line.machine is not dead
    assert oracle.added > added


def test_inspectors_get_answers_to_everything_they_ask(world, plan):
    """An odd error would be a broken rule."""
    oracle = Oracle()
    for kind in ("producer", "inspector"):
        actor(kind, world, plan, oracle).begin()
    world.run(5_000)
    assert oracle.added


def test_an_error_no_client_expects_breaks_a_rule(world, plan):
    """Nodes may only reply with errors that the documentation names."""
    inspector = actor("inspector", world, plan, Oracle())
    line = Line(world, inspector)
    world.connect(world.machines["a"], line)
    with pytest.raises(RuleBrokenError, match="no odd errors"):
        line.ask([(words("NOSUCHCOMMAND"), inspector.nothing, "nonsense")], 0)


def test_a_reply_without_a_request_breaks_a_rule(world, plan):
    """Each request has exactly one reply."""
    line = Line(world, actor("inspector", world, plan, Oracle()))
    world.connect(world.machines["a"], line)
    with pytest.raises(RuleBrokenError, match="one answer"):
        line.send([words("PING")])


def test_a_simulated_client_stops_when_it_is_told_to(world, plan):
    """Connections stay until the end."""
    oracle = Oracle()
    producer = actor("producer", world, plan, oracle)
    producer.begin()
    world.run(300)
    producer.end()
    world.run(100)
    count = len(oracle.promises)
    world.run(500)
    assert len(oracle.promises) == count


def test_an_unread_reply_is_not_a_delivery(world, plan):
    """The node believes in a delivery, but no client got the job. An at-most-once job may be lost or come again."""
    oracle = Oracle()
    consumer = actor("consumer", world, plan, oracle)
    line = Line(world, consumer)
    world.connect(world.machines["a"], line)
    world.machines["a"].stop()
    line.ask([(words("GETJOB", "FROM", "q"), consumer._got, line)], 0)
    line.on_unseen([[b"q", b"some id", b"0 body"]])
    assert oracle.explained == {b"some id": None}
    assert oracle.delivered == line.outstanding == 0


def test_producers_and_consumers_may_use_different_nodes(world, plan):
    """Producers use every other node, consumers the nodes between. A single node serves all."""
    apart = replace(plan, is_apart=True)
    actors = {kind: actor(kind, world, apart, Oracle()) for kind in ("producer", "consumer")}
    assert {kind: {each.pick().name for _ in range(9)} for kind, each in actors.items()} == {
        "producer": {"a"},
        "consumer": {"b"},
    }
    assert {actors["consumer"].pick(anywhere=True).name for _ in range(30)} == {"a", "b"}
    world.machines["b"].die()
    assert actors["consumer"].pick().name == "a"


def test_a_line_knows_for_how_many_copies_its_requests_wait(world, plan):
    """This includes a publication, which makes a job for each queue."""
    oracle = Oracle()
    line = Line(world, actor("producer", world, plan, oracle))
    world.connect(world.machines["a"], line)
    one, three = (oracle.add(b"q", 8, 1_000, 60_000, copies, world.now_ms) for copies in (1, 3))
    for about, copies in (("others", 0), (one, 1), ([one, three], 3)):
        line.ask([(words("PING"), lambda reply, about: None, about)], 1)
        assert line.most_copies() == copies
