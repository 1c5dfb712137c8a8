"""core/lifecycle.py: each step of a job's life leaves index, queue, timer, memory and counters in agreement."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers import add_node, make_broker, make_client, pass_time
from copies import collect, deliver, hold, hold_queued, make_job, queue_of
from disque_py.core import journaling, lifecycle
from disque_py.core.job import ACKED, ACTIVE, GONE, JOB_BYTES, QUEUED, WAIT_REPL, Collection, JobTerms
from disque_py.core.queue import QUEUE_BYTES
from disque_py.core.schedule import HORIZON_MS
from persistence.layouts import BASE_BYTES
from persistence.records import GONE as GONE_RECORD


def test_a_registered_job_is_found_and_counted_in_jobs_and_memory():
    broker = make_broker()
    job = make_job(broker, body=b"x" * 100)
    lifecycle.register(broker, job)
    assert broker.find(job.id) is job
    assert (broker.job_count, broker.used_memory) == (1, JOB_BYTES + 100)
    assert job.state == ACTIVE


def test_a_forgotten_job_leaves_no_trace():
    broker = make_broker()
    job = hold(broker)
    lifecycle.forget(broker, job)
    assert broker.find(job.id) is None
    assert (broker.job_count, broker.used_memory, broker.schedule.next_ms()) == (0, 0, None)
    assert (job.state, job.work) == (GONE, None)


def test_a_job_is_enqueued_in_a_queue_that_is_made_for_it():
    broker = make_broker()
    job = hold_queued(broker, queue=b"orders")
    queue = broker.queues[b"orders"]
    assert (job.state, queue.length, queue.jobs_in) == (QUEUED, 1, 1)
    assert broker.used_memory == JOB_BYTES + 4 + QUEUE_BYTES + 6


def test_registering_and_queueing_in_one_is_the_same_as_one_after_the_other():
    """Nearly every ADDJOB uses this shortcut."""
    one, other = make_broker(), make_broker()
    short, long = make_job(one, ttl_s=60), make_job(other, ttl_s=60)
    lifecycle.register_queued(one, short, None)
    lifecycle.register(other, long)
    lifecycle.enqueue(other, long)
    for name in ("state", "was_queued", "is_listed", "requeue_at_ms"):
        assert getattr(short, name) == getattr(long, name), name
    for name in ("job_count", "used_memory"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.queues[b"q"].jobs_in == other.queues[b"q"].jobs_in == 1
    assert one.schedule.next_ms() is not None


@pytest.mark.parametrize("is_short", [True, False])
def test_a_queued_job_makes_its_queue_ready_for_waiting_clients(is_short):
    broker = make_broker()
    queue = broker.queue(b"q")
    queue.waiting[make_client(broker)] = None
    node = add_node(broker)
    queue.interested[node] = 1
    if is_short:
        lifecycle.register_queued(broker, make_job(broker), queue)
    else:
        hold_queued(broker)
    assert list(broker.ready) == list(broker.consumers.hint_due) == [queue]


def test_fetch_takes_the_oldest_and_forgets_the_expired_on_the_way():
    broker = make_broker()
    expired = hold_queued(broker, number=1, ttl_s=1)
    job = hold_queued(broker, number=2)
    pass_time(broker, 1000)
    assert lifecycle.fetch(broker, broker.queues[b"q"]) is job
    assert expired.state == GONE
    assert (broker.job_count, broker.stats.jobs_expired) == (1, 1)
    assert lifecycle.fetch(broker, broker.queues[b"q"]) is None


def test_put_back_undoes_fetch():
    broker = make_broker()
    jobs = [hold_queued(broker, number=number) for number in (1, 2)]
    queue = broker.queues[b"q"]
    first = lifecycle.fetch(broker, queue)
    lifecycle.put_back(broker, first)
    assert queue_of(broker) == [job.id for job in jobs]
    assert (first.state, queue.length, queue.jobs_in) == (QUEUED, 2, 2)


def test_a_lease_lasts_for_retry_from_the_moment_of_delivery():
    """The original counted from the queueing, so a job that was fetched late came back at once (spec Q9, L1)."""
    broker = make_broker()
    hold_queued(broker, retry_s=3)
    pass_time(broker, 2400)
    job = deliver(broker)
    assert (job.requeue_at_ms - broker.now_ms, job.attempt) == (3000, 1)
    assert job.is_leased_here
    assert job.is_delivered


def test_an_at_most_once_job_is_delivered_without_a_lease():
    broker = make_broker()
    hold_queued(broker, retry_s=0)
    job = deliver(broker)
    assert (job.requeue_at_ms, job.is_leased_here, job.is_delivered) == (0, False, True)
    assert broker.memory.once_delivered_count == 1
    lifecycle.forget(broker, job)
    assert broker.memory.once_delivered_count == 0


def test_an_acknowledged_job_leaves_its_queue_and_is_kept():
    broker = make_broker()
    job = hold_queued(broker)
    lifecycle.acknowledge(broker, job)
    assert (job.state, broker.queues[b"q"].length, broker.memory.acked_count) == (ACKED, 0, 1)
    assert isinstance(job.work, Collection)
    lifecycle.forget(broker, job)
    assert (broker.memory.acked_count, broker.used_memory) == (0, QUEUE_BYTES + 1)


def test_a_dequeued_job_is_out_and_may_come_back():
    broker = make_broker()
    job = hold_queued(broker)
    lifecycle.dequeue(broker, job)
    assert (job.state, queue_of(broker)) == (ACTIVE, [])
    lifecycle.enqueue(broker, job)
    assert queue_of(broker) == [job.id]


def test_the_body_of_a_forgotten_job_does_not_wait_for_its_queue():
    """Its entry may stay in the queue for long."""
    broker = make_broker()
    job = hold_queued(broker, body=b"x" * 1_000_000)
    lifecycle.forget(broker, job)
    assert job.body == b""


def test_the_timer_is_for_whatever_comes_first():
    broker = make_broker()
    job = hold(broker, retry_s=30, ttl_s=3600)
    assert job.awake_at_ms == broker.now_ms + 30_000
    job.expire_at_ms = broker.now_ms + 10_000
    lifecycle.arm(broker, job)
    assert job.awake_at_ms == broker.now_ms + 10_000


def test_the_timer_of_a_copy_is_early_enough_to_ask_before_queueing():
    """WILLQUEUE goes out 500 ms before, but never earlier than half of RETRY."""
    broker = make_broker()
    node = add_node(broker)
    assert hold(broker, node, number=1, retry_s=30).awake_at_ms == broker.now_ms + 29_500
    short = hold(broker, node, number=2, retry_s=30)
    short.terms = JobTerms(b"q", 600, 0, 1)
    assert lifecycle.willqueue_lead_ms(short) == 300


def test_a_job_without_other_holders_is_not_announced():
    broker = make_broker()
    assert hold_queued(broker, retry_s=30).requeue_at_ms == 0


@pytest.mark.parametrize("retry_s", [5, 6, 30, 300, 100_000])
def test_a_waiting_job_is_announced_well_before_the_timers_of_the_others(retry_s):
    """Their timers begin 250 ms early at worst and ask 500 ms before; announcements may wait for a second."""
    broker = make_broker()
    job = make_job(broker, retry_s=retry_s)
    span_ms = lifecycle.announce_span_ms(job)
    assert 0 < span_ms <= retry_s * 1000 - 1750


@pytest.mark.parametrize(("retry_s", "is_announced"), [(1, False), (4, False), (5, True)])
def test_a_job_of_short_retry_is_not_announced(retry_s, is_announced):
    """The batch would come too late; an objection to WILLQUEUE does the same."""
    broker = make_broker()
    job = hold_queued(broker, add_node(broker), retry_s=retry_s)
    assert bool(job.requeue_at_ms) is is_announced


def test_announcements_of_a_burst_are_spread():
    broker = make_broker()
    spans = {lifecycle.announce_span_ms(make_job(broker, number=number, retry_s=300)) for number in range(200)}
    assert max(spans) - min(spans) > 10_000


def test_a_timer_beyond_the_horizon_is_left_to_the_sweep():
    broker = make_broker()
    job = hold(broker, retry_s=0, ttl_s=HORIZON_MS // 1000 + 10)
    assert job.awake_at_ms == 0


def test_postponing_never_moves_a_timer_past_its_purpose():
    broker = make_broker()
    job = hold(broker, retry_s=30)
    lifecycle.postpone(broker, job, broker.now_ms + 5000)
    assert job.awake_at_ms == broker.now_ms + 5000
    lifecycle.postpone(broker, job, broker.now_ms + 20_000)
    assert job.awake_at_ms <= job.requeue_at_ms == broker.now_ms + 20_000


def test_jobs_are_touched_only_while_a_journal_listens():
    broker = make_broker()
    job = hold_queued(broker)
    lifecycle.dequeue(broker, job)
    lifecycle.acknowledge(broker, job)
    lifecycle.forget(broker, job)
    assert (broker.dirty, broker.outbox.gone.count) == ([], 0)


STEPS = {
    "enqueue": lambda broker, job: lifecycle.enqueue(broker, job),
    "dequeue": lambda broker, job: (lifecycle.enqueue(broker, job), lifecycle.dequeue(broker, job)),
    "lease": lambda broker, job: lifecycle.lease(broker, job),
    "acknowledge": lambda broker, job: lifecycle.acknowledge(broker, job),
}


@pytest.mark.parametrize("step", STEPS)
def test_every_step_of_a_life_touches_the_job(step):
    """The end of the turn records the changes in memory, whichever rule made them."""
    broker = make_broker()
    broker.is_journaling = True
    job = hold(broker)
    journaling.clear(broker)
    STEPS[step](broker, job)
    assert broker.dirty == [job]


def test_a_forgotten_job_gets_a_gone_record_if_the_journal_had_it():
    broker = make_broker()
    broker.is_journaling = True
    lifecycle.forget(broker, hold(broker))
    assert broker.outbox.gone.count == 0
    job = hold(broker)
    job.place = 3
    broker.journal.first_place = 1
    broker.journal.live_bytes[3] = BASE_BYTES + len(job.queue) + len(job.body)
    broker.journal.live_records[3] = 1
    lifecycle.forget(broker, job)
    assert collect(broker) == [[GONE_RECORD, (job.id, 3)]]
    assert (broker.journal.live_bytes, broker.journal.live_records) == ({3: 0}, {3: 0})


def test_a_job_that_never_had_its_copies_was_never_in_the_journal():
    broker = make_broker()
    broker.is_journaling = True
    job = make_job(broker)
    lifecycle.register_waiting(broker, job)
    assert (job.state, list(broker.copies.waiting_repl)) == (WAIT_REPL, [job])
    lifecycle.forget(broker, job)
    assert (broker.dirty, broker.outbox.gone.count, broker.copies.waiting_repl) == ([], 0, {})


def weigh(broker):
    jobs = [job for shard in broker.shards for job in shard.values()]
    assert broker.job_count == len(jobs)
    assert broker.memory.acked_count == sum(job.state == ACKED for job in jobs)
    assert broker.memory.once_delivered_count == sum(
        not job.retry_ms and job.is_delivered and job.state != ACKED for job in jobs
    )
    assert broker.used_memory == sum(JOB_BYTES + len(job.body) for job in jobs) + sum(
        QUEUE_BYTES + len(name) for name in broker.queues
    )
    for name, queue in broker.queues.items():
        ready = [job for job in jobs if job.queue == name and job.state == QUEUED]
        assert queue.length == len(ready)
        assert queue_of(broker, name) == [job.id for job in sorted(ready, key=lambda job: (job.ctime, job.id))]


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_counters_agree_with_the_jobs_after_any_steps(seed):
    broker = make_broker()
    node = add_node(broker)
    rng = Random(seed)
    jobs = []
    for number in range(120):
        if rng.random() < 0.4 or not jobs:
            others = (node,) if rng.random() < 0.3 else ()
            body, queue = b"x" * rng.randrange(50), rng.choice((b"q", b"r"))
            jobs.append(hold(broker, *others, number=number, retry_s=rng.choice((0, 5)), body=body, queue=queue))
            continue
        job = rng.choice(jobs)
        deed = rng.random()
        if job.state == ACTIVE and deed < 0.5 and not (not job.retry_ms and job.is_delivered):
            lifecycle.enqueue(broker, job)
        elif job.state == QUEUED and deed < 0.4:
            lifecycle.lease(broker, lifecycle.fetch(broker, broker.queues[job.queue]))
        elif job.state == QUEUED and deed < 0.5:
            lifecycle.dequeue(broker, job)
        elif job.state in (ACTIVE, QUEUED) and deed < 0.8:
            lifecycle.acknowledge(broker, job)
        else:
            lifecycle.forget(broker, job)
            jobs.remove(job)
        if number % 4 == 0:
            weigh(broker)
    for job in jobs:
        lifecycle.forget(broker, job)
    weigh(broker)
    assert broker.schedule.next_ms() is None


def test_a_job_that_is_postponed_to_a_little_earlier_is_still_announced_in_time():
    """Its timer was just before the new moment, and after the moment of its WILLQUEUE. Spec N8."""
    broker = make_broker()
    job = hold(broker, add_node(broker), number=1)
    until_ms = broker.now_ms + job.retry_ms
    lifecycle.postpone(broker, job, until_ms + 400)
    lifecycle.postpone(broker, job, until_ms)
    assert job.awake_at_ms == until_ms - lifecycle.WILLQUEUE_LEAD_MS
