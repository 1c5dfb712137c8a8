"""core/batch_state.py: batches as one node knows them."""

from __future__ import annotations

from brokers import ask, make_broker, make_client
from copies import advance, make_id
from disque_py.core.batch_state import BATCH_BYTES, ID_BYTES, LIVE, RECORDED_MAX, packed_entry
from disque_py.core.id_sets import ENTRY_BYTES, pack_id
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


def test_records_of_an_older_journal_count():
    """Spec BT3: they do not say whether the name was deleted before."""
    broker = make_broker()
    key = pack_id(make_id(1))
    for life in (0, 1):
        broker.batches.restored(b"b", 3, life, packed_entry(key, LIVE, 1), 1)
    assert broker.batches.by_name[b"b"].count == 1


def test_no_record_and_no_part_of_a_walk_has_many_ids():
    """Spec BT3: a new journal gets a million ids in small parts, and each entry of a part once."""
    broker = make_broker()
    broker.is_journaling = True
    batch = broker.batches.get(b"b")
    for number in range(3 * RECORDED_MAX):
        broker.batches.enter(batch, pack_id(make_id(number)), LIVE, 1)
    records = broker.batches.take_records()
    assert max(len(data) for _, _, _, data in records) <= RECORDED_MAX * ENTRY_BYTES
    taken = [
        sum(len(data) // ENTRY_BYTES for *_, data in broker.batches.take_records()) for _ in broker.batches.record_all()
    ]
    assert len(taken) >= 2
    assert max(taken) <= 2 * RECORDED_MAX
    assert sum(taken) + sum(len(data) // ENTRY_BYTES for *_, data in broker.batches.take_records()) == batch.count


def test_a_record_is_written_again_without_entries_that_have_changed():
    """Spec BT3: each segment that goes costs as much as its own records."""
    broker = make_broker()
    broker.is_journaling = True
    batch = broker.batches.get(b"b")
    keys = [pack_id(make_id(number)) for number in range(40)]
    for key in keys:
        broker.batches.enter(batch, key, LIVE, 1)
    records = broker.batches.take_records()
    broker.batches.enter(batch, keys[0], COMPLETED, 2)
    broker.batches.take_records()
    for name, part, _, data in records:
        broker.batches.record_again(name, part, data)
    again = b"".join(data for *_, data in broker.batches.take_records())
    assert len(again) == 39 * ENTRY_BYTES
    assert keys[0] not in again
