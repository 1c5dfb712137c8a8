"""core/keys.py: the keys that are used, and until when."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

from brokers import make_broker
from copies import advance, make_job
from disque_py.core import lifecycle
from disque_py.core.job_attributes import JobAttributes
from disque_py.core.keys import KEY_AT, KEY_END, USED_BYTES, key_chars
from journaled import JournaledNode


def keyed(broker, number=1, *, key=b"k", ttl_s=60):
    job = make_job(broker, number=number, ttl_s=ttl_s)
    job.id = broker.ids.keyed(key_chars(b"q", key), job.id)
    job.attributes = JobAttributes(None, (), is_keyed=True)
    lifecycle.register(broker, job)
    lifecycle.arm(broker, job)
    return job


def test_the_characters_are_those_of_queue_and_key():
    """The length comes first, so that no two pairs run together. These bytes never change. Spec K1."""
    assert key_chars(b"q", b"k") == b64encode(sha256(b"\0\0\0\1qk").digest())[:18]
    assert key_chars(b"q", b"k") == b"prgSoYArcQU9COXnXK"
    assert key_chars(b"ab", b"c") != key_chars(b"a", b"bc")


def test_an_id_says_its_key_and_is_still_new():
    broker = make_broker()
    first, second = keyed(broker, 1), keyed(broker, 2)
    assert first.id[KEY_AT:KEY_END] == second.id[KEY_AT:KEY_END]
    assert first.id != second.id
    assert first.id[35:] == make_job(broker, ttl_s=60).id[35:]


def test_the_first_job_of_a_key_is_the_one_that_is_named():
    """Two come into being when nodes could not ask each other; they are never merged."""
    broker = make_broker()
    first, second = keyed(broker, 1), keyed(broker, 2)
    assert broker.producers.keys.named(first.id[KEY_AT:KEY_END]) == first.id
    lifecycle.creation_aborted(broker, first)
    assert broker.producers.keys.named(first.id[KEY_AT:KEY_END]) == second.id


def test_a_key_stays_used_until_the_ttl_of_its_job_is_over():
    """Spec K6."""
    broker = make_broker()
    job = keyed(broker)
    lifecycle.forget(broker, job)
    advance(broker, 59_000)
    assert broker.producers.keys.named(job.id[KEY_AT:KEY_END]) == job.id
    advance(broker, 1_001)
    assert broker.producers.keys.named(job.id[KEY_AT:KEY_END]) == b""


def test_remembered_keys_are_forgotten_in_the_end():
    broker = make_broker()
    jobs = [keyed(broker, number, key=b"%d" % number) for number in range(50)]
    for job in jobs:
        lifecycle.forget(broker, job)
    assert broker.used_memory == 50 * USED_BYTES
    advance(broker, 80_000)
    assert (broker.used_memory, broker.producers.keys.jobs, broker.producers.keys.over) == (0, {}, {})


def test_a_job_that_was_not_created_leaves_its_key_free():
    broker = make_broker()
    job = keyed(broker)
    lifecycle.creation_aborted(broker, job)
    lifecycle.forget(broker, job)
    assert broker.producers.keys.named(job.id[KEY_AT:KEY_END]) == b""


def test_an_expired_job_leaves_its_key_free():
    broker = make_broker()
    job = keyed(broker)
    advance(broker, 60_100)
    assert (broker.find(job.id), broker.producers.keys.named(job.id[KEY_AT:KEY_END])) == (None, b"")


def add(node, *words):
    got = node.ask("ADDJOB", "q", "body", 0, *words)
    node.settle()
    (reply,) = got + node.taken()
    return reply


def test_a_finished_key_is_used_after_a_restart_until_its_ttl_is_over():
    node = JournaledNode()
    node.settle()
    first = add(node, "KEY", "k", "TTL", 60)
    node.ask("ACKJOB", first)
    node.settle()
    node = node.restart(away_ms=30_000)
    assert add(node, "KEY", "k") == first
    node = node.restart(away_ms=31_000)
    assert add(node, "KEY", "k") != first


def test_the_key_of_a_living_job_is_used_after_a_restart():
    node = JournaledNode()
    node.settle()
    first = add(node, "KEY", "k")
    node = node.restart()
    assert add(node, "KEY", "k") == first


def test_keys_survive_rewrites_and_a_journal_that_is_switched_on():
    node = JournaledNode(appendonly=False)
    node.settle()
    first = add(node, "KEY", "k")
    node.ask("ACKJOB", first)
    node.settle()
    node.taken()
    node.ask("CONFIG", "SET", "appendonly", "yes")
    node.settle(1_000)
    node.taken()
    for _ in range(4):
        add(node)
        node.ask("BGREWRITEAOF")
        node.settle(2_000)
        node.taken()
    node = node.restart(appendonly=True)
    assert add(node, "KEY", "k") == first
