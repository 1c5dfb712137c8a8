"""display.py: the table of nodes and the progress of a drain."""

from __future__ import annotations

import sys

from disque_py.cli.cluster.display import DrainDisplay, print_table, rows_of
from disque_py.cli.cluster.draining import DrainProgress
from disque_py.cli.cluster.view import ClusterView, NodeView, TableRow
from disque_py.client import Address

A, B = ("a" * 40, "b" * 40)
ALIVE = NodeView(
    Address("10.0.0.2", 7711),
    id=A,
    info={"registered_jobs": 3, "registered_queues": 2, "used_memory": 2048},
    table=[
        TableRow(A, None, frozenset({"myself"}), is_linked=True),
        TableRow(B, Address("10.0.0.1", 7711), frozenset({"fail"}), is_linked=False),
    ],
    priorities={A: "1", B: "100"},
)
DEAD = NodeView(Address("10.0.0.1", 7711), id=B, error="Connection refused")


def test_rows_are_in_order_of_addresses_and_a_missing_value_is_none():
    dead, alive = rows_of(ClusterView([ALIVE, DEAD]))
    assert (dead["state"], dead["jobs"], dead["links"], dead["priority"]) == ("unreachable,fail", None, None, 100)
    assert (alive["state"], alive["jobs"], alive["links"], alive["others"], alive["priority"]) == ("ok", 3, 0, 1, 1)


def test_a_line_stays_a_line_in_a_narrow_pipe(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    print_table(ClusterView([ALIVE, DEAD]))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:] == [
        ["bbbbbbbb", "10.0.0.1:7711", "unreachable,fail", "-", "-", "-", "-", "100", "-"],
        ["aaaaaaaa", "10.0.0.2:7711", "ok", "3", "2", "2.00K", "0/1", "1", "-"],
    ]


def test_a_narrow_terminal_cuts_off_no_address(capsys, monkeypatch):
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: True, raising=False)
    for name, value in (("TERM", "xterm"), ("COLUMNS", "40"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    print_table(ClusterView([ALIVE, DEAD]))
    text = capsys.readouterr().out
    assert "10.0.0.1:7711" in text
    assert "…" not in text


def test_no_part_of_an_address_is_taken_for_markup(capsys):
    print_table(ClusterView([NodeView(Address("2001:db8:a:b::1", 7711))]))
    assert "[2001:db8:a:b::1]:7711" in capsys.readouterr().out


def test_a_drain_into_a_pipe_is_a_line_per_change(capsys):
    with DrainDisplay(ALIVE) as display:
        for progress in (DrainProgress(3, ()), DrainProgress(3, ()), DrainProgress(1, ("blocked by: x",))):
            display.show(progress)
    assert capsys.readouterr().out == "3 jobs left\n1 job left; blocked by: x\n"


def test_a_drain_on_a_terminal_shows_the_number_of_jobs_and_each_reason_once(capsys, monkeypatch):
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: True, raising=False)
    for name, value in (("TERM", "xterm"), ("COLUMNS", "80")):
        monkeypatch.setenv(name, value)
    reason = "blocked by: a job is with a worker; it goes with its ack, or when its lease ends"
    with DrainDisplay(ALIVE) as display:
        for remaining in (1204, 1203):
            display.show(DrainProgress(remaining, (reason,)))
    text = capsys.readouterr().out
    assert "1203 jobs left" in text
    assert text.count(reason) == 1
