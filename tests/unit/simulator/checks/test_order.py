"""Order: worse jobs don't overtake better jobs of other nodes for long (spec F8)."""

from __future__ import annotations

import pytest

from cluster_bus.messages import HINT
from disque_py.simulator.checks.order import OVERTAKEN_MAX, OrderChecker, play
from disque_py.simulator.oracle import RuleBrokenError
from simulated import ask, joined

RULE = "better jobs are not overtaken for long"


def test_urgent_jobs_of_one_node_come_before_the_jobs_of_others(simulation):
    checker = play(simulation)
    assert checker is not None
    assert 0 < checker.most <= OVERTAKEN_MAX


def test_nodes_that_hear_of_no_better_job_break_the_rule(simulation):
    """The defect: hints are lost."""
    simulation.world.traffic.filter = lambda sender, receiver, kind, item: kind == HINT
    with pytest.raises(RuleBrokenError, match=RULE):
        play(simulation)


def test_jobs_that_wait_for_less_than_a_second_do_not_count():
    world = joined("ab")
    better = ask(world, "a", "ADDJOB", "q0", "x", 0, "REPLICATE", 1, "PRIORITY", 1)
    worse = [ask(world, "b", "ADDJOB", "q0", "x", 0, "REPLICATE", 1, "PRIORITY", 2) for _ in range(100)]
    checker = OrderChecker(world)
    checker.look()
    for job_id in worse:
        checker.delivered(world.machines["b"], job_id)
    assert checker.most == 0
    assert better in checker.ready


def test_jobs_that_a_cap_holds_back_do_not_count():
    world = joined("ab")
    ask(world, "a", "QUEUE", "SET", "q0", "rate", "1/60")
    ask(world, "a", "ADDJOB", "q0", "x", 0, "REPLICATE", 1, "PRIORITY", 1)
    checker = OrderChecker(world)
    checker.look()
    assert not checker.ready
