"""A turn is safe when journal and event log both say so; either may come and go."""

from __future__ import annotations

from typing import Any, cast

import pytest

from disque_py.gate import Gate

# Stands in for both kinds of log with a class of its own.
pytestmark = pytest.mark.plain


class Log:
    """As much of a Journal or EventLog as a gate asks for."""

    def __init__(self, position: int = 0) -> None:
        self.position = position
        self.ready = position
        self.waits = True

    def ready_position(self) -> int:
        return self.ready

    def must_wait(self) -> bool:
        return self.waits


def gate_of(journal: Log | None, events: Log | None, position: int = 0) -> Gate:
    gate = Gate(cast(Any, journal), position)
    gate.events = cast(Any, events)
    return gate


def advance(gate: Gate, *logs: Log) -> int:
    """A turn in which these logs were told something; its number."""
    for log in logs:
        log.position += 10
    gate.note()
    return gate.position


def test_a_turn_waits_for_both():
    journal, events = Log(), Log()
    gate = gate_of(journal, events)
    turn = advance(gate, journal, events)
    journal.ready = 10
    assert gate.ready_position() < turn
    events.ready = 10
    assert gate.ready_position() == turn


def test_turns_become_safe_in_order():
    journal, events = Log(), Log()
    gate = gate_of(journal, events)
    first, second = advance(gate, journal), advance(gate, events)
    events.ready = 10
    assert gate.ready_position() < first
    journal.ready = 10
    assert gate.ready_position() == second


def test_a_turn_that_told_nothing_waits_for_nothing_new():
    events = Log()
    gate = gate_of(None, events)
    turn = advance(gate, events)
    gate.note()
    assert gate.position == turn


def test_what_waited_for_the_journal_alone_goes_on_waiting_for_it():
    """A log of events began while a reply waited for position 40 of the journal."""
    journal, events = Log(40), Log()
    journal.ready = 30
    gate = gate_of(journal, events, 40)
    turn = advance(gate, events)
    events.ready = 10
    assert gate.ready_position() == 30
    journal.ready = 40
    assert gate.ready_position() == turn


def test_a_log_of_events_that_is_gone_holds_nobody():
    journal, events = Log(), Log()
    gate = gate_of(journal, events)
    turn = advance(gate, journal, events)
    journal.ready = 10
    gate.events = None
    assert gate.ready_position() == turn


def test_a_journal_that_is_gone_holds_nobody_and_may_come_again():
    journal, events = Log(40), Log()
    gate = gate_of(journal, events, 40)
    turn = advance(gate, journal, events)
    gate.let_journal_go()
    assert gate.ready_position() == 40
    events.ready = 10
    assert gate.ready_position() == turn
    gate.journal = cast(Any, Log(7))
    later = advance(gate, cast(Log, gate.journal))
    assert gate.ready_position() < later


def test_who_must_not_wait_is_the_journals_to_say():
    journal = Log()
    gate = gate_of(journal, Log())
    assert gate.must_wait()
    journal.waits = False
    assert not gate.must_wait()
    assert gate_of(None, Log()).must_wait()


def test_a_turn_that_is_written_already_is_not_waited_for():
    """As a log does that copies to memory: nothing is put aside, and no number is spent."""
    events = Log()
    gate = gate_of(None, events)
    for _ in range(3):
        events.position += 10
        events.ready = events.position
        gate.note()
    assert (gate.position, gate.ready_position()) == (0, 0)
    assert advance(gate, events) == 1
    events.position += 10
    gate.note()
    events.ready = events.position
    assert (gate.position, gate.ready_position()) == (2, 2)
