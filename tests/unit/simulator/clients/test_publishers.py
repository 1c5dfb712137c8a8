"""simulator/clients/publishers.py: the rule for publications, and a defect that breaks it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from disque_py.core import replication
from disque_py.core.fanout import Plan
from disque_py.simulator.clients.publishers import ALL_OR_NOTHING
from disque_py.simulator.oracle import RuleBrokenError
from disque_py.simulator.plan import ClientPlan, draw
from disque_py.simulator.simulation import Simulation

KINDS = ("publisher", "publisher", "consumer", "consumer", "pattern consumer")
CLIENTS = tuple(ClientPlan(number, kind) for number, kind in enumerate(KINDS))
PLAN = replace(
    draw(1, 3_000), nodes=3, weather=(), clients=CLIENTS, faults=(), load=1.0, delay_ms=(5, 40), queues=3, is_long=False
)


def run() -> Simulation:
    simulation = Simulation(PLAN)
    simulation.play()
    return simulation


def test_publications_reach_all_queues():
    """Spec TP8, TP9."""
    simulation = run()
    assert sum(1 for promise in simulation.oracle.promises if promise.origin is not None and promise.delivered) > 30


@pytest.mark.plain
def test_jobs_that_are_queued_one_by_one_are_found(monkeypatch):
    def early(broker, job, work, finish=replication.finish_creation):
        fan = broker.producers.fans.pop(job, None)
        finish(broker, job, work)
        if fan is not None:
            broker.producers.fans_due[fan] = None

    monkeypatch.setattr(replication, "finish_creation", early)
    monkeypatch.setattr(Plan, "is_usual", False)  # Jobs of one publication get their copies together.
    with pytest.raises(RuleBrokenError, match=ALL_OR_NOTHING):
        run()
