"""commands/jobs.py: commands on existing jobs, and the order in which they are refused."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, ask_parsed, error_of, make_broker, make_client, pass_time
from cluster_bus.messages import LEASED
from copies import advance, deliver, hold, hold_queued, make_id, queue_of, sent_of
from disque_py.core import acks
from disque_py.core.incremental import PART
from disque_py.core.job import ACKED, ACTIVE, QUEUED
from disque_py.node import dispatch

SHOW_NAMES = (
    "id", "queue", "state", "repl", "ttl", "ctime", "delay", "retry", "nacks", "additional-deliveries",
    "nodes-delivered", "nodes-confirmed", "next-requeue-within", "next-awake-within", "body", "attempt", "leased",
    "priority", "meta", "status", "attempts", "attempts-left", "error", "backoff", "delay-ms", "retry-ms", "ttl-ms",
    "copies", "repairing", "progress", "progress-text", "result", "batch", "topic", "key-window-ms",
)  # fmt: skip


def start():
    broker = make_broker()
    return broker, make_client(broker)


def add(broker, client, *words):
    """An ADDJOB that is answered at once; its job."""
    reply = ask(broker, client, "ADDJOB", "q", "body", 0, *words)
    assert reply.startswith(b"+D-"), reply
    return broker.find(reply[1:-2])


def show(broker, client, job_id):
    values = ask_parsed(broker, client, "SHOW", job_id)
    return {name.decode(): value for name, value in zip(values[::2], values[1::2], strict=True)}


# -- commands with ids --------------------------------------------------------------------------------------

ID_COMMANDS = ("ACKJOB", "FASTACK", "DELJOB", "NACK", "ENQUEUE", "DEQUEUE")


@pytest.mark.parametrize("command", ID_COMMANDS)
def test_without_ids_nothing_is_done(command):
    broker, client = start()
    assert ask(broker, client, command) == b":0\r\n"


@pytest.mark.parametrize("command", ID_COMMANDS)
@pytest.mark.parametrize("position", [0, 1])
def test_one_bad_id_and_nothing_is_done(command, position):
    """Spec R11."""
    broker, client = start()
    job = hold(broker)
    ids = [job.id, "nonsense"] if position else ["nonsense", job.id]
    assert error_of(broker, client, command, *ids) == "BADID Invalid Job ID format."
    assert job.state == ACTIVE


@pytest.mark.parametrize("command", ["ACKJOB", "SHOW", "WORKING"])
def test_a_single_bad_id_is_refused(command):
    broker, client = start()
    assert error_of(broker, client, command, "x" * 40) == "BADID Invalid Job ID format."


@pytest.mark.parametrize(
    ("command", "state", "count"),
    [("ACKJOB", ACTIVE, 1), ("ACKJOB", QUEUED, 1), ("ACKJOB", ACKED, 0), ("FASTACK", ACTIVE, 1), ("FASTACK", ACKED, 1),
     ("DELJOB", QUEUED, 1), ("DELJOB", ACKED, 1), ("NACK", ACTIVE, 1), ("NACK", QUEUED, 0), ("NACK", ACKED, 0),
     ("ENQUEUE", ACTIVE, 1), ("ENQUEUE", QUEUED, 0), ("ENQUEUE", ACKED, 0), ("DEQUEUE", QUEUED, 1),
     ("DEQUEUE", ACTIVE, 0), ("DEQUEUE", ACKED, 0)],
)  # fmt: skip
def test_each_counts_the_jobs_it_changed(command, state, count):
    broker, client = start()
    node = add_node(broker)
    job = hold_queued(broker, node) if state == QUEUED else hold(broker, node)
    if state == ACKED:
        acks.acknowledge(broker, job)
    assert ask_parsed(broker, client, command, job.id, make_id(9, retry_s=0)) == count


@pytest.mark.parametrize("command", ID_COMMANDS)
def test_an_id_named_twice_counts_once(command):
    broker, client = start()
    job = hold_queued(broker) if command == "DEQUEUE" else hold(broker)
    assert ask_parsed(broker, client, command, job.id, job.id) == 1


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
    """The reply of a long command."""
    reply = ask(broker, client, *words)
    while client.waiting:
        dispatch.tick(broker)
    return reply + b"".join(client.out)


def test_the_first_enqueue_of_a_delayed_job_is_no_additional_delivery():
    broker, client = start()
    job = add(broker, client, "DELAY", 100)
    assert ask_parsed(broker, client, "ENQUEUE", job.id) == 1
    assert (job.state, job.deliveries) == (QUEUED, 0)


def test_a_delivered_at_most_once_job_is_never_queued_again():
    """Spec O1."""
    broker, client = start()
    job = add(broker, client, "RETRY", 0)
    deliver(broker)
    assert [ask_parsed(broker, client, command, job.id) for command in ("NACK", "ENQUEUE")] == [0, 0]


def test_a_dequeued_at_most_once_job_is_not_lost():
    """In the original nothing brought it back (spec Q6)."""
    broker, client = start()
    job = add(broker, client, "RETRY", 0)
    assert ask_parsed(broker, client, "DEQUEUE", job.id) == 1
    assert queue_of(broker) == []
    assert ask_parsed(broker, client, "ENQUEUE", job.id) == 1
    assert ask_parsed(broker, client, "GETJOB", "FROM", "q")[0][1] == job.id


def test_a_dequeued_job_comes_back_after_its_retry():
    broker, client = start()
    job = add(broker, client, "RETRY", 5)
    ask(broker, client, "DEQUEUE", job.id)
    advance(broker, 4700)
    assert queue_of(broker) == []
    advance(broker, 700)
    assert queue_of(broker) == [job.id]


def test_deljob_tells_no_other_node():
    """Spec A12."""
    broker, client = start()
    job = hold(broker, add_node(broker))
    ask(broker, client, "DELJOB", job.id)
    assert [kind for _, kind, _ in broker.outbox.messages.take() if kind >= 32] == []


# -- WORKING ----------------------------------------------------------------------------------------------


def test_working_answers_retry_and_begins_the_lease_anew():
    broker, client = start()
    node = add_node(broker)
    hold_queued(broker, node, retry_s=30)
    job = deliver(broker)
    pass_time(broker, 20_000)
    assert ask_parsed(broker, client, "WORKING", job.id) == 30
    assert job.requeue_at_ms == broker.now_ms + 30_000
    assert sent_of(broker, LEASED) == [((node,), (job.id, 30_000, 1, 2))]


def test_working_takes_a_queued_job_out_of_its_queue():
    broker, client = start()
    job = hold_queued(broker)
    ask(broker, client, "WORKING", job.id)
    assert (job.state, queue_of(broker), job.is_leased_here) == (ACTIVE, [], True)


def test_working_does_not_lose_a_queued_at_most_once_job():
    """In the original it was gone (spec Q6)."""
    broker, client = start()
    job = hold_queued(broker, retry_s=0)
    assert ask_parsed(broker, client, "WORKING", job.id) == 0
    assert queue_of(broker) == [job.id]


def test_working_is_refused_for_unknown_and_acknowledged_jobs():
    """The original answered the RETRY of an acknowledged one (spec Q17)."""
    broker, client = start()
    assert error_of(broker, client, "WORKING", make_id()) == "NOJOB Job not known in the context of this node."
    job = hold(broker, add_node(broker))
    acks.acknowledge(broker, job)
    assert error_of(broker, client, "WORKING", job.id).startswith("NOJOB")


@pytest.mark.parametrize(("age_s", "is_late"), [(49, False), (50, False), (51, True)])
def test_working_is_too_late_when_more_than_half_of_the_ttl_is_over(age_s, is_late):
    """Spec L7."""
    broker, client = start()
    job = add(broker, client, "TTL", 100, "RETRY", 10)
    pass_time(broker, age_s * 1000)
    reply = ask(broker, client, "WORKING", job.id)
    assert reply.startswith(b"-TOOLATE Half of job TTL already elapsed") is is_late


# -- SHOW -------------------------------------------------------------------------------------------------


def test_show_has_the_original_fields_in_their_order_and_ours_behind():
    broker, client = start()
    job = add(broker, client, "TTL", 100, "RETRY", 10, "DELAY", 5)
    pass_time(broker, 1500)
    values = show(broker, client, job.id)
    assert tuple(values) == SHOW_NAMES
    assert values == {
        "id": job.id, "queue": b"q", "state": b"active", "repl": 1, "ttl": 99, "ctime": job.ctime, "delay": 5,
        "retry": 10, "nacks": 0, "additional-deliveries": 0, "nodes-delivered": [broker.me.name],
        "nodes-confirmed": [], "next-requeue-within": 3500, "next-awake-within": 3500, "body": b"body", "attempt": 0,
        "leased": 0, "priority": broker.wall_ms - 1500, "meta": [], "status": b"invisible", "attempts": 0,
        "attempts-left": None, "error": None, "backoff": None, "delay-ms": 5_000, "retry-ms": 10_000, "ttl-ms": 98_500,
        "copies": 1, "repairing": 0, "progress": None, "progress-text": None, "result": None, "batch": None,
        "topic": None, "key-window-ms": None,
    }  # fmt: skip


def test_show_of_a_job_with_a_consumer():
    broker, client = start()
    job = add(broker, client, "RETRY", 10)
    ask(broker, client, "GETJOB", "FROM", "q")
    pass_time(broker, 4000)
    values = show(broker, client, job.id)
    assert (values["state"], values["attempt"], values["leased"], values["next-requeue-within"]) == (
        b"active",
        1,
        1,
        6000,
    )


def test_show_of_a_job_that_waits_for_copies():
    broker, client = start()
    node = add_node(broker)
    ask(broker, client, "ADDJOB", "q", "body", 0)
    (job,) = broker.copies.waiting_repl
    values = show(broker, make_client(broker), job.id)
    assert (values["state"], values["nodes-confirmed"]) == (b"wait-repl", [broker.me.name])
    assert values["nodes-delivered"] == sorted([broker.me.name, node.name])


def test_show_of_a_dummy_ack_has_no_leftovers():
    """The original printed those of earlier jobs (spec Q23)."""
    broker, client = start()
    add_node(broker)
    ask(broker, client, "ACKJOB", make_id(ttl_s=600))
    values = show(broker, client, make_id(ttl_s=600))
    assert (values["queue"], values["body"], values["state"]) == (None, None, b"acked")
    assert [values[name] for name in ("repl", "ctime", "delay", "retry")] == [0, 0, 0, 0]
    assert values["next-requeue-within"] is None


def test_show_of_an_unknown_job_is_nil():
    broker, client = start()
    assert ask(broker, client, "SHOW", make_id()) == b"$-1\r\n"


def test_loadjob_is_refused_to_all_clients():
    broker, client = start()
    assert error_of(broker, client, "LOADJOB", "blob") == ("ERR LOADJOB is a special command only processed from AOF")
