"""Rules that hold at any moment, checked by a look at all nodes.

`Losses` records mishaps. Each crash without a journal, each reset and each flush takes one copy of every job on the
node. `look` compares these losses with the jobs that exist now. A promised job must exist as long as fewer nodes lost
it than copies were promised. An at-most-once job must exist once; otherwise a crash must explain its loss, or INFO must
count it. The simulation makes this check every few thousand events, after each crash, and at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from disque_py.core.batch_ends import KEPT_MS
from disque_py.core.job import ACKED, WAIT_REPL, Handover, Job
from disque_py.simulator.checks.books import check_books
from disque_py.simulator.checks.in_flight import is_unsafe, unsafe_ms, unseen_jobs, unsent_jobs
from disque_py.simulator.oracle import Oracle, Promise, RuleBrokenError
from disque_py.simulator.world.journal_storage import LOST_MS_MAX

if TYPE_CHECKING:
    from disque_py.core.broker import Broker
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

# Because clocks drift, a TTL may end this much earlier than its producer expects.
TTL_SHARE: Final = 100
# A copy of a job is younger than the job by less than this, the delay of a link.
AGE_MS: Final = 1_000
FOR_EVER_MS: Final = 1 << 60


def jobs_of(broker: Broker) -> Iterator[Job]:
    """Return every job of a node. `check_books` checks the count that saves a look at the shards of an empty one."""
    return chain.from_iterable(map(dict.values, filter(None, broker.shards))) if broker.job_count else iter(())


class Asleep:
    """The knowledge of a machine whose process died. The policy of its journal decides how much of it is on disk.

    ids    ids of jobs -> when they were recorded, or read by this process
    acked  ids of jobs that it knew to be done; their acks may not be on disk
    named  ids of jobs that are over and whose keys it remembers
    safe_ms   the disk has all knowledge up to this moment; FOR_EVER_MS: the disk has everything
    ran_ms    until when the process could sync its journal. A process that was stopped could not
    """

    __slots__ = ("acked", "at_ms", "ids", "may_lose", "named", "ran_ms", "safe_ms")

    def __init__(self, at_ms: int, may_lose: bool) -> None:
        self.at_ms = self.ran_ms = at_ms
        self.may_lose = may_lose
        self.safe_ms = FOR_EVER_MS
        self.ids: dict[bytes, int] = {}
        self.acked: list[bytes] = []
        self.named: list[bytes] = []


class Losses:
    """The record of lost copies.

    asleep      machines that are down, or read their journal -> the jobs that they will know again
    mishap_ms   when a node last lost knowledge, or was forgotten
    settle_ms   a power cut may undo an ack for this long
    amnesia_ms  when a node last forgot its jobs, in memory and on its disk
    aged_ms     when a node last read its journal with a clock that was set forward, so that old records were removed
    forgot_ms   node -> when it forgot its jobs

    While a node is forgotten somewhere, the other holders of a job may make copies of which it never hears. Only the
    node that forgot it can tell it later. `_parted` has the ids of these jobs, by the node that forgot. When that node
    starts again, it can't tell it either: holder sets in a journal have no forgotten nodes. Nor can it if it has given
    its copy away, because it leaves (`_is_apart`).
    """

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        oracle.is_apart = self._is_apart
        self._left: dict[bytes, list[Machine]] = {}
        self._early: dict[bytes, int] = {}
        self._ahead_ms: dict[Machine, int] = {}
        self._set_back: dict[Machine, None] = {}
        self.asleep: dict[Machine, Asleep] = {}
        self.mishap_ms = 0
        self.settle_ms = 0
        self.amnesia_ms = 0
        self.aged_ms = 0
        self.forgot_ms: dict[str, int] = {}
        self._parted: dict[Machine, dict[bytes, None]] = {}

    def died(self, machine: Machine, *, power: bool) -> None:
        """Note that a process is about to lose its memory. With a journal, this is no loss yet."""
        self.mishap(machine)
        journal_storage, oracle = machine.journal_storage, self._oracle
        for job_id in unseen_jobs(machine):
            oracle.explained[job_id] = None  # The node believed that it was delivered, but no client got it.
        if journal_storage is None:
            self.flushing(machine)
        elif journal_storage.is_loaded:
            asleep = self.asleep[machine] = Asleep(machine.world.now_ms, journal_storage.may_lose(power=power))
            if machine.is_stopped or machine.continued_ms > asleep.at_ms - LOST_MS_MAX:
                asleep.ran_ms = machine.stopped_ms
            if is_unsafe(machine):
                asleep.safe_ms = unsafe_ms(machine)
            recorded = journal_storage.recorded
            asleep.ids = {
                job.id: recorded[job.id][1]
                for job in jobs_of(machine.broker)
                if job.state != ACKED and job.id in recorded  # No client was told of a job of this turn.
            }
            asleep.acked = [job.id for job in jobs_of(machine.broker) if job.state == ACKED and job.id in recorded]
            asleep.named = list(machine.broker.producers.keys.over)
        elif power and machine in self.asleep:
            self.asleep[machine].may_lose |= journal_storage.may_lose(power=True)

    def loaded(self, machine: Machine) -> None:
        """Note that a node has read its journal: jobs that the journal lacks are lost."""
        if self._ahead_ms.get(machine, 0) >= KEPT_MS:
            self.aged_ms = machine.world.now_ms
        asleep = self.asleep.pop(machine, None)
        if asleep is None:
            return
        self._part(machine)
        for job in jobs_of(machine.broker):
            promise = self._oracle.by_id.get(job.id)
            if promise is not None and job.state != ACKED:
                promise.clean_ms = 0  # The job is alive again. It may be over at the next look.
        if asleep.may_lose:
            self._forgot(machine)
        # While a process is down, the wall clock decides how much of a TTL has passed (spec T3).
        ahead_ms = self._ahead_ms.get(machine, 0)
        if machine in self._set_back:
            self._oracle.delays_ms = FOR_EVER_MS
        if ahead_ms:
            for job_id in (*asleep.ids, *asleep.acked, *asleep.named):
                self._oracle.may_end_early(job_id, ahead_ms)
        for job_id, recorded_ms in asleep.ids.items():
            promise = self._oracle.by_id.get(job_id)
            if not asleep.may_lose or machine.broker.find(job_id) is not None:
                continue
            self._lose(job_id, promise, is_once=promise is None or not promise.retry_ms)
            age_ms = asleep.ran_ms - recorded_ms
            if (
                machine.journal_storage is not None
                and age_ms > machine.journal_storage.lost_ms_max(asleep.at_ms)
                and is_owed(promise, machine.world.now_ms)
            ):
                raise RuleBrokenError(
                    "everysec loses seconds",
                    f"{promise} was recorded {age_ms} ms before {machine.name} lost it",
                    job_id,
                )

    def mishap(self, machine: Machine) -> None:
        """Note that nodes may no longer know which nodes have which job."""
        self.mishap_ms = machine.world.now_ms

    def forgetting(self, machine: Machine, node_id: bytes) -> None:
        """Note that a node is about to forget another one, a holder of some of its jobs."""
        self.mishap(machine)
        parted = self._parted.setdefault(machine, {})
        for job in jobs_of(machine.broker):
            if any(node.id == node_id for node in job.holders):
                parted[job.id] = None

    def jumped(self, machine: Machine, jump_ms: int) -> None:
        """Note that a wall clock was set."""
        if jump_ms > 0:
            self._ahead_ms[machine] = self._ahead_ms.get(machine, 0) + jump_ms
        else:
            self._set_back[machine] = None

    def flushing(self, machine: Machine) -> None:
        """Note that a node is about to forget all its jobs."""
        self.mishap(machine)
        self._forgot(machine)
        if machine.journal_storage is not None and machine.journal_storage.durability is not None:
            machine.journal_storage.durability.flushing()
        by_id = self._oracle.by_id
        others = [other for other in machine.world.machines.values() if other is not machine and other.is_up]
        for job in jobs_of(machine.broker):
            if self._alone_knows_a_holder(job, others):
                self._oracle.parted[job.id] = None
            if job.state != ACKED:
                self._lose(job.id, by_id.get(job.id), is_once=not job.retry_ms)

    def _alone_knows_a_holder(self, job: Job, others: list[Machine]) -> bool:
        """Return whether other nodes with a job lack a holder that this node's set has.

        A node that was handed the job tells the others when it delivers it, or when it takes its turn (spec RC3).
        """
        mine = {node.id for node in job.holders}
        for other in others:
            copy = other.broker.find(job.id)
            if copy is not None and not mine <= {other.membership.table.me.id, *(node.id for node in copy.holders)}:
                return True
        return False

    def wiped(self, machine: Machine) -> None:
        """Note that the disk of a node that has just died is gone, too."""
        self._forgot(machine)
        asleep = self.asleep.pop(machine, None)
        for job_id in asleep.ids if asleep is not None else ():
            promise = self._oracle.by_id.get(job_id)
            self._lose(job_id, promise, is_once=promise is None or not promise.retry_ms)

    def _forgot(self, machine: Machine) -> None:
        self.amnesia_ms = self.forgot_ms[machine.name] = machine.world.now_ms
        self._part(machine)

    def _part(self, machine: Machine) -> None:
        """Note that a node does not know any more which jobs a node that it forgot has."""
        self._oracle.parted.update(self._parted.pop(machine, {}))

    def _is_apart(self, job_id: bytes) -> bool:
        """Return whether a node that forgot a holder of the job has the job no more."""
        for machine, ids in self._parted.items():
            if job_id in ids and (not machine.is_up or machine.broker.find(job_id) is None):
                return True
        return False

    def _lose(self, job_id: bytes, promise: Promise | None, *, is_once: bool) -> None:
        if is_once:
            self._oracle.explained[job_id] = None
        if promise is not None:
            promise.losses += 1
        else:  # Its producer has no reply yet. The reply may still count the copy.
            self._early[job_id] = self._early.get(job_id, 0) + 1

    def leaving(self, machine: Machine) -> None:
        """Note that a node begins to leave. If all other nodes have a job, the leaving node drops its own copy."""
        for job in jobs_of(machine.broker):
            if job.state != ACKED:
                self._left.setdefault(job.id, []).append(machine)

    def may_come_back(self, job_id: bytes) -> bool:
        """Return whether a node that is down or reads its journal has the job on its disk."""
        return any(job_id in asleep.ids for asleep in self.asleep.values())

    def of(self, promise: Promise) -> int:
        """Return how many copies of a job were lost, and are excused."""
        left = self._left.get(promise.id, ())
        lost = promise.losses + self._early.get(promise.id, 0)
        return lost + sum(machine.count("copies_missing_leaving") > 0 for machine in left)


def is_owed(promise: Promise | None, now_ms: int) -> bool:
    """Return whether a consumer must still get this job, and its TTL can't be over on any node."""
    if promise is None or promise.acked_ms or promise.delivered:
        return False
    return now_ms < promise.added_ms + promise.ttl_ms - promise.ttl_ms // 100 - promise.early_ms


