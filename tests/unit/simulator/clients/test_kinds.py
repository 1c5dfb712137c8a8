"""The clients of a plan are started by the names of their kinds."""

from __future__ import annotations

from disque_py.simulator.checks.cluster_invariants import Losses
from disque_py.simulator.clients.kinds import KINDS, start_clients
from disque_py.simulator.oracle import Oracle
from disque_py.simulator.plan import draw
from simulated import joined


def test_all_clients_of_a_plan_are_started():
    """They start in the order of their numbers."""
    plan = draw(3, 500)
    world = joined("ab")
    oracle = Oracle()
    assert [type(each) for each in start_clients(world, oracle, plan, Losses(oracle))] == [
        KINDS[client.kind] for client in plan.clients
    ]


def test_plans_name_no_other_kinds():
    """Fifty seeds have all kinds."""
    kinds = {client.kind for seed in range(50) for client in draw(seed, 500).clients}
    assert kinds == set(KINDS)
