"""The claimant: claims, renewals and releases on behalf of this node. CLAIM_IS, RELEASED.

A claim is granted when more than half of the voters have granted it. The claimant counts the lease from the moment
before it sent the claim, and shortens it by the allowed drift of clocks. So by its own clock the lease ends before any
voter's grant does.

A claimant that did not get a majority releases its grants and tries again after a random pause, with a new fence. A
renewal that failed releases nothing. A claim that is not decided within DECIDE_MS has failed. The claimant then sends a
release after each of its claims, so that a late grant ends, too. Spec CL1, CL2, CL8.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from cluster_bus.messages import CLAIM, RELEASE
from cluster_bus.node import Node
from disque_py.core import voting
from disque_py.core.broker import Broker
from disque_py.core.claims import send, voters_in_reach
from disque_py.core.grants import (
    DONE,
    FENCE_LIMIT,
    FENCE_MAX,
    GRANTED,
    HELD,
    KEYS_MAX,
    LONGEST_MS,
    MUTE,
    NO_ROOM,
    OLD_ATTEMPT,
    OLD_FENCE,
    OTHER_EPOCH,
    RENEWS,
    REPLACES,
)
from disque_py.core.voting import ENDED, GIVES_BACK, NOT_HELD

DECIDE_MS: Final = 1_000
# The pause before the next try is drawn from this span, or from one of up to PAUSE_TRIES times what the last try took.
PAUSE_MS: Final = (5, 50)
PAUSE_TRIES: Final = 2
# A try that ends undecided has the result of the try before it, if it took at most so many times as long.
UNDECIDED_TRIES: Final = 2
PERCENT: Final = 100

# Results of a claim, in addition to a voter's GRANTED, HELD and DONE.
NO_MAJORITY: Final = 100
NO_VOTERS: Final = 101
CHANGING: Final = 102
ALL_SPENT: Final = 103
FULL: Final = 105
OVER: Final = 104  # Of a renewal: the grant has ended at so many voters that no majority is left.
# Of a renewal: too few voters that answered have this grant, but no other holder's grant runs at a majority of voters.
SCATTERED: Final = 106

REASONS: Final = {
    NO_VOTERS: "NOQUORUM no voters configured",
    NO_MAJORITY: "NOQUORUM no majority of the voters answered",
    CHANGING: "NOQUORUM the voters are changing",
    FULL: f"ERR too many claims, at most {KEYS_MAX}",
}


class Result(NamedTuple):
    """The result of a claim.

    outcome    GRANTED, HELD, DONE, or one of this module's results
    fence      of the grant; if the outcome is HELD, of the other grant
    holder     of the same grant
    attempt    number of the attempt
    until_ms   when the claim ends; monotonic. If the outcome is HELD: milliseconds until the other grant ends
    began_ms   when a granted claim was sent; monotonic
    """

    outcome: int
    fence: int = 0
    holder: bytes = b""
    attempt: int = 0
    until_ms: int = 0
    began_ms: int = 0


class WantedClaim(NamedTuple):
    """A claim that this node wants.

    key        the thing that is claimed
    holder     a name for one delivery, or for the owner of a lock
    lease_ms   the lease
    keep_ms    how long the voters keep the count of attempts after the lease; 0: attempts are not counted
    limit      the highest number of attempts; 0: any
    first      number of this attempt, if the voters know of no earlier one
    """

    key: bytes
    holder: bytes
    lease_ms: int
    keep_ms: int = 0
    limit: int = 0
    first: int = 1


class Answer(NamedTuple):
    """A voter's answer to a claim (CLAIM_IS)."""

    outcome: int
    fence: int
    holder: bytes
    highest: int
    attempts: int
    left_ms: int


