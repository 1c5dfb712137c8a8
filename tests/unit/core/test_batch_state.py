"""core/batch_state.py: batches as one node knows them."""

from __future__ import annotations

from brokers import ask, make_broker, make_client
from copies import advance, make_id
from disque_py.core.batch_state import BATCH_BYTES, ID_BYTES, LIVE
from disque_py.core.id_sets import pack_id
from disque_py.event_format import COMPLETED
from journaled import JournaledNode


def test_ids_count_in_memory_until_the_batch_is_forgotten():
    """Spec BT2."""
    broker = make_broker()
    before = broker.used_memory
    batch = broker.batches.get(b"b")
    for number in range(100):
        broker.batches.enter(batch, pack_id(make_id(number)), LIVE, 1)
    assert broker.used_memory == before + BATCH_BYTES + 1 + 100 * ID_BYTES
    assert broker.batches.size == broker.used_memory - before
    broker.batches.drop(batch)
    assert broker.used_memory == before


def test_the_statuses_of_all_parts_add_up():
    """Spec BT2."""
    broker = make_broker()
    batch = broker.batches.get(b"b")
    for number in range(100):
        broker.batches.enter(batch, pack_id(make_id(number)), LIVE, 1)
        broker.batches.enter(batch, pack_id(make_id(number)), COMPLETED if number < 40 else LIVE, 2)
    assert (batch.counts()[LIVE], batch.counts()[COMPLETED], batch.count) == (60, 40, 100)


def test_a_node_counts_its_own_copies_of_a_batchs_jobs():
    broker = make_broker()
    client = make_client(broker)
    ask(broker, client, "ADDJOB", "q", "x", 0, "BATCH", "b")
    advance(broker, 10)
    job = broker.find(next(iter(next(filter(None, broker.shards)))))
    assert broker.batches.by_name[b"b"].held == 1
    ask(broker, client, "ACKJOB", job.id)
    advance(broker, 10)
    assert broker.batches.by_name[b"b"].held == 0


def test_a_restart_and_a_rewrite_lose_no_id():
    """Spec BT3: the settings file has the shared state, the journal has the ids."""
    node = JournaledNode(segment_bytes=2_000)
    node.settle()
    jobs = [node.answer("ADDJOB", "q", "x" * 50, 0, "BATCH", "b") for _ in range(30)]
    for job in jobs[:10]:
        assert node.answer("ACKJOB", job) == 1
    for _ in range(2):
        node.ask("BGREWRITEAOF")
        node.settle(2_000)
    for _ in range(2):
        node = node.restart()
        batch = node.broker.batches.by_name[b"b"]
        assert (batch.count, batch.counts()[COMPLETED], batch.held) == (30, 10, 20)