class Found(NamedTuple):
    """The jobs that a look found.

    alive      id of a job that is not done -> the number of nodes that have it, or have it on disk
    once       id of an at-most-once job that may still be delivered -> the number of nodes where it waits
    unsent     ids in messages that leave a node later, even if the jobs end meanwhile
    oldest_ms  all messages that were sent, and records that were made, before this moment have arrived or are safe
    """

    alive: dict[bytes, int]
    once: dict[bytes, int]
    unsent: dict[bytes, None]
    oldest_ms: int


def look(world: World, oracle: Oracle, losses: Losses) -> None:
    """Compare promises with the jobs that exist. Raises RuleBrokenError."""
    found = _find_jobs(world, losses)
    for job_id, count in found.once.items():
        if count > 1:
            raise RuleBrokenError("at most once", f"{job_id!r} waits on {count} nodes", job_id)
    vanished = [promise for promise in list(oracle.open) if _has_vanished(promise, found, world.now_ms, oracle, losses)]
    counted = sum(
        machine.count("once_lost_in_handover") + machine.count("once_lost_in_restart")
        for machine in world.machines.values()
    )
    if len(vanished) > counted:
        raise RuleBrokenError(
            "at-most-once losses are counted",
            f"{len(vanished)} vanished undelivered, INFO counts {counted}: {vanished[0]}",
            *(promise.id for promise in vanished),
        )


