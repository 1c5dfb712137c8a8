"""Claims of deliveries: at any time one running job per value, and fences only grow. Spec EX3, EX5, EX6, EX7.

A worker believes that it has a job from the reply until the end of the lease. It counts the lease from the moment of
its request. So this span is a part of the time in which the node believes the same. The book compares these spans with
each other, in the world's time. Only jobs that were stamped when they were added count.

At each delivery, the book also looks at all nodes for claims of earlier deliveries of the same value. By its own clock,
none of them may believe that its claim still runs, unless its worker has ended the delivery (spec CL8).

An ack under an older fence may not count at the node of the newest delivery, nor at a node that must have heard of that
delivery. A node must have heard of it if it has read all that the deliverer sent on a whole connection, and this
includes the news of the delivery (spec EX6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from disque_py.core.claim_stamps import fence_of
from disque_py.simulator.checks.locks import BELIEVED_SHARE
from disque_py.simulator.oracle import RuleBrokenError

if TYPE_CHECKING:
    from disque_py.simulator.world.machine import Machine

ONE_BELIEVER: Final = "one node believes that it has a claim"
ONE_RUNNING: Final = "a value has one running job"
FENCES_GROW: Final = "fences of deliveries grow"
EXACT_ATTEMPTS: Final = "attempts under quorum are exact"
OLDER_IS_FENCED: Final = "an ack under an older fence does not count"


class Belief(NamedTuple):
    """A worker's belief that its delivery runs, in the world's time."""

    job_id: bytes
    fence: int
    until_ms: int


class Newest(NamedTuple):
    """The newest delivery of a job: its fence, the moment of the reply, and the node that made it, with its run."""

    fence: int
    at_ms: int
    node: str
    run: int


def must_know(job_id: bytes, newest: Newest, machine: Machine, run: int, sent_ms: int) -> bool:
    """Return whether this run of a node has heard of a delivery before a request that was sent to it at `sent_ms`."""
    deliverer = machine.world.machines[newest.node]
    if not (deliverer.is_up and deliverer.runs == newest.run and machine.is_up and machine.runs == run):
        return False
    job = deliverer.broker.find(job_id)
    node = deliverer.broker.cluster.find(machine.node_id)
    if job is None or node not in job.holders or fence_of(job) < newest.fence:
        return False
    pipe = deliverer.pipes.get(node)
    if pipe is None or not pipe.is_open or pipe.was_harmed or pipe.target is not machine:
        return False
    return pipe.made_ms < sent_ms and (not pipe.frames or pipe.frames[0][0] >= sent_ms)


class ClaimBook:
    """The replies that producers and workers got.

    keys       job -> the values under which it must be alone: its META value, its own id
    limits     job -> ATTEMPTS of jobs that the voters count
    beliefs    value -> fence -> the belief of that delivery
    answered   value -> (moment of the reply, fence)
    attempts   job -> numbers of its deliveries
    newest     job -> its newest delivery
    loose      job -> unanswered commands without FENCE that give it back or end it
    loosened   job -> when the last one of these was answered
    deliveries number of deliveries
    """

    def __init__(self) -> None:
        self.keys: dict[bytes, tuple[str, ...]] = {}
        self.limits: dict[bytes, int] = {}
        self.beliefs: dict[str, dict[int, Belief]] = {}
        self.answered: dict[str, list[tuple[int, int]]] = {}
        self.attempts: dict[bytes, dict[int, int]] = {}
        self.newest: dict[bytes, Newest] = {}
        self.loose: dict[bytes, int] = {}
        self.loosened: dict[bytes, int] = {}
        self.deliveries = 0

    def added(self, job_id: bytes, keys: tuple[str, ...], limit: int) -> None:
        """Note that a producer was told of a job with these values."""
        self.keys[job_id] = keys
        if limit:
            self.limits[job_id] = limit

    def delivered(
        self, job_id: bytes, fence: int, attempt: int, lease_ms: int, sent_ms: int, now_ms: int, node: str, run: int
    ) -> None:
        """Check and note that a worker got a job. Raises RuleBrokenError."""
        keys = self.keys.get(job_id)
        if keys is None:
            return
        self.deliveries += 1
        until_ms = sent_ms + int(lease_ms * BELIEVED_SHARE) - 2
        for key in keys:
            answered = self.answered.setdefault(key, [])
            for at_ms, known in answered:
                if at_ms < sent_ms and fence <= known:
                    raise RuleBrokenError(FENCES_GROW, f"{job_id!r} of {key} came with {fence} after {known}")
            answered.append((now_ms, fence))
            del answered[:-50]
            beliefs = self.beliefs.setdefault(key, {})
            if until_ms > now_ms:
                for other in beliefs.values():
                    if other.until_ms > now_ms:
                        raise RuleBrokenError(
                            ONE_RUNNING,
                            f"{key}: {job_id!r} with {fence}, and {other.job_id!r} with {other.fence} for"
                            f" {other.until_ms - now_ms} ms more",
                        )
            if not self.loose.get(job_id) and self.loosened.get(job_id, -1) < sent_ms:
                beliefs[fence] = Belief(job_id, fence, until_ms)
        newest = self.newest.get(job_id)
        if newest is None or newest.fence < fence:
            self.newest[job_id] = Newest(fence, now_ms, node, run)
        limit = self.limits.get(job_id)
        if limit:
            known_attempts = self.attempts.setdefault(job_id, {})
            if attempt > limit or attempt in known_attempts:
                raise RuleBrokenError(EXACT_ATTEMPTS, f"delivery {attempt} of {job_id!r}; at most {limit} are allowed")
            known_attempts[attempt] = fence

    def look_at_nodes(self, job_id: bytes, fence: int, machine: Machine, nodes: list[Machine]) -> None:
        """Check, at a delivery, that no node believes in an earlier claim on the same values. Raises RuleBrokenError.

        A node that heard of a WORKING elsewhere keeps the claim only to know that the value is busy. A reply may have
        waited for a disk until its claim was over, and then a later claim is no second one.
        """
        own = machine.broker.exclusive.running.get(job_id)
        is_over = own is None or own.fence != fence or own.until_ms <= machine.now_ms()
        for key in self.keys.get(job_id, ()):
            for belief in self.beliefs.get(key, {}).values():
                if belief.fence == fence or (belief.fence > fence and is_over):
                    continue
                for other in nodes:
                    running = other.broker.exclusive.running.get(belief.job_id)
                    if running is None or running.fence != belief.fence or running.is_elsewhere:
                        continue
                    left_ms = running.until_ms - other.now_ms()
                    if left_ms > 0:
                        raise RuleBrokenError(
                            ONE_BELIEVER,
                            f"{key}: {machine.name} delivered {job_id!r} with {fence}, and {other.name} has"
                            f" {belief.job_id!r} with {belief.fence} for {left_ms} ms more",
                        )

    def extended(self, job_id: bytes, fence: int, lease_ms: int, sent_ms: int, now_ms: int, *, is_named: bool) -> None:
        """Note that a worker was told that its lease begins anew.

        is_named   the request had a fence. Without one, the node may have extended a later delivery (spec EX6), except
                   while the worker's own lease runs
        """
        for key in self.keys.get(job_id, ()):
            belief = self.beliefs.get(key, {}).get(fence)
            if belief is not None and (is_named or belief.until_ms > now_ms):
                until_ms = max(belief.until_ms, sent_ms + int(lease_ms * BELIEVED_SHARE) - 2)
                self.beliefs[key][fence] = belief._replace(until_ms=until_ms)

    def ending(self, job_id: bytes, fence: int) -> None:
        """Note that a worker is done, and no longer believes that it has the job."""
        for key in self.keys.get(job_id, ()):
            self.beliefs.get(key, {}).pop(fence, None)

    def loosen(self, job_id: bytes) -> None:
        """Note that a worker is about to end its delivery without FENCE, which may end a later one. Spec EX6."""
        self.loose[job_id] = self.loose.get(job_id, 0) + 1
        for key in self.keys.get(job_id, ()):
            beliefs = self.beliefs.get(key, {})
            for fence in [fence for fence, belief in beliefs.items() if belief.job_id == job_id]:
                del beliefs[fence]

    def loosed(self, job_id: bytes, now_ms: int) -> None:
        """Note that this command was answered."""
        self.loose[job_id] -= 1
        self.loosened[job_id] = now_ms

    def is_late(self, job_id: bytes, fence: int, machine: Machine, now_ms: int) -> bool:
        """Return whether a later delivery was answered, and the node must know of it."""
        newest = self.newest.get(job_id)
        if newest is None or newest.fence <= fence or newest.at_ms >= now_ms:
            return False
        return newest.node == machine.name or must_know(job_id, newest, machine, machine.runs, now_ms)

    def acked(self, job_id: bytes, fence: int, sent_ms: int, machine: Machine, run: int) -> None:
        """Note an ack that counted. Raises RuleBrokenError if its node knew of a later claim, or must have known."""
        newest = self.newest.get(job_id)
        if newest is None or newest.fence <= fence or newest.at_ms >= sent_ms:
            return
        if (newest.node, newest.run) == (machine.name, run) or must_know(job_id, newest, machine, run, sent_ms):
            detail = f"{job_id!r} under {fence} at {machine.name}, after {newest.fence} at {newest.node}"
            raise RuleBrokenError(OLDER_IS_FENCED, detail)
