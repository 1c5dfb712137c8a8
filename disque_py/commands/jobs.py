"""ADDJOB, GETJOB, ACKJOB, FASTACK, DELJOB, WORKING, NACK, ENQUEUE, DEQUEUE, SHOW.

Handlers read their arguments into locals and refuse before anything is changed; what happens then is the core's.
Spec: disque/commands.md, section 2.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from cluster_bus.node import LEAVING as IS_LEAVING
from disque_py.commands.adding import WORDS as ADDING_WORDS
from disque_py.commands.adding import Adding
from disque_py.commands.options import INT64_MAX, KNOWN_INTEGERS, read_ids, read_integer, read_timeout, value_of
from disque_py.core import (
    acks,
    delivery,
    events,
    handover,
    keying,
    keys,
    lifecycle,
    memory,
    pausing,
    pulls,
    replication,
    requeue,
    slices,
    spilling,
)
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import BAD_ID, LEAVING, MISCONF, SYNTAX, CommandError
from disque_py.core.ids import is_valid_id
from disque_py.core.image import COUNTER_MAX
from disque_py.core.job import ACKED, ACTIVE, QUEUED, STATE_NAMES, WAIT_REPL, Collection, Job, Replication
from disque_py.core.queue import PAUSED_IN, Queue
from disque_py.core.wish import COUNTERS, LEASE, META, PLAIN, TOKEN_BYTES_MAX, Wish, wish_of
from disque_py.resp import array, bulk, bulk_array, error, integer, nil_array, nil_bulk

TTL_DEFAULT_S: Final = 86_400
RETRY_DEFAULT_S_MAX: Final = 300
REPLICATE_MAX: Final = 65_535
REPLICATE_DEFAULT: Final = 3
# Spans are kept in milliseconds in 64 bits; longer ones are refused, never cut (quirks Q19).
SECONDS_MAX: Final = INT64_MAX // 1_000_000

# Longer commands are done in parts of so many jobs, about half a millisecond each.
PART: Final = 250
QUEUES_MAX: Final = 4_096
# An ASYNC job of which we keep no copy waits for others to have it, but not for ever.
ASYNC_WAIT_MS: Final = 1_000

NOREPL: Final = "NOREPL Not enough reachable nodes for the requested replication level"
NOREPL_EXTERNAL: Final = NOREPL + ", since I'm unable to hold a copy of the message for the following reason: "
TTL_ERROR: Final = "ERR TTL must be a number > 0"
RETRY_ERROR: Final = "ERR RETRY time must be a non negative number"
DELAY_ERROR: Final = "ERR DELAY time must be a non negative number"
REPLICATE_ERROR: Final = "ERR REPLICATE must be between 1 and 65535"
MAXLEN_ERROR: Final = "ERR MAXLEN must be a positive number"
LEASE_ERROR: Final = "ERR LEASE must be a number of seconds > 0"
WORKING_ERROR: Final = "ERR WORKING must be given a number of seconds > 0"
TOKEN_ERROR: Final = f"ERR TOKEN must have 1 to {TOKEN_BYTES_MAX} bytes"
# What a GETJOB wants to see of each job.
SHOWN: Final = {b"withcounters": COUNTERS, b"withmeta": META, b"withlease": LEASE}
PAUSED: Final = "PAUSED Queue paused in input, try later"


def addjob(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """ADDJOB queue body ms-timeout [REPLICATE n] [DELAY s] [RETRY s] [TTL s] [MAXLEN n] [ASYNC] …, see adding.py."""
    replicate = 0
    ttl_s = TTL_DEFAULT_S
    retry_s = -1
    delay_s = 0
    maxlen = 0
    is_async = False
    more: Adding | None = None
    at = 4
    end = len(argv)
    while at < end:
        option = argv[at].lower()
        if option == b"async":
            is_async = True
            at += 1
            continue
        if at + 1 >= end:
            raise CommandError(SYNTAX)
        word = argv[at + 1]
        if option == b"replicate":
            replicate = _between(word, 1, REPLICATE_MAX, REPLICATE_ERROR)
        elif option == b"retry":
            retry_s = _between(word, 0, SECONDS_MAX, RETRY_ERROR)
        elif option == b"delay":
            delay_s = _between(word, 0, SECONDS_MAX, DELAY_ERROR)
        elif option == b"ttl":
            ttl_s = _between(word, 1, SECONDS_MAX, TTL_ERROR)
        elif option == b"maxlen":
            maxlen = _between(word, 1, INT64_MAX, MAXLEN_ERROR)
        elif option in ADDING_WORDS:
            if more is None:
                more = Adding(broker)
            at = more.read(option, argv, at)
            continue
        else:
            raise CommandError(SYNTAX)
        at += 2
    timeout_ms = 0 if argv[3] == b"0" else read_timeout(argv[3])

    if retry_s < 0:
        retry_s = RETRY_DEFAULT_S_MAX if ttl_s >= 10 * RETRY_DEFAULT_S_MAX else max(1, ttl_s // 10)
    if not retry_s:
        if replicate > 1:
            raise CommandError("ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)")
        replicate = 1
    if delay_s >= ttl_s:
        raise CommandError("ERR The specified DELAY is greater than TTL. Job refused since would never be delivered")
    is_external = False
    if broker.used_memory > broker.memory_limits[0] or broker.me.flags & IS_LEAVING:
        is_external = memory.replicates_externally(broker, replicate or default_replicate(broker, True))
    if not replicate:
        if broker.cluster.size == 1 and not broker.settings.replicate_default:
            replicate = 1
        else:
            replicate = default_replicate(broker, is_external)
    if replicate > 1 or is_external:
        needed = replicate if is_external else replicate - 1
        short = needed - len(broker.cluster.usable)
        if short > 0:
            if is_external and short == 1:
                reason = "I'm leaving the cluster" if broker.is_leaving else "I'm out of memory"
                raise CommandError(NOREPL_EXTERNAL + reason)
            raise CommandError(NOREPL)
    name = argv[1]
    queue = broker.queues.get(name)
    if queue is not None:
        if maxlen and queue.length >= maxlen:
            raise CommandError("MAXLEN Queue is already longer than the specified MAXLEN count")
        if queue.paused & PAUSED_IN:
            raise CommandError(PAUSED)
        name = queue.name  # One object for all its jobs.

    ttl_ms = ttl_s * 1000
    job = Job(
        broker.ids.next(ttl_ms, retry_s > 0),
        name,
        argv[2],
        broker.next_ctime(),
        broker.now_ms + ttl_ms,
        retry_s * 1000,
        delay_s * 1000,
        replicate,
        broker.sets.mine,
    )
    if more is not None:
        job.traits = more.traits()
        if more.key:
            job.id = broker.ids.keyed(keys.key_chars(name, more.key), job.id)
            deadline_ms = broker.now_ms + timeout_ms if timeout_ms else 0
            create = partial(_create_with_key, deadline_ms, is_external, is_async)
            return keying.add(broker, client, job, timeout_ms, create)
    if is_external and not retry_s:
        handover.start_once(broker, client, job, timeout_ms)
        return None
    # Without a copy of our own even ASYNC waits: an id that nobody holds would be a lie.
    if not is_external and (is_async or replicate == 1):
        if replicate == 1 and not delay_s:
            lifecycle.register_queued(broker, job, queue)
        else:
            _start_alone(broker, job)
        if broker.is_journaling:
            broker.touched[job] = False
        broker.stats.jobs_added += 1
        return b"+" + job.id + b"\r\n"
    if is_async and not timeout_ms:
        timeout_ms = ASYNC_WAIT_MS
    replication.start(broker, client, job, timeout_ms, is_external=is_external)
    return None


def _create_with_key(
    deadline_ms: int,
    is_external: bool,
    is_async: bool,
    broker: Broker,
    client: Client,
    job: Job,
    slot: list[bytes | None] | None,
) -> bytes | None:
    """The rest of an ADDJOB whose key is not used: as above, after some time perhaps (keying.py, `Create`)."""
    if is_paused_in(broker, job):
        raise CommandError(PAUSED)
    timeout_ms = max(1, deadline_ms - broker.now_ms) if deadline_ms else 0
    if is_external and not job.retry_ms:
        handover.start_once(broker, client, job, timeout_ms, slot)
        return None
    if not is_external and (is_async or job.replicate == 1):
        _start_alone(broker, job)
        lifecycle.touch(broker, job)
        broker.stats.jobs_added += 1
        return b"+" + job.id + b"\r\n"
    if is_async and not timeout_ms:
        timeout_ms = ASYNC_WAIT_MS
    replication.start(broker, client, job, timeout_ms, is_external=is_external, slot=slot)
    return None


def _start_alone(broker: Broker, job: Job) -> None:
    """A job whose producer doesn't wait for copies."""
    if job.replicate > 1:
        replication.start_async(broker, job)
    lifecycle.register(broker, job)
    replication.queue_or_delay(broker, job)


