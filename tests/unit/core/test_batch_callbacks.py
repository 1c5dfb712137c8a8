"""core/batch_callbacks.py: the job that is added when a batch is done. tests/scenarios/test_batches.py has more."""

from __future__ import annotations

from brokers import ask, host_of, make_broker, make_client
from copies import advance, queue_of
from disque_py.core import batch_callbacks
from disque_py.core.batch_state import CALLBACK_ID


def start():
    """A node alone, with a batch whose only job has ended and whose callback goes to `done`."""
    broker = make_broker()
    client = make_client(broker)
    ask(broker, client, "ADDJOB", "q", "x", 0, "BATCH", "b")
    advance(broker, 100)
    ask(broker, client, "ACKJOB", *queue_of(broker))
    ask(broker, make_client(broker), "BATCH", "CLOSE", "b", "CALLBACK", "done", "over")
    return broker, broker.batches.by_name[b"b"]


def advance_and_wake(broker, span_ms):
    """Pass time, and wake the connections that have replies, as the driver does."""
    advance(broker, span_ms)
    for client in list(broker.outbox.clients):
        client.port.wake()


def test_the_callback_is_a_job_with_the_name_of_its_batch():
    """Spec BT4."""
    broker, batch = start()
    advance_and_wake(broker, 1_000)
    (job_id,) = queue_of(broker, b"done")
    job = broker.find(job_id)
    assert (job.body, list(job.meta)) == (b"over", [batch_callbacks.META_BATCH, b"b"])
    assert batch.fields[CALLBACK_ID] == job_id


def test_a_refused_callback_is_added_again_later():
    """Spec BT4."""
    broker, batch = start()
    ask(broker, make_client(broker), "PAUSE", "done", "in")
    advance_and_wake(broker, 3_000)
    assert CALLBACK_ID not in batch.fields
    ask(broker, make_client(broker), "PAUSE", "done", "none")
    advance_and_wake(broker, 3_000)
    assert queue_of(broker, b"done") == [batch.fields[CALLBACK_ID]]


def test_a_refused_callback_is_logged_once():
    """The line has the batch, the queue and the reason. Otherwise nothing would show why the callback does not come."""
    broker, _ = start()
    ask(broker, make_client(broker), "PAUSE", "done", "in")
    advance_and_wake(broker, 3_000)
    [line] = [str(call[2]) for call in host_of(broker).calls if call[0] == "log" and "callback" in str(call[2])]
    assert line.startswith("batch b: its callback can't be added to the queue done, trying again: PAUSED")


def test_batches_of_one_moment_with_long_names_have_two_callbacks():
    """Spec BT4: a KEY has at most 1,024 bytes, so the names of these batches differ behind its end."""
    broker = make_broker()
    names = [b"x" * 1023 + end for end in (b"1", b"2")]
    for name in names:
        ask(broker, make_client(broker), "ADDJOB", "q", "x", 0, "BATCH", name)
    advance(broker, 100)
    ask(broker, make_client(broker), "ACKJOB", *queue_of(broker))
    for name in names:
        ask(broker, make_client(broker), "BATCH", "CLOSE", name, "CALLBACK", "done", "over")
    advance_and_wake(broker, 1_000)
    callbacks = [list(broker.find(job_id).meta) for job_id in queue_of(broker, b"done")]
    assert sorted(callbacks) == [[batch_callbacks.META_BATCH, name] for name in names]
