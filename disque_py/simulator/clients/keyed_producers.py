"""Keyed producers, which give their jobs keys, priorities and metadata, and the rules for the replies.

Only the first ADDJOB with a queue and a key makes a job. All others get its id as the reply, at any node, even when
the job is over, until the end of its TTL (docs/commands.md, ADDJOB). `KeyBook` checks the replies. Two ids for one key
break a rule if all nodes were linked and there was no fault from the first request to the last reply. As long as no
node forgets jobs, an at-most-once job never gets a second id, whatever links are cut: such an ADDJOB is refused.

The body of a delivered job shows which request made it, as for any other job (oracle.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.core.job import WAIT_REPL
from disque_py.core.keys import KEY_AT, KEY_END
from disque_py.simulator.clients.connection import Request, words
from disque_py.simulator.clients.workload import BODIES, OUTSTANDING_MAX, RECONNECT_MS, Actor
from disque_py.simulator.oracle import Promise, RuleBrokenError
from persistence.journal import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Callable

    from disque_py.simulator.oracle import Oracle
    from disque_py.simulator.plan import Plan
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

KEYS: Final = 40
RETRIES_S: Final = (0, 1, 2, 4)
PRIORITIES: Final = (-5, 0, 3, 1 << 40, 1_700_000_000_500)
META: Final = (("carrier", "UA"), ("tail", "N14228"), ("dest", "IAH"), ("\xff", ""))
# A TTL that ends soon frees its key soon. In this time before the end, keys are not checked.
TTL_SLACK_MS: Final = 2_500
# Faults that make no node forget a job or leave. With the journal policy `always`, the second row keeps jobs, too,
# unless the policy is changed.
KEEPING: Final = frozenset(
    (
        "stop", "hiccup", "hang-up", "one-way", "halves", "ring", "bridge", "alone", "shift", "delay", "jump",
        "reload", "rewrite", "policy", "events-off", "events-limit", "events-disk",
    )
)  # fmt: skip
KEEPING_WITH_JOURNAL: Final = frozenset(("kill", "fuse", "power", "restart", "upgrade"))


class Label:
    """The options of a job's ADDJOB, besides those that every job has.

    meta      names and values, as GETJOB shows them
    copies    the requested copies; 0: at most once
    sent_ms, was_settled   when the ADDJOB was sent, and whether there was no fault then
    is_answered   its producer got an id
    """

    __slots__ = ("copies", "is_answered", "key", "meta", "priority", "sent_ms", "was_settled")

    def __init__(self, key: bytes, priority: int | None, meta: list[bytes], copies: int = 1) -> None:
        self.copies = copies
        self.key = key
        self.priority = priority
        self.meta = meta
        self.sent_ms = 0
        self.was_settled = False
        self.is_answered = False


class Use:
    """An id that replies gave for a key.

    promise    the promise of the request that made the job; another request may have had the first reply
    sent_ms    when that request was sent; answered_ms: when a client got this reply
    is_settled there was no fault when that request was sent, nor when this one was sent and got its reply
    """

    __slots__ = ("answered_ms", "is_settled", "job_id", "promise", "sent_ms")

    def __init__(self, job_id: bytes, promise: Promise, sent_ms: int, answered_ms: int, is_settled: bool) -> None:
        self.job_id = job_id
        self.promise = promise
        self.sent_ms = sent_ms
        self.answered_ms = answered_ms
        self.is_settled = is_settled


class KeyBook:
    """The replies about keys.

    labels      by the numbers of promises
    uses        by queue and key
    never_two   no node forgets anything in this plan, so at-most-once jobs must not get a second id
    """

    def __init__(self, world: World, oracle: Oracle, plan: Plan) -> None:
        self.labels: dict[int, Label] = {}
        self.uses: dict[tuple[bytes, bytes], list[Use]] = {}
        self._world = world
        self._oracle = oracle
        self._formed_ms = 0  # When the nodes were first seen to have met. Before that, each is alone.
        self.never_two = not plan.maxmemory and _forgets_nothing(plan)

    def is_settled(self) -> bool:
        """Return whether there is no fault at the moment: all nodes are up and linked, and no fault lasts."""
        if not self._world.is_meshed():
            return False
        self._formed_ms = self._formed_ms or self._world.now_ms
        return not self._oracle.faults

    def answered(self, promise: Promise, job_id: bytes, sent_ms: int, was_settled: bool) -> bool:
        """Check and note the id in the reply to an ADDJOB, and return whether this request made the job.

        Raises RuleBrokenError.
        """
        now_ms = self._world.now_ms
        owner = self._owner_of(promise, job_id)
        self.labels[promise.number].is_answered = True
        if owner is not promise:
            for maker in self._requests_like(promise) if owner is None else [self.labels[owner.number]]:
                sent_ms = min(sent_ms, maker.sent_ms)
                was_settled = was_settled and maker.was_settled
        use = Use(job_id, owner or promise, sent_ms, now_ms, was_settled and self.is_settled())
        uses = self.uses.setdefault((promise.queue, self.labels[promise.number].key), [])
        for known in uses:
            if known.job_id[KEY_AT:KEY_END] != job_id[KEY_AT:KEY_END]:
                raise RuleBrokenError("ids tell their key", f"{known.job_id!r} and {job_id!r}", job_id)
            if known.job_id == job_id:
                return owner is promise
        for known in uses:
            self._check_two(known, use)
        uses.append(use)
        return owner is promise

    def _check_two(self, known: Use, use: Use) -> None:
        """Check whether one key may have these two ids."""
        first = known.promise
        oracle, now_ms = self._oracle, self._world.now_ms
        if now_ms > known.sent_ms + first.ttl_ms - first.early_ms - first.ttl_ms // 100 - TTL_SLACK_MS:
            return  # Its TTL may be over (perhaps by the wall clock of a node that was down), and its key free.
        since_ms = min(known.sent_ms, use.sent_ms)
        if known.is_settled and use.is_settled and oracle.unrest_ms < since_ms:
            raise RuleBrokenError(
                "one job per key",
                f"{known.job_id!r} and {use.job_id!r}, though there was no fault",
                known.job_id,
                use.job_id,
            )
        has_met = 0 < self._formed_ms <= since_ms
        if self.never_two and has_met and not first.retry_ms and not use.promise.retry_ms:
            raise RuleBrokenError(
                "one at-most-once job per key", f"{known.job_id!r} and {use.job_id!r}", known.job_id, use.job_id
            )

    def _owner_of(self, promise: Promise, job_id: bytes) -> Promise | None:
        """Return the promise whose request made the job with this id, if a node still has the job."""
        owner = self._oracle.by_id.get(job_id)
        if owner is None:
            body = self._body_of(job_id)
            number = body.partition(b" ")[0]
            if not number.isdigit():
                return None  # The job is over, or its body is on disk and no client will read it.
            owner = self._oracle.promises[int(number)]
        if owner is not promise and not owner.answered_ms:
            # The request's own reply was lost, but another client got the id, so the job exists. If its creator died
            # before the outcome was known, a node with a copy gave the id.
            owner.asked = None
            owner.copies = min(1, owner.copies)
            self._oracle.answered(owner, job_id, self._world.now_ms)
        return owner

    def _requests_like(self, promise: Promise) -> list[Label]:
        """Return the requests for the same key that got no reply. One of them made a job that no node has any more."""
        key, promises = self.labels[promise.number].key, self._oracle.promises
        return [
            label
            for number, label in self.labels.items()
            if label.key == key and not label.is_answered and promises[number].queue == promise.queue
        ]

    def _body_of(self, job_id: bytes) -> bytes:
        for machine in self._world.running():
            job = machine.broker.find(job_id)
            if job is not None and job.state != WAIT_REPL and type(job.body) is bytes and job.body:
                return job.body
        return b""


def _forgets_nothing(plan: Plan) -> bool:
    """Return whether no fault of this plan makes a node forget a job."""
    kinds = {fault.kind for fault in plan.faults}
    journals = plan.journals[: plan.nodes]
    is_safe = bool(journals) and all(policy == ALWAYS for policy in journals) and "policy" not in kinds
    return kinds <= (KEEPING | KEEPING_WITH_JOURNAL if is_safe else KEEPING)


class KeyedProducer(Actor):
    """A producer of jobs with keys, priorities and metadata. It repeats the same jobs, at different nodes."""

    book: KeyBook

    def act(self) -> int:
        """Send some ADDJOBs."""
        rng = self.rng
        if rng.random() < 0.15 and self.line is not None and self.line.is_open:
            self.line.hang_up()
        line = self.reach()
        if line is None:
            return RECONNECT_MS
        if line.outstanding < OUTSTANDING_MAX:
            line.ask([self._addjob(line.machine) for _ in range(rng.choice((1, 1, 2, 6)))], self.travel())
        return 1 + int(rng.expovariate(self.load / 60))

    def pick(self, *, anywhere: bool = True) -> Machine | None:
        """Return any node, because a key is the same on all of them."""
        return super().pick(anywhere=anywhere)

    def _addjob(self, machine: Machine) -> tuple[Request, Callable[[Any, Any], None], Any]:
        rng = self.rng
        number = rng.randrange(KEYS)
        # The key decides RETRY and TTL: jobs of two kinds under one key would prove less.
        retry_s = RETRIES_S[number % len(RETRIES_S)]
        ttl_s = 4 if number % 7 == 0 else 3_600
        queue = self.queues[number % len(self.queues)]
        copies = rng.choice((1, 1, 2, 3)) if retry_s else 0
        key = b"key %d" % number if rng.random() < 0.8 else b""
        priority = rng.choice(PRIORITIES) if rng.random() < 0.5 else None
        meta = [word for pair in rng.sample(META, rng.randrange(3)) for word in pair]
        options: list[str | int | bytes] = ["RETRY", retry_s, "TTL", ttl_s]
        options += ["REPLICATE", copies] if copies else []
        options += ["KEY", key] if key else []
        options += ["PRIORITY", priority] if priority is not None else []
        for at in range(0, len(meta), 2):
            options += ["META", meta[at], meta[at + 1]]
        timeout_ms = rng.choice((0, 300, 2_000))
        promise = self.oracle.add(queue, rng.choice(BODIES), retry_s * 1000, ttl_s * 1000, copies, self.world.now_ms)
        promise.asked = machine
        label = self.book.labels[promise.number] = Label(key, priority, [word.encode() for word in meta], copies)
        label.sent_ms, label.was_settled = self.world.now_ms, self.book.is_settled()
        request = words("ADDJOB", queue, promise.body(), timeout_ms, *options)
        return request, self._answered, promise

    def _answered(self, reply: Any, promise: Promise) -> None:
        if not isinstance(reply, bytes):
            return
        label = self.book.labels[promise.number]
        if label.key and not self.book.answered(promise, reply, label.sent_ms, label.was_settled):
            return
        if promise.answered_ms and promise.id == reply:
            promise.copies = label.copies
            return  # Another request for this key got this reply a moment before.
        self.oracle.answered(promise, reply, self.world.now_ms)
        if promise.asked is not None:
            promise.asked.check_added(reply, promise.copies)
