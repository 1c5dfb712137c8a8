"""GETJOB … FROMMATCH: replies at once, in parts, after reading from disk, or when a job arrives.

The words before FROMMATCH are those of every GETJOB (fetching.py). Spec TP1, TP2, TP4.
"""

from __future__ import annotations

from typing import Final

from disque_py.core import claimed_fetch, exclusive, filter_interest, filters, incremental, interest, matching, ordering
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import LEAVING, MISCONF, SYNTAX, CommandError
from disque_py.core.fetch_options import FetchOptions
from disque_py.core.matching import Visit
from disque_py.core.patterns import PATTERN_BYTES_MAX, PATTERNS_MAX, PatternGroup
from disque_py.core.users import NO_NAME
from disque_py.resp.replies import nil_array

TOO_MANY: Final = f"ERR at most {PATTERNS_MAX} patterns"
# The most queues with claims that one GETJOB looks at.
NAMES_MAX: Final = 1_000
# GETJOB NOHANG waits at most this long while very many jobs are looked at that may not be delivered now.
SEARCH_MS: Final = 100
TOO_LONG: Final = f"ERR a pattern must have 1 to {PATTERN_BYTES_MAX} bytes"


def check_patterns(words: list[bytes]) -> None:
    """Refuse patterns that no GETJOB may have. CommandError."""
    if not words:
        raise CommandError(SYNTAX)
    if len(words) > PATTERNS_MAX:
        raise CommandError(TOO_MANY)
    for word in words:
        if not 0 < len(word) <= PATTERN_BYTES_MAX:
            raise CommandError(TOO_LONG)


def narrowed(client: Client, words: list[bytes]) -> list[bytes]:
    """Return patterns for the matching queues that the client's user may use. CommandError if there are none.

    The user's own patterns may overlap with these. No pattern describes the queues that match both. Spec US5.
    """
    user = client.user
    if user is None or user.has_all_names:
        return words
    found = user.narrowed(words)
    if found is None or len(found) > PATTERNS_MAX:
        raise CommandError(NO_NAME)
    return found


def getjob_matching(
    broker: Broker,
    client: Client,
    words: list[bytes],
    count: int,
    options: FetchOptions,
    nohang: bool,
    timeout_ms: int,
) -> bytes | None:
    """Take jobs of all queues that match. The words were checked, and so was the token."""
    group = broker.patterns.group(words)
    visit = Visit(client.served_from)
    if broker.exclusive.queues:
        asked = _claimed(broker, client, group, count, options, nohang, timeout_ms, visit)
        return incremental.begin(broker, client, asked)
    if group.build is None and options.where is None and matching.collect(broker, client, group, count, options, visit):
        if visit.entries:
            return b"*%d\r\n%b" % (len(visit.entries), b"".join(visit.entries))
        if not visit.is_stalled:
            return _of_none(broker, client, group, options, nohang, timeout_ms, visit)
    return incremental.begin(
        broker, client, _in_parts(broker, client, group, count, options, nohang, timeout_ms, visit)
    )


def _in_parts(
    broker: Broker,
    client: Client,
    group: PatternGroup,
    count: int,
    options: FetchOptions,
    nohang: bool,
    timeout_ms: int,
    visit: Visit,
) -> incremental.Steps:
    """Do a GETJOB that takes long: its group is new, it has a filter, very many queues match, or a body is on disk."""
    while (build := group.build) is not None:
        if next(build, broker) is not broker:
            yield
    where = options.where
    while True:
        if where is not None:
            yield from filters.built(broker, list(group.names), where)
        if visit.is_stalled:
            broker.waits.stalled[client] = None
            visit.is_stalled = False
            visit.missed = 0
            yield
        while not matching.collect(broker, client, group, count, options, visit):
            client.fetched = visit.entries
            yield
        client.fetched = []
        if visit.entries:
            return b"*%d\r\n%b" % (len(visit.entries), b"".join(visit.entries))
        if not visit.is_stalled:
            return _of_none(broker, client, group, options, nohang, timeout_ms, visit)


def _claimed(
    broker: Broker,
    client: Client,
    group: PatternGroup,
    count: int,
    options: FetchOptions,
    nohang: bool,
    timeout_ms: int,
    visit: Visit,
) -> incremental.Steps:
    """Do a GETJOB where jobs of some queues need a claim. These queues and the others come in turns. Spec EX8."""
    while (build := group.build) is not None:
        if next(build, broker) is not broker:
            yield
    if options.lease_ms and any(queue.name in group.names for queue in broker.exclusive.queues):
        exclusive.refuse_long(broker, options.lease_ms)
    last = broker.queues.get(client.served_from)
    if last is not None and last.parking is not None and options.where is None:
        while not matching.collect(broker, client, group, count, options, visit):
            client.fetched = visit.entries
            yield
        client.fetched = []
        if visit.entries:
            return b"*%d\r\n%b" % (len(visit.entries), b"".join(visit.entries))
    if options.where is not None:
        yield from filters.built(broker, list(group.names), options.where)
    claimed = {pick.queue.name for pick in claimed_fetch.under_way(broker, group.takes)} if nohang else set()
    names = [
        queue.name
        for queue in broker.exclusive.queues
        if (queue.length and queue.name in group.names) or queue.name in claimed
    ]
    reason = ""
    if names:
        deadline = claimed_fetch.deadline_ms(broker, nohang, timeout_ms)
        some = names[:NAMES_MAX]
        found = yield from claimed_fetch.fetch(broker, client, some, count, options, deadline, nohang=nohang)
        if found.entries:
            client.served_from = names[0]
            return b"*%d\r\n%b" % (len(found.entries), b"".join(found.entries))
        reason = found.reason
        timeout_ms = claimed_fetch.left_ms(broker, deadline)
    reply = yield from _in_parts(broker, client, group, count, options, nohang, timeout_ms, visit)
    if reason and nohang and reply == nil_array(client.protocol):
        raise CommandError(reason)
    return reply


def _of_none(
    broker: Broker,
    client: Client,
    group: PatternGroup,
    options: FetchOptions,
    nohang: bool,
    timeout_ms: int,
    visit: Visit,
) -> bytes | None:
    """Handle a GETJOB that found no job: the client waits, or gets nil. No queue is made for it."""
    if visit.is_refused:
        raise CommandError(MISCONF + broker.journal.disk_trouble)
    if nohang and visit.is_held and not broker.is_leaving:
        # There are jobs, and better ones are on their way (spec F7).
        matching.wait(broker, client, group, ordering.ANSWER_MS, options)
        return None
    if nohang and visit.is_cut and not broker.is_leaving:
        lines = broker.consumers.filter_lines + len(group.names) + len(group.elsewhere)
        if lines <= filters.LINES_MAX:
            matching.wait(broker, client, group, SEARCH_MS, options)  # The next turns look at more jobs (spec EX8).
            return None
    if nohang:
        if interest.is_told(broker):
            matching.asked(broker, group, options)
            if options.where is not None and filter_interest.has_room_for_asking(broker):
                for name in list(group.names):
                    filters.filters_of(broker, broker.queues[name]).asked(options.where)
        return nil_array(client.protocol)
    if broker.is_leaving:
        raise CommandError(LEAVING)
    matching.wait(broker, client, group, timeout_ms, options)
    return None
