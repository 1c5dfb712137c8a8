"""Waits for the ends of jobs: WAITJOB tells the truth, and never hangs while nodes are linked. Spec RW1 to RW10.

The oracle knows the requests of clients for a job, so it knows which ends a reply may name. An ACKJOB may have
completed the job, and a CANCELJOB may have canceled it. A wait is checked when its reply comes. The reply that a job is
unknown is always checked, faults or not. It is wrong if some node had the job alive from the request to the reply, and
the answering node knew that node all the time, linked or not. Rules that depend on time are checked if there was no
fault since the jobs were added. Then a reply must not name an end without its result while a node has the result.

At the end, new waits without TIMEOUT begin for jobs of all kinds. When all jobs are over, each wait must have a reply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cluster_bus.node import FORGOTTEN, HANDSHAKE
from disque_py.core.ids import is_retried_id
from disque_py.core.job import ACKED
from disque_py.simulator.checks.cluster_invariants import may_have_died
from disque_py.simulator.clients.connection import Connection, words
from disque_py.simulator.clients.workload import Line
from disque_py.simulator.oracle import Oracle, Promise, RuleBrokenError
from disque_py.simulator.world.world import World

if TYPE_CHECKING:
    from disque_py.simulator.liveness_phase import LivenessPhase
    from disque_py.simulator.world.machine import Machine

TRUTH: Final = "WAITJOB tells the truth"
HANGS: Final = "WAITJOB does not hang"
RESULTS: Final = "a job has one result"
# The queue of waiters (clients/waiters.py). Its jobs are acknowledged with a result.
QUEUE: Final = b"w0"
# Messages about ends take time, and at a timeout a node waits half a second for statuses (spec RW8).
HEARD_MS: Final = 1_000
LATE_MS: Final = 3_000
ANSWERED_MS: Final = 5_000
WAITS_PER_NODE: Final = 2
IDS_PER_WAIT: Final = 12
OVER: Final = (b"completed", b"canceled", b"errored", b"expired")
UNKNOWN: Final = b"unknown"


class Asked:
    """One WAITJOB: the request and its time, the known nodes that had the jobs then, and whether all were linked."""

    __slots__ = ("had", "ids", "is_any", "is_meshed", "machine", "run", "sent_ms", "timeout_ms")

    def __init__(self, machine: Machine, ids: list[bytes], timeout_ms: int, *, is_any: bool) -> None:
        self.machine = machine
        self.run = machine.runs
        self.ids = ids
        self.timeout_ms = timeout_ms
        self.is_any = is_any
        self.sent_ms = machine.world.now_ms
        self.is_meshed = machine.world.is_meshed()
        known = [each for each in machine.world.running() if _knows(machine, each)]
        self.had = {job_id: [(each, each.runs) for each in known if _has(each, job_id)] for job_id in ids}

    def has_forgotten(self, other: Machine) -> bool:
        """Return whether the node has forgotten another one since it was asked. It may know the other again."""
        return self.machine.forgot.get(other.membership.table.me.id, -1) >= self.sent_ms

    def request(self) -> list[bytes]:
        """Return the command."""
        options: list[str | int] = ["TIMEOUT", self.timeout_ms] if self.timeout_ms else []
        options += ["ANY"] if self.is_any else []
        return words("WAITJOB", *self.ids, *options)


def _has(machine: Machine, job_id: bytes) -> bool:
    """Return whether a node has the job, and does not know that it is done."""
    if machine.broker.is_loading:
        return False
    job = machine.broker.find(job_id)
    return job is not None and job.state != ACKED


def _knows(machine: Machine, other: Machine) -> bool:
    """Return whether a node counts another one among the nodes that may know a job. Newcomers don't count."""
    node = machine.membership.table.find(other.membership.table.me.id)
    return node is not None and not node.is_newcomer and not node.flags & (HANDSHAKE | FORGOTTEN)


