"""The faults that operators cause."""

from __future__ import annotations

from disque_py.simulator.clients.connection import words
from simulated import ask, asker, strike, weathered


def test_a_leaver_that_is_empty_is_gone_and_forgotten():
    """No table has its name any more, not even on nodes that come back."""
    weather = weathered()
    world = weather.world
    strike(weather, "leave", span_ms=1_000, picks=(0, 1, 0, 0))
    world.run(1_500)
    assert list(weather.targets.gone) == ["a"]
    world.crash("b")
    weather.targets.rise(world.machines["b"])
    world.until(world.is_meshed, 10_000)
    world.run(1_000)
    assert all(len(world[name].cluster.nodes) == 3 for name in "bcd")


def test_a_node_that_was_reset_hard_has_another_id():
    """The other nodes are told to forget its former id."""
    weather = weathered("ab")
    world = weather.world
    before = world.machines["a"].node_id
    strike(weather, "reset", picks=(0, 0, 0, 0))
    world.run(300)
    world.until(world.is_meshed, 10_000)
    assert world.machines["a"].node_id != before
    assert world["b"].cluster.find(before) is None


def test_a_flush_is_a_loss_of_everything_there():
    """It is reported before it happens."""
    weather = weathered("a")
    job_id = ask(weather.world, "a", "ADDJOB", "q0", "x", 0, "RETRY", 0)
    strike(weather, "flush", picks=(0, 0, 0, 0))
    assert job_id in weather.targets.oracle.explained
    assert weather.world["a"].job_count == 0


def test_a_reset_that_waits_for_the_journal_costs_the_jobs_that_came_before_it():
    """A producer was served before, in the turn in which the journal was read."""
    weather = weathered("ab")
    world, losses = weather.world, weather.targets.losses
    world.crash("a")
    world.restart("a")
    producer = asker(world, "a")
    producer.send([words("ADDJOB", "q0", "x", 0, "REPLICATE", 1)])
    promise = weather.targets.oracle.add(b"q0", 1, 1_000, 60_000, 1, world.now_ms)
    strike(weather, "reset", picks=(0, 1, 0, 0))
    assert world["a"].is_loading
    world.until(lambda: bool(producer.replies), 5_000)
    weather.targets.oracle.answered(promise, producer.replies[0], world.now_ms)
    assert world["a"].find(promise.id) is None
    assert losses.of(promise) == 1


def test_a_pause_ends():
    """The pause is on one node or everywhere."""
    weather = weathered("ab")
    strike(weather, "pause", picks=(0, 0, 2, 1))
    weather.world.run(50)
    assert [weather.world[name].queues[b"q0"].paused for name in "ab"] == [3, 3]
    weather.world.run(300)
    assert not any(weather.world[name].pauses.paused_count for name in "ab")


def test_a_node_that_was_reset_twice_in_a_row_is_forgotten_under_every_id():
    """This includes an id that was replaced before the end of any fault."""
    weather = weathered("abc")
    for _ in range(2):
        strike(weather, "reset", picks=(0, 0, 0, 0))
        between = weather.world.machines["a"].membership.table.me.id
    weather.world.run(300)
    weather.world.until(weather.world.is_meshed, 10_000)
    weather.targets.find_gone()
    assert set(weather.targets.called) <= set(weather.targets.gone.values())
    assert between not in weather.targets.gone.values()
    assert len(weather.targets.called) == 2


def test_a_queue_is_paused_where_a_claim_of_it_is_under_way():
    weather = weathered("ab")
    world = weather.world
    voter = world.machines["a"].membership.table.me.id.hex()
    assert ask(world, "a", "CLUSTER", "VOTERS", "INIT", voter) == b"OK"
    assert ask(world, "b", "QUEUE", "SET", "x1", "assign", "quorum") == b"OK"
    ask(world, "b", "ADDJOB", "x1", "body", 0, "RETRY", 5, "REPLICATE", 1)
    asker(world, "b").send([words("GETJOB", "FROM", "x1")])
    strike(weather, "pause-claims", picks=(0, 0, 1, 0))
    assert weather.done == ["0: pause x1 out on b"]
    assert world.machines["b"].broker.queues[b"x1"].paused