def _between(word: bytes, low: int, high: int, text: str) -> int:
    value = KNOWN_INTEGERS.get(word)
    if value is None:
        value = read_integer(word, text)
    if not low <= value <= high:
        raise CommandError(text)
    return value


def read_lease(word: bytes, text: str = LEASE_ERROR) -> int:
    """Seconds of a lease, as milliseconds."""
    return 1000 * _between(word, 1, SECONDS_MAX, text)


def read_token(word: bytes) -> bytes:
    """A token: any bytes, not very many."""
    if not 0 < len(word) <= TOKEN_BYTES_MAX:
        raise CommandError(TOKEN_ERROR)
    return word


def default_replicate(broker: Broker, is_external: bool) -> int:
    """`replicate-default`, or 3 but no more than there are nodes to count on (semantics.md, section 6; quirks Q13)."""
    configured = broker.settings.replicate_default
    if configured:
        return configured
    usable = broker.countable()
    return max(1, min(REPLICATE_DEFAULT, usable if is_external else usable + 1))


def getjob(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """GETJOB [NOHANG] [TIMEOUT ms] [COUNT n] [WITH…] [LEASE s] [TOKEN t] FROM queue [queue ...]."""
    nohang = False
    timeout_ms = 0
    count = 1
    shows = 0
    lease_ms = 0
    token = b""
    at = 1
    end = len(argv)
    while True:
        if at >= end:
            raise CommandError(SYNTAX)
        option = argv[at].lower()
        if option == b"from":
            at += 1
            break
        if option == b"nohang":
            nohang = True
        elif option in SHOWN:
            shows |= SHOWN[option]
        elif option == b"timeout":
            timeout_ms = read_timeout(value_of(argv, at))
            at += 1
        elif option == b"count":
            count = _between(value_of(argv, at), 1, INT64_MAX, "ERR COUNT must be a number greater than zero")
            at += 1
        elif option == b"lease":
            lease_ms = read_lease(value_of(argv, at))
            at += 1
        elif option == b"token":
            token = read_token(value_of(argv, at))
            at += 1
        else:
            raise CommandError(SYNTAX)
        at += 1
    if at >= end:
        raise CommandError(SYNTAX)
    names = argv[at:]
    if len(names) > QUEUES_MAX:
        raise CommandError(f"ERR too many queues, at most {QUEUES_MAX} per GETJOB")
    if broker.ready:
        delivery.serve_ready(broker)  # Who waited longer comes first.
    wish = wish_of(shows, lease_ms, token) if shows or lease_ms or token else PLAIN
    if token and (held := broker.tokens.held(token)):
        return slices.begin(broker, client, _getjob_again(broker, client, held, shows))
    if count > PART and sum(queue.length for name in names if (queue := broker.queues.get(name))) > PART:
        return slices.begin(broker, client, _getjob_in_parts(broker, client, names, count, wish))
    known = broker.queues
    queues = [known.get(name) or broker.queue(name) for name in names]
    entries = delivery.collect(broker, queues, count, wish, delivery.REPLY_BYTES_MAX)
    if entries:
        return b"*%d\r\n%b" % (len(entries), b"".join(entries))
    if broker.spilled_count and any(queue.is_stalled for queue in queues):
        asked = _Asked(names, count, wish, nohang, timeout_ms)
        return slices.begin(broker, client, _getjob_from_disk(broker, client, asked))
    return _getjob_of_none(broker, client, queues, wish, nohang, timeout_ms)


def _getjob_of_none(
    broker: Broker, client: Client, queues: list[Queue], wish: Wish, nohang: bool, timeout_ms: int
) -> bytes | None:
    """There is nothing in these queues: the client waits, or learns that there is nothing."""
    if broker.disk_level and any(queue.length for queue in queues):
        raise CommandError(MISCONF + broker.disk_trouble)  # What is there is delivered at most once, or a great many.
    if nohang:
        for queue in queues:
            queue.polled_ms = broker.now_ms
            if wish.is_picky:
                queue.picky_ms = broker.now_ms
            else:
                queue.waited_ms = broker.now_ms
            broker.interest_due[queue] = None
            pulls.ask_sources(broker, queue, is_urgent=False)
            pulls.ask_everybody(broker, queue)
        return nil_array(client.protocol)
    if broker.is_leaving:
        raise CommandError(LEAVING)
    delivery.wait(broker, client, queues, timeout_ms, wish)
    return None


class _Asked(NamedTuple):
    """The words of a GETJOB."""

    names: list[bytes]
    count_max: int
    wish: Wish
    nohang: bool
    timeout_ms: int


def _getjob_from_disk(broker: Broker, client: Client, asked: _Asked) -> slices.Slices:
    """A GETJOB whose first job is on disk: it begins anew when that is back.

    One that has found some before it meets such a job takes these: nobody's lease runs while he waits for a disk.
    """
    is_stalled = True
    queues: list[Queue] = []
    while is_stalled:
        broker.stalled[client] = None
        yield
        if broker.ready:
            delivery.serve_ready(broker)
        queues = [broker.queues.get(name) or broker.queue(name) for name in asked.names]
        most = min(PART, asked.count_max)
        entries = delivery.collect(broker, queues, most, asked.wish, delivery.REPLY_BYTES_MAX)
        if entries:
            return b"*%d\r\n%b" % (len(entries), b"".join(entries))
        is_stalled = any(queue.is_stalled for queue in queues)
    return _getjob_of_none(broker, client, queues, asked.wish, asked.nohang, asked.timeout_ms)


def _getjob_again(broker: Broker, client: Client, jobs: list[Job], shows: int) -> slices.Slices:
    """A GETJOB with a token that was answered before: the same jobs, as far as they are still leased."""
    bodies = yield from spilling.borrowed(broker, client, jobs)
    return array([delivery.entry_of(broker, job, bodies[job], shows) for job in jobs if job in bodies])


def _getjob_in_parts(broker: Broker, client: Client, names: list[bytes], count: int, wish: Wish) -> slices.Slices:
    """A GETJOB of very many jobs; there were some when it began, so it never waits."""
    entries: list[bytes] = []
    client.fetched = entries
    size = 0
    while len(entries) < count and size < delivery.REPLY_BYTES_MAX:
        queues = [queue for name in names if (queue := broker.queues.get(name)) is not None]
        most = min(PART, count - len(entries))
        part = delivery.collect(broker, queues, most, wish, delivery.REPLY_BYTES_MAX - size)
        if not part:
            if entries or not any(queue.is_stalled for queue in queues):
                break
            broker.stalled[client] = None
        entries += part
        size += sum(map(len, part))
        yield
    client.fetched = []
    return b"*%d\r\n%b" % (len(entries), b"".join(entries)) if entries else nil_array(client.protocol)


def _count(broker: Broker, client: Client, argv: list[bytes], deed: Callable[[Broker, bytes], int]) -> bytes | None:
    """Do something to each of the jobs named; the reply is how many it was done to. Long lists are done in parts."""
    if len(argv) <= PART:
        return integer(sum([deed(broker, job_id) for job_id in read_ids(argv)]))
    return slices.begin(broker, client, _count_in_parts(broker, argv, deed))


def _count_in_parts(broker: Broker, argv: list[bytes], deed: Callable[[Broker, bytes], int]) -> slices.Slices:
    for at in range(1, len(argv), 8 * PART):
        if not all(map(is_valid_id, argv[at : at + 8 * PART])):
            raise CommandError(BAD_ID)  # One bad id, and nothing is done.
        yield
    total = 0
    for at in range(1, len(argv), PART):
        total += sum([deed(broker, job_id) for job_id in argv[at : at + PART]])
        yield
    return integer(total)


def ackjob(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """ACKJOB [id ...] → how many were known here and not acknowledged yet."""
    if len(argv) == 2:
        if not is_valid_id(argv[1]):
            raise CommandError(BAD_ID)
        return b":1\r\n" if acks.ack_here(broker, argv[1]) else b":0\r\n"
    return _count(broker, client, argv, acks.ack_here)


def fastack(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """FASTACK [id ...] → how many were deleted here; other nodes delete theirs, best effort."""
    return _count(broker, client, argv, acks.fast_ack)


def deljob(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """DELJOB [id ...] → how many were deleted here; other nodes are not told."""
    return _count(broker, client, argv, _delete)


def _delete(broker: Broker, job_id: bytes) -> int:
    job = broker.find(job_id)
    if job is None:
        return 0
    if job.holders is broker.sets.mine:
        events.ended(broker, job, events.DELETED)
    elif job.state == QUEUED:
        events.note(broker, job, events.DELETED_COPY)  # Another holder will queue it.
    replication.remove(broker, job)
    return 1


def working(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """WORKING id [seconds] → for how many seconds from now the next delivery is postponed: these, or RETRY."""
    job_id = argv[1]
    if len(argv) > 3:
        raise CommandError(SYNTAX)
    lease_ms = read_lease(argv[2], WORKING_ERROR) if len(argv) == 3 else 0
    if not is_valid_id(job_id):
        raise CommandError(BAD_ID)
    job = broker.find(job_id)
    if job is None:
        raise CommandError("NOJOB Job not known in the context of this node.")
    if job.state == ACKED:
        raise CommandError("NOJOB Job already acknowledged.")
    if job.is_half_over(broker.now_ms, broker.wall_ms):
        raise CommandError(
            "TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone the next delivery."
        )
    if not job.retry_ms:
        return integer(0)
    lease_ms = lease_ms or job.retry_ms
    if job.state != WAIT_REPL:
        if job.state == QUEUED:
            lifecycle.dequeue(broker, job)
        if broker.deferred:
            broker.deferred.pop(job, None)
        job.work = None
        if events.status_of(job) != events.RUNNING:
            events.note(broker, job, events.WORKING)
        job.is_leased_here = True
        lifecycle.extend(broker, job, lease_ms)
        requeue.tell_leased(broker, job)
    return integer(lease_ms // 1000)


def nack(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """NACK [id ...] → how many went back to their queues; their nacks counters grow."""
    return _count(broker, client, argv, nack_one)


def nack_one(broker: Broker, job_id: bytes) -> int:
    """NACK of one id: 1 if it went back to its queue."""
    job = broker.find(job_id)
    if job is None or not requeue.is_queueable(job):
        return 0
    if job.nacks < COUNTER_MAX:
        job.nacks += 1
    if is_paused_in(broker, job):
        events.note(broker, job, events.NACKED_INVISIBLE)
        pausing.defer(broker, job)
        lifecycle.touch(broker, job)
    else:
        events.note(broker, job, events.NACKED)
        requeue.release(broker, job)
    broker.stats.jobs_nacked += 1
    return 1


def is_paused_in(broker: Broker, job: Job) -> bool:
    """Whether the job's queue takes no jobs on this node now."""
    queue = broker.queues.get(job.queue)
    return queue is not None and bool(queue.paused & PAUSED_IN)


def enqueue(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """ENQUEUE [id ...] → how many were put into their queues; refused as a whole if one of these is paused."""
    if broker.paused_count:
        for job in map(broker.find, read_ids(argv)):
            if job is not None and requeue.is_queueable(job) and is_paused_in(broker, job):
                raise CommandError(PAUSED)
    return _count(broker, client, argv, _enqueue)


def _enqueue(broker: Broker, job_id: bytes) -> int:
    job = broker.find(job_id)
    if job is None or not requeue.is_queueable(job):
        return 0
    if job.was_queued:
        if job.deliveries < COUNTER_MAX:
            job.deliveries += 1
        events.note(broker, job, events.ENQUEUED)
        requeue.release(broker, job)
    else:
        events.note(broker, job, events.ENQUEUED)
        lifecycle.enqueue(broker, job)
    return 1


def dequeue(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """DEQUEUE [id ...] → how many were taken out of their queues here."""
    return _count(broker, client, argv, _dequeue)


def _dequeue(broker: Broker, job_id: bytes) -> int:
    job = broker.find(job_id)
    if job is None or job.state != QUEUED:
        return 0
    events.note(broker, job, events.DEQUEUED)
    lifecycle.dequeue(broker, job)
    if job.retry_ms:
        job.requeue_at_ms = broker.now_ms + job.retry_ms + broker.jitter()
    lifecycle.arm(broker, job)
    return 1


def show(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """SHOW id → all that is known of the job here, or nil."""
    if not is_valid_id(argv[1]):
        raise CommandError(BAD_ID)
    job = broker.find(argv[1])
    if job is None:
        return nil_bulk(client.protocol)
    body = job.body
    if type(body) is not bytes:
        return slices.begin(broker, client, _show_from_disk(broker, client, job))
    return describe(broker, client, job, body)


def _show_from_disk(broker: Broker, client: Client, job: Job) -> slices.Slices:
    bodies = yield from spilling.borrowed(broker, client, (job,))
    if broker.find(job.id) is not job:
        return nil_bulk(client.protocol)
    return describe(broker, client, job, bodies.get(job, b""))


def describe(broker: Broker, client: Client, job: Job, body: bytes) -> bytes:
    """The reply of SHOW: fifteen pairs, then what this server adds (disque/info.md, section 6)."""
    nil = nil_bulk(client.protocol)
    is_dummy = job.is_dummy
    now_ms = broker.now_ms
    confirmed: list[bytes] = []
    if isinstance(job.work, Replication | Collection):
        confirmed = broker.sets.names(job.work.confirmed)
        if job.state == ACKED:
            confirmed.append(broker.me.name)
    if job.state == QUEUED:
        requeue_ms = job.retry_ms or None
    elif job.state == ACTIVE and job.requeue_at_ms:
        requeue_ms = max(0, job.requeue_at_ms - now_ms)
    else:
        requeue_ms = None
    # A timer beyond the schedule's horizon is not set yet; what it will be set to is known.
    awake_at_ms = job.awake_at_ms or min(job.expire_at_ms, job.requeue_at_ms or job.expire_at_ms)
    awake_ms = max(0, awake_at_ms - now_ms)
    fields = (
        ("id", bulk(job.id)),
        ("queue", nil if is_dummy else bulk(job.queue)),
        ("state", bulk(STATE_NAMES[job.state])),
        ("repl", integer(job.replicate)),
        ("ttl", integer(max(0, -((now_ms - job.expire_at_ms) // 1000)))),
        ("ctime", integer(job.ctime)),
        ("delay", integer(job.delay_ms // 1000)),
        ("retry", integer(job.retry_ms // 1000)),
        ("nacks", integer(job.nacks)),
        ("additional-deliveries", integer(job.deliveries)),
        ("nodes-delivered", bulk_array(broker.sets.names(job.holders))),
        ("nodes-confirmed", bulk_array(confirmed)),
        ("next-requeue-within", nil if requeue_ms is None else integer(requeue_ms)),
        ("next-awake-within", integer(awake_ms)),
        ("body", nil if is_dummy else bulk(body)),
        ("attempt", integer(job.attempt)),
        ("leased", integer(int(job.is_leased_here and job.requeue_at_ms > now_ms))),
        ("priority", integer(job.priority)),
        ("meta", bulk_array(job.meta)),
    )
    return array([part for name, value in fields for part in (bulk(name), value)])


LOADJOB_REPLY: Final = error("ERR LOADJOB is a special command only processed from AOF")


def loadjob(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """LOADJOB blob: the original's journal record, never a client's command."""
    return LOADJOB_REPLY
