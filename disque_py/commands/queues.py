"""QLEN, QPEEK, QSTAT, PAUSE. Spec R8, U1, U4."""

from __future__ import annotations

from itertools import islice
from typing import Final

from disque_py.commands.options import read_integer
from disque_py.core import incremental, memory, pausing, pulls, spilling
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.delivery import REPLY_BYTES_MAX
from disque_py.core.errors import SYNTAX, CommandError
from disque_py.core.job import Job
from disque_py.core.queue import PAUSE_NAMES, PAUSED_IN, PAUSED_OUT, Queue
from disque_py.core.spilled import size_of
from disque_py.resp.replies import EMPTY_ARRAY, array, bulk, bulk_array, integer, nil_array, simple

# Bytes of a QPEEK entry besides queue name and body.
ENTRY_BYTES: Final = 70

_PAUSE_BITS = {b"none": 0, b"in": PAUSED_IN, b"out": PAUSED_OUT, b"all": PAUSED_IN | PAUSED_OUT}


def qlen(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """QLEN queue → number of jobs ready here."""
    queue = broker.queues.get(argv[1])
    return integer(queue.length if queue is not None else 0)


def qpeek(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """QPEEK queue count → up to |count| jobs, without taking them; positive: oldest first, negative: newest first."""
    count = read_integer(argv[2])
    queue = broker.queues.get(argv[1])
    if queue is None or not count:
        return EMPTY_ARRAY
    most = min(abs(count), queue.length)
    jobs: list[Job] = []
    size = 0
    for job in islice(queue.oldest() if count > 0 else queue.newest(most), most):
        jobs.append(job)
        size += ENTRY_BYTES + len(queue.name) + size_of(job.body)
        if size >= REPLY_BYTES_MAX:
            break
    return incremental.begin(broker, client, _peeked(broker, client, queue, jobs))


def _peeked(broker: Broker, client: Client, queue: Queue, jobs: list[Job]) -> incremental.Steps:
    """Reply with the jobs as entries, perhaps after their bodies were read from disk."""
    bodies = yield from spilling.borrowed(broker, client, jobs)
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
        ("blocked", integer(len(queue.waiting))),
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
