"""ADDJOB, and ADDJOB to a topic (TOPIC PUBLISH): read and check the words, then make the job.

Clients call `addjob` through the table of commands. The node itself calls it for jobs of schedules and callbacks of
batches (core/own_addjob.py). Arguments are read into locals, and a command is refused before it changes anything. After
that, core modules decide how the job goes on: replication.py about copies, handover.py about an at-most-once job that
this node does not keep, keying.py about a KEY, fanout.py about the jobs of a topic.

Most options end in fields of the job. PRIORITY, META, KEY and others are rare: an `Adding` reads them, and they end in
the job's attributes (core/job_attributes.py). Spec C2, F1, K1, K6, F3, K2.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from cluster_bus.node import LEAVING as IS_LEAVING
from disque_py.commands.options import INT64_MAX, MS_MAX, SECONDS_MAX, between, read_integer, read_ms, read_timeout
from disque_py.commands.subcommands import text_of
from disque_py.commands.where import NAME_ERROR
from disque_py.config.directives import META_PAIRS_MAX
from disque_py.core import (
    exclusive,
    fanout,
    handover,
    keeping,
    keying,
    keys,
    lifecycle,
    memory,
    producer_waits,
    replication,
    settings_sync,
    shared_copies,
    spilling,
    topics,
    versions,
    windows,
    zones,
)
from disque_py.core.batch_callbacks import META_BATCH
from disque_py.core.broker import Broker
from disque_py.core.changeable import ATTEMPTS_MAX, Changeable, read_backoff
from disque_py.core.claim_stamps import new_stamp
from disque_py.core.client import Client
from disque_py.core.errors import OOM, PAUSED, SYNTAX, CommandError
from disque_py.core.fanout import Plan
from disque_py.core.firing import META_SCHEDULE, META_TICK
from disque_py.core.job import Job, terms_of
from disque_py.core.job_attributes import (
    BATCH,
    CLAIM,
    META_BYTES_MAX,
    NAME_BYTES_MAX,
    TRACE_BYTES_MAX,
    TRACE_NAMES,
    WINDOW,
    JobAttributes,
)
from disque_py.core.keys import KEY_BYTES_MAX
from disque_py.core.queue import PAUSED_IN, Queue
from disque_py.core.queue_fields import QUORUM, QueueSettings
from disque_py.core.spilled import size_of
from disque_py.resp.replies import EMPTY_ARRAY

TTL_DEFAULT_S: Final = 86_400
RETRY_DEFAULT_S_MAX: Final = 300
REPLICATE_MAX: Final = 65_535
# An ASYNC job without a copy here waits this long for other nodes to hold it.
ASYNC_WAIT_MS: Final = 1_000

NOREPL: Final = "NOREPL Not enough reachable nodes for the requested replication level"
NOREPL_EXTERNAL: Final = NOREPL + ", since I'm unable to hold a copy of the message for the following reason: "
TTL_ERROR: Final = "ERR TTL must be a number > 0"
RETRY_ERROR: Final = "ERR RETRY time must be a non negative number"
DELAY_ERROR: Final = "ERR DELAY time must be a non negative number"
REPLICATE_ERROR: Final = "ERR REPLICATE must be between 1 and 65535"
ZONES_ERROR: Final = "ERR ZONES must be between 1 and REPLICATE"
NOREPL_ZONES: Final = "NOREPL Not enough zones for the requested replication level"
QUORUM_AND_RETRY: Final = f"{SYNTAX}: REPLICATE QUORUM and RETRY 0 exclude each other"
QUORUM_AND_ZONES: Final = f"{SYNTAX}: REPLICATE QUORUM and ZONES exclude each other"
MAXLEN_ERROR: Final = "ERR MAXLEN must be a positive number"

MAXLEN_REACHED: Final = "MAXLEN Queue is already longer than the specified MAXLEN count"
TOOBIG: Final = "TOOBIG Body is longer than the queue's maxsize"
NOKEY: Final = "NOKEY The queue requires META '{}'"
CLAIM_NEEDS_RETRY: Final = "ERR an exclusive queue needs RETRY above 0"
NO_META: Final[dict[bytes, bytes]] = {}

BATCH_ERROR: Final = f"ERR BATCH must have 1 to {keeping.NAME_BYTES_MAX} bytes"
NOROUTE: Final = "NOROUTE No queue bound to the topic takes this job"
# Refusals that concern one queue of a topic.
OF_QUEUES: Final = ("PAUSED", "MAXLEN", "TOOBIG", "NOKEY")
# Options without a value.
FLAGS: Final = (b"async", b"replace")
WORDS: Final = frozenset((b"priority", b"meta", b"key", b"attempts", b"backoff", b"window", b"batch"))
WINDOW_NEEDS_KEY: Final = "ERR WINDOW needs KEY"
REPLACE_NEEDS: Final = "ERR REPLACE needs KEY and a DELAY"
WINDOW_ERROR: Final = "ERR WINDOW must be a number of seconds >= 0"
TTLMS_ERROR: Final = "ERR TTLMS must be a number of milliseconds > 0"
ATTEMPTS_ERROR: Final = f"ERR ATTEMPTS must be a number from 0 to {ATTEMPTS_MAX}"
ATTEMPTS_NEED_RETRY: Final = "ERR ATTEMPTS above 1 needs RETRY above 0"
BACKOFF_ERROR: Final = "ERR BACKOFF must be fixed, linear or exponential:<base-ms>:<cap-ms>[:<jitter-percent>]"
# Names of META that show a job's dead-letter history.
RESERVED_META: Final = b"x-disque-"
RESERVED_ERROR: Final = "ERR META names that begin with x-disque- are reserved"
# The node itself gives these to the jobs of a schedule.
OF_SCHEDULES: Final = (META_SCHEDULE, META_TICK, META_BATCH)

PRIORITY_ERROR: Final = "ERR PRIORITY must be a 64-bit integer"
TRACE_ERROR: Final = f"ERR META: traceparent and tracestate may have {TRACE_BYTES_MAX} bytes together"
META_ERROR: Final = "ERR syntax error: META needs a name and a value"
KEY_ERROR: Final = f"ERR KEY must have 1 to {KEY_BYTES_MAX} bytes"


def addjob(
    broker: Broker,
    client: Client,
    argv: list[bytes],
    plans: list[Plan] | None = None,
    topic: bytes | None = None,
) -> bytes | None:
    """ADDJOB queue body ms-timeout [REPLICATE n] [DELAY s] [RETRY s] [TTL s] [MAXLEN n] [ASYNC] ….

    plans   takes the plan of the job instead of making it (fanout.py); None: make the job
    topic   the topic that it is published to, with `plans`; None: only the words are checked
    """
    if broker.topics and plans is None and argv[1] in broker.topics:
        return publish(broker, client, argv, is_listed=False)
    replicate = 0
    zone_count = 0
    is_quorum = False
    ttl_ms = 1000 * TTL_DEFAULT_S
    retry_ms = -1
    delay_ms = 0
    maxlen = 0
    is_async = False
    more: Adding | None = None
    rules: QueueSettings | None = None
    if broker.queue_settings.in_force and (plans is None or topic is not None):
        rules = broker.queue_settings.in_force.get(argv[1])
        if rules is not None:
            ttl_ms = delay_ms = -1
    at = 4
    end = len(argv)
    while at < end:
        option = argv[at]
        option = b"replicate" if option == b"REPLICATE" else option.lower()  # Nearly all clients write it in capitals.
        if option == b"replicate" and at + 1 < end:
            word = argv[at + 1]
            is_quorum = len(word) == 6 and word.lower() == b"quorum"
            replicate = 0 if is_quorum else between(word, 1, REPLICATE_MAX, REPLICATE_ERROR)
            at += 2
            continue
        if option == b"async":
            is_async = True
            at += 1
            continue
        if option == b"replace":
            if more is None:
                more = Adding(broker)
            more.is_replacing = True
            at += 1
            continue
        if at + 1 >= end:
            raise CommandError(SYNTAX)
        word = argv[at + 1]
        if option == b"retry":
            retry_ms = 1000 * between(word, 0, SECONDS_MAX, RETRY_ERROR)
        elif option == b"delay":
            delay_ms = 1000 * between(word, 0, SECONDS_MAX, DELAY_ERROR)
        elif option == b"ttl":
            ttl_ms = 1000 * between(word, 1, SECONDS_MAX, TTL_ERROR)
        elif option == b"maxlen":
            maxlen = between(word, 1, INT64_MAX, MAXLEN_ERROR)
        elif option in WORDS:
            if more is None:
                more = Adding(broker)
            at = more.read(option, argv, at)
            continue
        elif option == b"retryms":
            retry_ms = read_ms("RETRYMS", word)
        elif option == b"delayms":
            delay_ms = read_ms("DELAYMS", word)
        elif option == b"ttlms":
            ttl_ms = between(word, 1, MS_MAX, TTLMS_ERROR)
        elif option == b"zones":
            zone_count = between(word, 1, REPLICATE_MAX, ZONES_ERROR)
        else:
            raise CommandError(SYNTAX)
        at += 2
    timeout_ms = 0 if argv[3] == b"0" else read_timeout(argv[3])

    if rules is not None:
        if ttl_ms < 0:
            ttl_ms = rules.ttl_ms
        if delay_ms < 0:
            delay_ms = rules.delay_ms
        if retry_ms < 0 and rules.lease_ms:
            retry_ms = rules.lease_ms
    if retry_ms < 0:
        is_long = ttl_ms >= 10_000 * RETRY_DEFAULT_S_MAX
        retry_ms = 1000 * (RETRY_DEFAULT_S_MAX if is_long else max(1, ttl_ms // 10_000))
    if rules is not None:
        if rules.is_quorum or rules.exclusive_by:
            _refuse_claim(broker, retry_ms)
            if more is None:
                more = Adding(broker)
            more.is_claimed = True
        if rules.attempts and retry_ms:
            if more is None:
                more = Adding(broker)
            if more.limit < 0:
                more.limit = rules.attempts
    if more is not None:
        if more.limit > 0 or more.backoff:
            if more.limit > 1 and not retry_ms:
                raise CommandError(ATTEMPTS_NEED_RETRY)
            versions.refuse_older(broker)
        if more.window_ms >= 0 or more.is_replacing:
            more.check_window(broker, delay_ms)
    if not retry_ms:
        if is_quorum:
            raise CommandError(QUORUM_AND_RETRY)
        if replicate > 1:
            raise CommandError("ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)")
        replicate = 1
    elif rules is not None and not replicate and rules.replicate:
        is_quorum = is_quorum or rules.replicate == QUORUM
        replicate = rules.replicate if rules.replicate != QUORUM else 0
    if is_quorum:
        if zone_count:
            raise CommandError(QUORUM_AND_ZONES)
        replicate = zones.quorum(broker)
    if delay_ms >= ttl_ms:
        raise CommandError("ERR The specified DELAY is greater than TTL. Job refused since would never be delivered")
    is_external = False
    if broker.used_memory > broker.memory.limits[0] or broker.me.flags & IS_LEAVING:
        is_external = memory.replicates_externally(
            broker, replicate or replication.default_copies(broker, is_external=True)
        )
    is_default = not replicate
    if is_default:
        if broker.cluster.size == 1 and not broker.settings.replicate_default:
            replicate = 1
        else:
            replicate = replication.default_copies(broker, is_external=is_external)
    if zone_count:
        if zone_count > replicate:
            raise CommandError(ZONES_ERROR)
        if zone_count == 1:
            zone_count = 0  # Any copy is in a zone.
    name = argv[1]
    queue = broker.queues.get(name)
    # With plans and without a topic, the name is a topic's, and no queue's.
    if (more is None or not more.key) and (plans is None or topic is not None):
        if rules is not None:
            _refuse_by_settings(broker, name, rules, len(argv[2]), more.meta if more is not None else NO_META)
        if replicate > 1 or is_external or (queue is not None and (maxlen or queue.paused)):
            _refuse(broker, queue, replicate, is_external, maxlen, zone_count, is_quorum)
    if queue is not None:
        name = queue.name  # One object for all its jobs.
    if plans is not None and is_external and not retry_ms:
        # The only copy of a topic's job would be handed over before the other jobs are there.
        raise CommandError(NOREPL_EXTERNAL + _why_external(broker))

    job = Job(
        broker.ids.next(ttl_ms, retry_ms > 0),
        terms_of(broker.terms, name, retry_ms, delay_ms, replicate, topic),
        argv[2],
        broker.next_ctime(),
        broker.now_ms + ttl_ms,
        broker.sets.mine,
    )
    if more is not None:
        job.attributes = more.attributes(ttl_ms, delay_ms)
        if more.batch:
            versions.refuse_older(broker, versions.FLOWS)
            if not more.key and plans is None and not broker.recurring.is_checking:
                keeping.begin(broker, more.batch)
        if more.is_claimed and rules is not None:
            _stamp(job, rules)
        if more.key:
            if broker.recurring.is_checking:
                return b""  # A schedule only has its options read here (schedules.py).
            job.id = broker.ids.keyed(keys.key_chars(name, more.key), job.id)
            deadline_ms = broker.now_ms + timeout_ms if timeout_ms else 0
            create: keying.Create = partial(
                _create_with_key, deadline_ms, is_default, is_external, is_async, maxlen, zone_count, is_quorum
            )
            if broker.used_memory > broker.memory.limits[1] and memory.is_full(broker):
                job.body = b""  # Other nodes are asked whether there is such a job. There is no room for a new one.
                create = _refuse_full
            if plans is not None:
                plans.append(
                    _plan(job, timeout_ms, create, is_default, is_external, is_async, zone_count, is_quorum, maxlen)
                )
                return None
            return keying.add(broker, client, job, timeout_ms, create)
    if plans is not None:
        plans.append(_plan(job, timeout_ms, None, is_default, is_external, is_async, zone_count, is_quorum, maxlen))
        return None
    if is_external and not retry_ms:
        handover.start_once(broker, client, job, timeout_ms)
        return None
    # Without a copy of our own even ASYNC waits: an id is given only for a job that a node holds.
    if not is_external and (is_async or replicate == 1):
        if replicate == 1 and not delay_ms and not is_quorum:
            lifecycle.register_queued(broker, job, queue)
        else:
            _start_alone(broker, job, is_quorum)
            lifecycle.mark_dirty(broker, job)
        broker.stats.jobs_added += 1
        return b"+%b\r\n" % job.id if job.attributes is None else _added(broker, client, job, None)
    if is_async and not timeout_ms:
        timeout_ms = ASYNC_WAIT_MS
    replication.start(
        broker,
        client,
        job,
        timeout_ms,
        is_external=is_external,
        is_default=is_default,
        zone_count=zone_count,
        is_quorum=is_quorum,
    )
    return None


def _added(broker: Broker, client: Client, job: Job, slot: list[bytes | None] | None) -> bytes | None:
    """Return the reply for a job that needs no more copies; None if a keeper of its batch has to record it first."""
    reply = b"+%b\r\n" % job.id
    if job.attributes is None or not broker.batches.is_pending(job):
        return reply
    if slot is None:
        slot = producer_waits.wait_for_copies(client, job)
        broker.waits.blocked_count += 1
    broker.batches.hold(client, job, slot, reply)
    return None


def _plan(
    job: Job,
    timeout_ms: int,
    create: keying.Create | None,
    is_default: bool,
    is_external: bool,
    is_async: bool,
    zone_count: int,
    is_quorum: bool,
    maxlen: int = 0,
) -> Plan:
    """Return the plan of a job for a topic's queue."""
    return Plan(
        job,
        ASYNC_WAIT_MS if is_async and not timeout_ms else timeout_ms,
        is_default=is_default,
        is_external=is_external,
        is_async=is_async,
        zone_count=zone_count,
        is_quorum=is_quorum,
        create=create,
        maxlen=maxlen,
    )


