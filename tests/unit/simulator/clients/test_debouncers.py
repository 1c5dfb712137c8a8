"""simulator/clients/debouncers.py: the rules for windows and replacements, and defects that break them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from disque_py.core import replacing, windows
from disque_py.simulator.clients.debouncers import ONE_PER_WINDOW
from disque_py.simulator.oracle import RuleBrokenError
from disque_py.simulator.plan import ClientPlan, draw
from disque_py.simulator.simulation import Simulation

KINDS = ("debouncer", "debouncer", "consumer", "consumer")
CLIENTS = tuple(ClientPlan(number, kind) for number, kind in enumerate(KINDS))
PLAN = replace(
    draw(1, 8_000), nodes=3, weather=(), clients=CLIENTS, faults=(), load=1.0, delay_ms=(1, 5), queues=2, is_long=False
)


def run() -> Simulation:
    simulation = Simulation(PLAN)
    simulation.play()
    return simulation


def test_jobs_are_replaced_and_windows_kept():
    """Spec TP5, TP6."""
    simulation = run()
    promises = simulation.oracle.promises
    assert sum(1 for promise in promises if promise.replaced_ms) > 3
    assert sum(1 for promise in promises if promise.delivered) > 3


@pytest.mark.plain
def test_a_replaced_job_that_stays_is_found(monkeypatch):
    monkeypatch.setattr(replacing, "_cancel", lambda broker, old, new, is_news: None)
    with pytest.raises(RuleBrokenError, match="REPLACE leaves one job"):
        run()


@pytest.mark.plain
def test_a_window_that_ends_at_once_is_found(monkeypatch):
    monkeypatch.setattr(windows, "number_of", lambda ttl_ms, window_ms: 1 + ttl_ms)
    with pytest.raises(RuleBrokenError, match=ONE_PER_WINDOW):
        run()
