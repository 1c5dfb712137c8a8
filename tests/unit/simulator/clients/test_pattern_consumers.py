"""simulator/clients/pattern_consumers.py: the rule for queues by pattern, and a defect that breaks it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from disque_py.core.patterns import PatternGroup
from disque_py.simulator.clients.pattern_consumers import MATCHES
from disque_py.simulator.oracle import RuleBrokenError
from disque_py.simulator.plan import ClientPlan, draw
from disque_py.simulator.simulation import Simulation

KINDS = ("producer", "keyed producer", "pattern consumer", "pattern consumer")
CLIENTS = tuple(ClientPlan(number, kind) for number, kind in enumerate(KINDS))
PLAN = replace(
    draw(1, 3_000), nodes=3, weather=(), clients=CLIENTS, faults=(), load=1.0, queues=12, is_apart=True, is_long=False
)


def test_pattern_consumers_get_jobs_of_other_nodes():
    """Spec TP1, TP3."""
    simulation = Simulation(PLAN)
    simulation.play()
    assert simulation.oracle.delivered > 30


@pytest.mark.plain
def test_a_queue_that_does_not_match_is_found(monkeypatch):
    monkeypatch.setattr(PatternGroup, "takes", lambda group, name: True)
    with pytest.raises(RuleBrokenError, match=MATCHES):
        Simulation(PLAN).play()
