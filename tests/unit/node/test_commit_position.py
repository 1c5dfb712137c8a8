"""node/commit_position.py: a turn is safe when both journal and event log are. Either may come and go."""

from __future__ import annotations

from typing import Any, cast

import pytest

from disque_py.node.commit_position import CommitPosition

# Stands in for both kinds of log with a class of its own.
pytestmark = pytest.mark.plain


class Log:
    """The part of a Journal or EventLog that a CommitPosition uses."""

    def __init__(self, position: int = 0) -> None:
        self.position = position
        self.ready = position
        self.waits = True

    def ready_position(self) -> int:
        return self.ready

    def must_wait(self) -> bool:
        return self.waits


def position_of(journal: Log | None, events: Log | None, position: int = 0) -> CommitPosition:
    commit_position = CommitPosition(cast(Any, journal), position)
    commit_position.events = cast(Any, events)
    return commit_position


def advance(commit_position: CommitPosition, *logs: Log) -> int:
    """End a turn in which these logs got records. Return its number."""
    for log in logs:
        log.position += 10
    commit_position.note()
    return commit_position.position


def test_a_turn_waits_for_both_journal_and_event_log():
    journal, events = Log(), Log()
    commit_position = position_of(journal, events)
    turn = advance(commit_position, journal, events)
    journal.ready = 10
    assert commit_position.ready_position() < turn
    events.ready = 10
    assert commit_position.ready_position() == turn


def test_turns_become_safe_in_order():
    journal, events = Log(), Log()
    commit_position = position_of(journal, events)
    first, second = advance(commit_position, journal), advance(commit_position, events)
    events.ready = 10
    assert commit_position.ready_position() < first
    journal.ready = 10
    assert commit_position.ready_position() == second


def test_a_turn_without_records_waits_for_nothing_new():
    events = Log()
    commit_position = position_of(None, events)
    turn = advance(commit_position, events)
    commit_position.note()
    assert commit_position.position == turn


def test_a_turn_without_records_waits_if_earlier_ones_are_safe_no_longer():
    """With `everysec` and a late disk (seed 20637): a reply may repeat the promise of an earlier turn."""
    journal, events = Log(), Log()
    commit_position = position_of(journal, events)
    advance(commit_position, journal)
    journal.ready = 10
    turn = commit_position.ready_position()
    journal.ready = 5
    commit_position.note()
    commit_position.note()
    assert (commit_position.position, commit_position.ready_position()) == (turn + 1, turn)
    journal.ready = 10
    assert commit_position.ready_position() == turn + 1


def test_a_reply_that_waited_for_the_journal_alone_still_waits_for_it():
    """A log of events began while a reply waited for position 40 of the journal."""
    journal, events = Log(40), Log()
    journal.ready = 30
    commit_position = position_of(journal, events, 40)
    turn = advance(commit_position, events)
    events.ready = 10
    assert commit_position.ready_position() == 30
    journal.ready = 40
    assert commit_position.ready_position() == turn


def test_nothing_waits_for_a_removed_event_log():
    journal, events = Log(), Log()
    commit_position = position_of(journal, events)
    turn = advance(commit_position, journal, events)
    journal.ready = 10
    commit_position.events = None
    assert commit_position.ready_position() == turn


def test_nothing_waits_for_a_removed_journal_and_it_may_come_again():
    journal, events = Log(40), Log()
    commit_position = position_of(journal, events, 40)
    turn = advance(commit_position, journal, events)
    commit_position.remove_journal()
    assert commit_position.ready_position() == 40
    events.ready = 10
    assert commit_position.ready_position() == turn
    commit_position.journal = cast(Any, Log(7))
    later = advance(commit_position, cast(Log, commit_position.journal))
    assert commit_position.ready_position() < later


def test_the_journal_decides_whether_new_replies_wait():
    journal = Log()
    commit_position = position_of(journal, Log())
    assert commit_position.must_wait()
    journal.waits = False
    assert not commit_position.must_wait()
    assert position_of(None, Log()).must_wait()


def test_a_turn_that_is_written_already_is_not_waited_for():
    """A log that is written as memory needs no waiting: no reply is put aside, and no number is used."""
    events = Log()
    commit_position = position_of(None, events)
    for _ in range(3):
        events.position += 10
        events.ready = events.position
        commit_position.note()
    assert (commit_position.position, commit_position.ready_position()) == (0, 0)
    assert advance(commit_position, events) == 1
    events.position += 10
    commit_position.note()
    events.ready = events.position
    assert (commit_position.position, commit_position.ready_position()) == (2, 2)
