"""Checks of repairs: lost copies are replaced, and the node with the new copy learns of the ack.

`missing` finds a job with too few copies. Without faults, after `repair-after` and the turns of its holders, there must
be none: every job has min(REPLICATE, nodes) copies that exist. Some jobs don't count:

* jobs whose copies vanished without a suspicion: by DEBUG FLUSHALL, CLUSTER RESET, DELJOB, DEBUG LOADAOF or eviction,
  or with a leaving node that found no other node;
* ASYNC jobs, whose copies may never have arrived, and jobs whose ADDJOB was not answered with an id;
* jobs with a holder of an older version. It can't be asked, so its copy counts (spec RC5), and it repairs nothing.

`RepairChecker` notes each copy that a repair made, and the processes that knew its node as a holder at that time. If
one of them still runs and has forgotten the job as done, the copy must not live: its node had to be asked before. So a
repaired copy never puts a job into a queue after all holders knew the ack.

That takes two failures within milliseconds, so hardly any seed shows it. Therefore `hear` checks the moment when a node
ends a collection. A node that it named as a holder must have confirmed to it (spec RC7). For a job that is older than
the node's absence, every linked node must have answered (spec RC8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cluster_bus.messages import DELJOB, GOTACK, SETACK
from cluster_bus.node import FORGOTTEN, LEAVING
from disque_py.core.acks import confirmed_by
from disque_py.core.job import ACKED, ACTIVE, QUEUED, Cancellation, Collection
from disque_py.core.versions import REPAIR
from disque_py.simulator.checks.cluster_invariants import jobs_of, may_have_died
from disque_py.simulator.checks.leases import holder_ids
from disque_py.simulator.oracle import Oracle, Promise, RuleBrokenError

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.simulator.checks.cluster_invariants import Losses
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

# A job with less time to live may not be repaired, or may end during the repair.
LIFE_MS_MIN: Final = 200_000
# The longest time for which such messages are in transit or wait for a disk.
SAID_MS: Final = 3_000
# Messages that may end a collection.
ENDING: Final = frozenset((DELJOB, GOTACK, SETACK))


class Repaired:
    """A copy that a repair made: its node, the processes that knew of it, and `wrong_ms`: when it had to be gone."""

    __slots__ = ("knowers", "machine", "wrong_ms")

    def __init__(self, machine: Machine, knowers: list[tuple[Machine, int]]) -> None:
        self.machine = machine
        self.knowers = knowers
        self.wrong_ms = 0


class RepairChecker:
    """The checker of repaired copies.

    copies    id -> name of the node -> the copy there
    excused   ids of jobs of which a copy vanished without a suspicion
    """

    def __init__(self, world: World, oracle: Oracle, losses: Losses) -> None:
        self._world = world
        self._oracle = oracle
        self._losses = losses
        self.copies: dict[bytes, dict[str, Repaired]] = {}
        self.excused: dict[bytes, None] = {}
        self.count = 0
        self._silent: dict[tuple[str, int, bytes], tuple[list[Node], list[Node]]] = {}
        self._evicted: dict[tuple[str, int, bytes], int] = {}

    def excuse(self, machine: Machine) -> None:
        """Note that a node is about to forget its jobs without being suspected."""
        for job in jobs_of(machine.broker):
            self.excused[job.id] = None

    def gave_up(self, job_id: bytes) -> None:
        """Note that a leaving node dropped its copy, and found no other node for it."""
        self.excused[job_id] = None

    def copied(self, machine: Machine, job_id: bytes) -> None:
        """Note that a repair sent a copy to a node."""
        job = machine.broker.find(job_id) if machine.is_up else None
        if job is None or job.state == ACKED:
            return
        self.count += 1
        knowers = [
            (other, other.runs)
            for other in self._world.running()
            if other is not machine and machine.membership.table.me.id in holder_ids(other, job_id)
        ]
        known = self.copies.setdefault(job_id, {}).get(machine.name)
        if known is None:
            self.copies[job_id][machine.name] = Repaired(machine, knowers)
        else:
            known.knowers += knowers

    def hear(self, sender: Machine, machine: Machine, runs: list[list[Any]]) -> None:
        """Note, from messages that a node will read, which nodes must confirm before it may end a collection."""
        broker = machine.broker
        # These jobs are forgotten in any case, because they were never created. No collection ends.
        aborted = dict.fromkeys([item[0] for run in runs if run[0] == DELJOB for item in run[1:] if item[1] is None])
        for job_id in aborted:
            if machine.event_logs is not None:
                machine.event_logs.forget_version(job_id)
            for silent in self._silent.get((machine.name, machine.runs, job_id), ()):
                silent.clear()
        for run in runs:
            kind = run[0]
            if kind not in ENDING:
                continue
            for item in run[1:]:
                job = broker.find(item[0]) if item[0] not in aborted else None
                if job is None or not job.holders:
                    continue
                said = confirmed_by(job)
                work = job.work
                if isinstance(work, Cancellation) and work.is_over:
                    continue  # The collection has ended. The record stays until the end of the worker's lease.
                # A node that left dropped its copy and is no longer a holder. It says so instead of confirming. A node
                # that is forgotten now isn't waited for, although it may come back a moment later.
                passed = work.passed if isinstance(work, Collection) else ()
                named = [
                    node
                    for node in broker.repairs.named.get(job, ())
                    if node not in said
                    and not node.flags & FORGOTTEN
                    and (node in job.holders or not (node in passed or node.flags & LEAVING))
                ]
                linked: list[Node] = []
                if job.era != broker.era and job.replicate > 1 and isinstance(work, Collection):
                    linked = [node for node in broker.cluster.linked if node not in said and node not in work.passed]
                key = machine.name, machine.runs, job.id
                known = self._silent.get(key)
                if known is None:
                    if not named and not linked:
                        continue
                    known = self._silent[key] = named, linked
                    self._evicted[key] = machine.count("jobs_evicted")
                    self._world.later(0, self._ended, machine, key)
                for silent in known:
                    silent[:] = [node for node in silent if not _is_of(node, sender)]
                if kind == DELJOB:
                    known[1].clear()  # Another node has asked.

    def _ended(self, machine: Machine, key: tuple[str, int, bytes]) -> None:
        """Check a node that has read of an ack while some nodes had not confirmed to it."""
        named, linked = self._silent.pop(key)
        silent = [node for node in named if not node.flags & FORGOTTEN]
        silent += [node for node in linked if node.is_linked]  # Links may have broken since the question.
        _, run, job_id = key
        evicted = self._evicted.pop(key)
        if not silent or machine.runs != run or not machine.is_up or machine.broker.is_loading:
            return
        if machine.count("jobs_evicted") != evicted:
            return  # It may have forgotten the record because it was short of memory.
        if machine.broker.is_leaving:
            return  # It may have passed the ack on to a node that stays, and this one collects it.
        promise = self._oracle.by_id.get(job_id)
        if machine.broker.find(job_id) is not None or promise is None or may_have_died(promise, self._world.now_ms):
            return
        raise RuleBrokenError(
            "a collection waits for copies of repairs",
            f"{machine.name} forgot {promise} as done, but had not heard from {silent[0].host}",
            job_id,
        )

    def look(self) -> None:
        """Compare repaired copies with acks. Raises RuleBrokenError."""
        for job_id, copies in list(self.copies.items()):
            promise = self._oracle.by_id.get(job_id)
            if promise is None or not promise.ack_answered_ms:
                continue
            if promise.is_over or promise.is_deleted or may_have_died(promise, self._world.now_ms):
                del self.copies[job_id]
                continue
            for copy in copies.values():
                self._look_at(promise, copy)

    def _look_at(self, promise: Promise, copy: Repaired) -> None:
        now_ms = self._world.now_ms
        if not self._is_wrong(promise, copy):
            copy.wrong_ms = 0
        elif not copy.wrong_ms:
            copy.wrong_ms = now_ms
        elif now_ms - copy.wrong_ms > SAID_MS and self._world.traffic.oldest_ms() > copy.wrong_ms:
            raise RuleBrokenError(
                "a repaired copy hears of the ack",
                f"{promise}: all others have forgotten it as done, but it lives on {copy.machine.name}",
                promise.id,
            )

    def _is_wrong(self, promise: Promise, copy: Repaired) -> bool:
        machine = copy.machine
        job = machine.broker.find(promise.id) if machine.is_up and not machine.broker.is_loading else None
        if job is None or job.state == ACKED:
            return False
        if any(promise.id in asleep.ids or promise.id in asleep.acked for asleep in self._losses.asleep.values()):
            return False
        up = self._world.running()
        forgotten = {node_id for other in self._world.machines.values() for node_id in other.forgot}
        if machine.membership.table.me.id in forgotten:
            return False
        for other in up:
            known = other.broker.find(promise.id)
            if other.broker.is_loading or (known is not None and other is not machine):
                return False
        return any(
            other.is_up
            and other.runs == run
            and other.membership.table.me.id not in forgotten
            and promise.id not in self.excused
            and not other.count("jobs_evicted")
            for other, run in copy.knowers
        )

    # -- calm weather ------------------------------------------------------------------------------------

    def missing(self) -> str:
        """Return a line about a job that has too few copies without faults; empty if there is none."""
        up = self._world.running()
        if any(machine.count("jobs_evicted") for machine in up):
            return ""
        copies: dict[bytes, int] = {}
        wanted: dict[bytes, int] = {}
        over: dict[bytes, None] = {}
        older = {machine.membership.table.me.id for machine in up if machine.version < REPAIR}
        able = len(up) - len(older)
        for machine in up:
            broker = machine.broker
            for job in jobs_of(broker):
                is_ending = job.state not in (ACTIVE, QUEUED) or job.expire_at_ms - broker.now_ms < LIFE_MS_MIN
                if is_ending or not older.isdisjoint(node.id for node in job.holders):
                    over[job.id] = None
                elif job.retry_ms:
                    copies[job.id] = copies.get(job.id, 0) + 1
                    wanted[job.id] = min(job.replicate, wanted.get(job.id, job.replicate))
        for job_id, count in copies.items():
            promise = self._oracle.by_id.get(job_id)
            if job_id in over or job_id in self.excused or promise is None or promise.is_deleted or promise.acked_ms:
                continue
            if not promise.copies or not promise.answered_ms:
                continue  # Copies of ASYNC jobs may never have arrived. An ADDJOB that failed deletes its copies.
            # A job whose ADDJOB failed may live on a node that got it from a holder. Another request for its key then
            # got the id, and was promised one copy.
            want = wanted[job_id] if promise.asked is not None else promise.copies
            if count < min(want, able):
                return f"{promise} has {count} copies; {want} are wanted, and there are {able} nodes"
        return ""


def _is_of(node: Node, sender: Machine) -> bool:
    """Return whether a message of this machine came from the node, even if a reset has given it a new id since."""
    return node.host == sender.name
