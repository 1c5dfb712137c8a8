"""QLEN, QPEEK, QDEPTH, QSTAT, PAUSE. Spec R8, U1, U4."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice
from typing import Final

from disque_py.commands.options import between, read_integer
from disque_py.commands.subcommands import text_of
from disque_py.commands.where import TRACE_ERROR, read_pair
from disque_py.core import filters, incremental, memory, pausing, pulls, spilling
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.delivery import REPLY_BYTES_MAX, entry_of
from disque_py.core.errors import SYNTAX, CommandError
from disque_py.core.fetch_options import META
from disque_py.core.filters import Filter, Group
from disque_py.core.job import Job
from disque_py.core.job_attributes import TRACE_NAMES
from disque_py.core.queue import PAUSE_NAMES, PAUSED_IN, PAUSED_OUT, Queue
from disque_py.core.spilled import size_of
from disque_py.resp.replies import EMPTY_ARRAY, array, bulk, bulk_array, integer, nil_array, nil_bulk, simple

# Bytes of a QPEEK entry besides queue name and body.
ENTRY_BYTES: Final = 70
# QDEPTH: values without COUNT, and at most.
DEPTH_COUNT: Final = 100
DEPTH_COUNT_MAX: Final = 10_000
DEPTH_COUNT_ERROR: Final = f"ERR COUNT must be a number from 1 to {DEPTH_COUNT_MAX}"
# Groups that QDEPTH looks at per turn.
DEPTH_PART: Final = 5_000
# Bytes of a wrong word that are quoted.
WORD_BYTES_MAX: Final = 64

_PAUSE_BITS = {b"none": 0, b"in": PAUSED_IN, b"out": PAUSED_OUT, b"all": PAUSED_IN | PAUSED_OUT}


def qlen(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """QLEN queue [WHERE name value ...] → number of jobs ready here."""
    if len(argv) > 2:
        where = _read_where(argv, 2)
        return incremental.begin(broker, client, _counted(broker, argv[1], where))
    queue = broker.queues.get(argv[1])
    return integer(queue.length if queue is not None else 0)


def _counted(broker: Broker, name: bytes, where: Filter) -> incremental.Steps:
    yield from filters.built(broker, name, where)
    group = _group(broker, name, where)
    return integer(0 if group is None else group.length)


def qpeek(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """QPEEK queue count [WHERE …] [WITHMETA] → up to |count| jobs, without taking them; negative: newest first."""
    count = read_integer(argv[2])
    pairs: dict[bytes, bytes] = {}
    with_meta = False
    at = 3
    while at < len(argv):
        option = argv[at].lower()
        if option == b"where":
            read_pair(pairs, argv, at)
            at += 3
        elif option == b"withmeta":
            with_meta = True
            at += 1
        else:
            raise CommandError(SYNTAX)
    queue = broker.queues.get(argv[1])
    if queue is None or not count:
        return EMPTY_ARRAY
    if pairs:
        return incremental.begin(broker, client, _peeked_where(broker, client, queue.name, count, pairs, with_meta))
    most = min(abs(count), queue.length)
    jobs = _first_of(queue.oldest() if count > 0 else queue.newest(most), most, len(queue.name))
    return incremental.begin(broker, client, _peeked(broker, client, queue, jobs, with_meta))


def _first_of(ordered: Iterator[Job], most: int, name_bytes: int) -> list[Job]:
    """Return up to `most` jobs, and no more than fit into a reply."""
    jobs: list[Job] = []
    size = 0
    for job in islice(ordered, most):
        jobs.append(job)
        size += ENTRY_BYTES + name_bytes + size_of(job.body)
        if job.attributes is not None:
            size += job.attributes.packed_bytes
        if size >= REPLY_BYTES_MAX:
            break
    return jobs


def _peeked_where(
    broker: Broker, client: Client, name: bytes, count: int, pairs: dict[bytes, bytes], with_meta: bool
) -> incremental.Steps:
    where = Filter(pairs)
    yield from filters.built(broker, name, where)
    queue = broker.queues.get(name)
    group = _group(broker, name, where)
    if queue is None or group is None:
        return EMPTY_ARRAY
    jobs = _first_of(group.oldest() if count > 0 else group.newest(), abs(count), len(name))
    return (yield from _peeked(broker, client, queue, jobs, with_meta))


def _group(broker: Broker, name: bytes, where: Filter) -> Group | None:
    queue = broker.queues.get(name)
    return None if queue is None or queue.filters is None else queue.filters.group(where)


def _read_where(argv: list[bytes], at: int) -> Filter:
    """Return the filter of a command that takes nothing but WHERE from `at` on. CommandError."""
    pairs: dict[bytes, bytes] = {}
    while at < len(argv):
        if argv[at].lower() != b"where":
            raise CommandError(SYNTAX)
        read_pair(pairs, argv, at)
        at += 3
    return Filter(pairs)


def qdepth(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """QDEPTH queue BY name [COUNT n] → values of this metadata name and their numbers of ready jobs, largest first."""
    if len(argv) < 4 or argv[2].lower() != b"by":
        raise CommandError(f"{SYNTAX}: QDEPTH needs BY and a name")
    by = argv[3]
    if by in TRACE_NAMES:
        raise CommandError(TRACE_ERROR)
    count = DEPTH_COUNT
    at = 4
    while at < len(argv):
        if argv[at].lower() != b"count" or at + 1 >= len(argv):
            raise CommandError(f"{SYNTAX}: '{text_of(argv[at][:WORD_BYTES_MAX])}'")
        count = between(argv[at + 1], 1, DEPTH_COUNT_MAX, DEPTH_COUNT_ERROR)
        at += 2
    return incremental.begin(broker, client, _depths(broker, client, argv[1], by, count))


def _depths(broker: Broker, client: Client, name: bytes, by: bytes, count: int) -> incremental.Steps:
    where = Filter({by: b""})
    yield from filters.built(broker, name, where)
    queue = broker.queues.get(name)
    if queue is None or queue.filters is None:
        return EMPTY_ARRAY
    index = queue.filters.index(where.names)
    groups = list(index.groups.values())
    without = queue.length - index.entries
    best: list[tuple[int, bytes]] = []
    for at in range(0, len(groups), DEPTH_PART):
        part = [(-group.length, group.values[0]) for group in groups[at : at + DEPTH_PART] if group.length]
        best = nsmallest(count, best + part)
        if at + DEPTH_PART < len(groups):
            yield
    parts: list[bytes] = []
    for length, value in best:
        parts += (bulk(value), integer(-length))
    if without > 0 and len(best) < count:
        parts += (nil_bulk(client.protocol), integer(without))
    return array(parts)


def _peeked(
    broker: Broker, client: Client, queue: Queue, jobs: list[Job], with_meta: bool = False
) -> incremental.Steps:
    """Reply with the jobs as entries, perhaps after their bodies were read from disk."""
    bodies = yield from spilling.borrowed(broker, client, jobs)
    if with_meta:
        return array([entry_of(broker, job, bodies[job], META) for job in jobs if job in bodies])
    return array(
        [
            b"*3\r\n%b%b\r\n$%d\r\n%b\r\n" % (queue.head_bytes, job.id, len(bodies[job]), bodies[job])
            for job in jobs
            if job in bodies
        ]
    )


def qstat(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """QSTAT queue → pairs of name and value, or nil if there is no such queue here."""
    queue = broker.queues.get(argv[1])
    if queue is None:
        return nil_array(client.protocol)
    now_ms = broker.now_ms
    sources = [node for node, last_ms in queue.sources.items() if now_ms - last_ms <= pulls.RESPONDER_MS]
    fields = (
        ("name", bulk(queue.name)),
        ("len", integer(queue.length)),
        ("age", integer(max(0, (now_ms - queue.created_ms) // 1000))),
        ("idle", integer(max(0, (now_ms - queue.active_ms) // 1000))),
        ("blocked", integer(len(queue.waiting) + (queue.filters.waiting if queue.filters is not None else 0))),
        ("import-from", bulk_array(broker.sets.names(sources))),
        ("import-rate", integer(pulls.import_rate(broker, queue))),
        ("jobs-in", integer(queue.jobs_in)),
        ("jobs-out", integer(queue.jobs_out)),
        ("pause", bulk(PAUSE_NAMES[queue.paused])),
        ("waiting-elsewhere", integer(sum(max(0, count) for count in queue.interested.values()))),
    )
    return array([part for name, value in fields for part in (bulk(name), value)])


def pause(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """PAUSE queue option ... → the state after the call; options none, in, out, all, state, bcast."""
    flags = 0
    is_set = False
    is_broadcast = False
    for word in argv[2:]:
        option = word.lower()
        if option in _PAUSE_BITS:
            bits = _PAUSE_BITS[option]
            flags = flags | bits if bits else 0
            is_set = True
        elif option == b"bcast":
            is_broadcast = True
        elif option != b"state":
            raise CommandError(SYNTAX)
    queue = broker.queues.get(argv[1])
    if is_set and flags:
        memory.refuse_queue(broker, argv[1])
    if is_broadcast and not pausing.has_room(broker, argv[1]):
        raise CommandError(pausing.FULL)
    if not is_set:
        flags = queue.paused if queue is not None else 0
    else:
        pausing.set_pause(broker, argv[1], flags)
    if is_broadcast:
        pausing.broadcast(broker, argv[1], flags)
    return simple(PAUSE_NAMES[flags])
