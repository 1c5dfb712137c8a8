"""Locks: at any time at most one owner, and fences only grow. Spec CL1, CL8, CL9, CL10.

An owner believes that it has a lock from the reply until the end of the lease. It counts the lease from the moment of
its request. So this span is a part of the time in which the node believes the same. The book compares these spans with
each other, in the world's time. A fence must be above all fences whose replies came before its request was sent.

Each ACQUIRE whose reply has a new fence uses up one attempt. Voters keep the count for `claim-lease-max` after the
grant, or until the work is done. So within that time the next attempt has a higher number.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from disque_py.simulator.oracle import RuleBrokenError

# A share of the lease: claim-drift-max, plus twice the fastest drift of a simulated clock.
BELIEVED_SHARE: Final = 0.98
ONE_OWNER: Final = "a lock has one owner"
FENCES_GROW: Final = "fences of a lock grow"
DONE_STAYS: Final = "work that is done is not handed out again"
COUNTED: Final = "each time that a lock is handed out counts"
# The shortest time for which voters keep attempts: the shortest `claim-lease-max` of a plan, reduced like leases.
KEPT_MS: Final = 1_900
LIMITED: Final = "a lock is handed out no more often than its owners allow"


class Hold(NamedTuple):
    """An owner's belief that it has a lock, in the world's time."""

    owner: str
    fence: int
    from_ms: int
    until_ms: int


class LockBook:
    """The replies that owners got.

    answered   fences of each lock, as (moment of the reply, fence, owner)
    holds      the last belief of each lock and owner
    done       until when a lock counts as done, and since when
    asked      how often an owner asked for a lock
    attempts   the last attempt of each lock in a reply, as (moment of the reply, fence, number)
    ending     when an owner last asked to end the work under a lock
    """

    def __init__(self) -> None:
        self.answered: dict[str, list[tuple[int, int, str]]] = {}
        self.holds: dict[str, dict[str, Hold]] = {}
        self.done: dict[str, tuple[int, int]] = {}
        self.asked: dict[tuple[str, str], int] = {}
        self.attempts: dict[str, tuple[int, int, int]] = {}
        self.ending: dict[str, int] = {}
        self._given_up: dict[tuple[str, str, int], None] = {}

    def acquired(self, lock: str, owner: str, fence: int, sent_ms: int, now_ms: int, lease_ms: int) -> None:
        """Check and note the reply that an owner has a lock. Raises RuleBrokenError."""
        answered = self.answered.setdefault(lock, [])
        for at_ms, known, whose in answered:
            if at_ms < sent_ms and (fence < known or (fence == known and whose != owner)):
                raise RuleBrokenError(FENCES_GROW, f"{owner} has {lock} with {fence}, after {known} of {whose}")
        answered.append((now_ms, fence, owner))
        since_ms, until_ms = self.done.get(lock, (0, 0))
        if since_ms < sent_ms and now_ms < until_ms:
            raise RuleBrokenError(DONE_STAYS, f"{owner} has {lock}, which is done for {until_ms - now_ms} ms more")
        self.extended(lock, owner, fence, sent_ms, now_ms, lease_ms)

    def extended(self, lock: str, owner: str, fence: int, sent_ms: int, now_ms: int, lease_ms: int) -> None:
        """Check and note the reply that an owner's lease begins anew. Raises RuleBrokenError."""
        if (lock, owner, fence) in self._given_up:
            return  # The lock was released meanwhile.
        until_ms = sent_ms + int(lease_ms * BELIEVED_SHARE) - 2
        holds = self.holds.setdefault(lock, {})
        if until_ms > now_ms:
            for other, hold in holds.items():
                if other != owner and hold.until_ms > now_ms:
                    raise RuleBrokenError(
                        ONE_OWNER, f"{lock}: {owner} with {fence}, and {other} with {hold.fence} for"
                        f" {hold.until_ms - now_ms} ms more",
                    )  # fmt: skip
        holds[owner] = Hold(owner, fence, now_ms, until_ms)

    def spent(self, lock: str, fence: int, attempt: int, sent_ms: int, now_ms: int) -> None:
        """Check and note the number of an attempt under a fence. Raises RuleBrokenError."""
        at_ms, known_fence, known = self.attempts.get(lock, (0, 0, 0))
        is_kept = at_ms < sent_ms and now_ms < at_ms + KEPT_MS and self.ending.get(lock, 0) < at_ms
        if is_kept and known_fence < fence and attempt <= known:
            raise RuleBrokenError(
                COUNTED, f"{lock} with {fence} is attempt {attempt}, after {known} with {known_fence}"
            )
        if fence > known_fence:
            self.attempts[lock] = now_ms, fence, attempt

    def releasing(self, lock: str, owner: str, fence: int, *, now_ms: int = 0, is_done: bool = False) -> None:
        """Note that an owner gives a lock up, and no longer believes that it has it."""
        if is_done:
            self.ending[lock] = now_ms
        self._given_up[lock, owner, fence] = None
        self.holds.get(lock, {}).pop(owner, None)

    def ended(self, lock: str, sent_ms: int, now_ms: int, done_ms: int) -> None:
        """Note the reply that the end of the work is remembered: at the earliest since the request was sent."""
        _, until_ms = self.done.get(lock, (0, 0))
        self.done[lock] = (now_ms, max(until_ms, sent_ms + int(done_ms * BELIEVED_SHARE) - 2))

    def asking(self, lock: str, owner: str) -> None:
        """Note that an owner asks for a lock."""
        self.asked[lock, owner] = self.asked.get((lock, owner), 0) + 1

    def counted(self, lock: str, owner: str, attempt: int, limit: int) -> None:
        """Check the number of an attempt against the limit. Raises RuleBrokenError.

        An earlier request of the owner may have got the lock, with another limit, and lost its reply.
        """
        if limit and attempt > limit and self.asked[lock, owner] == 1:
            raise RuleBrokenError(LIMITED, f"attempt {attempt} of {limit} at {lock}")
