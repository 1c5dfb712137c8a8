"""commands/fetching.py: the options of GETJOB, and the order in which they are refused."""

from __future__ import annotations

import pytest

from brokers import ask, ask_parsed, error_of, make_broker, make_client
from cluster_bus.node import LEAVING
from copies import hold_queued
from disque_py.commands.fetching import FROM_ADVICE
from disque_py.core.client import WAITS_FOR_JOBS
from disque_py.core.incremental import PART
from disque_py.node import dispatch


def start():
    broker = make_broker()
    return broker, make_client(broker)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("q",), f"ERR syntax error: 'q' is no option of GETJOB. {FROM_ADVICE}"),
        (("FROM",), f"ERR syntax error: there is no queue behind FROM. {FROM_ADVICE}"),
        (("NOHANG",), f"ERR syntax error: FROM is missing. {FROM_ADVICE}"),
        (("TIMEOUT",), "ERR syntax error"),
        (("COUNT",), "ERR syntax error"),
        (("TIMEOUT", "FROM", "q"), "ERR timeout is not an integer or out of range"),
        (("TIMEOUT", -1, "FROM", "q"), "ERR timeout is negative"),
        (("COUNT", 0, "FROM", "q"), "ERR COUNT must be a number greater than zero"),
        (("COUNT", "x", "FROM", "q"), "ERR COUNT must be a number greater than zero"),
        (("NOSUCH", "FROM", "q"), f"ERR syntax error: 'NOSUCH' is no option of GETJOB. {FROM_ADVICE}"),
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


def test_a_large_count_waits_as_a_small_one_does_when_a_long_queue_has_nothing_for_it():
    broker, client = start()
    for number in range(PART + 1):
        hold_queued(broker, number=number)
    ask_parsed(broker, make_client(broker), "PAUSE", "q", "out")
    assert ask_parsed(broker, client, "GETJOB", "NOHANG", "COUNT", 1000, "FROM", "q") is None
    assert ask(broker, client, "GETJOB", "COUNT", 1000, "FROM", "q", "new") == b""
    assert client.waiting == WAITS_FOR_JOBS
    job = hold_queued(broker, queue=b"new", number=5_000)
    dispatch.settle(broker)
    assert job.id in b"".join(client.out)


def test_a_large_count_skips_at_most_once_jobs_and_waits():
    broker, client = start()
    for number in range(PART + 1):
        hold_queued(broker, number=number, retry_s=0)
    assert ask(broker, client, "GETJOB", "COUNT", 1000, "LEASE", 9, "FROM", "q") == b""
    assert client.waiting == WAITS_FOR_JOBS


def test_a_large_count_is_sent_away_from_a_leaving_node():
    broker, client = start()
    for number in range(PART + 1):
        hold_queued(broker, number=number)
    ask_parsed(broker, client, "PAUSE", "q", "out")
    broker.me.flags |= LEAVING
    assert error_of(broker, client, "GETJOB", "COUNT", 1000, "FROM", "q").startswith("LEAVING")


@pytest.mark.parametrize(("is_paused", "words"), [(True, ()), (False, ("LEASE", 9))])
def test_while_the_disk_fails_a_getjob_without_a_matching_job_waits(is_paused, words):
    """-MISCONF means that jobs are withheld because of the disk. Here, no job would be delivered anyway."""
    broker, client = start()
    hold_queued(broker, retry_s=30 if is_paused else 0)
    if is_paused:
        ask(broker, client, "PAUSE", "q", "out")
    broker.journal.disk_level = 1
    assert ask(broker, client, "GETJOB", *words, "FROM", "q") == b""
    assert client.waiting == WAITS_FOR_JOBS
