"""Fetchers: consumers that name their replies, to get them again: GETJOB … TOKEN, LEASE, WITHMETA, WITHLEASE.

A *fetcher* sends a request, and repeats it with the same token as if the reply had been lost. It extends, gives back
and acknowledges jobs by token. A repeated reply must agree with the node's memory: it must have all jobs that are
still leased under the token, in the order of the first reply, and no others (docs/commands.md, GETJOB). Every new
reply is checked for order (priority, creation time, id), for the metadata that producers gave, and for leases of the
requested length. It must never have an at-most-once job.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from disque_py.core.ids import is_retried_id
from disque_py.core.job import ACTIVE
from disque_py.core.restoring import ASK_AFTER_MS
from disque_py.simulator.clients.connection import words
from disque_py.simulator.clients.workload import Actor, Line
from disque_py.simulator.oracle import Promise, RuleBrokenError

if TYPE_CHECKING:
    from disque_py.simulator.clients.keyed_producers import KeyBook
    from disque_py.simulator.oracle import Oracle
    from disque_py.simulator.plan import ClientPlan, Plan
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

LEASES_S: Final = (0, 1, 2, 4)
COUNTS: Final = (1, 3, 10, 40)
TIMEOUTS_MS: Final = (20, 300, 2_000)
SLEEPY_SHARE: Final = 0.2
SLEEP_MS_MAX: Final = 4_000
# Indexes in an entry: queue, id, body, then names and values in the order of the options.
META_AT: Final = 4
LEASE_AT: Final = 6
ATTEMPT_AT: Final = 8
# A lease that was read from the journal lasts until the questions to other holders, each a moment later.
RESTORED_LEASE_MS_MAX: Final = ASK_AFTER_MS + 1_000


class Batch:
    """One reply under a token, and the node's knowledge of its jobs at that time.

    attempts   numbers of the deliveries, by id, in the order of the reply
    lease_ms   the requested lease; 0: each job's RETRY
    is_old     the token may be unknown again: its jobs were given back or acknowledged, or the node was restarted
    is_unheard requested, and no reply yet: a client doesn't acknowledge jobs of a reply that it doesn't have
    was_lost   a reply was lost, so the node may know of a delivery that the client doesn't know
    is_recorded the node's next process will know it: the node has a journal, and could write it at that time
    """

    __slots__ = (
        "attempts", "is_old", "is_recorded", "is_unheard", "lease_ms", "machine", "promises", "run", "token",
        "was_lost",
    )  # fmt: skip

    def __init__(self, machine: Machine, token: bytes, lease_ms: int) -> None:
        self.machine = machine
        self.run = machine.runs
        self.token = token
        self.lease_ms = lease_ms
        self.attempts: dict[bytes, int] = {}
        self.promises: list[Promise] = []
        self.is_old = self.is_unheard = self.is_recorded = self.was_lost = False

    def held(self) -> list[bytes]:
        """Return the ids that are still leased by this delivery, according to the node's memory."""
        broker = self.machine.broker
        held = []
        for job_id, attempt in self.attempts.items():
            job = broker.find(job_id)
            if job is not None and job.state == ACTIVE and job.is_leased_here and job.attempt == attempt:
                if job.requeue_at_ms > broker.now_ms:
                    held.append(job_id)
        return held


class Ending(NamedTuple):
    """An ACKTOKEN, NACKTOKEN or EXTENDTOKEN under way: the batch, and how many of its jobs were leased then."""

    batch: Batch
    promises: list[Promise]
    most: int