def publish(broker: Broker, client: Client, argv: list[bytes], *, is_listed: bool) -> bytes | None:
    """Make a job in each queue of a topic that takes it: all or none. The words are those of ADDJOB. Spec TP8.

    is_listed   the reply names all jobs, and none is no error
    """
    topic = argv[1]
    if broker.recurring.is_checking:
        return addjob(broker, client, argv, [])  # A schedule only has its options read.
    versions.refuse_older(broker, versions.FLOWS)
    queues = topics.queues_for(broker.topics[topic], meta_of(argv))
    if not queues:
        addjob(broker, client, argv, [])  # Wrong words are refused, whatever the filters say.
        if is_listed:
            return EMPTY_ARRAY
        raise CommandError(NOROUTE)
    plans: list[Plan] = []
    rules = broker.queue_settings.in_force
    may_share = 1 < len(queues) <= shared_copies.JOBS_MAX and not (rules and any(queue in rules for queue in queues))
    for queue in queues:
        try:
            addjob(broker, client, [argv[0], queue, *argv[2:]], plans, topic)
        except CommandError as refused:
            if refused.text.startswith(OF_QUEUES):
                raise CommandError(f"{refused.text}: {text_of(queue)}") from None
            raise
        plan = plans[0]
        if may_share and plan.is_usual:
            jobs = _alike(broker, plan, queues, argv[2])
            fanout.start_together(
                broker, client, jobs, plan.timeout_ms, is_default=plan.is_default, is_listed=is_listed
            )
            return None
        may_share = False
    first = plans[0]
    batch: bytes | None = None if first.job.attributes is None else first.job.attributes.extra(BATCH)
    if batch is not None and not first.is_keyed:
        keeping.refuse_closed(broker, batch)
    begin = None if batch is None else partial(keeping.begin, broker, batch)
    return fanout.start(broker, client, plans, _make_alone, is_listed=is_listed, begin=begin)


