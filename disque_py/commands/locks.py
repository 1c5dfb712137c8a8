"""LOCK: locks that one owner has at a time, also when the network parts. Spec CL9.

A lock is a claim that a majority of the voters granted (core/locking.py). Every reply that promises something comes
after that majority's answer.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any, Final

from disque_py.commands.options import INT64_MAX, between
from disque_py.commands.subcommands import ANY, Form, run_form, syntax_error
from disque_py.core import claiming, deferred_reply, gathering, incremental, locking
from disque_py.core.broker import Broker
from disque_py.core.claiming import Result, WantedClaim
from disque_py.core.client import WAITS_FOR_LOCK, Blocked, Client
from disque_py.core.deferred_reply import Done
from disque_py.core.errors import CommandError
from disque_py.core.grants import DONE, FENCE_LIMIT, GRANTED, HELD, ITEM_FIELDS, GrantItem, is_grant_item
from disque_py.core.locking import NAME_BYTES_MAX, Acquiring
from disque_py.core.users import visible
from disque_py.resp.replies import array, bulk, bulk_array, integer, nil_array, nil_bulk

NAME_ERROR: Final = f"ERR name and owner have 1 to {NAME_BYTES_MAX} bytes"
LEASE_ERROR: Final = "ERR the lease is above claim-lease-max"
MS_ERROR: Final = "ERR the lease must be a number of milliseconds > 0"
FENCE_ERROR: Final = f"ERR the fence must be a number from 1 to {FENCE_LIMIT}"
ATTEMPTS_ERROR: Final = "ERR ATTEMPTS must be a number from 0 to 1000000000"
ATTEMPTS_MAX: Final = 1_000_000_000
TIMEOUT_ERROR: Final = "ERR TIMEOUT must be a number of milliseconds >= 0"
DONE_ERROR: Final = "ERR DONE must be a number of milliseconds > 0"
LOCK_DONE: Final = "LOCKDONE The work under this lock is done"
LOCK_SPENT: Final = "LOCKSPENT No attempts left for this lock"
FENCED: Final = "FENCED A later claim is known"


def lock(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """LOCK ACQUIRE | EXTEND | RELEASE | SHOW | LIST."""
    return run_form(FORMS, broker, client, argv)


def _names(*names: bytes) -> None:
    if not all(0 < len(name) <= NAME_BYTES_MAX for name in names):
        raise CommandError(NAME_ERROR)


def _lease(broker: Broker, word: bytes, text: str = MS_ERROR) -> int:
    lease_ms = between(word, 1, INT64_MAX, text)
    voter_list = broker.claims.memory.list
    if voter_list is None:
        raise CommandError(claiming.REASONS[claiming.NO_VOTERS])
    if lease_ms > voter_list.lease_max_ms:
        raise CommandError(LEASE_ERROR)
    return lease_ms


def _refuse(result: Result) -> None:
    """Raise the error of a claim that was not granted, unless another owner has it. CommandError."""
    if result.outcome == DONE:
        raise CommandError(LOCK_DONE)
    if result.outcome == claiming.ALL_SPENT:
        raise CommandError(LOCK_SPENT)
    if result.outcome not in (GRANTED, HELD):
        raise CommandError(claiming.REASONS.get(result.outcome, claiming.REASONS[claiming.NO_MAJORITY]))


class Outcome:
    """The result of a claim, between the end of the claim and the reply.

    refusal   the error that ended the wait before the claim was decided; empty: none did
    """

    __slots__ = ("_done", "refusal", "result")

    def __init__(self, done: Done) -> None:
        self.result = Result(claiming.NO_MAJORITY)
        self.refusal = ""
        self._done = done

    def take(self, result: Result) -> None:
        """Take the result, and let the client be answered."""
        if not self.refusal:
            self.result = result
            self._done(None)

    def refuse(self, text: str) -> None:
        """Answer the client with an error now. The claim goes on; if it is granted, it is given back."""
        self.refusal = text
        self._done(None)


# -- ACQUIRE ----------------------------------------------------------------------------------------


def _acquire(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """ACQUIRE name owner ms [ATTEMPTS n] [TIMEOUT ms] → fence, attempt, attempts left; nil if another owner has it."""
    name, owner = argv[2:4]
    _names(name, owner)
    limit = timeout_ms = 0
    for at in range(5, len(argv), 2):
        option = argv[at].lower()
        if option not in (b"attempts", b"timeout") or at + 1 == len(argv):
            raise syntax_error(argv[at])
        if option == b"attempts":
            limit = between(argv[at + 1], 0, ATTEMPTS_MAX, ATTEMPTS_ERROR)
        else:
            timeout_ms = between(argv[at + 1], 0, INT64_MAX, TIMEOUT_ERROR)
    lease_ms = _lease(broker, argv[4])
    wanted = locking.wanted_claim(broker, name, owner, lease_ms, limit)
    until_ms = broker.now_ms + timeout_ms
    found: list[Outcome] = []

    def start(done: Done) -> None:
        outcome = Outcome(done)
        found.append(outcome)
        is_wanted = partial(_is_wanted, broker, client, outcome)
        locking.acquire(broker, Acquiring(wanted, until_ms, is_wanted, outcome.take))

    def reply(_: OSError | None) -> bytes:
        result = found[0].result
        if found[0].refusal:
            raise CommandError(found[0].refusal)
        _refuse(result)
        if result.outcome == HELD:
            return nil_array(client.protocol)
        left = max(0, limit - result.attempt) if limit else -1
        return array([integer(result.fence), integer(result.attempt), integer(left)])

    answer = deferred_reply.begin(broker, client, start, reply)
    if answer is None and timeout_ms:
        client.waiting = WAITS_FOR_LOCK  # A client that hangs up meanwhile is gone, and gets no lock.
        client.blocked = Blocked(argv, found[0].refuse)
    return answer


def _is_wanted(broker: Broker, client: Client, outcome: Outcome) -> bool:
    return broker.clients.get(client.id) is client and not outcome.refusal


# -- EXTEND and RELEASE -----------------------------------------------------------------------------


def _extend(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """EXTEND name owner fence ms → ms; the lease starts again."""
    name, owner = argv[2:4]
    _names(name, owner)
    fence = between(argv[4], 1, FENCE_LIMIT, FENCE_ERROR)
    lease_ms = _lease(broker, argv[5])
    wanted = locking.wanted_claim(broker, name, owner, lease_ms)
    found: list[Outcome] = []

    def start(done: Done) -> None:
        outcome = Outcome(done)
        found.append(outcome)
        claiming.renew(broker, wanted, fence, outcome.take)

    def reply(_: OSError | None) -> bytes:
        result = found[0].result
        if result.outcome == claiming.OVER:
            raise CommandError(FENCED)
        if result.outcome == GRANTED and result.until_ms <= broker.now_ms:
            raise CommandError(claiming.REASONS[claiming.NO_MAJORITY])
        _refuse(result)
        return integer(lease_ms)

    return deferred_reply.begin(broker, client, start, reply)


def _release(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """RELEASE name owner fence [DONE ms] → 1, or 0 if the lock was not held under this fence."""
    name, owner = argv[2:4]
    _names(name, owner)
    fence = between(argv[4], 1, FENCE_LIMIT, FENCE_ERROR)
    done_ms = 0
    for at in range(5, len(argv), 2):
        if argv[at].lower() != b"done" or at + 1 == len(argv):
            raise syntax_error(argv[at])
        done_ms = _lease(broker, argv[at + 1], DONE_ERROR)
    wanted: WantedClaim = locking.wanted_claim(broker, name, owner, 1)
    found: list[Outcome] = []

    def start(done: Done) -> None:
        outcome = Outcome(done)
        found.append(outcome)
        claiming.release(broker, wanted, fence, outcome.take, done_ms=done_ms)

    def reply(_: OSError | None) -> bytes:
        result = found[0].result
        _refuse(result)
        return integer(1 if result.outcome == GRANTED else 0)

    return deferred_reply.begin(broker, client, start, reply)


# -- SHOW and LIST ----------------------------------------------------------------------------------


def _check(value: Any) -> list[Any] | None:
    """Return a voter's share; None of a node that may not vote. ValueError."""
    if value is None:
        return None
    if type(value) not in (list, tuple) or len(value) < 2 or type(value[0]) is not int:
        raise ValueError("a share of locks that is none")
    if type(value[1]) not in (list, tuple):
        raise ValueError("a share of locks without locks")
    for part in value[1]:
        if not is_grant_item(part) and not _are_names(part):
            raise ValueError("a share with something else than locks")
    return list(value)