class WaitBook:
    """The ends of jobs in replies to clients.

    results   job -> the results that workers gave it
    given_ms  job -> when the last of these was sent
    told      job -> the result that a client got
    judged    number of ends that were checked
    """

    def __init__(self, world: World, oracle: Oracle, node_timeout_ms: int) -> None:
        self._world = world
        self._oracle = oracle
        self._kept_ms = 2 * node_timeout_ms
        self.results: dict[bytes, dict[bytes, None]] = {}
        self.given_ms: dict[bytes, int] = {}
        self.told: dict[bytes, bytes] = {}
        self.judged = 0

    def finishing(self, job_id: bytes, result: bytes) -> None:
        """Note that a worker is about to acknowledge a job with a result."""
        self.results.setdefault(job_id, {})[result] = None
        self.given_ms[job_id] = self._world.now_ms

    def answered(self, asked: Asked, reply: Any) -> None:
        """Check the reply to a WAITJOB. Raises RuleBrokenError."""
        if not isinstance(reply, list):
            return
        now_ms = self._world.now_ms
        if [entry[0] for entry in reply] != asked.ids:
            raise RuleBrokenError(TRUTH, f"{asked.ids} were asked for, not {reply}")
        is_timely = not asked.timeout_ms or now_ms - asked.sent_ms < asked.timeout_ms * 9 // 10
        over = [entry for entry in reply if entry[1] in OVER or entry[1] == UNKNOWN]
        if is_timely and (not over if asked.is_any else len(over) < len(reply)):
            raise RuleBrokenError(TRUTH, f"a wait ended after {now_ms - asked.sent_ms} ms with {reply}", *asked.ids)
        for job_id, status, result, _ in reply:
            promise = self._oracle.by_id.get(job_id)
            if promise is None:
                continue
            self.judged += 1
            if status == UNKNOWN:
                self._check_unknown(asked, promise, is_sure=is_timely and not asked.is_any)
            elif status in OVER:
                self._check_end(promise, status, result)
                if status == b"completed" and result is None:
                    self._check_bare(asked, promise)
            elif asked.is_meshed and self._is_calm(promise) and 0 < promise.ack_answered_ms < asked.sent_ms - HEARD_MS:
                if not promise.is_deleted and not promise.cancels:
                    raise RuleBrokenError(TRUTH, f"{promise} is {status!r}, but it was acknowledged", job_id)

    def _is_calm(self, promise: Promise) -> bool:
        return self._oracle.is_calm_since(promise)

    def _check_unknown(self, asked: Asked, promise: Promise, *, is_sure: bool) -> None:
        """Check the reply that a job is unknown. At a timeout, a node also gives it if it doesn't know better."""
        if not is_sure or asked.machine.runs != asked.run:
            return
        for machine, run in asked.had[promise.id]:
            is_there = machine.is_up and machine.runs == run and _has(machine, promise.id)
            if is_there and _knows(asked.machine, machine) and not asked.has_forgotten(machine):
                raise RuleBrokenError(TRUTH, f"{promise} is unknown, but {machine.name} has it", promise.id)
        if not asked.is_meshed or not self._is_calm(promise) or promise.is_deleted or not promise.retry_ms:
            return
        # The end of a job is remembered for a while (spec RW5).
        ended_ms = promise.acked_ms or self._world.now_ms
        if self._world.now_ms < ended_ms + self._kept_ms - HEARD_MS and not self._may_have_ended(promise):
            raise RuleBrokenError(TRUTH, f"{promise} is unknown, but existed", promise.id)

    def _may_have_ended(self, promise: Promise) -> bool:
        """Return whether the job may have ended in another way than by an ACKJOB."""
        has_died = may_have_died(promise, self._world.now_ms)
        has_errors = promise.is_limited or promise.nacks
        return bool(promise.cancels or has_errors or promise.is_deleted) or has_died

    def _check_end(self, promise: Promise, status: bytes, result: bytes | None) -> None:
        may_be = {
            b"completed": promise.acked_ms,
            b"canceled": promise.cancels or promise.is_deleted,
            b"errored": promise.is_limited or promise.nacks or not promise.retry_ms,
            b"expired": may_have_died(promise, self._world.now_ms) or not promise.retry_ms,
        }[status]
        if not may_be:
            raise RuleBrokenError(TRUTH, f"the status of {promise} in a reply is {status!r}", promise.id)
        known = self.results.get(promise.id, {})
        if result is not None and result not in known:
            raise RuleBrokenError(RESULTS, f"{promise} has {result!r}, but workers gave {list(known)}", promise.id)
        # Two nodes may get two results at the same moment. Soon both have the same one.
        is_old = self._world.now_ms > self.given_ms.get(promise.id, 0) + HEARD_MS
        if result is not None and is_old and self._is_calm(promise):
            told = self.told.setdefault(promise.id, result)
            if told != result:
                raise RuleBrokenError(
                    RESULTS, f"{promise} has {result!r}, but an earlier reply had {told!r}", promise.id
                )

    def _check_bare(self, asked: Asked, promise: Promise) -> None:
        """Check the reply that a job is completed without a result. Spec RW10."""
        if promise.is_plain or not asked.is_meshed or not self._is_calm(promise):
            return
        for machine in self._world.running():
            kept = machine.broker.results.get(promise.id)
            if kept is not None and _knows(asked.machine, machine):
                raise RuleBrokenError(RESULTS, f"{promise}: the reply lacks {kept!r} of {machine.name}", promise.id)

    def check_waiting(self, asked: Asked) -> None:
        """Check a wait that goes on at a node that lives. Raises RuleBrokenError if it should be over."""
        now_ms = self._world.now_ms
        promises = [self._oracle.by_id[job_id] for job_id in asked.ids]
        since = min(promises, key=_added_ms)
        if asked.machine.is_stopped or not asked.is_meshed or not self._is_calm(since):
            return
        if asked.timeout_ms and now_ms > asked.sent_ms + asked.timeout_ms + LATE_MS:
            raise RuleBrokenError(HANGS, f"the timeout of {asked.timeout_ms} ms ended {LATE_MS} ms ago", *asked.ids)
        over = [0 < promise.ack_answered_ms < now_ms - LATE_MS and not promise.is_deleted for promise in promises]
        if now_ms > asked.sent_ms + LATE_MS and (any(over) if asked.is_any else all(over)):
            raise RuleBrokenError(HANGS, f"{asked.ids} were done {LATE_MS} ms ago", *asked.ids)