def _find_jobs(world: World, losses: Losses) -> Found:
    """Visit all jobs of running nodes and of nodes that are down, and recount the books of running nodes."""
    oldest_ms = min(world.traffic.oldest_ms(), world.now_ms - losses.settle_ms)
    alive: dict[bytes, int] = {}
    once: dict[bytes, int] = {}
    unsent: dict[bytes, None] = {}
    for asleep in losses.asleep.values():
        for job_id in asleep.ids:
            alive[job_id] = alive.get(job_id, 0) + 1
            once.setdefault(job_id, 0)
        for job_id in asleep.acked:
            alive[job_id] = alive.get(job_id, 0) + 1
        # The record that a job is gone may not be on disk, either. Then the job is alive again after the restart.
        oldest_ms = min(oldest_ms, asleep.safe_ms)
        if asleep.may_lose:
            oldest_ms = min(oldest_ms, asleep.at_ms - losses.settle_ms)
    for machine in world.running():
        if machine.broker.is_loading and (machine.journal_storage is None or not machine.journal_storage.is_loaded):
            continue
        check_books(machine)
        for job_id in unseen_jobs(machine):
            once.setdefault(job_id, 0)
            unsent[job_id] = None
        for job_id in unsent_jobs(machine):
            unsent[job_id] = None
        oldest_ms = min(oldest_ms, unsafe_ms(machine))
        for job in jobs_of(machine.broker):
            if job.state == ACKED:
                continue
            alive[job.id] = alive.get(job.id, 0) + 1
            if not job.retry_ms and job.queue and not job.is_delivered:
                is_waiting = job.state != WAIT_REPL and not isinstance(job.work, Handover)
                once[job.id] = once.get(job.id, 0) + is_waiting
    return Found(alive, once, unsent, oldest_ms)


