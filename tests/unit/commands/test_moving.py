"""commands/moving.py: options and errors of PROMOTE, RESCHEDULE and MOVEJOB."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, error_of, make_broker, make_client
from copies import advance, make_id
from disque_py.core.errors import BAD_ID
from disque_py.core.incremental import PART

ID = make_id().decode()
SYNTAX = "ERR syntax error"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("RESCHEDULE", ID), f"{SYNTAX}: RESCHEDULE needs DELAY or PRIORITY"),
        (("RESCHEDULE", ID, "DELAY"), f"{SYNTAX}: 'DELAY'"),
        (("RESCHEDULE", ID, "SOON", "1"), f"{SYNTAX}: 'SOON'"),
        (("RESCHEDULE", ID, "DELAY", "-1"), "ERR DELAY must be a number of seconds from 0 to 9223372036854"),
        (("RESCHEDULE", ID, "DELAYMS", "x"), "ERR DELAYMS must be a number of milliseconds from 0 to 9223372036854000"),
        (("RESCHEDULE", ID, "PRIORITY", "x"), "ERR PRIORITY must be a 64-bit integer"),
        (("RESCHEDULE", "no-id", "DELAY", "1"), BAD_ID),
        (("PROMOTE", ID, "no-id"), BAD_ID),
        (("MOVEJOB", ID), "ERR wrong number of arguments for 'movejob' command"),
        (("MOVEJOB", ID, "INTO", "r"), f"{SYNTAX}: MOVEJOB needs TO and a queue"),
        (("MOVEJOB", ID, "TO", "r", "TO"), f"{SYNTAX}: MOVEJOB needs TO and a queue"),
        (("MOVEJOB", "TO", "q", "TO", "r"), BAD_ID),
        (("MOVEJOB", ID, "no-id", "TO", "r"), BAD_ID),
        (("PROMOTE",), "ERR wrong number of arguments for 'promote' command"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_done(words, text):
    """Spec MV1, MV2, MV10."""
    broker = make_broker()
    assert error_of(broker, make_client(broker), *words) == text


def test_the_last_word_of_a_kind_counts():
    """Spec MV2, Y11."""
    broker = make_broker()
    client = make_client(broker)
    job_id = ask(broker, client, "ADDJOB", "q", "x", 0, "REPLICATE", 1)[1:-2]
    assert (
        ask(broker, client, "RESCHEDULE", job_id, "DELAY", 9, "DELAYMS", 0, "PRIORITY", 1, "PRIORITY", 2) == b":1\r\n"
    )
    assert broker.queues[b"q"].length == 1
    assert broker.find(job_id).priority == 2


def test_unknown_jobs_count_0():
    """Spec MV1, MV2."""
    broker = make_broker()
    client = make_client(broker)
    assert ask(broker, client, "PROMOTE", ID) == b":0\r\n"
    assert ask(broker, client, "RESCHEDULE", ID, "DELAY", 1) == b":0\r\n"
    assert ask(broker, client, "MOVEJOB", ID, "TO", "r") == b":0\r\n"


def test_the_last_queue_counts():
    """Spec MV10, Y11."""
    broker = make_broker()
    client = make_client(broker)
    job_id = ask(broker, client, "ADDJOB", "q", "x", 0)[1:-2]
    assert ask(broker, client, "MOVEJOB", job_id, job_id, "to", "r", "TO", "to") == b":1\r\n"
    assert [name for name, queue in broker.queues.items() if queue.length] == [b"to"]


def test_many_jobs_are_moved_in_parts():
    """Spec MV10."""
    broker = make_broker()
    client = make_client(broker)
    ids = [ask(broker, client, "ADDJOB", "q", "x", 0)[1:-2] for _ in range(3 * PART)]
    assert ask(broker, client, "MOVEJOB", *ids, "TO", "r") == b""
    advance(broker, 1_000)
    assert b"".join(client.out) == b":%d\r\n" % len(ids)
    assert broker.queues[b"r"].length == len(ids)


def test_the_commands_are_refused_while_an_older_node_is_known():
    """Spec Y1."""
    broker = make_broker()
    client = make_client(broker)
    old = add_node(broker, protocol=1)
    text = f"ERR not while node {old.name.decode()} runs an older version"
    for words in (
        ("PROMOTE", ID),
        ("RESCHEDULE", ID, "DELAY", 1),
        ("MOVEJOB", ID, "TO", "r"),
        ("QPURGE", "q"),
        ("QMOVE", "q", "r"),
        ("QREDRIVE", "q"),
    ):
        assert error_of(broker, client, *words) == text
