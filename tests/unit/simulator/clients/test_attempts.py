"""Limited producers and quitters: jobs with few attempts, and all ways to give up on them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from disque_py.core import events
from disque_py.event_format import CANCELED_EVENT, ERRORED_EVENT
from disque_py.simulator.checks.event_audit import check_ends
from disque_py.simulator.oracle import Oracle, RuleBrokenError
from disque_py.simulator.plan import ClientPlan, draw
from disque_py.simulator.simulation import Simulation, simulate

NODE = b"a" * 20


def plan_of(seed=4, seconds=4):
    """Return a plan without faults, with both kinds of clients."""
    plan = draw(seed, seconds * 1000, weather="fair")
    clients = (ClientPlan(0, "limited producer"), ClientPlan(1, "quitter"), ClientPlan(2, "quitter"))
    return replace(plan, clients=clients, faults=(), has_events=True, events_bytes=1 << 30, load=1.0, is_long=False)


def test_jobs_of_few_attempts_keep_their_rules():
    """Spec Y4, Y8. All kinds of ends occur."""
    simulation = Simulation(plan_of())
    simulation.play()
    machines = simulation.world.machines.values()
    for counter in ("jobs_errored", "jobs_canceled", "jobs_nacked", "jobs_acked"):
        assert sum(machine.count(counter) for machine in machines) > 0, counter
    assert any(promise.limit == 2 and promise.delivered == 2 for promise in simulation.oracle.promises)


def test_a_nack_of_a_delivery_that_was_not_heard_of_ends_a_job_once():
    """The holder that gets the NACK notes an error just after the delivering node has noted another one. Spec Y3."""
    assert simulate(plan_of(3)).failure is None


@pytest.mark.plain
def test_attempts_that_are_not_counted_break_a_rule(monkeypatch):
    """Spec Y4."""
    monkeypatch.setattr("disque_py.core.changeable.Changeable.is_spent", lambda self, attempt: False)
    failure = simulate(plan_of()).failure
    assert failure is not None
    assert failure.rule == "attempts are bounded"


@pytest.mark.plain
def test_a_cancellation_that_each_holder_notes_breaks_a_rule(monkeypatch):
    """Spec Y8."""
    learn = events.learn

    def learn_and_note(broker, job, status):
        if status == events.CANCELED:
            events.canceled(broker, job)
        else:
            learn(broker, job, status)

    monkeypatch.setattr(events, "learn", learn_and_note)
    failure = simulate(plan_of()).failure
    assert failure is not None
    assert failure.rule == "a job ends once"


@pytest.mark.parametrize("code", [CANCELED_EVENT, ERRORED_EVENT])
def test_a_job_ends_once(code):
    """Two requests may both be first. Spec Y4, Y8."""
    promise = Oracle().add(b"q", 20, 1_000, 3_600_000, 1, 1)
    promise.cancels = promise.nacks = 1
    history = [(code, 3, NODE, 1), (code, 3, b"b" * 20, 1)]
    check_ends(promise, history)
    with pytest.raises(RuleBrokenError, match="a job ends once"):
        check_ends(promise, [*history, (code, 4, NODE, 2)])
