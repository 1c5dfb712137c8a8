"""commands/showing.py: the fields of SHOW."""

from __future__ import annotations

from brokers import add_job, add_node, ask, make_broker, make_client, pass_time, shown
from copies import make_id

SHOW_NAMES = (
    "id", "queue", "state", "repl", "ttl", "ctime", "delay", "retry", "nacks", "additional-deliveries",
    "nodes-delivered", "nodes-confirmed", "next-requeue-within", "next-awake-within", "body", "attempt", "leased",
    "priority", "meta", "status", "attempts", "attempts-left", "error", "backoff", "delay-ms", "retry-ms", "ttl-ms",
    "copies", "repairing", "progress", "progress-text", "result", "batch", "topic", "key-window-ms",
)  # fmt: skip


def start():
    broker = make_broker()
    return broker, make_client(broker)


def test_show_has_the_original_fields_in_their_order_and_new_ones_behind():
    broker, client = start()
    job = add_job(broker, client, "TTL", 100, "RETRY", 10, "DELAY", 5)
    pass_time(broker, 1500)
    values = shown(broker, client, job.id)
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
    job = add_job(broker, client, "RETRY", 10)
    ask(broker, client, "GETJOB", "FROM", "q")
    pass_time(broker, 4000)
    values = shown(broker, client, job.id)
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
    values = shown(broker, make_client(broker), job.id)
    assert (values["state"], values["nodes-confirmed"]) == (b"wait-repl", [broker.me.name])
    assert values["nodes-delivered"] == sorted([broker.me.name, node.name])


def test_show_of_a_dummy_ack_has_no_leftovers():
    """The original printed those of earlier jobs (spec Q23)."""
    broker, client = start()
    add_node(broker)
    ask(broker, client, "ACKJOB", make_id(ttl_s=600))
    values = shown(broker, client, make_id(ttl_s=600))
    assert (values["queue"], values["body"], values["state"]) == (None, None, b"acked")
    assert [values[name] for name in ("repl", "ctime", "delay", "retry")] == [0, 0, 0, 0]
    assert values["next-requeue-within"] is None


def test_show_of_an_unknown_job_is_nil():
    broker, client = start()
    assert ask(broker, client, "SHOW", make_id()) == b"$-1\r\n"