def _alike(broker: Broker, plan: Plan, queues: list[bytes], body: bytes) -> list[Job]:
    """Return the planned job of the first of these queues, and one like it for each other one. CommandError."""
    first = plan.job
    terms, ttl_ms = first.terms, first.expire_at_ms - broker.now_ms
    jobs = [first]
    for number in range(1, len(queues)):
        queue = broker.queues.get(queues[number])
        if queue is not None and queue.paused & PAUSED_IN:
            raise CommandError(f"{PAUSED}: {text_of(queues[number])}")
        job = Job(
            broker.ids.next(ttl_ms, terms.retry_ms > 0),
            terms.of_queue(broker.terms, queues[number] if queue is None else queue.name),
            body,
            broker.next_ctime(),
            first.expire_at_ms,
            broker.sets.mine,
        )
        if first.attributes is not None:
            job.attributes = first.attributes.like()
        jobs.append(job)
    return jobs


def meta_of(argv: list[bytes]) -> dict[bytes, bytes]:
    """Return the META of an ADDJOB. Other options are not checked."""
    found: dict[bytes, bytes] = {}
    at = 4
    while at + 2 < len(argv):
        option = argv[at].lower()
        if option == b"meta":
            found[argv[at + 1]] = argv[at + 2]
        at += 1 if option in FLAGS else 3 if option == b"meta" else 2
    return found


