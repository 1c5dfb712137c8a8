"""core/scan.py: a walk returns each item that exists during the whole walk exactly once."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers import add_node, make_broker
from copies import hold, hold_queued, make_id
from disque_py import event_format
from disque_py.core import acks, client_acks, lifecycle
from disque_py.core.broker import SHARDS
from disque_py.core.job import ACKED, ACTIVE, QUEUED
from disque_py.core.scan import LOOKED_PER_PART, JobFilter, QueueFilter, place_of, scan_jobs, scan_queues, shown_status

EVERYTHING = JobFilter()
EVERY_QUEUE = QueueFilter()


def scan(broker, cursor, count, wanted=EVERYTHING, between=lambda: None):
    """Do one call with all its parts; `between` happens in the turns between them."""
    return finish(scan_jobs(broker, cursor, count, wanted), between)


def look(broker, cursor, count, wanted=EVERY_QUEUE, between=lambda: None):
    """Do one call of QSCAN with all its parts."""
    return finish(scan_queues(broker, cursor, count, wanted), between)


def finish(parts, between):
    while True:
        try:
            next(parts)
        except StopIteration as end:
            return end.value
        between()


def walk(broker, count, wanted=EVERYTHING, between=lambda: None):
    """Return all ids of a walk, and the number of calls."""
    cursor, found, calls = 0, [], 0
    while True:
        cursor, jobs = scan(broker, cursor, count, wanted, between)
        found += [job.id for job in jobs]
        calls += 1
        assert calls < 20_000
        if not cursor:
            return found, calls
        between()


def walk_queues(broker, count, between=lambda: None):
    cursor, found = 0, []
    while True:
        cursor, queues = look(broker, cursor, count, between=between)
        found += [queue.name for queue in queues]
        if not cursor:
            return found
        between()


def test_a_job_that_was_acknowledged_elsewhere_is_shown_as_completed():
    """The node with the command notes the status. The others learn the end alone (spec A1)."""
    broker = make_broker()
    b = add_node(broker, 2)
    done, dropped = hold_queued(broker, b), hold_queued(broker, b, number=2)
    done.status = dropped.status = event_format.RUNNING
    acks.acknowledge(broker, done, is_news=False)
    acks.acknowledge(broker, dropped, is_news=False, is_canceled=True)
    assert [shown_status(broker, job) for job in (done, dropped)] == [event_format.COMPLETED, event_format.CANCELED]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.sampled_from((1, 2, 7, 100)))
def test_items_that_are_there_all_the_time_are_returned_exactly_once(seed, count):
    rng = Random(seed)
    broker = make_broker()
    stays = {hold(broker, number=number).id for number in range(rng.randrange(60))}
    passing = {}

    def come_and_go():
        for _ in range(3):
            number = rng.randrange(1000, 1100)
            job = passing.pop(number, None)
            if job is None:
                passing[number] = hold(broker, number=number)
            else:
                lifecycle.forget(broker, job)

    found, _ = walk(broker, count, between=come_and_go)
    assert len(found) == len(set(found))
    assert stays <= set(found)


def test_an_empty_node_is_done_at_once():
    assert scan(make_broker(), 0, 100) == (0, [])


@pytest.mark.parametrize("count", [10, 100])
def test_a_call_returns_about_as_many_as_asked_for(count):
    broker = make_broker()
    for number in range(500):
        hold(broker, number=number)
    _, jobs = scan(broker, 0, count)
    assert count <= len(jobs) <= count + 2
    _, calls = walk(broker, count)
    assert calls <= 500 // count + 1


@pytest.mark.parametrize("count", [-1, -100])
def test_a_negative_count_walks_to_the_end(count):
    broker = make_broker()
    for number in range(200):
        hold(broker, number=number)
    cursor, jobs = scan(broker, 0, count)
    assert (cursor, len(jobs)) == (0, 200)


def test_a_long_walk_is_done_in_parts():
    broker = make_broker()
    for number in range(3 * LOOKED_PER_PART):
        hold(broker, number=number)
    turns = []
    _, jobs = scan(broker, 0, -1, between=lambda: turns.append(1))
    assert len(turns) >= 2
    assert len(jobs) == 3 * LOOKED_PER_PART


def test_jobs_that_vanish_between_two_parts_are_not_returned():
    broker = make_broker()
    jobs = [hold(broker, number=number) for number in range(2 * LOOKED_PER_PART)]

    def drop_all():
        for job in jobs:
            if broker.find(job.id) is job:
                lifecycle.forget(broker, job)

    assert scan(broker, 0, -1, between=drop_all) == (0, [])


def test_a_count_of_zero_makes_progress():
    broker = make_broker()
    ids = {hold(broker, number=number).id for number in range(20)}
    found, _ = walk(broker, 0)
    assert sorted(found) == sorted(ids)


def test_a_call_with_a_filter_that_matches_nothing_is_bounded():
    """At most ten buckets with jobs per wanted item."""
    broker = make_broker()
    for number in range(300):
        hold(broker, number=number)
    cursor, jobs = scan(broker, 0, 1, JobFilter(queue=b"other"))
    assert jobs == []
    assert cursor
    before = [number for number in range(300) if place_of(make_id(number)) < cursor]
    assert len(before) <= 15


@pytest.mark.parametrize("cursor", [SHARDS << 36, 2**64 - 1, 2**48])
def test_a_cursor_behind_the_end_ends_the_scan(cursor):
    broker = make_broker()
    hold(broker)
    assert scan(broker, cursor, 10) == (0, [])


def test_jobs_of_one_place_stay_together():
    """48 bits of an id are its place: two jobs may share it, and neither may be lost between two calls."""
    broker = make_broker()
    twins = []
    for number in range(3):
        job = hold(broker, number=number)
        lifecycle.forget(broker, job)
        job.id = make_id(1)[:20] + b"%015d" % number + make_id(1)[35:]
        job.state, job.awake_at_ms = ACTIVE, 0
        lifecycle.register(broker, job)
        twins.append(job.id)
    hold(broker, number=50)
    assert len({place_of(job_id) for job_id in twins}) == 1
    found, _ = walk(broker, 1)
    assert sorted(found) == sorted([*twins, make_id(50)])


def test_filters_by_queue_and_states():
    broker = make_broker()
    node = add_node(broker)
    active, queued, other = (
        hold(broker, number=1),
        hold_queued(broker, number=2),
        hold_queued(broker, number=3, queue=b"r"),
    )
    acked = hold(broker, node, number=4)
    acks.acknowledge(broker, acked)
    for wanted, expected in (
        (JobFilter(), {active, queued, other, acked}),
        (JobFilter(queue=b"q"), {active, queued, acked}),
        (JobFilter(states=(QUEUED,)), {queued, other}),
        (JobFilter(b"q", (ACTIVE, ACKED)), {active, acked}),
    ):
        assert {job.id for job in expected} == set(walk(broker, 100, wanted)[0])


def test_records_without_holders_are_never_listed():
    broker = make_broker()
    add_node(broker)
    client_acks.ack_here(broker, make_id())
    assert (broker.job_count, walk(broker, 100)[0]) == (1, [])


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.sampled_from((0, 1, 3, 100)))
def test_queues_are_walked_the_same_way(seed, count):
    rng = Random(seed)
    broker = make_broker()
    stays = {b"stay %d" % number for number in range(rng.randrange(40))}
    for name in sorted(stays):
        broker.queue(name)

    def come_and_go():
        name = b"pass %d" % rng.randrange(20)
        queue = broker.queues.get(name)
        if queue is None:
            broker.queue(name)
        else:
            broker.drop_queue(queue)

    for _ in range(10):
        come_and_go()
    found = walk_queues(broker, count, come_and_go if count else lambda: None)
    # A queue that is dropped and made again is another queue.
    assert sorted(name for name in found if name in stays) == sorted(stays)


def test_all_queues_at_once():
    broker = make_broker()
    for number in range(300):
        broker.queue(b"%d" % number)
    assert len(look(broker, 0, -1)[1]) == 300
    cursor, queues = look(broker, 0, 100)
    assert len(queues) == 100
    assert cursor


def test_count_is_for_queues_that_match_and_bounds_how_many_are_looked_at():
    broker = make_broker()
    for number in range(300):
        broker.queue(b"%d" % number)
    hold_queued(broker)
    found, calls, cursor = [], 0, 0
    while cursor or not calls:
        cursor, queues = look(broker, cursor, 5, QueueFilter(1))
        found += queues
        calls += 1
    assert [queue.name for queue in found] == [b"q"]
    assert 6 <= calls <= 8


def test_a_dropped_queue_is_not_returned():
    broker = make_broker()
    broker.queue(b"a")
    broker.drop_queue(broker.queue(b"b"))
    broker.queue(b"c")
    assert walk_queues(broker, 1) == [b"a", b"c"]


@pytest.mark.parametrize(
    ("limits", "takes"),
    [((), True), ((2,), True), ((3,), False), ((-1, 2), True), ((-1, 1), False), ((-1, -1, 5), True),
     ((-1, -1, 6), False), ((0, -1, -1), True), ((-1, 0), False)],
)  # fmt: skip
def test_a_queue_is_taken_between_its_limits_which_minus_one_turns_off(limits, takes):
    broker = make_broker()
    for number in range(2):
        hold_queued(broker, number=number)
    assert QueueFilter(*limits).takes(broker.queues[b"q"], 5) is takes


def test_a_state_that_is_asked_for_again_and_again_is_compared_once():
    assert JobFilter(states=(ACKED, QUEUED, ACKED) * 1000).states == (ACKED, QUEUED)
