"""core/ends.py: the recent ends of jobs."""

from __future__ import annotations

from brokers import ask, ask_parsed, make_broker, make_client, pass_time
from copies import advance, hold_queued, make_id
from disque_py.core.ends import GENERATION_MAX, Ends
from disque_py.event_format import CANCELED, COMPLETED, EXPIRED


def test_an_end_is_known_for_twice_the_node_time_out():
    """Spec RW5."""
    broker = make_broker()
    client = make_client(broker)
    job = ask_parsed(broker, client, "ADDJOB", "q", "x", 0)
    ask(broker, client, "ACKJOB", job)
    keep_ms = 2 * broker.settings.cluster_node_timeout
    advance(broker, keep_ms - 100)
    assert broker.ends.get(job) == COMPLETED
    advance(broker, keep_ms + 200)
    assert broker.ends.get(job) == 0


def test_the_status_of_the_end_is_that_of_the_job():
    """Spec RW5."""
    broker = make_broker()
    client = make_client(broker)
    canceled = hold_queued(broker, number=1).id
    expired = hold_queued(broker, number=2, ttl_s=60).id
    ask(broker, client, "CANCELJOB", canceled)
    assert broker.ends.get(canceled) == CANCELED
    advance(broker, 61_000)
    assert broker.ends.get(expired) == EXPIRED


def test_many_ends_make_a_generation_short():
    """Spec RW5: the table is bounded."""
    ends = Ends(30_000)
    for number in range(3):
        ends.recent.update(dict.fromkeys([b"%d %d" % (number, at) for at in range(GENERATION_MAX)], COMPLETED))
        ends.expire(1)
    assert ends.get(b"0 0") == 0
    assert ends.get(b"2 0") == COMPLETED


def test_only_ids_that_are_waited_for_are_noted():
    """Spec RW5."""
    ends = Ends(30_000)
    ends.watched[make_id(1)] = None
    ends.note(make_id(1))
    ends.note(make_id(2))
    assert list(ends.noted) == [make_id(1)]


def test_a_job_that_was_only_acknowledged_never_ended_here():
    """Spec RW6."""
    broker = make_broker()
    pass_time(broker, 1)
    assert broker.ends.get(make_id(3)) == 0
