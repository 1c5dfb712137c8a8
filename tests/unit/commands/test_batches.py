"""commands/batches.py: the command BATCH, and the option BATCH of ADDJOB."""

from __future__ import annotations

import pytest

from brokers import ask, ask_parsed, error_of, make_broker, make_client, pass_time
from copies import advance
from disque_py.commands import batches
from disque_py.core.batch_state import ABORTED, LIVE
from disque_py.core.id_sets import pack_id
from disque_py.node import dispatch

LONG = "x" * 65_537


def start(count=2):
    broker = make_broker()
    client = make_client(broker)
    ids = []
    for _ in range(count):
        reply = ask(broker, client, "ADDJOB", "q", "x", 0, "BATCH", "b")
        advance(broker, 1)
        ids.append((reply + b"".join(client.out))[1:-2])
        client.out.clear()
    return broker, client, ids


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("BATCH", "CLOSE", "none"), "ERR no such batch"),
        (("BATCH", "WAIT", "none"), "ERR no such batch"),
        (("BATCH", "WAIT", "b", "TIMEOUT", "-1"), "ERR TIMEOUT must be a number of milliseconds >= 0"),
        (("BATCH", "WAIT", "b", "UNTIL", 5), "ERR syntax error: 'UNTIL'"),
        (("BATCH", "CLOSE", "b", "CALLBACK", "q"), "ERR syntax error: 'CALLBACK'"),
        (
            ("BATCH", "CLOSE", "b", "CALLBACK", "q", LONG),
            "ERR the callback's queue must have 1 to 65536 bytes, and its body at most as many",
        ),
        (("BATCH", "OPEN", "b"), "ERR syntax error: 'OPEN'"),
        (("BATCH", "SHOW", "x" * 1025), "ERR BATCH must have 1 to 1024 bytes"),
        (("ADDJOB", "q", "x", 0, "BATCH", ""), "ERR BATCH must have 1 to 1024 bytes"),
        (("ADDJOB", "q", "x", 0, "BATCH", "x" * 1025), "ERR BATCH must have 1 to 1024 bytes"),
    ],
)
def test_wrong_arguments_are_refused(words, text):
    broker, client, _ = start()
    assert error_of(broker, client, *words) == text


def test_an_addjob_that_finds_a_job_makes_no_batch():
    """Spec BT1: a batch is created with its first job. The job that the ADDJOB finds is not in this batch."""
    broker, client, _ = start(count=0)
    first = ask(broker, client, "ADDJOB", "q", "x", 0, "KEY", "k")
    assert ask(broker, client, "ADDJOB", "q", "x", 0, "KEY", "k", "BATCH", "b") == first
    assert ask_parsed(broker, client, "BATCH", "LIST") == []
    ask(broker, client, "ADDJOB", "q", "x", 0, "KEY", "other", "BATCH", "b")
    assert ask_parsed(broker, make_client(broker), "BATCH", "LIST") == [b"b"]


def test_an_addjob_that_finds_a_job_is_answered_after_the_close_of_its_batch():
    """Spec BT1: such an ADDJOB adds nothing. With a new key, it is refused, both for a queue and for a topic."""
    broker, client, _ = start(count=0)
    ask(broker, client, "ADDJOB", "q", "x", 0, "KEY", "k", "BATCH", "b")
    advance(broker, 10)
    first = b"".join(client.out)
    ask(broker, client, "BATCH", "CLOSE", "b")
    ask(broker, client, "TOPIC", "BIND", "t", "q")
    advance(broker, 10)
    client.out.clear()
    assert ask(broker, client, "ADDJOB", "q", "x", 0, "KEY", "k", "BATCH", "b") == first
    assert error_of(broker, client, "ADDJOB", "q", "x", 0, "KEY", "new", "BATCH", "b") == "CLOSED The batch is closed"
    assert ask(broker, client, "ADDJOB", "t", "x", 0, "KEY", "new", "BATCH", "b") == b"-CLOSED The batch is closed\r\n"


def test_the_pairs_of_show():
    """Spec BT6."""
    broker, client, ids = start()
    ask(broker, client, "ACKJOB", ids[0])
    advance(broker, 10)
    reply = ask_parsed(broker, client, "BATCH", "SHOW", "b")
    assert reply == [
        b"name", b"b", b"closed", 0, b"total", 2, b"invisible-or-pending", 1, b"running", 0, b"completed", 1,
        b"canceled", 0, b"errored", 0, b"expired", 0, b"done", 0, b"callback", None,
    ]  # fmt: skip
    assert ask_parsed(broker, client, "BATCH", "SHOW", "none") is None
    shown = ask_parsed(broker, client, "SHOW", ids[1])
    assert shown[shown.index(b"batch") + 1] == b"b"


def test_names_are_listed_by_pattern():
    """Spec BT6."""
    broker, client, _ = start()
    ask(broker, client, "ADDJOB", "q", "x", 0, "BATCH", "a")
    assert ask_parsed(broker, make_client(broker), "BATCH", "LIST") == [b"a", b"b"]
    assert ask_parsed(broker, make_client(broker), "BATCH", "LIST", "b*") == [b"b"]


def test_wait_ends_at_its_time_out():
    """Spec BT4."""
    broker, client, _ = start()
    assert ask(broker, client, "BATCH", "WAIT", "b", "TIMEOUT", 300) == b""
    advance(broker, 250)
    assert client.out == []
    advance(broker, 300)
    assert b"total" in b"".join(client.out)
    assert broker.batches.waiting == {}


def test_a_client_that_goes_waits_no_more():
    """Spec BT4."""
    broker, client, _ = start()
    ask(broker, client, "BATCH", "WAIT", "b")
    dispatch.disconnect(broker, client)
    advance(broker, 300)
    assert broker.batches.waiting == {}


def test_a_batch_that_was_never_closed_is_forgotten_a_day_after_its_last_job():
    """Spec BT5."""
    broker, client, ids = start()
    for job in ids:
        ask(broker, client, "ACKJOB", job)
    advance(broker, 1_000)
    pass_time(broker, 86_400_000)
    advance(broker, 11_000)
    assert broker.batches.by_name == {}


def test_a_job_whose_addjob_failed_does_not_count():
    """Spec BT8: the id of the job stays in the batch, so that an earlier report does not make the job live again."""
    broker, client, ids = start()
    batch = broker.batches.by_name[b"b"]
    assert broker.batches.enter(batch, pack_id(ids[0]), ABORTED, 1)
    assert not broker.batches.enter(batch, pack_id(ids[0]), LIVE, 1)
    shown = ask_parsed(broker, client, "BATCH", "SHOW", "b")
    assert dict(zip(shown[::2], shown[1::2], strict=True))[b"total"] == 1
    ask(broker, client, "BATCH", "CLOSE", "b")
    ask(broker, client, "ACKJOB", ids[1])
    advance(broker, 1_000)
    assert batch.is_done


def test_a_share_of_a_node_of_an_older_version_has_all_ids_count():
    """Spec BT8: such a node does not report how many ids don't count."""
    assert batches.check_share([1, 3, 2, 0, 0, 0, 1]) == [1, 3, 2, 0, 0, 0, 1, 0]