def _make_alone(broker: Broker, plan: Plan) -> None:
    """Make and queue a job of a topic that needs no copy elsewhere first."""
    _start_alone(broker, plan.job, plan.is_quorum)
    lifecycle.mark_dirty(broker, plan.job)
    broker.stats.jobs_added += 1


def _refuse(
    broker: Broker,
    queue: Queue | None,
    replicate: int,
    is_external: bool,
    maxlen: int,
    zone_count: int,
    is_quorum: bool,
) -> None:
    """Refuse a new job if none may be added now. Not called for a key that is used: that job exists. CommandError."""
    if replicate > 1 or is_external:
        needed = replicate if is_external else replicate - 1
        usable = zones.usable_here(broker) if is_quorum else broker.cluster.usable
        short = needed - len(usable)
        if short > 0:
            broker.stats.replication_short_of_nodes += 1
            if is_external and short == 1:
                raise CommandError(NOREPL_EXTERNAL + _why_external(broker))
            raise CommandError(NOREPL)
        if zone_count and zones.count((*usable,) if is_external else (broker.me, *usable)) < zone_count:
            broker.stats.replication_short_of_zones += 1
            raise CommandError(NOREPL_ZONES)
    if queue is not None:
        if maxlen and queue.pending >= maxlen:
            raise CommandError(MAXLEN_REACHED)
        if queue.paused & PAUSED_IN:
            raise CommandError(PAUSED)


