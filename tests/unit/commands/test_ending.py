"""commands/ending.py: DELJOB on one node, and CANCELJOB."""

from __future__ import annotations

from brokers import add_job, add_node, ask, ask_parsed, error_of, make_broker, make_client, shown
from copies import advance, hold, make_id


def start():
    broker = make_broker()
    return broker, make_client(broker)


def get(broker, client, *words):
    """Send GETJOB NOHANG. Return the id of the job, or None."""
    jobs = ask_parsed(broker, client, "GETJOB", "NOHANG", *words, "FROM", "q")
    return jobs[0][1] if jobs else None


def test_deljob_tells_no_other_node():
    """Spec A12."""
    broker, client = start()
    job = hold(broker, add_node(broker))
    ask(broker, client, "DELJOB", job.id)
    assert [kind for _, kind, _ in broker.outbox.messages.take() if kind >= 32] == []


def test_a_canceled_job_is_not_delivered():
    """Spec Y8."""
    broker, client = start()
    job = add_job(broker, client)
    assert ask_parsed(broker, client, "CANCELJOB", job.id) == 1
    assert ask_parsed(broker, client, "CANCELJOB", job.id) == 0
    assert get(broker, client) is None


def test_the_worker_of_a_canceled_job_hears_so_until_its_lease_is_over():
    """Spec Y8."""
    broker, client = start()
    job = add_job(broker, client, "RETRY", 5)
    get(broker, client)
    assert ask_parsed(broker, client, "CANCELJOB", job.id) == 1
    assert error_of(broker, client, "WORKING", job.id) == "CANCELED The job was canceled"
    assert shown(broker, client, job.id)["status"] == b"canceled"
    assert ask_parsed(broker, client, "NACK", job.id) == 0
    assert ask_parsed(broker, client, "ACKJOB", job.id) == 0
    advance(broker, 6_000)
    assert broker.find(job.id) is None


def test_canceljob_takes_ids_and_a_fence_only():
    """Spec Y11."""
    broker, client = start()
    assert error_of(broker, client, "CANCELJOB", make_id(1), "ATTEMPT", 1) == "BADID Invalid Job ID format."
