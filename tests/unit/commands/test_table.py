"""commands/table.py: the table of all commands, as the original reports them."""

from __future__ import annotations

import pytest

from brokers import ask, ask_parsed, make_broker, make_client
from disque_py.commands.table import COMMANDS

# Spec R9: name, arity, flags.
ORIGINAL = """
auth 2 readonly loading fast|ping -1 readonly fast|info -1 readonly loading|shutdown -1 readonly admin loading
monitor 1 readonly admin|debug -2 admin|config -2 readonly admin|cluster -2 readonly admin|client -2 readonly admin
slowlog -2 readonly|time 1 readonly fast|command 0 readonly loading|latency -2 readonly admin loading
hello 1 readonly fast|addjob -4 write denyoom fast|getjob -2 write fast|ackjob -1 write fast|fastack -1 write fast
deljob -1 write fast|show 2 readonly fast|loadjob 2 write|bgrewriteaof 1 readonly admin|qlen 2 readonly fast
qpeek 3 readonly|qstat 2 readonly fast|qscan -1 readonly|jscan -1 readonly|enqueue -1 write denyoom fast
nack -1 write denyoom fast|dequeue -1 write fast|working 2 write fast|pause -3 readonly fast
"""
# Commands that take more words than the original's. AUTH takes a user name, HELLO a protocol version, and WORKING a
# span. QLEN and QPEEK take WHERE. QLEN, QPEEK, QSTAT and SHOW take CLUSTER.
WIDENED = {"auth": -2, "hello": -1, "qlen": -2, "qpeek": -3, "qstat": -2, "show": -2, "working": -2}


def original_rows():
    rows = [row.split() for line in ORIGINAL.split("\n") for row in line.split("|") if row]
    return [(name, WIDENED.get(name, int(arity)), tuple(flags)) for name, arity, *flags in rows]


def test_the_originals_commands_come_first_in_its_order():
    """Spec R9."""
    rows = original_rows()
    assert len(rows) == 32
    assert [(row.name, row.arity, row.flags) for row in COMMANDS[:32]] == rows


def test_names_are_lower_case_and_unique():
    names = [row.name for row in COMMANDS]
    assert len(set(names)) == len(names)
    assert all(name == name.lower() for name in names)


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_every_command_says_what_it_is_for(row):
    assert row.summary[0].isupper()
    assert row.summary.endswith(".")
    assert row.group in ("connection", "server", "cluster", "jobs", "queues")
    assert row.since


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_syntax_and_arity_say_the_same(row):
    """The arity counts the name and the required words. For GETJOB it is less by one, as in the original."""
    forms = []
    for form in row.syntax.split("\n"):
        depth, words = 0, 0
        for word in form.split():
            depth += word.count("[")
            words += depth == 0
            depth -= word.count("]")
        forms.append(1 + words)
    if row.arity:
        assert min(forms) == abs(row.arity) + (row.name == "getjob")


def test_command_reports_the_table():
    broker = make_broker()
    entries = ask_parsed(broker, make_client(broker), "COMMAND")
    assert [(name.decode(), arity) for name, arity, *_ in entries] == [(row.name, row.arity) for row in COMMANDS]
    assert all(entry[3:] == [0, 0, 0] for entry in entries)


@pytest.mark.parametrize("name", ["SAVE", "SYNC", "SCAN", "DBSIZE", "FLUSHALL", "ROLE", "EXEC", "SUBSCRIBE", "GET"])
def test_a_command_unknown_to_the_original_is_unknown_here_too(name):
    broker = make_broker()
    assert ask(broker, make_client(broker), name) == b"-ERR unknown command '%b'\r\n" % name.encode()
