"""Askers: replies of a wrong form break a rule."""

from __future__ import annotations

import pytest

from disque_py.simulator.clients.askers import Asker
from disque_py.simulator.clients.connection import words
from disque_py.simulator.oracle import RuleBrokenError
from disque_py.simulator.plan import ClientPlan


def asker_of(simulation):
    return Asker(simulation.world, simulation.oracle, simulation.plan, ClientPlan(0, "asker"))


def test_an_asker_is_answered_in_good_weather(simulation):
    asker = asker_of(simulation)
    asker.begin()
    simulation.world.run(20_000)
    asker.end()
    simulation.world.run(2_000)
    assert asker.line is not None
    assert not (asker.line.is_open and asker.line.outstanding)


@pytest.mark.parametrize(
    ("request_words", "reply"),
    [
        (("QLEN", "q"), -1),
        (("QPEEK", "q"), [[b"q", b"id", b"x"]] * 2),
        (("JOBID", "q", "k1", "k2"), [None]),
        (("QSTAT", "q"), [b"nodes", 1, b"nodes-missing", [b"a", b"a"]]),
        (("QLEN", "q"), ValueError("ERR odd")),
    ],
)
def test_a_reply_of_a_wrong_shape_breaks_the_rule(simulation, request_words, reply):
    with pytest.raises(RuleBrokenError, match="one node answers for all"):
        asker_of(simulation)._answered(reply, words(*request_words))
