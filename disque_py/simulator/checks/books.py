"""Recounts of the books of a node: its memory, its counters and its indexes.

A broker keeps sums such as `used_memory` and `acked_count`, so that no command has to count. `check_books` counts all
of them again from the jobs, queues and clients that exist. `cluster_invariants.look` calls it for each running node.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from disque_py.core.client import WAITS_FOR_ENDS, WAITS_FOR_JOBS
from disque_py.core.filters import ENTRY_BYTES as INDEX_ENTRY_BYTES
from disque_py.core.filters import GROUP_BYTES, INDEX_BYTES
from disque_py.core.job import ACKED, ACTIVE, QUEUED, WAIT_REPL, Handover, Job, Wanted, memory_of
from disque_py.core.keys import USED_BYTES
from disque_py.core.patterns import GROUP_BYTES as PATTERN_GROUP_BYTES
from disque_py.core.patterns import LISTED_BYTES
from disque_py.core.progress import PROGRESS_BYTES
from disque_py.core.queue import LINE_BYTES, QUEUE_BYTES, Queue
from disque_py.core.results import RESULT_BYTES
from disque_py.core.schedule import HORIZON_MS, SWEEP_MS
from disque_py.core.tokens import ENTRY_BYTES, TOKEN_BYTES
from disque_py.simulator.oracle import RuleBrokenError

if TYPE_CHECKING:
    from disque_py.core.broker import Broker
    from disque_py.simulator.world.machine import Machine

# Far more than a world of this size should ever need.
TASKS_MAX: Final = 5_000
ANSWERS_MAX: Final = 5_000
MARGIN_MS: Final = 20_000


def check_books(machine: Machine) -> None:
    """Check that a node's counters, sums and indexes equal a recount. Raises RuleBrokenError."""
    broker = machine.broker
    jobs = list(chain.from_iterable(map(dict.values, broker.shards)))
    _same(machine, "job_count", broker.job_count, len(jobs))
    _same(machine, "used_memory", broker.used_memory, _accounted_bytes(broker, jobs))
    _check_queues(machine, _check_jobs(machine, jobs))
    _check_clients(machine)
    _check_growth(machine)


def _accounted_bytes(broker: Broker, jobs: list[Job]) -> int:
    """Return the bytes of everything that counts in `used_memory`."""
    used = sum(map(memory_of, jobs))
    used += USED_BYTES * len(broker.producers.keys.over) + ENTRY_BYTES * len(broker.tokens.by_job)
    used += sum(TOKEN_BYTES + len(name) for name in broker.tokens.by_name)
    used += broker.batches.size
    used += sum(RESULT_BYTES + len(result.value) for result in broker.results.by_id.values())
    used += sum(PROGRESS_BYTES + len(progress.text) for progress in broker.progress.by_job.values())
    used += sum(QUEUE_BYTES + len(name) + _bytes_of_filters(queue) for name, queue in broker.queues.items())
    for search in broker.producers.searches.values():
        used += sum(memory_of(job) for job in search.callers if isinstance(job.work, Wanted) and not job.work.is_over)
    used += LINE_BYTES * sum(len(client.queues) + (client.group is not None) for client in broker.clients.values())
    for group in broker.patterns.groups.values():
        used += PATTERN_GROUP_BYTES + sum(map(len, group.words)) + LISTED_BYTES * len(group.names)
    return used


def _check_jobs(machine: Machine, jobs: list[Job]) -> dict[bytes, int]:
    """Check the counts of states and timers. Return the number of queued jobs of each queue."""
    broker = machine.broker
    queued: dict[bytes, int] = {}
    acked = once = scheduled = 0
    waiting: dict[Job, None] = {}
    soon_ms = broker.now_ms + HORIZON_MS - SWEEP_MS - MARGIN_MS
    in_line = {job_id for line in (broker.acks.asked, broker.acks.heard) for job_id in line.ids()}
    for job in jobs:
        state = job.state
        scheduled += job.awake_at_ms != 0
        if state == QUEUED:
            queued[job.queue] = queued.get(job.queue, 0) + 1
        elif state == ACKED:
            acked += 1
        elif state == WAIT_REPL:
            waiting[job] = None
        if not job.retry_ms and job.is_delivered and state != ACKED:
            once += 1
        if isinstance(job.work, Handover):
            pending = job.work.node.core.pending.get(job.work.number)
            _expect(machine, pending is not None and job in pending.jobs, "a hand-over that no node waits for", job)
        elif state == ACTIVE and job.retry_ms and not job.is_errored:
            _expect(machine, job.requeue_at_ms > 0, "an active job without a timer", job)
        if not job.awake_at_ms and state != WAIT_REPL and job.id not in in_line:
            due_ms = min(job.expire_at_ms, job.requeue_at_ms or job.expire_at_ms)
            _expect(machine, due_ms > soon_ms, "a job that is due soon and not scheduled", job)
    _same(machine, "acked_count", broker.memory.acked_count, acked)
    _same(machine, "once_delivered_count", broker.memory.once_delivered_count, once)
    _same(machine, "jobs in the schedule", broker.schedule.count(), scheduled)
    _same(machine, "waiting for copies", list(broker.copies.waiting_repl), list(waiting), unordered=True)
    return queued


