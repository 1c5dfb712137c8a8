"""Oracle: the requests, replies and deliveries of each job, and the rules that they must keep.

The oracle sees replies as they leave the nodes, and knows nothing about the nodes' memory. It checks rules that can be
checked immediately. Every delivered job was added by a client, with this body and id. An at-most-once job is delivered
at most once. No job is delivered long after its TTL. Ids are unique. Rules that need a look at all nodes are in
cluster_invariants.py.

A body begins with the job's number. From the number, the oracle can check the rest of the body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from disque_py.core.ids import is_retried_id, is_valid_id

if TYPE_CHECKING:
    from disque_py.simulator.world.machine import Machine

# Each node counts a TTL from the receipt of the job. So the time in transit, in queues of frames and in turns, comes
# on top of the TTL.
TTL_SLACK_MS: Final = 2_000
FILLER: Final = bytes(range(256)) * 40
# The fields of each job in a reply of GETJOB: queue, id, body.
JOB_FIELDS: Final = 3
# Without faults, all nodes know of an answered ACKJOB after two messages; the slowest link takes 100 ms.
HEARD_MS: Final = 2_000


class RuleBrokenError(Exception):
    """A rule was broken. `rule` is its name. `words` are ids and names to look for in the transcript."""

    def __init__(self, rule: str, detail: str, *words: object) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule
        self.detail = detail
        self.words = list(words)


class Promise:
    """One ADDJOB.

    answered_ms          when the reply with its id was sent; 0: not yet, or never
    copies               how many copies the reply promised; 0: none (ASYNC, at most once)
    losses               nodes that had it and lost it by a mishap (see cluster_invariants.py)
    acked_ms             when the first ACKJOB, FASTACK or DELJOB for it was sent
    ack_answered_ms      when the first of these was answered
    settled_ack_ms       when the first of these was answered without faults in the cluster
    clean_ms             when a check found it alive on no node; 0: some node has it
    early_ms             how much earlier its TTL may end, because the wall clock of a node that was down jumped
    is_over              every node that had it knows of the ack: it must not come again
    asked                the node that got the ADDJOB; None: the reply was lost, and another user of its key got the id
    is_deleted           it ended by DELJOB or FASTACK, which promise nothing to other nodes
    is_plain             it was also acknowledged without a result
    acked_at, acked_run  the first node that answered an ACKJOB for it, and the run of that node
    limit                ATTEMPTS, the limit for its deliveries; 0: they are not checked
    is_limited           it was added with ATTEMPTS, so it may become errored
    renewed              requests that may have begun a fresh set of attempts
    cancels, nacks       CANCELJOBs and NACKs that were sent for it
    moves                commands that may have moved it to another queue
    is_reordered         a RESCHEDULE that gives it another priority was sent
    elsewhere            NACKs for it at a node that did not deliver it: two nodes may queue it at the same time
    loose                requests that end a lease early (NACK, ENQUEUE …) and were not answered
    freed_ms             when the last of these requests was answered
    origin, fan          in a publication: its first job, whose body all its jobs have; that job's copies by queue
    is_refused           its publication was refused
    replaced_ms          when its producer heard that another job took its place
    """

    __slots__ = (
        "ack_answered_ms",
        "acked_at",
        "acked_ms",
        "acked_run",
        "added_ms",
        "answered_ms",
        "asked",
        "body_bytes",
        "cancels",
        "clean_ms",
        "copies",
        "delivered",
        "early_ms",
        "elsewhere",
        "fan",
        "freed_ms",
        "id",
        "is_deleted",
        "is_limited",
        "is_over",
        "is_plain",
        "is_refused",
        "is_reordered",
        "limit",
        "loose",
        "losses",
        "moves",
        "nacks",
        "number",
        "origin",
        "queue",
        "renewed",
        "replaced_ms",
        "retry_ms",
        "settled_ack_ms",
        "ttl_ms",
    )  # fmt: skip

    def __init__(
        self, number: int, queue: bytes, body_bytes: int, retry_ms: int, ttl_ms: int, copies: int, now_ms: int
    ):
        self.number = number
        self.queue = queue
        self.body_bytes = body_bytes
        self.retry_ms = retry_ms
        self.copies = copies
        self.added_ms = now_ms
        self.ttl_ms = ttl_ms
        self.id = b""
        self.answered_ms = 0
        self.delivered = 0
        self.losses = 0
        self.acked_ms = 0
        self.ack_answered_ms = 0
        self.settled_ack_ms = 0
        self.clean_ms = 0
        self.early_ms = 0
        self.is_over = False
        self.is_deleted = False
        self.is_plain = False
        self.asked: Machine | None = None
        self.acked_at: Machine | None = None
        self.acked_run = 0
        self.loose = 0
        self.freed_ms = 0
        self.limit = 0
        self.is_limited = False
        self.renewed = 0
        self.elsewhere = 0
        self.cancels = 0
        self.nacks = 0
        self.moves = 0
        self.is_reordered = False
        self.origin: Promise | None = None
        self.fan: dict[bytes, Promise] | None = None
        self.is_refused = False
        self.replaced_ms = 0

    def __str__(self) -> str:
        kind = "at-most-once job" if not self.retry_ms else "job"
        return f"{kind} {self.number} {self.id[11:19].decode()} of {self.queue.decode()}, {self.copies} copies promised"

    def body(self) -> bytes:
        """Return the body that was added."""
        head = b"%d " % (self.number if self.origin is None else self.origin.number)
        return head + FILLER[: max(0, self.body_bytes - len(head))]


def _nothing(promise: Promise) -> None:
    """Check nothing, because no client publishes."""


class Oracle:
    """All promises.

    check_delivered   a further check of each delivered job (clients/publishers.py)
    is_settled   there is no fault, so a holder hears immediately that its job is done
    delays_ms    how long some copy may have made no progress: stopped processes, stuck links, disk faults
    explained    ids of at-most-once jobs that may be lost: a mishap, or a reply that no client read
    parted       ids of jobs that may have two sets of holders: a node forgot a holder, and then lost its memory
    is_apart     tells the same of a node that forgot a holder, and has given its copy away
    movable      queues between which an operator moves jobs; empty: no operator does
    moves_under_way   commands that move jobs and that some node may not have begun
    faults       how many faults last at the moment
    unrest_ms    when a fault last began or ended
    aftermath_ms how long links may be broken after that, because nodes notice late
    sides        into how many parts a cut may divide the cluster: at most the number of nodes
    deaths       processes that lost their memory
    delivered, acked, after_ack, duplicates   figures: deliveries, jobs acknowledged (and answered so), deliveries after
                 an answered ACKJOB, deliveries of a job beyond its first
    """

    def __init__(self) -> None:
        self.promises: list[Promise] = []
        self.by_id: dict[bytes, Promise] = {}
        self.open: dict[Promise, None] = {}
        self.is_settled = False
        self.delays_ms = 0
        self.explained: dict[bytes, None] = {}
        self.parted: dict[bytes, None] = {}
        self.is_apart: Callable[[bytes], bool] = lambda job_id: False
        self._early_ms: dict[bytes, int] = {}
        self.faults = 0
        self.unrest_ms = 0
        self.aftermath_ms = 0
        self.sides = 1
        self.deaths = 0
        self.added = 0
        self.delivered = 0
        self.acked = 0
        self.after_ack = 0
        self.duplicates = 0
        self.errors: dict[str, int] = {}
        self.movable: frozenset[bytes] = frozenset()
        self.moves_under_way = 0
        self.check_delivered: Callable[[Promise], None] = _nothing

    def add(self, queue: bytes, body_bytes: int, retry_ms: int, ttl_ms: int, copies: int, now_ms: int) -> Promise:
        """Note that an ADDJOB is about to be sent."""
        promise = Promise(len(self.promises), queue, body_bytes, retry_ms, ttl_ms, copies, now_ms)
        promise.moves = self.moves_under_way
        self.promises.append(promise)
        return promise

    def answered(self, promise: Promise, job_id: bytes, now_ms: int) -> None:
        """Note that an ADDJOB was answered with an id."""
        if promise.answered_ms:
            raise RuleBrokenError("one answer", f"{promise} was answered twice", job_id)
        self._name(promise, job_id)
        promise.answered_ms = now_ms
        self.added += 1
        if not promise.is_over:
            self.open[promise] = None

    def may_end_early(self, job_id: bytes, ahead_ms: int) -> None:
        """Note that a node may end the job this much before its TTL. Its producer may not have the reply yet."""
        promise = self.by_id.get(job_id)
        if promise is None:
            self._early_ms[job_id] = max(self._early_ms.get(job_id, 0), ahead_ms)
        else:
            promise.early_ms = max(promise.early_ms, ahead_ms)

    def _name(self, promise: Promise, job_id: bytes) -> None:
        known = self.by_id.setdefault(job_id, promise)
        promise.early_ms = max(promise.early_ms, self._early_ms.pop(job_id, 0))
        if known is not promise:
            raise RuleBrokenError("ids are unique", f"{known} and {promise} have the id {job_id!r}", job_id)
        if promise.id and promise.id != job_id:
            raise RuleBrokenError("ids are unique", f"{promise} has the ids {promise.id!r} and {job_id!r}", job_id)
        if not promise.id:
            if not is_valid_id(job_id) or is_retried_id(job_id) != bool(promise.retry_ms):
                raise RuleBrokenError("ids tell the truth", f"{job_id!r} for {promise}", job_id)
            promise.id = job_id

    def deliver(self, queue: bytes, job_id: bytes, body: bytes, now_ms: int) -> Promise:
        """Check and note that a consumer got a job."""
        number = body.partition(b" ")[0]
        promise = self.promises[int(number)] if number.isdigit() and int(number) < len(self.promises) else None
        if promise is None:
            raise RuleBrokenError("nothing comes from nowhere", f"{job_id!r} has the body {body[:40]!r}", job_id)
        if promise.fan is not None:
            known = self.by_id.get(job_id)
            promise = promise.fan.get(queue, promise) if known is None else known
        self._name(promise, job_id)
        if promise.replaced_ms and self.is_calm_since(promise):
            late_ms = now_ms - promise.replaced_ms
            raise RuleBrokenError(
                "REPLACE leaves one job", f"{promise} came {late_ms} ms after it was replaced", job_id
            )
        self.check_delivered(promise)
        if (queue != promise.queue and queue not in self.movable) or body != promise.body():
            raise RuleBrokenError("jobs arrive as they were added", f"{promise} came from {queue!r}", job_id)
        self.delivered += 1
        promise.delivered += 1
        if promise.delivered > 1:
            self.duplicates += 1
            if not promise.retry_ms:
                raise RuleBrokenError("at most once", f"{promise} was delivered twice", job_id)
        if promise.limit:
            self._check_attempts(promise)
        if promise.is_over and not promise.is_deleted:
            raise RuleBrokenError("done is done", f"{promise} came again after all nodes knew of its ack", job_id)
        late_ms = now_ms - promise.settled_ack_ms
        if promise.settled_ack_ms and late_ms > HEARD_MS and not promise.is_deleted:
            if job_id not in self.parted and not self.is_apart(job_id):
                raise RuleBrokenError("acks are heard", f"{promise} came {late_ms} ms after its ack", job_id)
        if promise.answered_ms:
            # The request may have waited behind others, and the TTL began before the reply.
            late_ms = now_ms - promise.answered_ms - promise.ttl_ms - promise.ttl_ms // 100
            if late_ms > TTL_SLACK_MS + self.delays_ms:
                raise RuleBrokenError("a TTL is kept", f"{promise} came {late_ms} ms too late", job_id)
        if promise.ack_answered_ms and not promise.is_deleted:
            self.after_ack += 1
        return promise

    def is_calm_since(self, promise: Promise) -> bool:
        """Return whether there was no fault since the job was added."""
        return not self.faults and (not self.unrest_ms or self.unrest_ms + self.aftermath_ms < promise.added_ms)

    def _check_attempts(self, promise: Promise) -> None:
        """Check the number of deliveries. Each side of a cut may use all attempts, each crash forget one. Spec Y4.

        A deletion lets the linked holders forget the deliveries. A holder that has no link yet keeps its copy.
        """
        bound = promise.limit * (1 + promise.renewed + promise.is_deleted) + promise.elsewhere
        if not self.is_calm_since(promise):
            bound = bound * self.sides + self.deaths * self.sides
        if promise.delivered > bound:
            raise RuleBrokenError(
                "attempts are bounded", f"{promise} came {promise.delivered} times; at most {bound}", promise.id
            )

    def unread(self, reply: Any) -> None:
        """Note a reply that no client reads: its jobs left their queues, were not delivered, and may be lost."""
        for job_id in ids_in(reply):
            self.explained[job_id] = None

    def acknowledging(
        self, promise: Promise, now_ms: int, *, is_deletion: bool = False, has_result: bool = False
    ) -> None:
        """Note that an ACKJOB for a job (or with `is_deletion` a FASTACK or DELJOB) is about to be sent."""
        if not promise.acked_ms:
            promise.acked_ms = now_ms
        promise.is_deleted = promise.is_deleted or is_deletion
        promise.is_plain = promise.is_plain or not has_result

    def freeing(self, promise: Promise) -> None:
        """Note that a request that ends a lease of a job early is about to be sent."""
        promise.loose += 1

    def freed(self, promise: Promise, now_ms: int) -> None:
        """Note that such a request was answered."""
        promise.loose -= 1
        promise.freed_ms = now_ms

    def acknowledged(self, promise: Promise, now_ms: int, machine: Machine | None = None) -> None:
        """Note that this node answered the ACKJOB."""
        if self.is_settled and not promise.settled_ack_ms:
            promise.settled_ack_ms = now_ms
        if not promise.ack_answered_ms:
            promise.ack_answered_ms = now_ms
            if machine is not None:
                promise.acked_at, promise.acked_run = machine, machine.runs
            self.acked += 1
            if not promise.is_over:
                self.open[promise] = None

    def failed(self, text: str) -> None:
        """Note that a client got an error."""
        word = text.partition(" ")[0]
        self.errors[word] = self.errors.get(word, 0) + 1

    def close(self, promise: Promise) -> None:
        """Forget a promise: no node has the job, or the promise has ended."""
        self.open.pop(promise, None)


def ids_in(reply: Any) -> Iterator[bytes]:
    """Yield the ids of the jobs in the reply to a GETJOB; no ids for any other reply."""
    for entry in reply if isinstance(reply, list) else ():
        if isinstance(entry, list) and len(entry) >= JOB_FIELDS and isinstance(entry[1], bytes):
            yield entry[1]
