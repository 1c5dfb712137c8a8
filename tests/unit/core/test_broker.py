"""core/broker.py: the memory of one node, and its accounts."""

from __future__ import annotations

import pytest

from brokers import WALL_MS, add_node, make_broker
from cluster_bus.messages import PAUSE
from cluster_bus.node import FAIL, HANDSHAKE
from copies import hold, make_id, sent
from disque_py.core.broker import JITTER_MS
from disque_py.core.queue import QUEUE_BYTES


def test_a_job_is_found_by_its_id_only():
    broker = make_broker()
    job = hold(broker)
    assert broker.find(job.id) is job
    assert broker.find(make_id(2)) is None
    assert broker.find(b"x" * 40) is None


def test_jobs_are_spread_over_the_shards():
    broker = make_broker()
    for number in range(500):
        hold(broker, number=number)
    assert max(map(len, broker.shards)) < 10


def test_ctime_is_the_wall_clock_and_grows_strictly():
    """Jobs of one millisecond get one more each; a clock that steps back changes nothing."""
    broker = make_broker()
    first = broker.next_ctime()
    assert first == WALL_MS * 1_000_000
    assert broker.next_ctime() == first + 1
    broker.wall_ms -= 5000
    assert broker.next_ctime() == first + 2
    broker.wall_ms += 6000
    assert broker.next_ctime() == broker.wall_ms * 1_000_000


def test_jitter_is_a_quarter_second_at_most_and_drawn_from_the_given_generator():
    """Spec N8."""
    broker = make_broker(seed=5)
    drawn = [broker.jitter() for _ in range(3000)]
    assert (min(drawn), max(drawn)) == (-JITTER_MS, JITTER_MS - 1)
    assert drawn == [again.jitter() for again in [make_broker(seed=5)] for _ in range(3000)]


def test_a_queue_is_made_once_and_its_memory_is_counted():
    broker = make_broker()
    queue = broker.queue(b"orders")
    assert broker.queue(b"orders") is queue
    assert broker.used_memory == QUEUE_BYTES + 6
    broker.drop_queue(queue)
    assert (broker.queues, broker.used_memory, queue.is_dropped) == ({}, 0, True)


def test_a_dropped_queue_is_on_no_list():
    broker = make_broker()
    queue = broker.queue(b"q")
    broker.ready[queue] = broker.consumers.hint_due[queue] = broker.consumers.interest_due[queue] = None
    broker.upkeep.sweeps[queue] = queue.sweep()
    broker.drop_queue(queue)
    assert (broker.ready, broker.consumers.hint_due, broker.consumers.interest_due, broker.upkeep.sweeps) == (
        {},
        {},
        {},
        {},
    )


def test_the_order_of_queues_is_cleaned_now_and_then():
    broker = make_broker()
    for number in range(3000):
        broker.drop_queue(broker.queue(b"%d" % number))
    assert len(broker.queue_order) <= 1026


def test_a_new_queue_knows_which_nodes_are_interested_already():
    broker = make_broker()
    node = add_node(broker)
    broker.consumers.interest[b"q"] = {node: 2}
    assert broker.queue(b"q").interested == {node: 2}


def test_members_are_all_others_known_by_id():
    broker = make_broker()
    known, failed = add_node(broker, 2), add_node(broker, 3)
    failed.flags |= FAIL
    add_node(broker, 4, is_linked=False).flags |= HANDSHAKE
    assert broker.members() == [known, failed]


def test_a_pause_is_told_with_its_version():
    broker = make_broker()
    node = add_node(broker)
    broker.pauses.versions[b"q"] = (3, 77, b"v" * 20)
    broker.tell_pause((node,), b"q")
    assert sent(broker) == [((node,), PAUSE, (b"q", 3, 77, b"v" * 20))]


@pytest.mark.parametrize(("maxmemory", "limits"), [(1000, (750, 950, 1000)), (1_073_741_824, None)])
def test_marks_are_whole_percents_of_maxmemory(maxmemory, limits):
    broker = make_broker(maxmemory=maxmemory)
    assert broker.memory.limits == (limits or (maxmemory // 100 * 75, maxmemory // 100 * 95, maxmemory))


def test_the_run_id_of_the_broker_is_that_of_its_node():
    broker = make_broker()
    assert broker.run == broker.me.run
    assert len(broker.run) == 8
    assert len(broker.run_name) == 40
