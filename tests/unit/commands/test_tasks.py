"""commands/tasks.py: options and errors of QPURGE, QMOVE, QREDRIVE and QTASK."""

from __future__ import annotations

import pytest

from brokers import ask, ask_parsed, error_of, make_broker, make_client
from copies import advance
from disque_py.core import tasks

SYNTAX = "ERR syntax error"
LIMIT = "ERR LIMIT must be a number from 1 to 9223372036854775807"
RATE = "ERR RATE must be a number from 1 to 1000000"
STATUS = "ERR STATUS must be invisible, pending or errored"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("QPURGE", "q", "SOON"), f"{SYNTAX}: 'SOON'"),
        (("QPURGE", "q", "ASYNC", "STATUS", "pending"), f"{SYNTAX}: 'ASYNC'"),
        (("QPURGE", "q", "LIMIT", "1"), f"{SYNTAX}: 'LIMIT'"),
        (("QPURGE", "q", "STATUS", "running"), STATUS),
        (("QPURGE", "q", "STATUS"), STATUS),
        (("QPURGE", "q", "WHERE", "a"), f"{SYNTAX}: WHERE needs a name and a value"),
        (("QPURGE", "q", "WHERE", "a", "b", "WHERE", "a", "c"), "ERR WHERE has the same name twice"),
        (("QMOVE", "q", "q"), "ERR the queues are the same"),
        (("QMOVE", "q", "r", "LIMIT", "0"), LIMIT),
        (("QMOVE", "q", "r", "RATE", "1000001"), RATE),
        (("QMOVE", "q", "r", "RATE"), f"{SYNTAX}: 'RATE'"),
        (("QMOVE", "q", "r", "TO", "s"), f"{SYNTAX}: 'TO'"),
        (("QREDRIVE", "q", "STATUS", "errored"), f"{SYNTAX}: 'STATUS'"),
        (("QREDRIVE", "q", "TO"), f"{SYNTAX}: 'TO'"),
        (("QTASK", "SHOW"), f"{SYNTAX}: 'SHOW'"),
        (("QTASK", "END"), f"{SYNTAX}: 'END'"),
    ],
)
def test_wrong_arguments_are_refused(words, text):
    """Spec MV5, MV8."""
    broker = make_broker()
    assert error_of(broker, make_client(broker), *words) == text
    assert not broker.tasks.known


def test_async_may_be_a_value():
    """Spec MV4: a queue may have this name."""
    broker = make_broker()
    client = make_client(broker)
    assert ask(broker, client, "QREDRIVE", "q", "TO", "async") == b""
    [task] = tasks.known(broker)
    assert (task.work.to, task.client) == (b"async", client)
    assert ask(broker, make_client(broker), "QREDRIVE", "q", "TO", "async", "ASYNC").startswith(b"+")


def test_pairs_of_a_task_stand_in_their_order():
    """Spec MV5, MV8."""
    broker = make_broker()
    client = make_client(broker)
    assert ask(broker, client, "QPURGE", "q") == b""
    advance(broker, 200)
    names = [b"task", b"jobs", b"failed", b"nodes", b"nodes-missing"]
    assert b"".join(client.out).startswith(b"*10\r\n$4\r\ntask\r\n")
    client.out.clear()
    [shown] = ask_parsed(broker, client, "QTASK", "LIST")
    assert shown[::2] == [*names, b"command", b"queue", b"state", b"started"]
    assert ask_parsed(broker, client, "QTASK", "SHOW", shown[1]) == shown
    assert ask_parsed(broker, client, "QTASK", "SHOW", "none") is None
    assert ask_parsed(broker, client, "QTASK", "CANCEL", "none") == 0


def test_qstat_counts_tasks_on_the_queue():
    """Spec MV8."""
    broker = make_broker()
    client = make_client(broker)
    ask(broker, client, "ADDJOB", "q", "x", 0, "REPLICATE", 1)
    ask(broker, client, "QMOVE", "q", "r", "ASYNC")
    shown = ask_parsed(broker, client, "QSTAT", "q")
    assert shown[shown.index(b"tasks") + 1] == 1