class Attempt:
    """A claim, a renewal or a release that waits for answers.

    wanted       the claim that it asks for, renews or ends
    done         is called once, with the result
    fence        of this try
    attempt      number of the attempt that this try counts
    began_ms     the moment before it was sent; monotonic
    until_ms     when it fails if it is not decided; monotonic. 0: it is over
    is_renewal   whether it renews the given fence; a renewal releases nothing and does not try again
    is_release   whether it ends a claim
    relies       whether the holder may rely on an older grant; then a failed try releases nothing
    flags        of the claim
    asked        nodes that were asked
    answers      their answers
    count        how many voters there are
    majority     how many voters are a majority
    before       the result of the try before this one; None: this is the first
    took_ms      how long the try before this one took
    """

    __slots__ = (
        "answers",
        "asked",
        "attempt",
        "before",
        "began_ms",
        "count",
        "done",
        "fence",
        "flags",
        "is_release",
        "is_renewal",
        "majority",
        "number",
        "relies",
        "took_ms",
        "until_ms",
        "wanted",
    )

    def __init__(self, wanted: WantedClaim, until_ms: int, done: Callable[[Result], None]) -> None:
        self.wanted = wanted
        self.until_ms = until_ms
        self.done = done
        self.number = 0
        self.fence = 0
        self.attempt = 0
        self.began_ms = 0
        self.is_renewal = False
        self.is_release = False
        self.relies = False
        self.flags = 0
        self.asked: list[Node] = []
        self.answers: dict[Node, Answer] = {}
        self.count = 0
        self.majority = 0
        self.before: Result | None = None
        self.took_ms = 0


# -- claims -------------------------------------------------------------------------------------------


def claim(
    broker: Broker, wanted: WantedClaim, done: Callable[[Result], None], *, replaces: bool = False, relies: bool = False
) -> None:
    """Claim a key. `done` is called with the result within DECIDE_MS.

    replaces   give up a grant that this holder has under another fence
    relies     the holder may rely on that grant until its lease is over. So a failed try releases nothing
    """
    attempt = Attempt(_bounded(wanted), broker.now_ms + DECIDE_MS, done)
    attempt.relies = relies
    attempt.attempt = wanted.first if wanted.keep_ms else 0
    attempt.flags = REPLACES if replaces else 0
    if wanted.limit and attempt.attempt > wanted.limit:
        _end(broker, attempt, Result(ALL_SPENT))
        return
    _try(broker, attempt)
    broker.schedule.call_at(attempt.until_ms, partial(_fail, broker, attempt))


def renew(broker: Broker, wanted: WantedClaim, fence: int, done: Callable[[Result], None]) -> None:
    """Renew a claim that this holder has under a fence. The lease begins again."""
    attempt = Attempt(_bounded(wanted), broker.now_ms + DECIDE_MS, done)
    attempt.is_renewal = True
    attempt.flags = RENEWS
    attempt.fence = fence
    _try(broker, attempt)
    broker.schedule.call_at(attempt.until_ms, partial(_fail, broker, attempt))


def _bounded(wanted: WantedClaim) -> WantedClaim:
    """Return the claim with spans that voters accept. A job's TTL, for which its count is kept, may be longer."""
    return wanted._replace(lease_ms=min(LONGEST_MS, wanted.lease_ms), keep_ms=min(LONGEST_MS, wanted.keep_ms))


def _try(broker: Broker, attempt: Attempt) -> None:
    """Send the claim to all voters."""
    claims = broker.claims
    voter_list = claims.memory.list
    if voter_list is None:
        _end(broker, attempt, Result(NO_VOTERS))
        return
    if claims.memory.is_conflict:
        _end(broker, attempt, Result(CHANGING))
        return
    attempt.number = number = claims.next_number()
    claims.attempts[number] = attempt
    attempt.began_ms = broker.now_ms
    attempt.count = len(voter_list.voters)
    attempt.majority = voter_list.majority
    attempt.asked = voters_in_reach(broker, voter_list.voters)
    attempt.answers = {}
    wanted = attempt.wanted
    if not attempt.is_renewal:
        attempt.fence = max(attempt.fence + 1, broker.wall_ms, 1)
        if attempt.fence > FENCE_LIMIT:
            _end(broker, attempt, Result(NO_MAJORITY))
            return
    for node in attempt.asked:
        send(
            broker,
            node,
            CLAIM,
            (
                number,
                voter_list.epoch,
                wanted.key,
                wanted.holder,
                attempt.fence,
                wanted.lease_ms,
                attempt.attempt,
                wanted.keep_ms,
                attempt.flags,
            ),
        )
    if len(attempt.asked) < attempt.majority:
        _look(broker, attempt)