def _why_external(broker: Broker) -> str:
    """Return why this node keeps no copy of new jobs."""
    return "I'm leaving the cluster" if broker.is_leaving else "I'm out of memory"


def _refuse_by_settings(
    broker: Broker, name: bytes, rules: QueueSettings, body_bytes: int, meta: dict[bytes, bytes]
) -> None:
    """Refuse a new job that its queue's settings forbid. Called like `_refuse`. Spec QS7. CommandError."""
    if rules.maxsize and body_bytes > rules.maxsize:
        raise CommandError(TOOBIG)
    if rules.exclusive_by and rules.exclusive_by not in meta:
        raise CommandError(NOKEY.format(text_of(rules.exclusive_by)))
    for required in rules.require_meta:
        if required not in meta:
            raise CommandError(NOKEY.format(text_of(required)))
    if rules.maxlen and settings_sync.pending(broker, name) >= rules.maxlen:
        raise CommandError(MAXLEN_REACHED)


def _refuse_claim(broker: Broker, retry_ms: int) -> None:
    """Refuse a job that can't be delivered under a claim. Spec EX1. CommandError."""
    if not retry_ms:
        raise CommandError(CLAIM_NEEDS_RETRY)
    versions.refuse_older(broker, versions.FLOWS)
    exclusive.refuse_long(broker, retry_ms)


