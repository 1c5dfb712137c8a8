"""GETJOB: replies at once, in parts, after reading from disk, or when a job arrives.

Arguments are read into locals, and a command is refused before it changes anything. The core decides which client gets
which job (delivery.py). Spec R10, G1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from disque_py.commands.matching import SEARCH_MS, check_patterns, getjob_matching, narrowed
from disque_py.commands.options import (
    INT64_MAX,
    LEASEMS_ERROR,
    MS_MAX,
    between,
    read_lease,
    read_timeout,
    read_token,
    value_of,
)
from disque_py.commands.subcommands import text_of
from disque_py.commands.where import read_pair
from disque_py.core import (
    capping,
    claimed_fetch,
    delivery,
    exclusive,
    filter_interest,
    filters,
    incremental,
    interest,
    lifecycle,
    memory,
    ordering,
    pulls,
    spilling,
)
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import LEAVING, MISCONF, SYNTAX, CommandError
from disque_py.core.fetch_options import COUNTERS, LEASE, META, PLAIN, FetchOptions, fetch_options
from disque_py.core.filters import Filter
from disque_py.core.incremental import PART
from disque_py.core.job import Job
from disque_py.core.queue import PAUSED_OUT, Queue
from disque_py.resp.replies import array, nil_array

QUEUES_MAX: Final = 4_096
FROM_ADVICE: Final = "Name the queues after FROM: GETJOB [options] FROM queue [queue ...]"
NO_FROM: Final = f"{SYNTAX}: FROM is missing. {FROM_ADVICE}"
NO_QUEUE: Final = f"{SYNTAX}: there is no queue behind FROM. {FROM_ADVICE}"
# Bytes of a wrong word that are quoted.
WORD_BYTES_MAX: Final = 64
# Which fields of a job a GETJOB asks for.
SHOWN: Final = {b"withcounters": COUNTERS, b"withmeta": META, b"withlease": LEASE}


def getjob(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """GETJOB [NOHANG] [TIMEOUT ms] [COUNT n] [WITH…] [LEASE s] [TOKEN t] [WHERE name value] … FROM q|FROMMATCH …."""
    nohang = False
    timeout_ms = 0
    count = 1
    shows = 0
    lease_ms = 0
    token = b""
    where: Filter | None = None
    pairs: dict[bytes, bytes] = {}
    is_match = False
    at = 1
    end = len(argv)
    while True:
        if at >= end:
            raise CommandError(NO_FROM)
        option = argv[at]
        if option == b"FROM":  # Nearly all clients write it in capitals.
            at += 1
            break
        if option == b"COUNT":
            option = b"count"
        elif option == b"NOHANG":
            option = b"nohang"
        elif option == b"TIMEOUT":
            option = b"timeout"
        else:
            option = option.lower()
        if option == b"from":
            at += 1
            break
        if option == b"nohang":
            nohang = True
        elif option == b"timeout":
            timeout_ms = read_timeout(value_of(argv, at))
            at += 1
        elif option == b"count":
            count = between(value_of(argv, at), 1, INT64_MAX, "ERR COUNT must be a number greater than zero")
            at += 1
        elif option in SHOWN:
            shows |= SHOWN[option]
        elif option == b"lease":
            lease_ms = read_lease(value_of(argv, at))
            at += 1
        elif option == b"leasems":
            lease_ms = between(value_of(argv, at), 1, MS_MAX, LEASEMS_ERROR)
            at += 1
        elif option == b"token":
            token = read_token(value_of(argv, at))
            at += 1
        elif option == b"where":
            read_pair(pairs, argv, at)
            at += 2
        elif option == b"frommatch":
            is_match = True
            at += 1
            break
        else:
            raise CommandError(
                f"{SYNTAX}: '{text_of(argv[at][:WORD_BYTES_MAX])}' is no option of GETJOB. {FROM_ADVICE}"
            )
        at += 1
    names = argv[at:]
    if is_match:
        check_patterns(names)
        names = narrowed(client, names)
    elif at >= end:
        raise CommandError(NO_QUEUE)
    if len(names) > QUEUES_MAX:
        raise CommandError(f"ERR too many queues, at most {QUEUES_MAX} per GETJOB")
    if broker.ready:
        delivery.serve_ready(broker)  # Clients that waited longer come first.
    if pairs:
        where = Filter(pairs)
    options = PLAIN
    if shows or lease_ms or token or pairs:
        options = fetch_options(shows, lease_ms, token, where)
        if lease_ms and not is_match and not broker.queue_settings.exclusive.keys().isdisjoint(names):
            exclusive.refuse_long(broker, lease_ms)
        if token and (held := broker.tokens.held(token)):
            return incremental.begin(broker, client, _getjob_again(broker, client, held, shows))
    if is_match:
        return getjob_matching(broker, client, names, count, options, nohang, timeout_ms)
    if where is not None and not all(filters.is_indexed(broker, name, where) for name in names):
        building = filters.built(broker, names, where)
        if next(building, broker) is not broker:
            asked = _Asked(names, count, options, nohang, timeout_ms)
            return incremental.begin(broker, client, _getjob_indexed(broker, client, asked, building))
    if broker.exclusive.queues and claimed_fetch.has_claims(broker, names, nohang):
        asked = _Asked(names, count, options, nohang, timeout_ms)
        return incremental.begin(broker, client, _getjob_claimed(broker, client, asked))
    if count > PART and sum(queue.length for name in names if (queue := broker.queues.get(name))) > PART:
        asked = _Asked(names, count, options, nohang, timeout_ms)
        return incremental.begin(broker, client, _getjob_in_parts(broker, client, asked))
    known = broker.queues
    queues = [queue for name in names if (queue := known.get(name)) is not None]
    entries = delivery.collect(broker, queues, count, options, delivery.REPLY_BYTES_MAX)
    if len(entries) == 1:
        return b"*1\r\n" + entries[0]
    if entries:
        return b"*%d\r\n%b" % (len(entries), b"".join(entries))
    if broker.memory.spilled_count and any(queue.is_stalled for queue in queues):
        asked = _Asked(names, count, options, nohang, timeout_ms)
        return incremental.begin(broker, client, _getjob_from_disk(broker, client, asked))
    return _getjob_of_none(broker, client, names, queues, options, nohang, timeout_ms)


def _getjob_of_none(
    broker: Broker,
    client: Client,
    names: list[bytes],
    queues: list[Queue],
    options: FetchOptions,
    nohang: bool,
    timeout_ms: int,
) -> bytes | None:
    """Handle a GETJOB on empty queues: the client waits, or gets nil.

    `queues` are the existing ones of `names`. The others are made if this node has to remember something of them: a
    waiting client, or a poll that other nodes are told of. For a poll of few queues they are made in any case, as in
    Disque.
    """
    if broker.journal.disk_level and any(_is_held_up(queue, options) for queue in queues):
        raise CommandError(
            MISCONF + broker.journal.disk_trouble
        )  # The jobs are at-most-once ones, or very many are asked for.
    if (
        nohang
        and broker.caps.asked
        and not broker.is_leaving
        and any(capping.is_asked(broker, each) for each in queues)
    ):
        # There are jobs, and another node is asked whether they may go (spec CP4).
        delivery.wait(broker, client, queues, capping.ANSWER_MS, options)
        return None
    if nohang and options.where is not None:
        if (
            not broker.is_leaving
            and broker.consumers.filter_lines + len(queues) <= filters.LINES_MAX
            and any(lifecycle.is_searching(queue, options.where) for queue in queues)
        ):
            # Very many jobs may not be delivered now. The next turns look at the jobs behind them.
            delivery.wait(broker, client, queues, SEARCH_MS, options)
            return None
        if interest.is_told(broker) and filter_interest.has_room_for_asking(broker):
            for queue in queues:
                filters.filters_of(broker, queue).asked(options.where)
        return nil_array(client.protocol)
    if options.where is not None and broker.consumers.filter_lines + len(names) > filters.LINES_MAX:
        raise CommandError(f"ERR too many waiting filters, at most {filters.LINES_MAX}")
    if nohang and queues and not broker.is_leaving and any(ordering.is_held_back(queue) for queue in queues):
        # There are jobs, and better ones are on their way (spec F7).
        delivery.wait(broker, client, queues, ordering.ANSWER_MS, options)
        return None
    if nohang:
        if len(queues) < len(names) and (interest.is_told(broker) or memory.has_spare_queues(broker, names)):
            queues = [broker.queue(name) for name in names]
        for queue in queues:
            queue.polled_ms = broker.now_ms
            if options.is_picky:
                queue.picky_ms = broker.now_ms
            else:
                queue.waited_ms = broker.now_ms
            broker.consumers.interest_due[queue] = None
            pulls.ask_sources(broker, queue, is_urgent=False)
            pulls.ask_all_nodes(broker, queue)
        return nil_array(client.protocol)
    if broker.is_leaving:
        raise CommandError(LEAVING)
    if len(queues) < len(names) or len(names) > memory.LINES_SPARE:
        memory.refuse_lines(broker, names)
        queues = [broker.queue(name) for name in names]
    delivery.wait(broker, client, queues, timeout_ms, options)
    return None


def _is_held_up(queue: Queue, options: FetchOptions) -> bool:
    """Return whether the queue has jobs for this GETJOB that only errors of the disk hold back."""
    if options.where is not None:
        group = queue.filters.group(options.where) if queue.filters is not None else None
        length = 0 if group is None else group.retried.length if options.is_picky else group.length
        return length > 0 and not queue.paused & PAUSED_OUT
    return bool(queue.retried_length if options.is_picky else queue.length) and not queue.paused & PAUSED_OUT


class _Asked(NamedTuple):
    """The words of a GETJOB."""

    names: list[bytes]
    count_max: int
    options: FetchOptions
    nohang: bool
    timeout_ms: int


def _getjob_from_disk(broker: Broker, client: Client, asked: _Asked) -> incremental.Steps:
    """Begin a GETJOB again when the body of its first job is back from disk.

    A GETJOB that has found other jobs before replies with those, so no lease runs while its client waits for a disk.
    """
    is_stalled = True
    queues: list[Queue] = []
    while is_stalled:
        broker.waits.stalled[client] = None
        yield
        if broker.ready:
            delivery.serve_ready(broker)
        queues = [queue for name in asked.names if (queue := broker.queues.get(name)) is not None]
        most = min(PART, asked.count_max)
        entries = delivery.collect(broker, queues, most, asked.options, delivery.REPLY_BYTES_MAX)
        if entries:
            return b"*%d\r\n%b" % (len(entries), b"".join(entries))
        is_stalled = any(queue.is_stalled for queue in queues)
    return _getjob_of_none(broker, client, asked.names, queues, asked.options, asked.nohang, asked.timeout_ms)


def _getjob_again(broker: Broker, client: Client, jobs: list[Job], shows: int) -> incremental.Steps:
    """Repeat a GETJOB whose token was used before: reply with the same jobs, as far as they are still leased."""
    bodies = yield from spilling.borrowed(broker, client, jobs)
    return array([delivery.entry_of(broker, job, bodies[job], shows) for job in jobs if job in bodies])


def _getjob_indexed(broker: Broker, client: Client, asked: _Asked, building: Iterator[None]) -> incremental.Steps:
    """Run a GETJOB whose WHERE is new to queues: their indexes are built first, in parts."""
    yield
    yield from building
    if broker.exclusive.queues and claimed_fetch.has_claims(broker, asked.names, asked.nohang):
        return (yield from _getjob_claimed(broker, client, asked))
    return (yield from _getjob_in_parts(broker, client, asked))


def _getjob_claimed(broker: Broker, client: Client, asked: _Asked) -> incremental.Steps:
    """Run a GETJOB of queues whose jobs need a claim. Spec EX3, EX8."""
    if asked.options.lease_ms:
        exclusive.refuse_long(broker, asked.options.lease_ms)
    deadline = claimed_fetch.deadline_ms(broker, asked.nohang, asked.timeout_ms)
    found = yield from claimed_fetch.fetch(
        broker, client, asked.names, asked.count_max, asked.options, deadline, nohang=asked.nohang
    )
    if found.entries:
        return b"*%d\r\n%b" % (len(found.entries), b"".join(found.entries))
    if asked.nohang and found.reason:
        raise CommandError(found.reason)
    if asked.options.token and (held := broker.tokens.held(asked.options.token)):
        return (yield from _getjob_again(broker, client, held, asked.options.shows))
    queues = [queue for name in asked.names if (queue := broker.queues.get(name)) is not None]
    asked = asked._replace(timeout_ms=claimed_fetch.left_ms(broker, deadline))
    if broker.memory.spilled_count and any(queue.is_stalled for queue in queues):
        return (yield from _getjob_from_disk(broker, client, asked))
    return _getjob_of_none(broker, client, asked.names, queues, asked.options, asked.nohang, asked.timeout_ms)


def _getjob_in_parts(broker: Broker, client: Client, asked: _Asked) -> incremental.Steps:
    """Run a GETJOB of very many jobs. Its queues may hold jobs that it can't get (paused, RETRY 0), or lose them."""
    entries: list[bytes] = []
    client.fetched = entries
    size = 0
    while len(entries) < asked.count_max and size < delivery.REPLY_BYTES_MAX:
        queues = [queue for name in asked.names if (queue := broker.queues.get(name)) is not None]
        most = min(PART, asked.count_max - len(entries))
        part = delivery.collect(broker, queues, most, asked.options, delivery.REPLY_BYTES_MAX - size)
        if not part:
            if entries or not any(queue.is_stalled for queue in queues):
                break
            broker.waits.stalled[client] = None
        entries += part
        size += sum(map(len, part))
        yield
    client.fetched = []
    if entries:
        return b"*%d\r\n%b" % (len(entries), b"".join(entries))
    queues = [queue for name in asked.names if (queue := broker.queues.get(name)) is not None]
    return _getjob_of_none(broker, client, asked.names, queues, asked.options, asked.nohang, asked.timeout_ms)
