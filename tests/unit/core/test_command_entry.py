"""core/command_entry.py: a command as one broker has it in force."""

from __future__ import annotations

import pytest

from disque_py.core.command_entry import CommandEntry
from disque_py.core.units import Access, Unit


def make_row(name="ping", arity=-1, flags=()):
    access = Access(name, (Unit(name, frozenset(("read",))),))
    return CommandEntry(name, lambda broker, client, argv: b"+OK\r\n", arity, tuple(flags), access)


@pytest.mark.parametrize(
    ("arity", "count", "is_right"),
    [(2, 2, True), (2, 1, False), (2, 3, False), (-2, 1, False), (-2, 2, True), (-2, 9, True), (0, 1, True)],
)
def test_arity_counts_the_name_and_is_a_minimum_when_negative(arity, count, is_right):
    assert make_row(arity=arity).accepts(count) is is_right


def test_flags_become_questions():
    entry = make_row(flags=("write", "denyoom", "fast"))
    assert (entry.is_denyoom, entry.is_fast, entry.is_for_loading, entry.is_admin) == (True, True, False, False)
    assert make_row(flags=("loading",)).is_for_loading


def test_strangers_may_only_log_in():
    names = ("auth", "hello", "ping", "addjob", "info", "config")
    allowed = [name for name in names if make_row(name).is_for_strangers]
    assert allowed == ["auth", "hello"]


@pytest.mark.parametrize("name", ["auth", "hello", "monitor", "reset"])
def test_commands_that_may_change_the_next_commands_checks_count_as_administration(name):
    assert make_row(name).is_admin


def test_only_addjob_may_start_while_another_waits_for_copies():
    assert make_row("addjob").overlaps
    assert not make_row("getjob").overlaps