def _stamp(job: Job, rules: QueueSettings) -> None:
    """Let the job carry the key under which it may be delivered. Spec EX1."""
    attributes = job.attributes
    if attributes is None:
        attributes = job.attributes = JobAttributes(None, ())
    attributes.set_extra(CLAIM, tuple(new_stamp(job.terms.queue, rules, attributes.meta)))


def _create_with_key(
    deadline_ms: int,
    is_default: bool,
    is_external: bool,
    is_async: bool,
    maxlen: int,
    zone_count: int,
    is_quorum: bool,
    broker: Broker,
    client: Client,
    job: Job,
    slot: list[bytes | None] | None,
) -> bytes | None:
    """Do the rest of an ADDJOB whose key is not used, perhaps after some time (keying.py, `Create`)."""
    if is_default:
        copies = replication.default_copies(broker, is_external=is_external)
        replication.set_copies(broker, job, max(zone_count, copies))
    if broker.queue_settings.in_force:
        rules = broker.queue_settings.in_force.get(job.terms.queue)
        if rules is not None:
            pairs = job.attributes.meta if job.attributes is not None else ()
            _refuse_by_settings(
                broker, job.terms.queue, rules, size_of(job.body), dict(zip(pairs[::2], pairs[1::2], strict=True))
            )
    queue = broker.queues.get(job.terms.queue)
    _refuse(broker, queue, job.terms.replicate, is_external, maxlen, zone_count, is_quorum)
    if broker.used_memory > broker.memory.limits[1] and memory.is_full(broker):
        raise CommandError(OOM)
    if is_external and windows.replaced_ids(job):
        # Only a node with a copy of its new job may replace another job.
        raise CommandError(NOREPL_EXTERNAL + _why_external(broker))
    batch: bytes | None = None if job.attributes is None else job.attributes.extra(BATCH)
    is_of_fan = slot is not None and job in broker.producers.fans
    if batch is not None:  # A job that has the key already would not be in it.
        if is_of_fan:
            keeping.refuse_closed(broker, batch)  # The batch is made when all queues have taken their jobs (fanout.py).
        else:
            keeping.begin(broker, batch)
    timeout_ms = max(1, deadline_ms - broker.now_ms) if deadline_ms else 0
    if is_external and not job.terms.retry_ms:
        handover.start_once(broker, client, job, timeout_ms, slot)
        return None
    if slot is not None and is_of_fan:
        plan = _plan(job, timeout_ms, None, is_default, is_external, is_async, zone_count, is_quorum)
        plan.slot = slot
        fanout.hold(broker, client, plan)
        return None
    if not is_external and (is_async or job.terms.replicate == 1):
        _start_alone(broker, job, is_quorum)
        lifecycle.mark_dirty(broker, job)
        broker.stats.jobs_added += 1
        return _added(broker, client, job, slot)
    if is_async and not timeout_ms:
        timeout_ms = ASYNC_WAIT_MS
    replication.start(
        broker,
        client,
        job,
        timeout_ms,
        is_external=is_external,
        is_default=is_default,
        zone_count=zone_count,
        is_quorum=is_quorum,
        slot=slot,
    )
    return None


