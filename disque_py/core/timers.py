"""Timers: the effects of passing time on jobs, clients and queues.

`tick` is called when a timer is due (`next_ms` says when) and at least every HOUSEKEEPING_MS, which is often enough for
the entries of a Line. One call does a counted amount of work, not a timed one, so it does the same on every machine.
The next call, a turn later, does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from disque_py import event_format
from disque_py.core import (
    acks,
    batch_ends,
    capping,
    claim_messages,
    delivery,
    events,
    filter_interest,
    firing,
    handover,
    incremental,
    job_waits,
    leaving,
    memory,
    pattern_interest,
    pulls,
    repair,
    replication,
    requeue,
    settings_sync,
    tasks,
    telling,
)
from disque_py.core.broker import SHARDS, Broker
from disque_py.core.job import ACKED, ACTIVE, QUEUED, Handover, Job, Replication
from disque_py.core.lifecycle import announce_span_ms, arm
from disque_py.core.queue import Queue
from disque_py.core.schedule import SWEEP_MS

# Queues looked at per part of a walk over all of them.
LOOKED_PER_PART: Final = 2_000
HOUSEKEEPING_MS: Final = 100
# The most items that one tick visits, which takes about a millisecond.
JOBS_PER_TICK: Final = 400
CLIENTS_PER_TICK: Final = 200
TASKS_PER_TICK: Final = 200
SWEPT_PER_TICK: Final = 1_000
# The number of queues that one tick visits. It visits more while at least a tenth of them is idle.
QUEUES_PER_TICK: Final = 100
QUEUES_PER_TICK_MAX: Final = 2_000
ASKING_PER_TICK: Final = 100
# An empty queue that no client has used for this time is dropped. Higher memory levels have shorter times (spec F5).
QUEUE_IDLE_MS: Final = (300_000, 10_000, 2_000, 2_000)
# A queue that never had a job exists only because clients asked for its jobs. If there are very many queues, it is
# dropped this long after the last of these clients asked.
UNUSED_MS: Final = 10_000


def tick(broker: Broker) -> bool:
    """Handle due timers. Return whether there is more work that the next call can do immediately."""
    for task in broker.schedule.due_tasks(TASKS_PER_TICK):
        task()
    if broker.copies.extensions:
        replication.extend_due(broker)
    jobs = 0
    # While the journal is loaded, changes of jobs would not be recorded. They are handled right afterwards (spec J7).
    for job in broker.schedule.due(JOBS_PER_TICK) if not broker.is_loading else ():
        visit(broker, job)
        jobs += 1
    acks_looked = acks.look_again(broker, JOBS_PER_TICK) if not broker.is_loading else 0
    told = requeue.tell_due(broker, JOBS_PER_TICK) if broker.copies.delivered else 0
    broker.waits.timeouts.now_ms = broker.now_ms
    for client in broker.waits.timeouts.due(CLIENTS_PER_TICK):
        delivery.time_out(broker, client)
    if broker.job_waits.by_client or broker.job_waits.early:
        job_waits.step(broker, CLIENTS_PER_TICK)
    _sweep_queues(broker)
    if broker.now_ms - broker.upkeep.housekept_ms >= HOUSEKEEPING_MS:
        _keep_house(broker)
    if broker.upkeep.sweep_due:
        _sweep_jobs(broker)
    if not broker.is_loading:
        if broker.acks.recollect is not None and next(broker.acks.recollect, broker) is broker:
            broker.acks.recollect = None
        if broker.tasks.busy:
            tasks.step(broker)
    if broker.waits.incremental:
        incremental.step(broker)
    if broker.recurring.answered:
        firing.step(broker)
    is_walking = repair.step(broker)
    return (
        is_walking
        or max(jobs, acks_looked, told) >= JOBS_PER_TICK
        or bool(
            broker.upkeep.sweeps
            or (not broker.is_loading and (broker.tasks.busy or broker.acks.recollect is not None))
            or len(broker.waits.incremental) > len(broker.waits.stalled)
            or broker.upkeep.sweep_due
        )
    )


def next_ms(broker: Broker) -> int:
    """Return the latest moment at which `tick` must be called."""
    if (
        (broker.tasks.busy and not broker.is_loading)
        or broker.recurring.answered
        or (broker.repairs.to_go_on and not (broker.is_loading or broker.is_leaving))
    ):
        return broker.now_ms
    at_ms = broker.upkeep.housekept_ms + HOUSEKEEPING_MS
    if broker.copies.extensions and broker.copies.extensions[0][0] < at_ms:
        at_ms = broker.copies.extensions[0][0]
    if broker.waits.early:
        wait_until_ms = broker.queue_settings.exchange.wait_until_ms
        at_ms = min(at_ms, broker.waits.loading_until_ms if broker.is_loading else wait_until_ms)
    if not broker.is_loading:
        job_ms = broker.schedule.next_ms()
        if job_ms is not None and job_ms < at_ms:
            at_ms = job_ms
    client_ms = broker.waits.timeouts.next_ms()
    if client_ms is not None and client_ms < at_ms:
        at_ms = client_ms
    wait_ms = broker.job_waits.deadlines.next_ms()
    if wait_ms is not None and wait_ms < at_ms:
        at_ms = wait_ms
    return at_ms


def visit(broker: Broker, job: Job) -> None:
    """Handle a job's timer: the end of its TTL, or the next step in its state."""
    now_ms = broker.now_ms
    if job.expire_at_ms <= now_ms:
        if job.state == ACKED:
            broker.tombstones.add(job.id, now_ms)  # A copy may arrive late, with its TTL counted from the arrival.
        else:
            broker.stats.jobs_expired += 1
        events.ended(broker, job, event_format.EXPIRED_EVENT)
        replication.remove(broker, job)
        return
    due_ms = job.requeue_at_ms
    state = job.state
    if state == ACTIVE and isinstance(job.work, Handover) and job.work.client is not None:
        if 0 < job.work.deadline_ms <= now_ms:
            handover.on_deadline(broker, job, job.work)
        else:
            arm(broker, job)
    elif state == ACTIVE and due_ms:
        requeue.on_timer(broker, job)
    elif due_ms > now_ms or not due_ms:
        arm(broker, job)
    elif state == QUEUED:
        requeue.announce_later(broker, job)
        job.requeue_at_ms = now_ms + announce_span_ms(job)
        arm(broker, job)
    elif state == ACKED:
        acks.try_collect(broker, job)
    elif isinstance(job.work, Replication):
        replication.on_timer(broker, job, job.work)