def on_claim_is(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note a voter's answer to a claim."""
    for number, outcome, fence, holder, highest, attempts, left_ms, *_ in items:
        for value in (number, outcome, fence, highest, attempts, left_ms):
            if type(value) is not int or not 0 <= value <= FENCE_MAX:
                raise ValueError("an invalid answer to a claim")
        if type(holder) is not bytes:
            raise ValueError("an answer to a claim without a holder")
        attempt = broker.claims.attempts.get(number)
        if attempt is None or sender not in attempt.asked or sender in attempt.answers:
            broker.stats.ignored("answer to a claim that is over")
            continue
        if attempt.is_release:
            raise ValueError("an answer to a claim where one to a release was expected")
        if outcome == GRANTED and (fence, holder) != (attempt.fence, attempt.wanted.holder):
            raise ValueError("a grant of another claim")
        attempt.answers[sender] = Answer(outcome, fence, holder, highest, attempts, left_ms)
        if outcome == OTHER_EPOCH:
            voting.gossip(broker, [sender])
        _look(broker, attempt)


def on_link_lost(broker: Broker, node: Node) -> None:
    """Stop waiting for a voter whose link broke, because our message or its answer may be lost."""
    for attempt in list(broker.claims.attempts.values()):
        if node in attempt.asked and node not in attempt.answers:
            attempt.asked.remove(node)
            if attempt.is_release:
                _look_released(broker, attempt)
            else:
                _look(broker, attempt)


def _look(broker: Broker, attempt: Attempt) -> None:
    """Decide a claim or a renewal, if the answers suffice."""
    granted = _said(attempt, GRANTED)
    if granted >= attempt.majority:
        _end(broker, attempt, _granted(broker, attempt))
        return
    open_count = len(attempt.asked) - len(attempt.answers)
    if granted + open_count >= attempt.majority:
        return
    # No majority is possible. We wait for more answers nevertheless, because their reasons decide the next step.
    is_open = open_count > 0 and broker.now_ms < attempt.until_ms
    if is_open and (len(attempt.answers) < attempt.majority or _is_doubtful(attempt)):
        return
    result = _refused(attempt)
    if attempt.is_renewal:
        _end(broker, attempt, result)
        return
    _release_all(broker, attempt)
    broker.claims.attempts.pop(attempt.number, None)
    if result.outcome in (HELD, DONE, ALL_SPENT, FULL) and _is_certain(attempt, result):
        _end(broker, attempt, result)
        return
    attempt.before, attempt.took_ms = result, broker.now_ms - attempt.began_ms
    highest = max((answer.highest for answer in attempt.answers.values()), default=0)
    attempt.fence = max(attempt.fence, highest)
    for answer in attempt.answers.values():
        if answer.outcome == OLD_ATTEMPT:
            attempt.attempt = max(attempt.attempt, answer.attempts + 1)
    if attempt.wanted.limit:
        attempt.attempt = min(attempt.attempt, attempt.wanted.limit)  # Voters don't know the limit.
    is_clear = all(answer.outcome in (GRANTED, OLD_FENCE, OLD_ATTEMPT) for answer in attempt.answers.values())
    pause_ms = 0 if is_clear and len(attempt.answers) >= attempt.majority else _pause_ms(broker, attempt)
    at_ms = broker.now_ms + pause_ms
    if at_ms < attempt.until_ms:
        broker.schedule.call_at(at_ms, partial(_try_again, broker, attempt, attempt.number))


def _pause_ms(broker: Broker, attempt: Attempt) -> int:
    """Return a random pause before the next try.

    The other claimants of the key pause as well. The one that begins first wins, if its claims reach the voters before
    the others begin. So the longer a try takes, the longer are the pauses.
    """
    low, high = PAUSE_MS
    took_ms = broker.now_ms - attempt.began_ms
    left_ms = attempt.until_ms - broker.now_ms - took_ms  # The try has to end in time, too.
    return broker.rng.randint(low, max(high, min(PAUSE_TRIES * took_ms, left_ms)))


def _try_again(broker: Broker, attempt: Attempt, number: int) -> None:
    if attempt.number == number and attempt.until_ms > broker.now_ms:
        _try(broker, attempt)


def _granted(broker: Broker, attempt: Attempt) -> Result:
    wanted = attempt.wanted
    lease_ms = wanted.lease_ms * (PERCENT - broker.settings.claim_drift_max) // PERCENT
    count = max(answer.attempts for answer in attempt.answers.values() if answer.outcome == GRANTED)
    return Result(GRANTED, attempt.fence, wanted.holder, count, attempt.began_ms + lease_ms, attempt.began_ms)


def _refused(attempt: Attempt) -> Result:
    """Return the result of a try that failed. A renewal is OVER only if enough voters say so. Spec CL2.

    Another holder's grant is the reason only if a majority of the voters has answered, or if it runs at so many that no
    majority is left.
    """
    answers = attempt.answers.values()
    if attempt.is_renewal:
        return Result(_not_renewed(attempt))
    if _said(attempt, DONE) > attempt.count - attempt.majority:
        return Result(DONE)
    if _is_spent(attempt):
        return Result(ALL_SPENT)
    held = [answer for answer in answers if answer.outcome == HELD]
    if held:
        best = max(held, key=partial(_rank, attempt))
        result = Result(HELD, best.fence, best.holder, best.attempts, best.left_ms)
        if _is_certain(attempt, result) or sum(map(_counts, answers)) >= attempt.majority:
            return result
    if any(answer.outcome == NO_ROOM for answer in answers):
        return Result(FULL)
    if any(answer.outcome == OTHER_EPOCH for answer in answers):
        return Result(CHANGING)
    return Result(NO_MAJORITY)


def _not_renewed(attempt: Attempt) -> int:
    """Return why a renewal failed."""
    answers = attempt.answers.values()
    if sum(1 for answer in answers if answer.outcome in (HELD, OLD_FENCE, DONE)) > attempt.count - attempt.majority:
        return OVER
    own_count = sum(1 for answer in answers if answer.outcome == HELD and answer.holder == attempt.wanted.holder)
    free_count = own_count + _said(attempt, GRANTED) + _said(attempt, OLD_FENCE)
    return SCATTERED if free_count >= attempt.majority else NO_MAJORITY


def _counts(answer: Answer) -> bool:
    """Return whether it is the answer of a voter that may vote in this epoch."""
    return answer.outcome not in (MUTE, OTHER_EPOCH)


def _is_spent(attempt: Attempt) -> bool:
    """Return whether no attempt is left, and so many voters know of no running grant that the last one is over.

    One voter that knows the count is not enough. The last attempt may run at all others, because its holder renewed it
    while this voter was cut off.
    """
    limit = attempt.wanted.limit
    old = [answer for answer in attempt.answers.values() if answer.outcome == OLD_ATTEMPT]
    if not limit or all(answer.attempts < limit for answer in old):
        return False
    free_count = len(old) + _said(attempt, GRANTED) + _said(attempt, OLD_FENCE)
    return free_count > attempt.count - attempt.majority


def _said(attempt: Attempt, outcome: int) -> int:
    return sum(1 for answer in attempt.answers.values() if answer.outcome == outcome)


def _rank(attempt: Attempt, answer: Answer) -> tuple[bool, bool, int, int]:
    """Return the rank of a running grant. This holder's own is before others, unless it can have no majority.

    In that case its renewal would be in vain. It would release nothing, and the grant would block the key for longer.
    """
    is_own = answer.holder == attempt.wanted.holder
    same = sum(1 for other in attempt.answers.values() if other[:3] == answer[:3])
    is_in_the_way = not is_own and same > attempt.count - attempt.majority
    return is_in_the_way, is_own, same, answer.fence


def _is_doubtful(attempt: Attempt) -> bool:
    """Return whether some voters report a grant of this holder, but too few to rule out another one's majority."""
    own_count = sum(
        1 for answer in attempt.answers.values() if answer.outcome == HELD and answer.holder == attempt.wanted.holder
    )
    return not attempt.is_renewal and 0 < own_count <= attempt.count - attempt.majority


def _is_certain(attempt: Attempt, result: Result) -> bool:
    """Return whether another try would fail, too: one grant runs at so many voters that no majority is left."""
    if result.outcome != HELD:
        return True
    grant = (HELD, result.fence, result.holder)
    same = sum(1 for answer in attempt.answers.values() if answer[:3] == grant)
    return same > attempt.count - attempt.majority or result.holder == attempt.wanted.holder


def _fail(broker: Broker, attempt: Attempt) -> None:
    """End a claim that was not decided in time."""
    if attempt.until_ms and attempt.until_ms <= broker.now_ms:
        result = _refused(attempt)
        is_young = broker.now_ms - attempt.began_ms <= UNDECIDED_TRIES * attempt.took_ms
        if result.outcome == NO_MAJORITY and attempt.before is not None and is_young:
            result = attempt.before  # The voters answer. The last try only began too late.
        if not attempt.is_renewal:
            _release_all(broker, attempt)
        _end(broker, attempt, result)


def _end(broker: Broker, attempt: Attempt, result: Result) -> None:
    broker.claims.attempts.pop(attempt.number, None)
    if attempt.until_ms:
        attempt.until_ms = 0
        attempt.done(result)


def _release_all(broker: Broker, attempt: Attempt) -> None:
    """Release a failed claim at each voter that granted it or has not answered. The release follows the claim."""
    if attempt.relies:
        return
    for node in attempt.asked:
        answer = attempt.answers.get(node)
        if answer is None or answer.outcome == GRANTED:
            send(
                broker,
                node,
                RELEASE,
                (0, _epoch(broker), attempt.wanted.key, attempt.wanted.holder, attempt.fence, GIVES_BACK, 0),
            )


def _epoch(broker: Broker) -> int:
    voter_list = broker.claims.memory.list
    return voter_list.epoch if voter_list is not None else 0


# -- releases -----------------------------------------------------------------------------------------


def release(
    broker: Broker,
    wanted: WantedClaim,
    fence: int,
    done: Callable[[Result], None],
    *,
    done_ms: int = 0,
    gives_back: bool = False,
) -> None:
    """End a claim of this holder and fence.

    `done` is called with GRANTED if a majority ended it, with HELD if so many voters deny it that no majority is left,
    else with NO_MAJORITY.

    done_ms      how long the voters remember that the work is done; 0: it is not done
    gives_back   whether the attempt does not count
    """
    claims = broker.claims
    voter_list = claims.memory.list
    attempt = Attempt(wanted, broker.now_ms + DECIDE_MS, done)
    if voter_list is None:
        _end(broker, attempt, Result(NO_VOTERS))
        return
    attempt.number = number = claims.next_number()
    claims.attempts[number] = attempt
    attempt.is_release = True
    attempt.fence = fence
    attempt.count = len(voter_list.voters)
    attempt.majority = voter_list.majority
    attempt.asked = voters_in_reach(broker, voter_list.voters)
    flags = GIVES_BACK if gives_back else 0
    for node in attempt.asked:
        send(broker, node, RELEASE, (number, voter_list.epoch, wanted.key, wanted.holder, fence, flags, done_ms))
    broker.schedule.call_at(attempt.until_ms, partial(_fail_release, broker, attempt))
    _look_released(broker, attempt)


def on_released(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note a voter's answer to a release."""
    for number, is_over, *_ in items:
        if type(number) is not int or type(is_over) is not int:
            raise ValueError("an invalid answer to a release")
        attempt = broker.claims.attempts.get(number)
        if attempt is None or sender not in attempt.asked or sender in attempt.answers:
            broker.stats.ignored("answer to a release that is over")
            continue
        if not attempt.is_release:
            raise ValueError("an answer to a release where one to a claim was expected")
        outcome = GRANTED if is_over == ENDED else HELD if is_over == NOT_HELD else MUTE
        attempt.answers[sender] = Answer(outcome, 0, b"", 0, 0, 0)
        _look_released(broker, attempt)


def _look_released(broker: Broker, attempt: Attempt) -> None:
    if _said(attempt, GRANTED) >= attempt.majority:
        _end(broker, attempt, Result(GRANTED))
    elif _said(attempt, HELD) > attempt.count - attempt.majority:
        _end(broker, attempt, Result(HELD))
    elif len(attempt.answers) == len(attempt.asked):
        _end(broker, attempt, Result(NO_MAJORITY))


def _fail_release(broker: Broker, attempt: Attempt) -> None:
    if attempt.until_ms:
        _end(broker, attempt, Result(NO_MAJORITY))
