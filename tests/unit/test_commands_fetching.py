"""commands/fetching.py: what a consumer may ask for, and in which order it is refused."""

from __future__ import annotations

import pytest

from brokers import ask_parsed, error_of, make_broker, make_client
from copies import hold_queued


def start():
    broker = make_broker()
    return broker, make_client(broker)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("q",), "ERR syntax error"),
        (("FROM",), "ERR syntax error"),
        (("NOHANG",), "ERR syntax error"),
        (("TIMEOUT",), "ERR syntax error"),
        (("COUNT",), "ERR syntax error"),
        (("TIMEOUT", "FROM", "q"), "ERR timeout is not an integer or out of range"),
        (("TIMEOUT", -1, "FROM", "q"), "ERR timeout is negative"),
        (("COUNT", 0, "FROM", "q"), "ERR COUNT must be a number greater than zero"),
        (("COUNT", "x", "FROM", "q"), "ERR COUNT must be a number greater than zero"),
        (("NOSUCH", "FROM", "q"), "ERR syntax error"),
        (("COUNT", 0, "NOSUCH"), "ERR COUNT must be a number greater than zero"),
    ],
)
def test_getjob_refuses_the_first_offending_option(words, text):
    broker, client = start()
    assert error_of(broker, client, "GETJOB", *words) == text


def test_everything_after_from_is_a_queue():
    broker, client = start()
    job = hold_queued(broker, queue=b"NOHANG")
    assert ask_parsed(broker, client, "getjob", "from", "COUNT", "NOHANG") == [[b"NOHANG", job.id, b"body"]]