def _sweep_queues(broker: Broker) -> None:
    """Do one step of the sweep of each queue that drops dead entries."""
    for queue in list(broker.upkeep.sweeps):
        if next(broker.upkeep.sweeps[queue], queue) is queue:
            del broker.upkeep.sweeps[queue]


def _told_of_clients(broker: Broker) -> Iterator[None]:
    """Tell other nodes of the clients that wait here. While memory was full, they were told that there are none."""
    for looked, queue in enumerate(list(broker.queues.values()), 1):
        if queue.has_clients and not queue.is_dropped:
            broker.consumers.interest_due[queue] = None
        if looked % LOOKED_PER_PART == 0:
            yield


def _keep_house(broker: Broker) -> None:
    """Do the regular work of every HOUSEKEEPING_MS: samples, idle queues, and whatever has no timer."""
    slept_ms = broker.now_ms - broker.upkeep.housekept_ms
    elapsed_ms = min(slept_ms, SWEEP_MS)
    broker.upkeep.housekept_ms = broker.now_ms
    broker.stats.sample(broker.now_ms)
    broker.tombstones.expire(broker.now_ms)
    broker.ends.expire(broker.now_ms)
    broker.acks.not_held.expire(broker.now_ms)
    if broker.used_memory > broker.memory.peak:
        broker.memory.peak = broker.used_memory
    _plan_sweep(broker, elapsed_ms)
    _drop_idle_queues(broker)
    level = min(broker.memory_level, 2)
    if (level == 2) != (broker.me.memory_level == 2):
        for name in broker.consumers.told_interest:
            broker.consumers.interest_due[broker.queue(name)] = None
        for queue in broker.consumers.told_filters.values():
            broker.consumers.interest_due[queue] = None
        if level < 2:
            broker.schedule.walk(_told_of_clients(broker))
        pattern_interest.tell_all_again(broker)
    broker.me.memory_level = level
    broker.me.is_disk_failing = broker.journal.disk_level > 0
    broker.tokens.look()
    repair.look(broker, slept_ms)
    pulls.ask_for_waiting(broker, ASKING_PER_TICK)
    settings_sync.step(broker)
    if broker.batches.by_name or broker.batches.reports:
        batch_ends.step(broker)
    if broker.progress.due:
        telling.step(broker)
    claim_messages.step(broker)
    firing.step(broker)
    capping.step(broker)
    filter_interest.ask_for_waiting(broker, ASKING_PER_TICK)
    # While the journal is read, a job may already have ended in a later record, and leaving jobs would not be recorded.
    if broker.is_leaving and not broker.is_loading:
        leaving.step(broker)


