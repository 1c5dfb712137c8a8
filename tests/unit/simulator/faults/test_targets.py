"""Targets: the nodes that faults may strike, and operators."""

from __future__ import annotations

from simulated import weathered


def test_a_stopped_node_is_up_and_not_awake():
    """A stopped process lives."""
    weather = weathered("abc")
    weather.world.crash("a")
    weather.world.pause("b")
    assert [machine.name for machine in weather.targets.up()] == ["b", "c"]
    assert [machine.name for machine in weather.targets.awake()] == ["c"]


def test_an_operator_speaks_to_all_nodes_that_are_up_and_leaves():
    """It closes its connections."""
    weather = weathered("abc")
    weather.world.crash("a")
    weather.targets.ask_all("PAUSE", "q", "in")
    weather.world.run(10)
    assert [weather.world[name].pauses.paused_count for name in "bc"] == [1, 1]
    assert not weather.world.connections


def test_a_node_that_reads_its_journal_is_told_later():
    """It would refuse the command now."""
    weather = weathered("abc")
    world = weather.world
    gone = world.machines["c"]
    world.crash("c")
    weather.targets.gone["c"] = gone.node_id
    world.crash("a")
    world.restart("a")
    assert world["a"].is_loading
    weather.targets.tell_gone(world.machines["a"])
    world.run(2_000)
    assert world["a"].cluster.find(gone.node_id) is None


def test_an_operator_says_meet_once_for_each_pair_of_nodes_that_was_torn_apart():
    """FORGET tears a pair apart, and the nodes do not find each other by themselves."""
    weather = weathered("ab")
    world = weather.world
    weather.targets.tear(world.machines["a"], "b", "was told to forget it")
    weather.targets.forget_on(world.machines["a"], world.machines["b"].node_id)
    world.run(1_000)
    assert not world.is_meshed()
    weather.targets.meet_torn()
    world.run(1_000)
    assert world.is_meshed()


def test_ids_that_no_node_has_are_found():
    """A node that was reset and died before an operator could tell the others."""
    weather = weathered("ab")
    weather.targets.called = {b"a former id": None, weather.world.machines["a"].node_id: None}
    weather.targets.find_gone()
    weather.targets.find_gone()
    assert list(weather.targets.gone.values()) == [b"a former id"]


def test_an_operator_ends_a_pause_at_the_same_node_when_it_is_up():
    """An operator ends only pauses that it began."""
    weather = weathered("ab")
    world, targets = weather.world, weather.targets
    paused = targets.pause(world.machines["a"], b"q", "all", ("bcast",))
    targets.pause(world.machines["b"], b"other", "in", ())
    world.run(50)
    world.crash("a")
    targets.end_pause(paused)
    world.run(100)
    assert not paused.is_ended
    assert world["b"].pauses.paused_count == 2
    world.restart("a")
    world.run(2_000)
    assert paused.is_ended
    assert [world[name].pauses.paused_count for name in "ab"] == [0, 1]


def test_an_operator_ends_a_pause_at_another_node_if_the_first_has_forgotten_it():
    """If the wall clock was set back, the node's command would be older than the pause."""
    weather = weathered("ab")
    world, targets = weather.world, weather.targets
    a = world.machines["a"]
    paused = targets.pause(a, b"q", "all", ("bcast",))
    world.run(50)
    targets.flushed["a"] = a.runs
    targets.end_pause(paused)
    world.run(50)
    assert paused.may_last()
    assert [world[name].pauses.versions[b"q"][2] for name in "ab"] == [world.machines["b"].node_id] * 2


def test_an_operator_says_meet_when_both_nodes_are_up_and_not_again():
    """A MEET without faults must be enough."""
    weather = weathered("ab")
    world, targets = weather.world, weather.targets
    targets.tear(world.machines["a"], "b", "was told to forget it")
    targets.forget_on(world.machines["a"], world.machines["b"].node_id)
    world.crash("b")
    weather.end()
    targets.meet(world.machines["a"], "b")
    world.run(5_000)
    assert not targets.met
    world.restart("b")
    world.run(2_000)
    assert list(targets.met) == [("a", "b")]
    assert world.is_meshed()
