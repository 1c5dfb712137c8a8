"""core/timers.py: the effects of passing time on jobs, clients and queues."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, ask_parsed, make_broker, make_client, pass_time
from cluster_bus.messages import SETACK, WILLQUEUE
from copies import advance, deliver, hold, hold_queued, make_id, queue_of, sent_of
from disque_py.core import acks, client_acks, lifecycle, timers
from disque_py.core.job import ACKED, ACTIVE, GONE, JOB_BYTES, QUEUED
from disque_py.core.queue import QUEUE_BYTES
from disque_py.core.schedule import GRAIN_MS, HORIZON_MS, SWEEP_MS
from disque_py.core.timers import HOUSEKEEPING_MS, JOBS_PER_TICK, QUEUE_IDLE_MS
from disque_py.node import dispatch


@pytest.mark.parametrize("state", [ACTIVE, QUEUED, ACKED])
def test_a_job_whose_life_is_over_goes_to_the_millisecond(state):
    """The original cut to whole seconds: TTL 1 was gone after 0.6 s."""
    broker = make_broker()
    node = add_node(broker)
    job = hold(broker, node, ttl_s=1)
    if state == QUEUED:
        lifecycle.enqueue(broker, job)
    elif state == ACKED:
        acks.acknowledge(broker, job)
    advance(broker, 999)
    assert job.state == state
    advance(broker, 1 + GRAIN_MS)
    assert job.state == GONE
    assert broker.stats.jobs_expired == (state != ACKED)
    assert broker.used_memory == (QUEUE_BYTES + 1 if state == QUEUED else 0)


@pytest.mark.parametrize("state", [ACTIVE, ACKED])
def test_an_ack_whose_ttl_is_over_is_known_as_done(state):
    """A copy that was on its way for long begins its life when it comes (spec T4)."""
    broker = make_broker()
    job = hold(broker, add_node(broker), ttl_s=1)
    if state == ACKED:
        acks.acknowledge(broker, job)
    advance(broker, 1_000 + GRAIN_MS)
    assert job.state == GONE
    assert (job.id in broker.tombstones) is (state == ACKED)


def test_a_job_that_is_done_before_its_timer_is_never_looked_at(monkeypatch):
    broker = make_broker()
    hold_queued(broker, retry_s=1)
    job = deliver(broker)
    client_acks.ack_here(broker, job.id)
    seen = []
    monkeypatch.setattr(timers, "visit", lambda broker, job: seen.append(job))
    advance(broker, 2000)
    assert seen == []


@pytest.mark.parametrize("ttl_s", [HORIZON_MS // 1000 + 1, 1000, 5000])
def test_jobs_beyond_the_horizon_are_found_in_time(ttl_s):
    broker = make_broker()
    job = hold_queued(broker, retry_s=0, ttl_s=ttl_s)
    assert job.awake_at_ms == 0
    while broker.now_ms < job.expire_at_ms - 10_000:
        pass_time(broker, 10_000)
        dispatch.tick(broker)
    assert job.state == QUEUED
    advance(broker, job.expire_at_ms - broker.now_ms + GRAIN_MS)
    assert job.state == GONE


def test_a_long_retry_is_found_in_time():
    """RETRY's default of 300 s lies beyond the horizon."""
    broker = make_broker()
    hold_queued(broker, retry_s=300, ttl_s=86_400)
    job = deliver(broker)
    assert job.awake_at_ms == 0
    advance(broker, 299_900)
    assert job.state == ACTIVE
    advance(broker, 200)
    assert job.state == QUEUED