class Fetcher(Actor):
    """A consumer with tokens."""

    book: KeyBook

    def __init__(self, world: World, oracle: Oracle, plan: Plan, client: ClientPlan) -> None:
        super().__init__(world, oracle, plan, client)
        self.batch: Batch | None = None
        self._count = 0

    def act(self) -> int:
        """Fetch, repeat, or end what was fetched."""
        rng = self.rng
        line = self.free_line(0.03)
        if isinstance(line, int):
            return line
        batch = self.batch
        if batch is not None and (batch.machine is not line.machine or rng.random() < 0.05):
            batch = self.batch = None  # Forget the batch. Its leases end by themselves.
        if batch is not None and batch.promises and not batch.is_unheard and rng.random() < SLEEPY_SHARE:
            return rng.randrange(SLEEP_MS_MAX)  # Longer than most leases, so that others may get the jobs meanwhile.
        if batch is None:
            self._count += 1
            token = b"t%d-%d" % (self.number, self._count)
            self._fetch(line, Batch(line.machine, token, rng.choice(LEASES_S) * 1000))
        elif not batch.promises or batch.is_unheard or rng.random() < 0.4:
            self._fetch(line, batch)
        else:
            self._end(line, batch)
        return 1 + int(rng.expovariate(self.load / 40))

    def on_lost(self, line: Line) -> None:
        """Note a lost connection: the fetcher will repeat its request."""

    def _fetch(self, line: Line, batch: Batch) -> None:
        rng = self.rng
        self.batch = batch
        batch.was_lost |= batch.is_unheard
        batch.is_unheard = True
        queues = self.some_queues(3)
        how: list[str | int | bytes] = ["TIMEOUT", rng.choice(TIMEOUTS_MS), "COUNT", rng.choice(COUNTS)]
        how += ["LEASE", batch.lease_ms // 1000] if batch.lease_ms else []
        request = words("GETJOB", *how, "WITHMETA", "WITHLEASE", "TOKEN", batch.token, "FROM", *queues)
        line.ask([(request, self._got, batch)], self.travel())

    def _got(self, reply: Any, batch: Batch) -> None:
        batch.is_unheard = False
        if not isinstance(reply, list):
            if reply is None and batch.attempts and batch.run == batch.machine.runs and batch.held():
                raise RuleBrokenError(
                    "a token answers again", f"{batch.token!r}: nothing, but {batch.held()} are leased"
                )
            return
        ids = [entry[1] for entry in reply]
        # A process that has forgotten the token may deliver the same jobs again, as if their leases were over. If it
        # has forgotten the delivery, too, the new delivery has the same number.
        may_know = batch.run == batch.machine.runs or batch.is_recorded
        if may_know and any(batch.attempts.get(entry[1]) == entry[ATTEMPT_AT] for entry in reply):
            check_repeated(batch, ids)
            check_attempts(batch, reply)
            return
        if batch.attempts and batch.run == batch.machine.runs and batch.held():
            raise RuleBrokenError(
                "a token answers again", f"{batch.token!r}: not the {len(batch.held())} jobs that are leased", *ids
            )
        if batch.attempts and batch.run == batch.machine.runs and not batch.was_lost:
            self._check_new(reply, batch)
        self._deliver(reply, batch)

    def _check_new(self, reply: list[list[Any]], batch: Batch) -> None:
        """Check new deliveries under a known token: the lease of each must begin now."""
        for entry in reply:
            promise = self.oracle.by_id.get(entry[1])
            if promise is not None and entry[LEASE_AT] < (batch.lease_ms or promise.retry_ms):
                raise RuleBrokenError(
                    "a token answers for its own deliveries",
                    f"{batch.token!r}: attempt {entry[ATTEMPT_AT]}, of which {entry[LEASE_AT]} ms are left",
                    entry[1],
                )

    def _deliver(self, reply: list[list[Any]], batch: Batch) -> None:
        """Check and note a first reply, or a repeated one whose first reply was lost."""
        machine, now_ms = batch.machine, self.world.now_ms
        lease_ms_max = 0 if batch.run == machine.runs else RESTORED_LEASE_MS_MAX
        batch.run = machine.runs
        batch.was_lost = False
        batch.is_recorded = machine.journal_storage is not None and not machine.broker.journal.disk_level
        batch.attempts = {entry[1]: entry[ATTEMPT_AT] for entry in reply}
        batch.promises = [self.oracle.deliver(entry[0], entry[1], entry[2], now_ms) for entry in reply]
        machine.check_delivered(reply, 0, list(batch.attempts.values()))
        for entry, promise in zip(reply, batch.promises, strict=True):
            self._check_entry(entry, promise, batch, lease_ms_max)
        check_order(machine, reply)

    def _check_entry(self, entry: list[Any], promise: Promise, batch: Batch, lease_ms_max: int = 0) -> None:
        job_id = entry[1]
        if not is_retried_id(job_id):
            raise RuleBrokenError("tokens pass at-most-once jobs by", f"{promise} under {batch.token!r}", job_id)
        label = self.book.labels.get(promise.number)
        if entry[META_AT] != (label.meta if label is not None else []):
            raise RuleBrokenError("jobs arrive as they were added", f"{promise} has {entry[META_AT]}", job_id)
        priority = None if label is None or promise.is_reordered else label.priority
        job = batch.machine.broker.find(job_id)
        if job is not None and priority not in (None, job.priority):
            raise RuleBrokenError("jobs arrive as they were added", f"{promise} has priority {job.priority}", job_id)
        asked_ms = max(batch.lease_ms or promise.retry_ms, lease_ms_max)
        if not 0 < entry[LEASE_AT] <= asked_ms or entry[ATTEMPT_AT] < 1:
            raise RuleBrokenError(
                "a lease is as long as asked for", f"{promise}: {entry[LEASE_AT]} instead of {asked_ms} ms", job_id
            )

    def _end(self, line: Line, batch: Batch) -> None:
        rng = self.rng
        dice = rng.random()
        if dice < 0.6:
            for promise in batch.promises:
                self.oracle.acknowledging(promise, self.world.now_ms)
            line.ask([(words("ACKTOKEN", batch.token), self._acknowledged, self._end_of(batch))], self.travel())
            self.batch = None
            return
        for promise in batch.promises:
            self.oracle.freeing(promise)
        if dice < 0.75:
            line.ask([(words("NACKTOKEN", batch.token), self._freed, self._end_of(batch))], self.travel())
            self.batch = None
        else:
            span_s = rng.choice((1, 2, 4))
            line.ask([(words("EXTENDTOKEN", batch.token, span_s), self._freed, self._end_of(batch))], self.travel())

    def _end_of(self, batch: Batch) -> Ending:
        broker = batch.machine.broker
        most = len(batch.attempts) if broker.is_loading else len(batch.held())
        return Ending(batch, list(batch.promises), most)

    def _counted(self, reply: Any, end: Ending) -> None:
        if isinstance(reply, int) and not 0 <= reply <= end.most:
            raise RuleBrokenError("tokens are counted", f"{reply} of {end.most} under {end.batch.token!r}")

    def _freed(self, reply: Any, end: Ending) -> None:
        self._counted(reply, end)
        for promise in end.promises:
            self.oracle.freed(promise, self.world.now_ms)

    def _acknowledged(self, reply: Any, end: Ending) -> None:
        self._counted(reply, end)
        batch = end.batch
        if reply == len(batch.attempts):
            batch.machine.check_acked(list(batch.attempts))
            for promise in batch.promises:
                self.oracle.acknowledged(promise, self.world.now_ms, batch.machine)


def check_repeated(batch: Batch, ids: list[bytes]) -> None:
    """Check a repeated reply: the jobs of the first one that are still leased, in its order. Raises RuleBrokenError."""
    order = {job_id: at for at, job_id in enumerate(batch.attempts)}
    places = [order.get(job_id, -1) for job_id in ids]
    if -1 in places or any(later <= earlier for earlier, later in pairwise(places)):
        raise RuleBrokenError("a token answers again", f"{batch.token!r}: places {places} of the first reply", *ids)
    if batch.run == batch.machine.runs:
        missing = [job_id for job_id in batch.held() if job_id not in ids]
        if missing:
            raise RuleBrokenError("a token answers again", f"{batch.token!r}: {missing} are still leased", *missing)


def check_attempts(batch: Batch, entries: list[list[Any]]) -> None:
    """Check that a token answers with its own deliveries, not with later ones of the same jobs; RuleBrokenError."""
    for entry in entries:
        if entry[ATTEMPT_AT] != batch.attempts[entry[1]]:
            raise RuleBrokenError(
                "a token answers for its own deliveries",
                f"{batch.token!r}: attempt {entry[ATTEMPT_AT]}, not {batch.attempts[entry[1]]}",
                entry[1],
            )


def check_order(machine: Machine, entries: list[list[Any]]) -> None:
    """Check the order of each queue's jobs: priority, creation time, id. Raises RuleBrokenError."""
    latest: dict[bytes, tuple[int, int, bytes]] = {}
    for queue, job_id, *_ in entries:
        job = machine.broker.find(job_id)
        if job is None:
            continue
        place = job.priority, job.ctime, job_id
        if place < latest.get(queue, place):
            raise RuleBrokenError(
                "a queue is in order", f"{queue!r} of {machine.name}: {latest[queue]} before {place}", job_id
            )
        latest[queue] = place