def _added_ms(promise: Promise) -> int:
    return promise.added_ms


class Waiter(Connection):
    """A client that waits once, at the end."""

    __slots__ = ("asked", "book", "is_answered")

    def __init__(self, world: World, book: WaitBook) -> None:
        super().__init__(world)
        self.book = book
        self.is_answered = False

    def wait(self, machine: Machine, ids: list[bytes]) -> None:
        """Send the command."""
        self.asked = Asked(machine, ids, 0, is_any=False)
        self.send([self.asked.request()])

    def on_reply(self, reply: Any) -> None:
        """Check the reply."""
        self.is_answered = True
        if isinstance(reply, Exception) and not str(reply).startswith("ERR not while node"):
            raise RuleBrokenError("no odd errors", f"{reply!r} in good weather")
        self.book.answered(self.asked, reply)


class LastWaits:
    """The last waits: they begin before the remaining jobs are drained, and end with them."""

    def __init__(self, phase: LivenessPhase, book: WaitBook) -> None:
        self._phase = phase
        self._book = book
        self._waits: list[Waiter] = []

    def begin(self) -> None:
        """Let clients of each node wait for some remaining jobs, and for some that are over."""
        world, oracle = self._phase.world, self._phase.simulation.oracle
        if self._phase.simulation.targets.has_losses:
            # A vanished answer broke no link, and its node does not ask again while a client waits.
            for connection in list(world.connections):
                if isinstance(connection, Line) and connection.is_patient:
                    connection.hang_up()
        named = [promise.id for promise in oracle.promises if promise.id and promise.retry_ms]
        left = [promise.id for promise in oracle.open if promise.id and promise.retry_ms and not promise.acked_ms]
        rng = world.stream("last waits")
        for machine in world.running():
            for ids in (named, left)[:WAITS_PER_NODE]:
                if ids:
                    wait = Waiter(world, self._book)
                    world.connect(machine, wait)
                    some = rng.sample(ids, min(IDS_PER_WAIT, len(ids)))
                    wait.wait(machine, list(dict.fromkeys(some)))
                    self._waits.append(wait)

    def finish(self) -> None:
        """Check that all waits have ended, including those that began before this phase. Raises RuleBrokenError."""
        self._phase.until(HANGS, ANSWERED_MS, lambda: not self._hanging(), lambda: "; ".join(self._hanging()[:3]))
        for wait in self._waits:
            if wait.is_open:
                wait.hang_up()

    def _hanging(self) -> list[str]:
        by_id = self._phase.simulation.oracle.by_id
        # An at-most-once job that was delivered stays until its TTL.
        return [
            f"{machine.name}: {[str(by_id[job_id]) for job_id in wait.open]}"
            for machine in self._phase.world.running()
            for wait in machine.broker.job_waits.by_client.values()
            if all(is_retried_id(job_id) for job_id in wait.open)
        ]
