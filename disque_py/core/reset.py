"""Reset: forget all jobs and queues of this node in one step, for DEBUG FLUSHALL and CLUSTER RESET.

For clients this is one moment. Waiting producers are told that their job was removed, waiting consumers get an empty
reply, and the next command finds an empty node. Freeing the memory of a million jobs takes longer than a turn may take.
So the old index is put aside and freed a part at a time (spec B4).

Some jobs are still used outside the index: by a producer that waits, or by a hand-over without an answer. These are
removed one by one, in the regular way. The others are dropped with their containers, because no reference to them
survives this call.

The journal starts again, so it has no record of the old jobs (`outbox.is_void`). Other nodes keep their copies. They
are told that this node wants no jobs any more, because no client waits here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cluster_bus.messages import FILTER_INTEREST, INTEREST
from disque_py.core import delivery, handover, interest, journaling, keying, producer_waits, replication, spilling
from disque_py.core.broker import SHARDS, Broker
from disque_py.core.job import Job

# To free this many jobs takes about three milliseconds.
JOBS_FREED_PER_SLICE: Final = 2_000
SLICE_EVERY_MS: Final = 10


def flush(broker: Broker) -> int:
    """Forget every job, queue and pause of this node. Return the number of jobs that it had."""
    count = broker.job_count
    delivery.release_all(broker)
    for job in (*broker.copies.waiting_repl, *_handed_over(broker)):
        if broker.find(job.id) is job:
            replication.remove(broker, job)
    producer_waits.give_up_held(broker)
    if broker.is_journaling:
        broker.outbox.is_void = True
        broker.outbox.gone.clear()
        broker.outbox.pauses.clear()
        broker.outbox.moved.clear()
        broker.outbox.keys.clear()
        broker.outbox.results.clear()
        journaling.clear(broker)
        broker.journal.live_bytes.clear()
        broker.journal.live_records.clear()
    keying.forget_all(broker)
    broker.caps.clear()
    broker.results.clear()
    broker.progress.clear()
    broker.batches.clear_jobs()
    broker.ends.clear()
    _drop_jobs(broker)
    _drop_queues(broker)
    spilling.forget_all(broker)
    broker.used_memory = broker.patterns.group_bytes() + broker.batches.size
    return count


def _handed_over(broker: Broker) -> Iterator[Job]:
    """Yield jobs whose hand-over is not answered yet, because the answer will refer to them."""
    for node in broker.cluster.nodes.values():
        if node.core is not None:
            for batch in list(handover.exchange(node).pending.values()):
                yield from [job for job in batch.jobs if job is not None]


def _drop_jobs(broker: Broker) -> None:
    old = [shard for shard in broker.shards if shard]
    broker.shards = [{} for _ in range(SHARDS)]
    broker.job_count = broker.memory.acked_count = broker.memory.once_delivered_count = 0
    broker.schedule.clear()
    broker.acks.asked.clear()
    broker.acks.heard.clear()
    broker.copies.delivered.clear()
    broker.copies.announcements.clear()
    broker.exclusive.newest.clear()
    broker.pauses.deferred.clear()
    broker.behind.clear()
    broker.repairs.forget_jobs()
    broker.tokens.clear()
    broker.acks.recollect = None
    broker.upkeep.census = None
    if broker.drain is not None:
        broker.drain.moving.clear()
        broker.drain.blocked_by = ""
    _free(broker, old)


def _free(broker: Broker, shards: list[dict[bytes, Job]]) -> None:
    freed = 0
    while shards and freed < JOBS_FREED_PER_SLICE:
        freed += len(shards.pop())
    if shards:
        broker.schedule.call_at(broker.now_ms + SLICE_EVERY_MS, lambda: _free(broker, shards))


def _drop_queues(broker: Broker) -> None:
    dropped = [queue for queue in broker.queues.values() if queue.listed]
    for queue in broker.queues.values():
        if queue.filters is not None:
            queue.filters.dropped()
        queue.is_dropped = True
        queue.length = 0  # So that a hint or a sweep that was planned for the queue finds no work.
    broker.queues = {}
    broker.pauses.paused_count = 0
    broker.queue_order = []
    broker.upkeep.queue_gc = iter(())
    for planned in (
        broker.ready,
        broker.consumers.hint_due,
        broker.consumers.answered,
        broker.consumers.interest_due,
        broker.consumers.filter_due,
        broker.consumers.filter_hints,
        broker.exclusive.queues,
        broker.exclusive.held,
        broker.upkeep.sweeps,
        broker.pauses.versions,
        broker.errored_ids.by_queue,
    ):
        planned.clear()
    broker.pauses.name_bytes = 0
    broker.pauses.ended = {}
    # Millions of entries can't be freed in one turn either.
    for queue in dropped:
        broker.upkeep.sweeps[queue] = queue.dismantle()
    broker.patterns.clear_queues()
    _take_interest_back(broker)


def _take_interest_back(broker: Broker) -> None:
    """Tell all nodes that no client waits here, and forget the interest that they were told before."""
    consumers = broker.consumers
    linked = broker.cluster.linked
    if linked:
        for name in (*consumers.told_interest, *consumers.told_busy):
            broker.send(linked, INTEREST, (name, interest.GONE))
        for group, queue in consumers.told_filters.items():
            broker.send(linked, FILTER_INTEREST, (queue.name, group.pairs, interest.GONE, interest.GONE))
    for told in (
        consumers.told_interest,
        consumers.told_busy,
        consumers.told_plain,
        consumers.told_filters,
        consumers.untold_filters,
        consumers.rivals,
    ):
        told.clear()
    consumers.told_filter_bytes = 0
    for name in [name for name, nodes in consumers.interest.items() if not nodes]:
        del consumers.interest[name]
