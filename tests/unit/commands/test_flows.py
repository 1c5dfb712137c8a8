"""commands/flows.py: WAITJOB and PROGRESS; RESULT of ACKJOB."""

from __future__ import annotations

import pytest

from brokers import ask, ask_parsed, error_of, make_broker, make_client
from copies import advance, deliver, hold_queued, make_id
from evented import EventedNode

ID = make_id(1)


def start():
    broker = make_broker()
    client = make_client(broker)
    hold_queued(broker)
    return broker, client


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("x",), "BADID Invalid Job ID format."),
        ((ID, "TIMEOUT"), "ERR syntax error: 'TIMEOUT'"),
        ((ID, "TIMEOUT", "-1"), "ERR TIMEOUT must be a number of milliseconds >= 0"),
        ((ID, "ANY", "x"), "ERR syntax error: 'x'"),
        ((ID,) * 1025, "ERR at most 1024 ids"),
        (("ANY",), "ERR syntax error: 'ANY'"),
    ],
)
def test_waitjob_refuses_wrong_arguments(words, text):
    broker, client = start()
    assert error_of(broker, client, "WAITJOB", *words) == text


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("x", 1), "BADID Invalid Job ID format."),
        ((ID, 101), "ERR percent must be a number from 0 to 100"),
        ((ID, "much"), "ERR percent must be a number from 0 to 100"),
        ((ID, 1, "x" * 257), "ERR the text has at most 256 bytes"),
        ((ID, 1, "text", "TTL", 5), "ERR syntax error: 'TTL'"),
        ((ID, 1, "FENCE", 0), "ERR FENCE must be a number > 0"),
        ((make_id(2), 1), "NOJOB Job not known in the context of this node."),
    ],
)
def test_progress_refuses_wrong_arguments(words, text):
    """Spec RW4."""
    broker, client = start()
    assert error_of(broker, client, "PROGRESS", *words) == text


def test_the_text_of_progress_may_be_any_word():
    """Spec RW4: the number of words determines whether there is a text."""
    broker, client = start()
    job = deliver(broker)
    assert ask(broker, client, "PROGRESS", job.id, 7, "ATTEMPT", "ATTEMPT", 1) == b"+OK\r\n"
    assert broker.progress.get(job).text == b"ATTEMPT"
    assert ask(broker, client, "PROGRESS", job.id, 8, "ATTEMPT", 1) == b"+OK\r\n"
    assert (broker.progress.get(job).percent, broker.progress.get(job).text) == (8, b"")


def test_progress_of_another_delivery_or_of_a_job_that_is_over_is_refused():
    """Spec RW4."""
    broker, client = start()
    job = deliver(broker)
    job.attempt = 2
    assert error_of(broker, client, "PROGRESS", job.id, 1, "ATTEMPT", 1).startswith("STALE")
    ask(broker, client, "CANCELJOB", job.id)
    assert error_of(broker, client, "PROGRESS", job.id, 1).startswith("CANCELED")


def test_a_result_needs_one_job_and_may_not_be_too_long():
    """Spec RW1."""
    broker, client = start()
    broker.settings.result_max_bytes = 3
    assert error_of(broker, client, "ACKJOB", ID, ID, "RESULT", "r") == "ERR RESULT needs exactly one job id"
    assert error_of(broker, client, "ACKJOB", ID, "RESULT", "long") == "ERR RESULT is longer than result-max-bytes"
    assert ask(broker, client, "ACKJOB", ID, "RESULT", "abc", "ATTEMPT", 1) == b":1\r\n"
    assert ask_parsed(broker, client, "WAITJOB", ID) == [[ID, b"completed", b"abc", None]]


def test_a_wait_at_a_lone_node():
    """Spec RW5, RW6."""
    broker, client = start()
    other = make_client(broker)
    assert ask_parsed(broker, other, "WAITJOB", make_id(9)) == [[make_id(9), b"unknown", None, None]]
    assert ask(broker, client, "WAITJOB", ID, "TIMEOUT", 500) == b""
    advance(broker, 501)
    assert b"pending" in b"".join(client.out)
    assert not broker.job_waits.waited
    assert broker.waits.blocked_count == 0


def test_the_end_of_a_job_says_how_large_its_result_is():
    """Spec RW3, RW4."""
    node = EventedNode()
    job = node.answer("ADDJOB", "q", "x", 0)
    node.answer("GETJOB", "FROM", "q")
    node.answer("PROGRESS", job, 50, "half")
    node.answer("ACKJOB", job, "RESULT", "12345")
    lines = {line["event"]: line for line in node.sync()}
    assert (lines["progress"]["progress"], lines["progress"]["progress_text"]) == (50, "half")
    assert list(lines["acked"])[-2:] == ["v", "result_size"]
    assert lines["acked"]["result_size"] == 5
