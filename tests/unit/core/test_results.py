"""core/results.py: results of finished jobs."""

from __future__ import annotations

import pytest

from brokers import ask, make_broker, make_client, pass_time
from copies import advance, make_id
from disque_py.core import memory
from disque_py.core.results import RESULT_BYTES, read_item
from journaled import JournaledNode

ID = make_id(1)
NODE = bytes(20)


def test_a_result_counts_in_memory_until_it_is_forgotten():
    """Spec RW1."""
    broker = make_broker()
    before = broker.used_memory
    broker.results.put(ID, b"12345", 2, NODE, 3_000)
    assert broker.used_memory == before + RESULT_BYTES + 5
    pass_time(broker, 3_000)
    assert broker.results.get(ID) is None
    advance(broker, 2_000)
    assert (broker.used_memory, broker.results.by_id) == (before, {})


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_the_result_of_the_first_ack_stays_in_whatever_order_they_come(order):
    """Spec RW2."""
    broker = make_broker()
    acks = [(b"first", 3, NODE), (b"second", 3, b"x" * 20), (b"third", 4, NODE)]
    for at in order:
        broker.results.put(ID, *acks[at], 3_000)
    assert broker.results.get(ID) == b"first"


def test_without_retention_a_result_goes_with_its_job():
    """Spec RW1."""
    broker = make_broker()
    broker.results.put(ID, b"r", 2, NODE, 0)
    pass_time(broker, 1_000_000)
    assert broker.results.get(ID) == b"r"
    broker.results.job_is_over(ID)
    assert broker.results.get(ID) is None


def test_a_result_with_retention_outlives_its_job():
    """Spec RW1."""
    broker = make_broker()
    broker.results.put(ID, b"r", 2, NODE, 1_000)
    broker.results.job_is_over(ID)
    assert broker.results.get(ID) == b"r"


def test_when_memory_is_short_results_go_first_and_the_oldest_of_them():
    """Spec RW1."""
    broker = make_broker(maxmemory=1_000_000, maxmemory_policy="noeviction")
    for number in range(20):
        broker.results.put(make_id(number), bytes(60_000), 2, NODE, 1_000_000)
    assert memory.make_room(broker)
    assert broker.used_memory <= broker.memory.limits[1]
    assert next(iter(broker.results.by_id)) == make_id(broker.stats.results_dropped)


def test_flushall_forgets_results():
    broker = make_broker()
    broker.results.put(ID, b"r", 2, NODE, 1_000)
    ask(broker, make_client(broker), "DEBUG", "FLUSHALL")
    assert (broker.results.by_id, broker.results.bytes, broker.used_memory) == ({}, 0, 0)


@pytest.mark.plain
@pytest.mark.parametrize(
    "item",
    [(ID, "text", 1, NODE), (ID, b"r", -1, NODE), (ID, b"r", 1, b"short"), (ID, b"r", 0, NODE), (1, b"r", 0, b"")],
)
def test_a_result_that_no_node_sends_is_refused(item):
    with pytest.raises(ValueError, match="result"):
        read_item(item)


@pytest.mark.parametrize("retention_s", [0, 60])
def test_a_result_survives_a_restart_and_a_rewrite_as_long_as_it_is_kept(retention_s):
    """Spec RW1."""
    node = JournaledNode()
    node.settle()
    node.answer("QUEUE", "SET", "q", "result-retention", retention_s)
    job = node.answer("ADDJOB", "q", "x", 0)
    assert node.answer("ACKJOB", job, "RESULT", "kept") == 1
    node.ask("BGREWRITEAOF")
    node.settle(2_000)
    again = node.restart(away_ms=30_000)
    assert again.broker.results.get(job) == (b"kept" if retention_s else None)
    later = again.restart(away_ms=31_000)
    assert later.broker.results.by_id == {}


def test_a_result_of_a_node_without_the_job_takes_no_place():
    """Spec RW2: it has no pair, and gives way to one that has."""
    broker = make_broker()
    assert broker.results.put(ID, b"late", 0, b"", 0)
    assert broker.results.put(ID, b"first", 2, NODE, 1_000)
    assert not broker.results.put(ID, b"late", 0, b"", 0)
    assert broker.results.get(ID) == b"first"


def test_a_result_is_held_as_long_as_its_queue_says_once_the_copy_comes():
    """Spec RW1, RW10: a result that is held already stays as it is."""
    broker = make_broker()
    broker.results.put(ID, b"r", 0, b"", 0)
    broker.results.hold(ID, 5_000, 3)
    broker.results.hold(ID, 9_000, 4)
    assert broker.results.item(ID) == (ID, b"r", 3, broker.me.id)
    assert broker.results.by_id[ID].expire_at_ms == broker.now_ms + 5_000