def test_the_sweep_looks_at_all_jobs_once_in_its_period():
    broker = make_broker()
    jobs = [hold(broker, number=number, retry_s=0, ttl_s=10_000) for number in range(300)]
    for job in jobs:
        job.expire_at_ms = broker.now_ms + HORIZON_MS
    advance(broker, SWEEP_MS // 2)
    assert 100 < sum(bool(job.awake_at_ms) for job in jobs) < 200
    advance(broker, SWEEP_MS // 2 + HOUSEKEEPING_MS)
    assert all(job.awake_at_ms for job in jobs)


def test_after_a_long_sleep_of_the_machine_everything_due_is_done():
    """After a day of sleep, one sweep does everything."""
    broker = make_broker()
    jobs = [hold_queued(broker, number=number, retry_s=0, ttl_s=5000) for number in range(50)]
    pass_time(broker, 86_400_000)
    advance(broker, 1000)
    assert {job.state for job in jobs} == {GONE}


def test_a_tick_does_a_bounded_amount_and_says_that_there_is_more():
    broker = make_broker()
    for number in range(JOBS_PER_TICK + 10):
        hold(broker, number=number, retry_s=1)
    pass_time(broker, 1100)
    assert dispatch.tick(broker) is True
    assert broker.queues[b"q"].length == JOBS_PER_TICK
    assert dispatch.tick(broker) is False
    assert broker.queues[b"q"].length == JOBS_PER_TICK + 10


def test_next_is_the_first_of_jobs_clients_tasks_and_housekeeping():
    broker = make_broker()
    now_ms = broker.now_ms
    assert timers.next_ms(broker) == now_ms + HOUSEKEEPING_MS
    broker.schedule.call_at(now_ms + 70, lambda: None)
    assert timers.next_ms(broker) == now_ms + 70
    ask(broker, make_client(broker), "GETJOB", "TIMEOUT", 30, "FROM", "q")
    assert now_ms + 30 <= timers.next_ms(broker) <= now_ms + 30 + GRAIN_MS
    add_node(broker)
    broker.now_ms = now_ms - 45
    ask(broker, make_client(broker), "ADDJOB", "q", "body", 0, "REPLICATE", 2)
    assert timers.next_ms(broker) == now_ms + 5


def test_a_delayed_job_is_queued_at_its_delay():
    broker = make_broker()
    job_id = ask_parsed(broker, make_client(broker), "ADDJOB", "q", "body", 0, "DELAY", 2)
    advance(broker, 1999)
    assert queue_of(broker) == []
    advance(broker, 1 + GRAIN_MS)
    assert queue_of(broker) == [job_id]
    assert broker.find(job_id).deliveries == 0


def test_a_timer_that_came_too_early_asks_no_node():
    """The job was postponed since. The old entry only sets the timer again."""
    broker = make_broker()
    node = add_node(broker)
    job = hold(broker, node, retry_s=5)
    advance(broker, 1000)
    lifecycle.postpone(broker, job, broker.now_ms + 60_000)
    advance(broker, 20_000)
    assert sent_of(broker, WILLQUEUE) == []
    assert job.state == ACTIVE


@pytest.mark.parametrize(("level", "used"), [(0, 10), (1, 80), (2, 97)])
def test_an_idle_queue_is_dropped_sooner_when_memory_is_short(level, used):
    """Spec F5."""
    limit = 1_000_000
    broker = make_broker(maxmemory=limit)
    hold(broker, body=b"x" * (limit * used // 100 - JOB_BYTES - QUEUE_BYTES - 4), ttl_s=10_000, retry_s=0)
    broker.queue(b"idle")
    assert broker.memory_level == level
    idle_ms = QUEUE_IDLE_MS[level]
    assert idle_ms == (300_000, 10_000, 2_000)[level]
    advance(broker, idle_ms - 100)
    assert b"idle" in broker.queues
    advance(broker, 500)
    assert b"idle" not in broker.queues


@pytest.mark.parametrize("reason", ["job", "waits", "paused", "interest", "used"])
def test_a_queue_in_use_is_kept(reason):
    broker = make_broker()
    client = make_client(broker)
    queue = broker.queue(b"q")
    if reason == "job":
        hold_queued(broker)
    elif reason == "waits":
        ask(broker, client, "GETJOB", "FROM", "q")
    elif reason == "paused":
        ask(broker, client, "PAUSE", "q", "out")
    elif reason == "interest":
        broker.consumers.told_interest[b"q"] = 0
    else:
        queue.active_ms = broker.now_ms + 100_000
    pass_time(broker, 300_000)
    assert not timers.is_idle(broker, queue, 300_000)


def test_a_job_comes_back_to_a_queue_that_was_idle_with_its_dead_entry():
    broker = make_broker()
    job = hold_queued(broker, retry_s=1000, ttl_s=5000)
    lifecycle.dequeue(broker, job)
    advance(broker, QUEUE_IDLE_MS[0] + 2000)
    assert b"q" not in broker.queues
    lifecycle.enqueue(broker, job)
    assert ask_parsed(broker, make_client(broker), "GETJOB", "FROM", "q") == [[b"q", job.id, b"body"]]


def test_many_idle_queues_go_a_hundred_at_a_time():
    broker = make_broker()
    for number in range(250):
        broker.queue(b"%d" % number)
    pass_time(broker, 300_000)
    counts = []
    for _ in range(8):
        pass_time(broker, HOUSEKEEPING_MS)
        dispatch.tick(broker)
        counts.append(len(broker.queues))
    assert counts[0] in (150, 250)
    assert counts[-1] == 0


def test_dead_entries_of_a_queue_are_swept_in_steps():
    broker = make_broker()
    jobs = [hold_queued(broker, number=number) for number in range(3000)]
    for job in jobs[:-10]:
        client_acks.ack_here(broker, job.id)
    queue = broker.queues[b"q"]
    assert queue.listed > 2 * queue.length + 1024 or not broker.upkeep.sweeps
    assert list(broker.upkeep.sweeps) == [queue]
    while dispatch.tick(broker):
        pass
    assert (broker.upkeep.sweeps, queue.listed, queue.length) == ({}, 10, 10)


def test_housekeeping_takes_samples_and_the_peak():
    broker = make_broker()
    job = hold(broker, body=b"x" * 1000)
    advance(broker, 150)
    peak = broker.memory.peak
    lifecycle.forget(broker, job)
    advance(broker, 500)
    assert broker.memory.peak == peak == JOB_BYTES + 1000
    assert len(broker.stats.samples) == 6


def test_housekeeping_lets_ids_of_done_jobs_go():
    broker = make_broker()
    broker.tombstones.expire(broker.now_ms)
    broker.tombstones.add(make_id(), broker.now_ms)
    advance(broker, broker.tombstones.keep_ms - 1000)
    assert make_id() in broker.tombstones
    advance(broker, broker.tombstones.keep_ms + 1200)
    assert make_id() not in broker.tombstones


def test_the_level_of_memory_is_told_to_the_cluster():
    broker = make_broker(maxmemory=100_000)
    hold(broker, body=b"x" * 97_000)
    advance(broker, 150)
    assert broker.me.memory_level == 2


def test_an_overdue_client_of_many_is_answered_by_the_next_tick():
    broker = make_broker()
    clients = [make_client(broker) for _ in range(timers.CLIENTS_PER_TICK + 50)]
    for client in clients:
        ask(broker, client, "GETJOB", "TIMEOUT", 10, "FROM", "q")
    pass_time(broker, 100)
    dispatch.tick(broker)
    assert sum(bool(client.out) for client in clients) == timers.CLIENTS_PER_TICK
    assert timers.next_ms(broker) <= broker.now_ms
    dispatch.tick(broker)
    assert all(client.out for client in clients)


def test_while_the_journal_is_loaded_jobs_are_left_alone():
    """Their outcome would be recorded nowhere; they are looked at right afterwards (simulator, seed 85)."""
    broker = make_broker()
    job = hold(broker, retry_s=1)
    broker.is_loading = True
    advance(broker, 5_000)
    assert (job.state, queue_of(broker)) == (ACTIVE, [])
    broker.is_loading = False
    advance(broker, GRAIN_MS)
    assert queue_of(broker) == [job.id]


def test_while_the_journal_is_loaded_no_ack_is_collected():
    """A node came back: all acks are looked at again, but not before. Spec J7."""
    broker = make_broker()
    node = add_node(broker)
    job = hold(broker, node)
    acks.acknowledge(broker, job)
    sent_of(broker, SETACK)
    broker.is_loading = True
    acks.collect_again(broker)
    assert not dispatch.tick(broker)
    assert sent_of(broker, SETACK) == []
    broker.is_loading = False
    dispatch.tick(broker)
    assert len(sent_of(broker, SETACK)) == 1
