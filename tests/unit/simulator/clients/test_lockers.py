"""simulator/clients/lockers.py: owners of locks, and the operator of the voters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from disque_py.client.errors import ReplyError
from disque_py.core import electing
from disque_py.simulator.checks.locks import LockBook
from disque_py.simulator.clients.lockers import Locker, VoterKeeper
from disque_py.simulator.oracle import RuleBrokenError
from disque_py.simulator.plan import ClientPlan
from disque_py.simulator.simulation import Simulation, simulate
from simulated import small_plan


def test_lockers_take_locks_while_the_voters_change():
    """Spec CL5, CL8."""
    simulation = Simulation(small_plan(3, weather="fair", duration_ms=1, clients=()))
    simulation.world.join(30_000)
    book = LockBook()
    actors = [VoterKeeper(simulation.world, simulation.oracle, simulation.plan, ClientPlan(0, "voter keeper"))]
    for number in (1, 2, 3):
        locker = Locker(simulation.world, simulation.oracle, simulation.plan, ClientPlan(number, "locker"))
        locker.book = book
        actors.append(locker)
    for actor in actors:
        actor.begin()
    simulation.world.run(20_000)
    assert sum(len(answered) for answered in book.answered.values()) > 20
    assert simulation.world["a"].claims.memory.list.epoch > 2


@pytest.mark.parametrize("weather", ["fair", "kills", "halves", "pauses", "power", "stale"])
def test_locks_keep_their_rules_in_all_weathers(weather):
    clients = (ClientPlan(0, "voter keeper"), *[ClientPlan(number, "locker") for number in range(1, 5)])
    result = simulate(replace(small_plan(5, weather=weather, duration_ms=8_000), clients=clients))
    assert result.failure is None


def test_a_reply_of_a_wrong_shape_breaks_a_rule():
    simulation = Simulation(small_plan(3, weather="fair", duration_ms=1, clients=()))
    locker = Locker(simulation.world, simulation.oracle, simulation.plan, ClientPlan(1, "locker"))
    with pytest.raises(RuleBrokenError):
        locker._acquired(b"OK", ("l", "one", 0, 100, 0))


def test_a_change_of_voters_has_the_time_that_its_votes_take():
    """The liveness phase waits for the reply so long (seed 3906): two votes per ballot, then the list takes effect."""
    simulation = Simulation(small_plan(3, weather="fair", duration_ms=1, clients=()))
    simulation.world.join(30_000)
    keeper = VoterKeeper(simulation.world, simulation.oracle, simulation.plan, ClientPlan(0, "voter keeper"))
    keeper.begin()
    simulation.world.run(500)
    assert keeper.line is not None
    assert keeper.line.slowest_ms > 2 * electing.BALLOTS_MAX * electing.VOTE_MS + electing.EFFECT_MS


def test_every_init_has_the_same_list_until_a_node_of_it_is_unknown():
    """Seed 10067: the first INIT succeeded on a node that died before its reply, and the next one made another list."""
    simulation = Simulation(small_plan(3, weather="fair", duration_ms=1, clients=()))
    keeper = VoterKeeper(simulation.world, simulation.oracle, simulation.plan, ClientPlan(0, "voter keeper"))
    first = keeper._words()
    simulation.world.machines["a"].die(power=False)
    assert keeper._words() == first
    keeper._answered(ReplyError("UNREACHABLE a"), None)
    assert keeper._words() == first
    keeper._answered(ReplyError("ERR Unknown node a"), None)
    assert simulation.world.machines["a"].membership.table.me.id.hex().encode() not in keeper._words()