def _plan_sweep(broker: Broker, elapsed_ms: int) -> None:
    """Plan the next part of the sweep, which sets the timers of jobs that come within the schedule's horizon.

    The sweep visits each job once per SWEEP_MS.
    """
    broker.upkeep.sweep_position_ms += elapsed_ms * SHARDS
    count, broker.upkeep.sweep_position_ms = divmod(broker.upkeep.sweep_position_ms, SWEEP_MS)
    broker.upkeep.sweep_due = min(broker.upkeep.sweep_due + count, SHARDS)


def _sweep_jobs(broker: Broker) -> None:
    """Do the part of the sweep that is due, as far as it fits into a tick."""
    horizon_ms = broker.schedule.horizon_ms
    looked = 0
    while broker.upkeep.sweep_due and looked < SWEPT_PER_TICK:
        broker.upkeep.sweep_due -= 1
        broker.upkeep.sweep_shard = (broker.upkeep.sweep_shard + 1) % SHARDS
        shard = broker.shards[broker.upkeep.sweep_shard]
        if not shard:
            continue
        looked += len(shard)
        for job in list(shard.values()):
            if not job.awake_at_ms and (job.expire_at_ms <= horizon_ms or 0 < job.requeue_at_ms <= horizon_ms):
                arm(broker, job)


def _drop_idle_queues(broker: Broker) -> None:
    idle_ms = QUEUE_IDLE_MS[broker.memory_level]
    dropped = 0
    for looked in range(QUEUES_PER_TICK_MAX):
        if looked >= QUEUES_PER_TICK and dropped * 10 < looked:
            return
        queue = next(broker.upkeep.queue_gc, None)
        if queue is None:
            broker.upkeep.queue_gc = iter(list(broker.queues.values()))
            return
        if not queue.is_dropped and is_idle(broker, queue, idle_ms):
            if queue.dead:  # The job of a dead entry may return, and then reuses its entry.
                broker.upkeep.sweeps.setdefault(queue, queue.sweep())
            else:
                broker.drop_queue(queue)
                dropped += 1


def is_idle(broker: Broker, queue: Queue, idle_ms: int) -> bool:
    """Return whether the queue has nothing worth keeping, so that it can be dropped."""
    return (
        not queue.pending
        and not queue.has_clients
        and not queue.paused
        and queue.name not in broker.consumers.told_interest
        and (queue.filters is None or not queue.filters.is_told)
        and (broker.now_ms - queue.active_ms >= idle_ms or _is_unused(broker, queue))
        and not broker.errored_ids.has(queue.name)
    )


def _is_unused(broker: Broker, queue: Queue) -> bool:
    """Return whether the queue never had a job, clients have stopped asking for it, and there are very many queues."""
    if queue.jobs_in or queue.jobs_out or len(broker.queues) <= memory.QUEUES_SPARE:
        return False
    return broker.now_ms - queue.wanted_ms >= UNUSED_MS
