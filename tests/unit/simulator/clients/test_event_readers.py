"""Readers: replies about logs of events are true, and stay true."""

from __future__ import annotations

import pytest

from disque_py.simulator.clients.event_readers import (
    Question,
    Reader,
    check_info,
    check_lines,
    check_moment,
    check_refusal,
)
from disque_py.simulator.oracle import Oracle, RuleBrokenError
from disque_py.simulator.plan import ClientPlan
from disque_py.simulator.world.world import World
from simulated import ask, small_plan


@pytest.fixture
def world():
    world = World("ab", events=True)
    world.join()
    for name in "abab":
        ask(world, name, "ADDJOB", "q", "x", 0, "REPLICATE", 1)
        world.run(50)
    world.run(1_500)
    return world


@pytest.fixture
def machine(world):
    return world.machines["a"]


@pytest.fixture
def question(world, machine):
    log_id, first_seq, _ = check_info(machine, ask(world, "a", "EVENTS", "INFO"))
    return Question(machine, log_id, first_seq, 10)


def test_a_reader_follows_the_logs(world):
    """It goes from node to node, and its replies are compared with the written events."""
    reader = Reader(world, Oracle(), small_plan(3, nodes=2), ClientPlan(0, "reader"))
    reader.begin()
    world.run(20_000)
    assert set(reader.places) == {"a", "b"}
    assert any(machine.event_logs.current.read for machine in world.machines.values())


def test_the_position_of_a_log_never_goes_back(world, machine):
    reply = ask(world, "a", "EVENTS", "INFO")
    check_info(machine, reply)
    with pytest.raises(RuleBrokenError, match="events stay"):
        check_info(machine, [*reply[:5], reply[5] - 1, *reply[6:]])
    with pytest.raises(RuleBrokenError, match="come from somewhere"):
        check_info(machine, [reply[0], b"another", *reply[2:]])


def test_lines_are_those_that_were_written(world, question):
    data = ask(world, "a", "EVENTS", "READ", question.log_id, question.start)
    count = check_lines(question, data)
    assert count == len(question.machine.event_logs.current.read) > 1
    with pytest.raises(RuleBrokenError, match="what it asked for"):
        check_lines(question._replace(most=1), data)
    with pytest.raises(RuleBrokenError, match="one event"):
        check_lines(question._replace(start=2), data)


def test_trimmed_events_lead_on_and_present_ones_are_not_trimmed(question):
    question.machine.event_logs.service.log.segments[0].first_seq = 3
    assert check_refusal(question, "TRIMMED 3") == 3
    assert check_refusal(question, "NOLOG 00") == 0
    assert check_refusal(question, "LOADING ...") == question.start
    for text in ("NOLOG " + question.log_id, "TRIMMED 1", "ERR no"):
        with pytest.raises(RuleBrokenError):
            check_refusal(question, text)
    with pytest.raises(RuleBrokenError, match="events stay"):
        check_refusal(question._replace(start=3), "TRIMMED 4")


def test_a_moment_is_that_of_the_first_event_that_is_not_older(question):
    current = question.machine.event_logs.current
    moments = current.moments
    at = next(at for at in range(1, len(moments)) if moments[at] > moments[at - 1])
    asked = question._replace(start=moments[at], durable=current.next_seq)
    check_moment(asked, current.first_seq + at)
    for wrong in (at - 1, at + 1, 10_000):
        with pytest.raises(RuleBrokenError, match="a moment is found"):
            check_moment(asked, current.first_seq + wrong)