def _refuse_full(broker: Broker, client: Client, job: Job, slot: list[bytes | None] | None) -> bytes | None:
    """Refuse an ADDJOB whose key is not used, because there is no memory for the job (keying.py, `Create`)."""
    raise CommandError(OOM)


def may_be_known(broker: Broker, argv: list[bytes]) -> bool:
    """Return whether an ADDJOB has a KEY that may be used. Then it may need no memory, and is not refused with -OOM."""
    key = _key_of(argv)
    if not key:
        return False
    if keying.is_known(broker, keys.key_chars(argv[1], key)):
        return True
    return keying.may_ask(broker) and not spilling.makes_room(broker)


def _key_of(argv: list[bytes]) -> bytes:
    """Return the KEY of an ADDJOB; empty if it has none. Other options are not checked."""
    at = 4
    key = b""
    while at + 1 < len(argv):
        option = argv[at].lower()
        if option == b"key":
            key = argv[at + 1]
        at += 1 if option in FLAGS else 3 if option == b"meta" else 2
    return key


def _start_alone(broker: Broker, job: Job, is_quorum: bool) -> None:
    """Queue a job whose producer doesn't wait for copies."""
    if job.terms.replicate > 1 or is_quorum:
        replication.start_async(broker, job, is_quorum=is_quorum)
    lifecycle.register(broker, job)
    replication.queue_or_delay(broker, job)


