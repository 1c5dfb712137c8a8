"""commands/enqueuing.py: ENQUEUE, DEQUEUE and LOADJOB."""

from __future__ import annotations

from brokers import add_job, ask, ask_parsed, error_of, make_broker, make_client
from copies import advance, deliver, hold, hold_queued, queue_of
from disque_py.core.incremental import PART
from disque_py.core.job import ACTIVE, QUEUED
from disque_py.node import dispatch


def start():
    broker = make_broker()
    return broker, make_client(broker)


def test_nack_and_enqueue_grow_different_counters():
    """Spec L8."""
    broker, client = start()
    job = hold(broker)
    ask(broker, client, "NACK", job.id)
    deliver(broker)
    ask(broker, client, "ENQUEUE", job.id)
    assert (job.nacks, job.deliveries, broker.stats.jobs_nacked) == (1, 1, 1)


def test_a_long_enqueue_is_refused_as_a_whole_for_the_last_of_its_jobs():
    broker, client = start()
    jobs = [hold(broker, number=number) for number in range(2 * PART)]
    last = hold(broker, number=5_000, queue=b"paused")
    ask(broker, client, "PAUSE", "paused", "in")
    assert in_parts(broker, client, "ENQUEUE", *(job.id for job in jobs), last.id).startswith(b"-PAUSED")
    assert all(job.state == ACTIVE for job in jobs)


def test_a_job_that_is_pending_in_a_paused_queue_refuses_the_enqueue_of_others():
    """Spec U1: the queue of any id. A job that is over is in no queue."""
    broker, client = start()
    waiting = hold(broker)
    pending = hold_queued(broker, number=2, queue=b"paused")
    ask(broker, client, "PAUSE", "paused", "in")
    assert ask(broker, client, "ENQUEUE", waiting.id, pending.id).startswith(b"-PAUSED")
    assert waiting.state == ACTIVE
    ask(broker, client, "ACKJOB", pending.id)
    assert ask(broker, client, "ENQUEUE", waiting.id, pending.id) == b":1\r\n"


def test_a_queue_that_is_paused_while_a_long_enqueue_is_under_way_gets_no_more():
    broker, client = start()
    jobs = [hold(broker, number=number) for number in range(2 * PART)]
    others = make_client(broker)
    assert ask(broker, client, "ENQUEUE", *(job.id for job in jobs)) == b""
    while not broker.queue(b"q").length:
        dispatch.tick(broker)
    ask(broker, others, "PAUSE", "q", "in")
    queued = broker.queue(b"q").length
    while client.waiting:
        dispatch.tick(broker)
    assert broker.queue(b"q").length == queued < 2 * PART
    assert client.out == [b":%d\r\n" % queued]


def in_parts(broker, client, *words):
    """Send an incremental command, and return its whole reply."""
    reply = ask(broker, client, *words)
    while client.waiting:
        dispatch.tick(broker)
    return reply + b"".join(client.out)


def test_the_first_enqueue_of_a_delayed_job_does_not_count_as_a_delivery():
    broker, client = start()
    job = add_job(broker, client, "DELAY", 100)
    assert ask_parsed(broker, client, "ENQUEUE", job.id) == 1
    assert (job.state, job.deliveries) == (QUEUED, 0)


def test_a_delivered_at_most_once_job_is_never_queued_again():
    """Spec O1."""
    broker, client = start()
    job = add_job(broker, client, "RETRY", 0)
    deliver(broker)
    assert [ask_parsed(broker, client, command, job.id) for command in ("NACK", "ENQUEUE")] == [0, 0]


def test_a_dequeued_at_most_once_job_is_not_lost():
    """In the original, nothing queued such a job again (spec Q6)."""
    broker, client = start()
    job = add_job(broker, client, "RETRY", 0)
    assert ask_parsed(broker, client, "DEQUEUE", job.id) == 1
    assert queue_of(broker) == []
    assert ask_parsed(broker, client, "ENQUEUE", job.id) == 1
    assert ask_parsed(broker, client, "GETJOB", "FROM", "q")[0][1] == job.id


def test_a_dequeued_job_comes_back_after_its_retry():
    broker, client = start()
    job = add_job(broker, client, "RETRY", 5)
    ask(broker, client, "DEQUEUE", job.id)
    advance(broker, 4700)
    assert queue_of(broker) == []
    advance(broker, 700)
    assert queue_of(broker) == [job.id]


def test_loadjob_is_refused_to_all_clients():
    broker, client = start()
    assert error_of(broker, client, "LOADJOB", "blob") == ("ERR LOADJOB is a special command only processed from AOF")
