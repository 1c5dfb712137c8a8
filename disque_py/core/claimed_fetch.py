"""GETJOB from queues whose jobs need a claim, as steps of a long command. Spec EX3, EX8.

`fetch` looks at the queues in the same order as delivery.collect: one job per queue and pass, from left to right. It
begins a claim for each job that needs one, up to the count of the GETJOB, and waits until all claims are decided. That
takes at most a second, or two seconds if the value and the job itself are claimed. It never takes longer than the
GETJOB's TIMEOUT. Then, in one turn, it delivers the granted jobs and fills the rest of the reply with jobs that need no
claim. So no lease runs while the client waits for voters. If other holders have all values that were tried, `fetch`
tries the next values.

delivery.py serves a client that waits for jobs that arrive later.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Final

from disque_py.core import claiming, delivery, exclusive, lifecycle, ordering, stalling
from disque_py.core.broker import Broker
from disque_py.core.claim_stamps import needed
from disque_py.core.client import Client
from disque_py.core.exclusive_state import GRANTED, LACKING, UNDECIDED, Pick
from disque_py.core.fetch_options import FetchOptions
from disque_py.core.queue import PAUSED_OUT, Queue

# Claims of one GETJOB that may be under way at the same time.
CLAIMS_MAX: Final = 256
# Claims are decided within this time: first that of the value, then that of the job.
DECIDED_MS: Final = 2 * claiming.DECIDE_MS
# How often a GETJOB looks whether the claims of others are decided.
LOOK_MS: Final = 20
# How long a GETJOB goes on to try values.
TRY_MS: Final = 1_000


class Found:
    """The result: encoded jobs, and an error that matters if there are no jobs because claims found no majority."""

    __slots__ = ("entries", "reason")

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.reason = ""


def has_claims(broker: Broker, names: list[bytes], nohang: bool) -> bool:
    """Return whether one of these queues has jobs and may have some that need a claim.

    For a GETJOB with NOHANG it is enough if a job is aside because it is being claimed for another consumer.
    """
    known = broker.exclusive.queues
    if any((queue := broker.queues.get(name)) is not None and queue in known and queue.length for name in names):
        return True
    return nohang and bool(under_way(broker, names.__contains__))


def under_way(broker: Broker, takes: Callable[[bytes], bool]) -> list[Pick]:
    """Return the claims that are not decided yet for jobs of queues with such a name."""
    state = broker.exclusive
    if not state.under_way:
        return []
    return [
        pick for picks in state.picks.values() for pick in picks if pick.outcome == UNDECIDED and takes(pick.queue.name)
    ]


def deadline_ms(broker: Broker, nohang: bool, timeout_ms: int) -> int:
    """Return the moment at which a GETJOB that begins now has waited for its TIMEOUT; 0: never."""
    return broker.now_ms + timeout_ms if timeout_ms and not nohang else 0


def left_ms(broker: Broker, deadline: int) -> int:
    """Return how long a GETJOB may still wait; 0: without a limit."""
    return max(1, deadline - broker.now_ms) if deadline else 0


def fetch(
    broker: Broker,
    client: Client,
    names: list[bytes],
    count: int,
    options: FetchOptions,
    deadline: int,
    *,
    nohang: bool = False,
) -> Generator[None, None, Found]:
    """Return up to `count` jobs of these queues. Jobs that need a claim are delivered under one.

    nohang   if there is no job, wait for the decision about those that are aside for other consumers: perhaps the
             voters have no majority, which the reply must tell
    """
    found = Found()
    has_waited = not nohang
    until_ms = broker.now_ms + TRY_MS
    if deadline:
        until_ms = min(until_ms, deadline)
    while True:
        picks = _begin(broker, client, names, min(count, CLAIMS_MAX), options, found)
        are_decided = partial(_are_decided, picks)
        if deadline and deadline - broker.now_ms < DECIDED_MS:
            yield from stalling.until_ms(broker, client, deadline, are_decided)
        else:
            yield from stalling.until(broker, client, are_decided)
        for pick in picks:
            if pick.outcome == GRANTED:
                _deliver(broker, pick, options, found)
            elif pick.outcome == UNDECIDED:
                pick.decided = partial(_decided_late, broker)
            elif pick.outcome == LACKING:
                found.reason = pick.reason
        queues = [queue for name in names if (queue := broker.queues.get(name)) is not None]
        rest = count - len(found.entries)
        room = delivery.REPLY_BYTES_MAX - sum(map(len, found.entries))
        if rest > 0 and room > 0 and not _is_repeated(broker, options, found):
            found.entries += delivery.collect(broker, queues, min(rest, CLAIMS_MAX), options, room)
        others = [] if picks or found.entries or has_waited else under_way(broker, names.__contains__)
        if others and not found.reason:
            has_waited = True
            decided_ms = broker.now_ms + DECIDED_MS
            while not _are_decided(others) and broker.now_ms < decided_ms:
                yield from stalling.pause(broker, client, LOOK_MS)
            continue
        if found.entries or not picks or broker.now_ms >= until_ms or exclusive.is_closed(broker):
            return found
        yield


def _deliver(broker: Broker, pick: Pick, options: FetchOptions, found: Found) -> None:
    if _is_repeated(broker, options, found):
        exclusive.give_back(broker, pick)
        return
    entry = delivery.deliver_claimed(broker, pick, options)
    if entry:
        found.entries.append(entry)


def _is_repeated(broker: Broker, options: FetchOptions, found: Found) -> bool:
    """Return whether another connection got jobs under this token meanwhile, which this GETJOB must repeat."""
    return bool(options.token) and not found.entries and bool(broker.tokens.held(options.token))


def _begin(
    broker: Broker, client: Client, names: list[bytes], count: int, options: FetchOptions, found: Found
) -> list[Pick]:
    """Begin claims for the next jobs of these queues. Skip the rest of a queue at a job that needs no claim."""
    picks: list[Pick] = []
    late = 0
    queues = [queue for name in names if (queue := broker.queues.get(name)) is not None and queue.parking is not None]
    while queues and len(picks) < count:
        again: list[Queue] = []
        for queue in queues:
            if len(picks) >= count:
                break
            if not queue.length or queue.paused & PAUSED_OUT or not _may_serve(broker, queue, options):
                continue
            if options.where is not None:
                job = lifecycle.fetch_matching(broker, queue, options.where, is_picky=options.is_picky)
            else:
                job = lifecycle.fetch(broker, queue, is_picky=options.is_picky)
            if job is None:
                continue
            stamp = needed(broker, job)
            if stamp is None or exclusive.is_closed(broker):
                lifecycle.undo_fetch(broker, queue, job)
                if stamp is not None:
                    found.reason = broker.exclusive.reason
                continue
            pick = exclusive.begin(broker, queue, job, stamp, client, options, partial(_decided, broker))
            if pick is None:
                late += 1
            elif pick.outcome == LACKING:
                found.reason = pick.reason
            else:
                picks.append(pick)
            if late < delivery.LATE_MAX:
                again.append(queue)
        queues = again
    return picks


def _may_serve(broker: Broker, queue: Queue, options: FetchOptions) -> bool:
    rivals = queue.rivals
    if options.where is not None or rivals is None or rivals.best is None:
        return True
    return ordering.may_serve(broker, queue, rivals, is_picky=options.is_picky)


def _decided(broker: Broker, pick: Pick) -> None:
    """Continue the command. If the client no longer waits, give back the grant."""
    client = pick.client
    if pick.outcome == GRANTED and client not in broker.waits.incremental:
        exclusive.give_back(broker, pick)
        return
    # The command checks whether all of its claims are decided. A claim for the client in a line is not one of them.
    stalling.resume_client_now(broker, client)


def _decided_late(broker: Broker, pick: Pick) -> None:
    """Use a grant that arrives after the TIMEOUT of its GETJOB for a client that waits, or give it back."""
    if pick.outcome == GRANTED:
        delivery.pass_on(broker, pick)


def _are_decided(picks: list[Pick]) -> bool:
    return all(pick.outcome != UNDECIDED for pick in picks)
