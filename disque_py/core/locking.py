"""Locks: claims on a name, on behalf of an owner outside the cluster. Spec CL9.

A lock belongs to no connection and no node. Its holder is the owner's name. So an owner that missed a reply may ask any
node again, and gets the same fence and the same attempt. The voters count attempts, during the grant and for
`claim-lease-max` after it.

`acquire` is the whole conversation of one LOCK ACQUIRE. It claims the name. If the same owner has a grant already, it
renews that grant. If a majority of voters answers that it does not have this grant, it claims the name again, which
replaces the grant. It does the same if the voters with the grant that answer are too few, and no other owner has the
name at a majority. Otherwise a voter that is down would keep the owner from its own name until the lease is over.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from disque_py.core import claiming, gathering, voting
from disque_py.core.broker import Broker
from disque_py.core.claiming import ALL_SPENT, Result, WantedClaim
from disque_py.core.grants import GRANTED, HELD, Grant, GrantItem
from disque_py.resp.glob import matches

SUBJECT_LOCKS: Final = b"locks"
PREFIX: Final = b"L"
NAME_BYTES_MAX: Final = 1_024
# An ACQUIRE that waits asks again after a random time in this range, or earlier if the other grant ends before.
POLL_MS: Final = (100, 200)
NAMES_MAX: Final = 10_000
# The number of keys that are examined per part of a share.
KEYS_PER_PART: Final = 1_000
# Names in one array: a message has no array of more than 4096 elements.
PART_ITEMS: Final = 1_000


def wanted_claim(broker: Broker, name: bytes, owner: bytes, lease_ms: int, limit: int = 0) -> WantedClaim:
    """Return the claim of an owner on a lock."""
    voter_list = broker.claims.memory.list
    keep_ms = voter_list.lease_max_ms if voter_list is not None else 0
    return WantedClaim(PREFIX + name, owner, lease_ms, keep_ms, limit)


class Acquiring(NamedTuple):
    """A LOCK ACQUIRE in progress.

    until_ms    until when to wait while another owner has the lock; monotonic
    is_wanted   returns whether the client is still connected
    done        is called with the result: GRANTED, HELD, DONE, or an outcome of claiming.py
    """

    wanted: WantedClaim
    until_ms: int
    is_wanted: Callable[[], bool]
    done: Callable[[Result], None]


def acquire(broker: Broker, acquiring: Acquiring) -> None:
    """Claim the lock, or renew it if this owner has it. If another owner has it, wait until `until_ms`."""
    claiming.claim(broker, acquiring.wanted, partial(_claimed, broker, acquiring))


def _claimed(broker: Broker, acquiring: Acquiring, result: Result) -> None:
    wanted = acquiring.wanted
    if result.outcome == GRANTED:
        if acquiring.is_wanted() and result.until_ms > broker.now_ms:
            acquiring.done(result)
        else:
            _give_back(broker, acquiring, result)
        return
    if result.outcome == HELD and result.holder == wanted.holder:
        if _is_spent(wanted, result):
            acquiring.done(Result(ALL_SPENT))
        else:
            claiming.renew(broker, wanted, result.fence, partial(_renewed, broker, acquiring))
        return
    _held(broker, acquiring, result)


def _is_spent(wanted: WantedClaim, result: Result) -> bool:
    """Return whether a grant of this owner is an attempt beyond the limit.

    It was granted to an earlier request with another limit, or by a minority of the voters, from which the others
    copied it as a later attempt. In both cases it ends with its lease.
    """
    return 0 < wanted.limit < result.attempt


def _give_back(broker: Broker, acquiring: Acquiring, result: Result) -> None:
    """Release a lock that was granted too late, because the client has disconnected or the lease is over."""
    wanted = acquiring.wanted
    claiming.release(broker, wanted, result.fence, _ignore, gives_back=True)
    acquiring.done(Result(claiming.NO_MAJORITY))


def _ignore(result: Result) -> None:
    """Ignore the result. If the release failed, the lock ends with its lease."""


def _renewed(broker: Broker, acquiring: Acquiring, result: Result) -> None:
    if result.outcome == GRANTED and _is_spent(acquiring.wanted, result):
        acquiring.done(Result(ALL_SPENT))
    elif result.outcome == GRANTED and result.until_ms > broker.now_ms:
        acquiring.done(result)
    elif result.outcome in (claiming.OVER, claiming.SCATTERED) and acquiring.is_wanted():
        done = partial(_replaced, broker, acquiring, result.outcome == claiming.OVER)
        claiming.claim(broker, acquiring.wanted, done, replaces=True, relies=True)
    else:
        acquiring.done(Result(claiming.NO_MAJORITY))


def _replaced(broker: Broker, acquiring: Acquiring, was_over: bool, result: Result) -> None:
    """End a claim that replaces the owner's grant. `was_over`: the owner can't have had a majority for that grant."""
    if result.outcome == GRANTED and result.until_ms <= broker.now_ms:
        # The lock is not released, because the owner may still rely on its first grant.
        acquiring.done(Result(claiming.NO_MAJORITY))
    elif result.outcome == ALL_SPENT and not was_over:
        acquiring.done(Result(claiming.NO_MAJORITY))  # The owner may have the last attempt, which still runs.
    elif result.outcome == HELD:
        _held(broker, acquiring, result)
    else:
        acquiring.done(result)


def _held(broker: Broker, acquiring: Acquiring, result: Result) -> None:
    """Ask again later, because another owner has the lock, or end with this result if the wait is over."""
    low, high = POLL_MS
    at_ms = broker.now_ms + max(1, min(result.until_ms, broker.rng.randint(low, high)))
    if result.outcome == HELD and broker.now_ms < acquiring.until_ms and acquiring.is_wanted():
        broker.schedule.call_at(min(at_ms, acquiring.until_ms), partial(acquire, broker, acquiring))
    else:
        acquiring.done(result)


# -- LOCK SHOW and LOCK LIST ------------------------------------------------------------------------


def share(broker: Broker, words: list[Any]) -> gathering.Share:
    """Return this voter's answer to LOCK SHOW (a grant, if it has one) or LOCK LIST (names); None if it may not vote.

    words   b"show" and a name, or b"list" and a pattern. ValueError for others
    """
    if len(words) < 2 or any(type(word) is not bytes for word in words[:2]):
        raise ValueError("a malformed question about locks")
    what, word = words[:2]
    memory = broker.claims.memory
    if not voting.may_vote(broker) or memory.list is None:
        return None
    epoch = memory.list.epoch
    grants = memory.grants
    if what == b"show":
        key = PREFIX + word
        return [epoch, [grants.item(key, broker.now_ms)] if key in grants.records else []]
    pattern = word.decode("utf-8", "surrogateescape")
    names: list[bytes] = []
    for at, key in enumerate(list(grants.records)):
        if at and at % KEYS_PER_PART == 0:
            yield
        record = grants.records.get(key)
        if record is None or key[:1] != PREFIX or len(names) >= NAMES_MAX:
            continue
        if _is_known(record, broker.now_ms) and matches(pattern, key[1:].decode("utf-8", "surrogateescape")):
            names.append(key[1:])
    return [epoch, [names[at : at + PART_ITEMS] for at in range(0, len(names), PART_ITEMS)]]


def _is_known(record: Grant, now_ms: int) -> bool:
    return record.until_ms > now_ms or record.done_until_ms > now_ms or record.attempts_at(now_ms) > 0


def held_by_majority(items: list[GrantItem], least: int) -> GrantItem | None:
    """Return the running grant that at least `least` of these voters have; None if there is none.

    items   the answers of the voters, one grant each
    """
    for item in items:
        if item[9] and sum(1 for other in items if other[1:3] == item[1:3] and other[9]) >= least:
            return item
    return None
