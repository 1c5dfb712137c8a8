"""core/tokens.py: deliveries that a client can ask for again."""

from __future__ import annotations

from brokers import make_broker, pass_time
from copies import advance, deliver, hold_queued
from disque_py.core import client_acks, lifecycle, requeue
from disque_py.core.tokens import ENTRY_BYTES, TOKEN_BYTES, WALK_EVERY_MS
from journaled import JournaledNode


def lease(broker, *numbers, name=b"t", retry_s=30):
    jobs = [hold_queued(broker, number=number, retry_s=retry_s) for number in numbers]
    for _ in jobs:
        broker.tokens.add(name, deliver(broker))
    return jobs


def test_a_token_holds_its_jobs_in_the_order_of_delivery():
    broker = make_broker()
    jobs = lease(broker, 1, 2, 3)
    assert broker.tokens.held(b"t") == jobs
    assert broker.tokens.held(b"other") == []


def test_a_job_that_is_done_leaves_and_the_last_one_takes_the_token_along():
    broker = make_broker()
    first, second = lease(broker, 1, 2)
    used = broker.used_memory
    client_acks.ack_here(broker, first.id)
    assert broker.tokens.held(b"t") == [second]
    lifecycle.forget(broker, second)
    assert not broker.tokens
    assert not broker.tokens.by_job
    assert used - broker.used_memory >= 2 * ENTRY_BYTES + TOKEN_BYTES


def test_a_lease_that_ended_is_not_held_even_if_the_job_is_delivered_again():
    broker = make_broker()
    (job,) = lease(broker, 1)
    requeue.release(broker, job)
    assert deliver(broker) is job
    assert broker.tokens.held(b"t") == []


def test_a_delivery_belongs_to_its_last_token():
    broker = make_broker()
    (job,) = lease(broker, 1)
    broker.tokens.add(b"u", job)
    assert (broker.tokens.held(b"t"), broker.tokens.held(b"u")) == ([], [job])


def test_the_same_name_may_be_used_again():
    broker = make_broker()
    (job,) = lease(broker, 1)
    broker.tokens.add(b"t", job)
    assert broker.tokens.held(b"t") == [job]


def test_leases_that_ended_are_noticed_without_being_asked():
    """A worker that never comes back costs no memory for ever."""
    broker = make_broker()
    lease(broker, 1, 2, retry_s=5)
    advance(broker, 6_000 + WALK_EVERY_MS + 300)
    assert not broker.tokens.by_name


def test_no_job_is_held_after_its_lease_even_before_it_is_requeued():
    broker = make_broker()
    lease(broker, 1, retry_s=5)
    pass_time(broker, 5_000)
    assert broker.tokens.held(b"t") == []


def get(node, *words):
    (reply,) = node.ask("GETJOB", *words) or [None]
    node.settle()
    return reply if reply is not None else node.taken()[0]


def leasing_node(**settings):
    node = JournaledNode(**settings)
    node.settle()
    for body in "abc":
        node.ask("ADDJOB", "q", body, 0, "RETRY", 60)
        node.settle()
    node.taken()
    return node


def test_a_token_survives_a_crash_with_its_order():
    """Spec G2."""
    node = leasing_node()
    got = get(node, "COUNT", 2, "TOKEN", "t", "FROM", "q")
    node = node.restart(away_ms=1000)
    assert get(node, "TOKEN", "t", "FROM", "q") == got
    node.ask("ACKTOKEN", "t")
    node.settle()
    assert node.taken() == [2]


def test_a_token_grows_record_by_record_and_is_whole_again_after_a_rewrite():
    node = leasing_node()
    first = get(node, "TOKEN", "t", "FROM", "q")
    job = node.broker.find(next(iter(node.broker.tokens.by_name[b"t"].jobs)).id)
    node.broker.tokens.add(b"t", job)
    for _ in range(3):
        node.ask("BGREWRITEAOF")
        node.settle(2_000)
    node = node.restart()
    assert get(node, "TOKEN", "t", "FROM", "q") == first


def test_a_token_without_running_leases_is_not_restored():
    node = leasing_node()
    get(node, "LEASE", 5, "TOKEN", "t", "FROM", "q")
    node = node.restart(away_ms=6_000)
    assert not node.broker.tokens
