"""Movers: odd replies break a rule, and so does a job that moves more often than there were commands."""

from __future__ import annotations

import pytest

from disque_py.event_format import MOVED
from disque_py.simulator.checks.event_audit import check_ends
from disque_py.simulator.clients.connection import words
from disque_py.simulator.clients.movers import Mover
from disque_py.simulator.oracle import RuleBrokenError
from disque_py.simulator.plan import ClientPlan


def mover_of(simulation):
    return Mover(simulation.world, simulation.oracle, simulation.plan, ClientPlan(0, "mover"))


def test_a_mover_is_answered_in_good_weather(simulation):
    mover = mover_of(simulation)
    mover.begin()
    simulation.world.run(20_000)
    mover.end()
    simulation.world.run(8_000)
    assert simulation.oracle.promises
    assert not any(machine.broker.tasks.shares for machine in simulation.world.running())


@pytest.mark.parametrize(
    ("request_words", "reply"),
    [
        (("PROMOTE", "i"), 2),
        (("RESCHEDULE", "i", "DELAY", 0), 7),
        (("MOVEJOB", "i", "TO", "q"), 2),
        (("QPURGE", "q"), [b"jobs", -1, b"failed", 0, b"nodes-missing", []]),
        (("QMOVE", "q", "r"), [b"jobs", 1, b"failed", 0, b"nodes-missing", [b"a", b"a"]]),
        (("QPURGE", "q"), ValueError("ERR odd")),
    ],
)
def test_an_odd_reply_breaks_the_rule(simulation, request_words, reply):
    with pytest.raises(RuleBrokenError, match="operators are answered"):
        mover_of(simulation)._answered(reply, words(*request_words))


def test_a_job_that_moves_too_often_breaks_the_rule(simulation):
    """Spec MV5."""
    promise = simulation.oracle.add(b"q", 20, 1000, 60_000, 1, 0)
    promise.id = b"D-" + b"x" * 38
    promise.moves = 1
    history = [(MOVED, version, b"a", version) for version in (2, 3)]
    with pytest.raises(RuleBrokenError, match="a job ends once"):
        check_ends(promise, history)
