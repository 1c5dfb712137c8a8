"""Memory: the rules of a node above 75, 95 and 100 % of maxmemory.

* Above 75 %, a node keeps no copy of a new job if enough other nodes are below their own 75 %. Otherwise it keeps
  copies as usual, so a full cluster or a single node can be filled to 95 %.
* Above 95 %, it first forgets results of jobs, oldest first, under every `maxmemory-policy`. Then it evicts records
  that are safe to lose, unless the policy is `noeviction`: acknowledged records, and delivered at-most-once jobs.
* At 100 %, commands that need memory get -OOM.

Spec M1, M3, M4, Q5.
"""

from __future__ import annotations

from typing import Final

from disque_py import event_format
from disque_py.core import events, lifecycle
from disque_py.core.broker import SHARDS, Broker
from disque_py.core.errors import OOM, CommandError
from disque_py.core.job import ACKED, Job
from disque_py.core.queue import LINE_BYTES, QUEUE_BYTES

# The number of jobs that one attempt examines, which takes about a millisecond.
LOOKED_PER_ATTEMPT: Final = 3_000
# This many queues may exist, and a client may wait in this many queues, even if memory is full. Consumers must be able
# to wait on such a node, because they empty it.
QUEUES_SPARE: Final = 1_000
LINES_SPARE: Final = 64
# Queues that are made while memory is full have names of at most this many bytes, summed over one command.
NAMES_SPARE: Final = 4_096


def make_room(broker: Broker) -> bool:
    """Evict until memory is at or below 95 %, and return whether it is.

    If there are very many jobs, each attempt examines only the next part of them. It may find no job that is safe to
    lose.
    """
    limit = broker.memory.limits[1]
    if broker.used_memory <= limit:
        return True
    if broker.results.by_id:
        broker.stats.results_dropped += broker.results.drop_oldest(limit, LOOKED_PER_ATTEMPT)
        if broker.used_memory <= limit:
            return True
    if broker.settings.maxmemory_policy == "noeviction":
        return False
    if not (broker.memory.acked_count or broker.memory.once_delivered_count):
        return False
    shards = broker.shards
    at = broker.memory.eviction_shard
    looked = 0
    for _ in range(SHARDS):
        at = (at + 1) % SHARDS
        if not shards[at]:
            continue
        looked += len(shards[at])
        for job in [job for job in shards[at].values() if may_evict(job)]:
            broker.stats.jobs_evicted += 1
            events.ended(broker, job, event_format.DROPPED)
            if job.state == ACKED:
                broker.tombstones.add(job.id, broker.now_ms)  # A late copy is not delivered while the tombstone lasts.
            lifecycle.forget(broker, job)
        if broker.used_memory <= limit or looked >= LOOKED_PER_ATTEMPT:
            break
    broker.memory.eviction_shard = at
    return broker.used_memory <= limit


def may_evict(job: Job) -> bool:
    """Return whether a job is safe to lose.

    A lost ack causes at most one more delivery. A delivered at-most-once job is never delivered again.
    """
    return job.state == ACKED or (job.terms.retry_ms == 0 and job.is_delivered)


def is_full(broker: Broker) -> bool:
    """Return whether memory is still at 100 % after an attempt to evict. Commands that need memory are refused then."""
    limits = broker.memory.limits
    if broker.used_memory <= limits[1]:
        return False
    make_room(broker)
    return broker.used_memory >= limits[2]


def has_room(broker: Broker, size: int) -> bool:
    """Return whether memory stays below 100 % with this many bytes more."""
    limits = broker.memory.limits
    if broker.used_memory + size > limits[1]:
        make_room(broker)
    return broker.used_memory + size < limits[2]


def has_spare_queues(broker: Broker, names: list[bytes]) -> bool:
    """Return whether queues of these names may be made even if memory is full."""
    return _is_spare(broker, len(names), sum(map(len, names)))


def refuse_queue(broker: Broker, name: bytes) -> None:
    """Raise CommandError if no queue of this name exists and there is no room for one."""
    if name in broker.queues or _is_spare(broker, 1, len(name)):
        return
    if not has_room(broker, QUEUE_BYTES + len(name)):
        raise CommandError(OOM)


def refuse_lines(broker: Broker, names: list[bytes]) -> None:
    """Raise CommandError if there is no room for a client that waits in all these queues."""
    distinct = dict.fromkeys(names)
    missing = [name for name in distinct if name not in broker.queues]
    name_bytes = sum(map(len, missing))
    if len(distinct) <= LINES_SPARE and _is_spare(broker, len(missing), name_bytes):
        return
    if not has_room(broker, len(distinct) * LINE_BYTES + len(missing) * QUEUE_BYTES + name_bytes):
        raise CommandError(OOM)


def _is_spare(broker: Broker, count: int, name_bytes: int) -> bool:
    """Return whether this many new queues may be made even if memory is full."""
    return not count or (len(broker.queues) + count <= QUEUES_SPARE and name_bytes <= NAMES_SPARE)


def replicates_externally(broker: Broker, replicate: int) -> bool:
    """Return whether `replicate` other nodes hold a new job, and this node keeps no copy of it."""
    if broker.is_leaving:
        return True
    if broker.used_memory <= broker.memory.limits[0]:
        return False
    roomy = 0
    for node in broker.cluster.usable:
        if node.is_linked and node.memory_level == 0:
            roomy += 1
    return roomy >= replicate