def _has_vanished(promise: Promise, found: Found, now_ms: int, oracle: Oracle, losses: Losses) -> bool:
    """Return whether an at-most-once job is nowhere, and was not delivered. Close a promise that is settled.

    Raises RuleBrokenError if a job with RETRY is nowhere, and fewer copies were lost than were promised.
    """
    is_here = promise.id in found.alive
    if promise.is_deleted and not is_here:
        oracle.close(promise)
    elif promise.ack_answered_ms and not is_here and promise.id not in found.unsent:
        _look_at_end(oracle, promise, now_ms, found.oldest_ms)
    elif promise.acked_ms or may_have_died(promise, now_ms):
        promise.clean_ms = 0
    elif promise.retry_ms:
        promise.clean_ms = 0
        if is_here:
            return False
        if promise.copies and losses.of(promise) < promise.copies:
            raise RuleBrokenError("no job is lost", f"{promise}, {losses.of(promise)} lost: it is nowhere", promise.id)
        oracle.close(promise)
    elif promise.id not in found.once:
        if not promise.delivered and promise.id not in oracle.explained:
            return True
        oracle.close(promise)
    return False


def _look_at_end(oracle: Oracle, promise: Promise, now_ms: int, oldest_ms: int) -> None:
    """Handle a job that is alive on no node. It is over when earlier messages have arrived and records are safe."""
    if not promise.clean_ms:
        promise.clean_ms = now_ms
    elif oldest_ms > promise.clean_ms:
        promise.is_over = True
        oracle.close(promise)


def may_have_died(promise: Promise, now_ms: int) -> bool:
    """Return whether the job's TTL may be over on some node."""
    return now_ms > promise.added_ms + promise.ttl_ms - promise.early_ms - promise.ttl_ms // TTL_SHARE - 100


def is_made(world: World, job: Job, age_ms: int) -> bool:
    """Return whether this job of some node can't be taken back any more, because its ADDJOB has succeeded.

    While a job waits for copies, a node may refuse one, because it knows the key (spec K5) or is short of memory. If
    the creator has given the job up, a DELJOB is on its way to the copies. If its process is gone, the copies are the
    job.

    age_ms   how long ago the ADDJOB began at least
    """
    for creator in world.running():
        broker = creator.broker
        if broker.me.name[:8] != job.id[2:10]:
            continue
        made = broker.find(job.id)
        if made is not None:
            return made.state != WAIT_REPL and not (type(made.work) is Handover and made.work.client is not None)
        is_same_process = broker.now_ms - broker.started_ms > age_ms + AGE_MS
        attributes = job.attributes
        is_open = attributes is not None and attributes.is_open and not job.attempt and not job.is_delivered
        return not (is_same_process and is_open)
    return True