def _check_queues(machine: Machine, queued: dict[bytes, int]) -> None:
    """Check the length and the entries of each queue. `queued` has the number of queued jobs of each queue."""
    broker = machine.broker
    for name, queue in broker.queues.items():
        _same(machine, f"length of {name!r}", queue.pending, queued.pop(name, 0))
        _same(machine, f"entries of {name!r}", sum(1 for _ in queue.oldest()), queue.pending)
        groups = queue.parking.groups if queue.parking is not None else {}
        offered = [key for key in broker.exclusive.busy if key in groups and groups[key].room > 0]
        _same(machine, f"busy keys whose jobs {name!r} offers", offered, [])
    _same(machine, "jobs in queues that don't exist", queued, {})
    paused = sum(bool(queue.paused) for queue in broker.queues.values())
    _same(machine, "paused_count", broker.pauses.paused_count, paused)


def _check_clients(machine: Machine) -> None:
    """Check the number of clients that wait, those of the node itself included."""
    broker = machine.broker
    blocked = sum(
        (client.waiting in (WAITS_FOR_JOBS, WAITS_FOR_ENDS)) + len(client.waiting_jobs)
        for client in broker.clients.values()
    )
    own = (*broker.recurring.clients.values(), *broker.batches.clients.values())
    blocked += sum(len(client.waiting_jobs) for client in own)
    _same(machine, "blocked_count", broker.waits.blocked_count, blocked)


def _bytes_of_filters(queue: Queue) -> int:
    """Return the accounted bytes of a queue's indexes."""
    indexes = queue.filters.indexes.values() if queue.filters is not None else ()
    groups = [group for index in indexes for group in index.groups.values()]
    used = INDEX_BYTES * len(indexes) + sum(GROUP_BYTES + sum(map(len, group.values)) for group in groups)
    return used + INDEX_ENTRY_BYTES * sum(group.length for group in groups)


def _check_growth(machine: Machine) -> None:
    broker = machine.broker
    sizes = {
        "tasks": broker.schedule.task_count,
        "clients": len(broker.clients) - len(machine.clients) - 50,
        "announcements": len(broker.copies.announcements),
        "nodes named": len(broker.cluster.known_nodes()),
    }
    for node in broker.cluster.nodes.values():
        if node.core is not None:
            sizes[f"answers to {node.host}"] = len(node.core.answers)
            sizes[f"hand-overs to {node.host}"] = len(node.core.pending)
    for what, size in sizes.items():
        if size > (ANSWERS_MAX if "answers" in what else TASKS_MAX):
            raise RuleBrokenError("nothing grows without bound", f"{size} {what} on {machine.name}", machine.name)


def _expect(machine: Machine, holds: bool, what: str, job: Job) -> None:
    if not holds:
        raise RuleBrokenError("books are right", f"{what} on {machine.name}: {tell(machine.broker, job)}", job.id)


def _same(machine: Machine, what: str, said: object, counted: object, *, unordered: bool = False) -> None:
    if unordered and isinstance(said, list) and isinstance(counted, list):
        said, counted = sorted(map(_id_of, said)), sorted(map(_id_of, counted))
    if said != counted:
        raise RuleBrokenError(
            "books are right", f"{what} on {machine.name}: {said} said, {counted} counted", machine.name
        )


def _id_of(job: Job) -> bytes:
    return job.id


def tell(broker: Broker, job: Job) -> str:
    """Return a description of a job for people."""
    due = job.requeue_at_ms and job.requeue_at_ms - broker.now_ms
    holders = " ".join(sorted(chr(node.id[0]) for node in job.holders))
    return (
        f"{job!r} retry {job.retry_ms} due {due} awake {job.awake_at_ms and job.awake_at_ms - broker.now_ms}"
        f" holders {holders} attempt {job.attempt} work {type(job.work).__name__}"
        f" leased {job.is_leased_here} delivered {job.is_delivered} queued {job.was_queued}"
    )