def _are_names(part: Any) -> bool:
    return type(part) in (list, tuple) and all(type(name) is bytes for name in part)


def _of_majority(
    broker: Broker, client: Client, words: list[bytes]
) -> Generator[None, None, tuple[list[list[Any]], int]]:
    """Ask the voters for their shares. CommandError if no majority of our epoch answers.

    Return the shares, and in how many of them a grant of a majority must be, at least.
    """
    voter_list = broker.claims.memory.list
    if voter_list is None:
        raise CommandError(claiming.REASONS[claiming.NO_VOTERS])
    question = gathering.ask(broker, client, locking.SUBJECT_LOCKS, words, _check)
    mine = yield from locking.share(broker, list(words))
    yield from gathering.answers(broker, question)
    shares = [_check(mine)] + [answer for node, answer in question.answers.items() if node.id in voter_list.voters]
    known = [found for found in shares if found is not None and found[0] == voter_list.epoch]
    if len(known) < voter_list.majority:
        raise CommandError(claiming.REASONS[claiming.NO_MAJORITY])
    return [found[1] for found in known], len(known) + voter_list.majority - len(voter_list.voters)


def _show(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """SHOW name → pairs; nil if the lock is free and nothing is remembered."""
    _names(argv[2])
    return incremental.begin(broker, client, _shown(broker, client, argv[2]))


def _shown(broker: Broker, client: Client, name: bytes) -> incremental.Steps:
    shares, least = yield from _of_majority(broker, client, [b"show", name])
    items: list[GrantItem] = []
    for found in shares:
        items += [tuple(item[:ITEM_FIELDS]) for item in found if is_grant_item(item)]
    held = locking.held_by_majority(items, least)
    # The highest number of attempts that at least `least` voters have reached.
    attempts = sorted([item[5] for item in items], reverse=True)[least - 1 : least]
    done_ms = sorted([item[8] for item in items], reverse=True)[least - 1 : least]
    if held is None and not any(attempts) and not any(done_ms):
        return nil_array(client.protocol)
    fence = held[2] if held is not None else max(item[4] for item in items)
    parts = [bulk("owner"), bulk(held[1]) if held is not None else nil_bulk(client.protocol)]
    parts += [bulk("fence"), integer(fence), bulk("attempt"), integer(held[5] if held is not None else sum(attempts))]
    parts += [bulk("ms-left"), integer(held[3] if held is not None else 0)]
    parts += [bulk("done-ms-left"), integer(sum(done_ms))]
    return array(parts)


def _list(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """LIST [pattern] → names of the locks that are held or remembered, sorted."""
    pattern = argv[2] if len(argv) == 3 else b"*"
    if len(pattern) > NAME_BYTES_MAX:
        raise syntax_error(pattern)
    return incremental.begin(broker, client, _listed(broker, client, pattern))


def _listed(broker: Broker, client: Client, pattern: bytes) -> incremental.Steps:
    shares, least = yield from _of_majority(broker, client, [b"list", pattern])
    counts: dict[bytes, int] = {}
    for parts in shares:
        for part in parts:
            for name in part:
                counts[name] = counts.get(name, 0) + 1
    return bulk_array(sorted(visible(client, [name for name, count in counts.items() if count >= least])))


FORMS: Final = {
    b"acquire": Form(_acquire, 5, ANY),
    b"extend": Form(_extend, 6, 6),
    b"release": Form(_release, 5, ANY),
    b"show": Form(_show, 3, 3),
    b"list": Form(_list, 2, 3),
}