class Adding:
    """The attributes that were read of an ADDJOB so far. CommandError for impossible values.

    key      empty: none
    limit    ATTEMPTS; -1: not given
    backoff  empty: none
    batch    empty: none
    window_ms      WINDOW; -1: not given
    is_replacing   REPLACE
    is_claimed     the queue's settings ask for a claim
    """

    __slots__ = (
        "_is_internal",
        "_meta_bytes",
        "_own_count",
        "_pairs_max",
        "_priority",
        "_trace_bytes",
        "_trace_count",
        "backoff",
        "batch",
        "is_claimed",
        "is_replacing",
        "key",
        "limit",
        "meta",
        "window_ms",
    )

    def __init__(self, broker: Broker) -> None:
        self._is_internal = broker.recurring.is_internal
        self._pairs_max = broker.settings.job_meta_max_pairs
        if self._is_internal:
            # Pairs of the node's own do not count, but each job has at most META_PAIRS_MAX. The directive limits a
            # schedule when it is set: nodes may have different values, and each of them may fire.
            own_max = META_PAIRS_MAX - len(OF_SCHEDULES)
            self._pairs_max = min(self._pairs_max, own_max) if broker.recurring.is_checking else own_max
        self._priority: int | None = None
        self.meta: dict[bytes, bytes] = {}
        self._meta_bytes = 0
        self._own_count = 0
        self._trace_count = 0
        self._trace_bytes = 0
        self.key = b""
        self.limit = -1
        self.backoff = b""
        self.batch = b""
        self.window_ms = -1
        self.is_replacing = False
        self.is_claimed = False

    def read(self, option: bytes, argv: list[bytes], at: int) -> int:
        """Read the option at `at`, which has a word behind it. Return where the next option is."""
        word = argv[at + 1]
        if option == b"priority":
            self._priority = read_integer(word or b"-", PRIORITY_ERROR)
        elif option == b"key":
            if not 0 < len(word) <= KEY_BYTES_MAX:
                raise CommandError(KEY_ERROR)
            self.key = word
        elif option == b"attempts":
            self.limit = between(word or b"-", 0, ATTEMPTS_MAX, ATTEMPTS_ERROR)
        elif option == b"window":
            self.window_ms = 1000 * between(word or b"-", 0, SECONDS_MAX, WINDOW_ERROR)
        elif option == b"backoff":
            self.backoff = read_backoff(word, MS_MAX)
            if not self.backoff:
                raise CommandError(BACKOFF_ERROR)
        elif option == b"batch":
            if not 0 < len(word) <= keeping.NAME_BYTES_MAX:
                raise CommandError(BATCH_ERROR)
            self.batch = word
        else:
            self._read_pair(argv, at)
            return at + 3
        return at + 2

    def _read_pair(self, argv: list[bytes], at: int) -> None:
        if at + 2 >= len(argv):
            raise CommandError(META_ERROR)
        name = argv[at + 1]
        meta = self.meta
        if not name:
            raise CommandError("ERR META needs a name that is not empty")
        if len(name) > NAME_BYTES_MAX:
            raise CommandError(NAME_ERROR)
        is_own = name.startswith(RESERVED_META)
        if is_own and not (self._is_internal and name in OF_SCHEDULES):
            raise CommandError(RESERVED_ERROR)
        if name in meta:
            raise CommandError("ERR META has the same name twice")
        if name in TRACE_NAMES:
            meta[name] = argv[at + 2]
            self._trace_count += 1
            self._trace_bytes += len(name) + len(argv[at + 2])
            if self._trace_bytes > TRACE_BYTES_MAX:
                raise CommandError(TRACE_ERROR)
            return
        if is_own:
            self._own_count += 1
        elif len(meta) - self._trace_count - self._own_count >= self._pairs_max:
            raise CommandError(f"ERR META: at most {self._pairs_max} pairs per job (job-meta-max-pairs)")
        meta[name] = argv[at + 2]
        self._meta_bytes += len(name) + len(argv[at + 2])
        if self._meta_bytes > META_BYTES_MAX:
            raise CommandError(f"ERR META: at most {META_BYTES_MAX} bytes per job")

    def check_window(self, broker: Broker, delay_ms: int) -> None:
        """Refuse a window or a replacement that can't be. CommandError."""
        if self.is_replacing and not (self.key and delay_ms > 0):
            raise CommandError(REPLACE_NEEDS)
        if not self.key:
            raise CommandError(WINDOW_NEEDS_KEY)
        versions.refuse_older(broker, versions.FLOWS)

    def attributes(self, ttl_ms: int, delay_ms: int = 0) -> JobAttributes | None:
        """Return the attributes of a job with this TTL and DELAY; None if it has none."""
        if not (self._priority is not None or self.meta or self.key or self.limit > 0 or self.backoff or self.batch):
            return None
        pairs = tuple(word for pair in self.meta.items() for word in pair)
        attributes = JobAttributes(self._priority, pairs, is_keyed=bool(self.key))
        if self.is_replacing:
            window_ms = self.window_ms if self.window_ms >= 0 else delay_ms
            attributes.set_extra(WINDOW, [windows.number_of(ttl_ms, window_ms)])
        elif self.window_ms >= 0:
            attributes.set_extra(WINDOW, windows.number_of(ttl_ms, self.window_ms))
        if self.limit > 0 or self.backoff:
            attributes.part = Changeable(ttl_ms, max(0, self.limit), self.backoff)
            attributes.measure()
        if self.batch:
            attributes.set_extra(BATCH, self.batch)
        return attributes
