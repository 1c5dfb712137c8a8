"""Checks of acks: a collection ends when all holders know the ack, and the job does not come back after that.

DELJOB with a set says that every node that may have the job has confirmed the ack (spec A3, A10). So when a node
deletes a job because of DELJOB, the job may be alive on no node. The rule applies to every job that was added after the
last *mishap*: a node died, or was flushed, reset or forgotten. Such a node may have known holders that no other node
knew. The mishap lasts as long as a running node is forgotten. Such a node counts as confirmed, and may give copies to
nodes that no other node knows to be holders.

A node that deleted a job remembers that it is done. So does a node that was asked as a holder and had no copy. A copy
that arrives there late must not become alive.

A node that leaves asks the other holders before it drops its copy (LEFT, LEFT_OK). It keeps the last copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cluster_bus.messages import DELJOB, LEFT, LEFT_OK, PAUSE, REPLJOB, REPLMANY, SETACK, YOURJOBS
from disque_py.core.job import ACKED, WAIT_REPL, Job
from disque_py.core.replication import TIMED
from disque_py.core.shared_copies import split_ids
from disque_py.simulator.checks.cluster_invariants import may_have_died
from disque_py.simulator.checks.pauses import Pauses
from disque_py.simulator.checks.repairs import RepairChecker
from disque_py.simulator.oracle import Oracle, RuleBrokenError

if TYPE_CHECKING:
    from disque_py.simulator.checks.cluster_invariants import Losses
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

# A job whose TTL is nearly over may end on some node first.
TTL_MARGIN_MS: Final = 60_000
# The new copy may have been taken this long before.
TAKEN_MS_MAX: Final = 2_000


class CollectionChecker:
    """The checker of acks. It hears the messages that nodes read.

    repairs   the checker of replaced copies

    leaving   id -> when a holder was first asked whether a copy may be dropped
    heard   (node, run, id) -> when this process last confirmed as a holder that the job is done, or deleted it
    """

    def __init__(self, world: World, oracle: Oracle, losses: Losses, node_timeout_ms: int) -> None:
        self._world = world
        self._oracle = oracle
        self._losses = losses
        self._remembered_ms = node_timeout_ms
        self._evicted = self._evicted_ms = 0
        self.pauses = Pauses(world)
        self.repairs = RepairChecker(world, oracle, losses)
        self.leaving: dict[bytes, int] = {}
        self.heard: dict[tuple[str, int, bytes], int] = {}

    def hear(self, sender: str, receiver: str, runs: list[list[Any]]) -> None:
        """Check messages that are about to be read (`Traffic.tap`). Their effect is seen a moment later."""
        machine = self._world.machines[receiver]
        if not machine.broker.is_loading:
            self.repairs.hear(self._world.machines[sender], machine, runs)
        for kind, *items in runs:
            if kind == REPLJOB:
                self._hear_copies(machine, items)
            if kind == LEFT:
                self._hear_leaver(items)
            elif machine.broker.is_loading:
                continue  # The receiver ignores the message.
            elif kind == PAUSE:
                self.pauses.heard(machine, items)
            elif kind in (DELJOB, SETACK, LEFT_OK):
                self._hear_end(machine, kind, items)
            else:
                for job_id in _jobs_in(kind, items):
                    self._come(machine, job_id)

    def _hear_copies(self, machine: Machine, items: list[Any]) -> None:
        """Note copies that replace lost ones."""
        for item in items:
            if item[1] == TIMED:
                self._world.later(0, self.repairs.copied, machine, item[0][0])

    def _hear_leaver(self, items: list[Any]) -> None:
        """Note that a holder asks whether its copy may be dropped."""
        for item in items:
            self.leaving.setdefault(item[0], self._world.now_ms)
            if not item[2]:
                self.repairs.gave_up(item[0])

    def _hear_end(self, machine: Machine, kind: int, items: list[Any]) -> None:
        """Look at the node again when it has read that jobs are over, or that it may drop its copies."""
        for item in items:
            if kind == DELJOB:
                if item[1] and machine.broker.find(item[0]) is not None:
                    self._world.later(0, self._deleted, machine, machine.runs, item[0])
            elif kind == SETACK:
                if machine.membership.table.me.id in item[1]:
                    self._world.later(0, self._asked, machine, machine.runs, item[0])
            elif _is_alive(machine.broker.find(item[0])):
                self._world.later(0, self._left, machine, machine.runs, item[0])

    def _deleted(self, machine: Machine, run: int, job_id: bytes) -> None:
        if machine.runs != run or not machine.is_up or machine.broker.find(job_id) is not None:
            return
        self.heard[machine.name, run, job_id] = self._world.now_ms
        promise = self._oracle.by_id.get(job_id)
        if promise is None or promise.added_ms <= self._losses.mishap_ms or promise.is_deleted:
            return
        if may_have_died(promise, self._world.now_ms):
            return  # A node whose clock is ahead forgot the job and its holders. Others keep it a moment longer.
        if not promise.answered_ms or promise.asked is None:
            # The creator may have given the job up and forgotten its holders. Holders whose copy was named by its key
            # (asked: None) keep it then, and each of them knows only the holders that it was told of.
            return
        if promise.added_ms <= self._last_eviction_ms():
            return  # A node short of memory (spec M3) drops acks, and with them their lists of holders.
        if job_id in self.leaving:
            return  # Sets of holders may lack a leaver before it drops its copy, and it may keep the copy after all.
        for other in self._world.running():
            if _is_alive(other.broker.find(job_id)) and not self._is_torn():
                raise RuleBrokenError(
                    "a collection ends when all know",
                    f"{machine.name} deleted {promise}, but {other.name} has it alive",
                    job_id,
                )

    def _last_eviction_ms(self) -> int:
        """Return when it was last noticed that a node had dropped jobs because it was short of memory."""
        evicted = sum(machine.count("jobs_evicted") for machine in self._world.machines.values())
        if evicted != self._evicted:
            self._evicted, self._evicted_ms = evicted, self._world.now_ms
        return self._evicted_ms

    def _is_torn(self) -> bool:
        """Return whether a node was told to forget another running node, and has not met it again."""
        running = self._world.running()
        present = [machine.membership.table.me.id for machine in running]
        return any(
            node_id in machine.forgot and machine.membership.table.find(node_id) is None
            for machine in running
            for node_id in present
        )

    def _asked(self, machine: Machine, run: int, job_id: bytes) -> None:
        if machine.runs == run and machine.is_up and not _is_alive(machine.broker.find(job_id)):
            self.heard[machine.name, run, job_id] = self._world.now_ms

    def _left(self, machine: Machine, run: int, job_id: bytes) -> None:
        if machine.runs != run or not machine.is_up or machine.broker.find(job_id) is not None:
            return
        promise = self._oracle.by_id.get(job_id)
        if promise is None or promise.acked_ms or self._losses.may_come_back(job_id):
            return
        if self._losses.mishap_ms > self.leaving.get(job_id, self._world.now_ms) - TAKEN_MS_MAX:
            return  # The mishap may have hit the copy that was to replace this one.
        if promise.added_ms + promise.ttl_ms - promise.early_ms < self._world.now_ms + TTL_MARGIN_MS:
            return
        if not any(other.broker.find(job_id) is not None for other in self._world.running()):
            raise RuleBrokenError(
                "a leaver keeps the last copy", f"{machine.name} dropped {promise}, but no other node has it", job_id
            )

    def _come(self, machine: Machine, job_id: bytes) -> None:
        at_ms = self.heard.get((machine.name, machine.runs, job_id))
        if at_ms is not None and at_ms > self._losses.mishap_ms and self._is_fresh(at_ms):
            self._world.later(0, self._came, machine, machine.runs, job_id)

    def _is_fresh(self, at_ms: int) -> bool:
        return self._world.now_ms - at_ms < self._remembered_ms

    def _came(self, machine: Machine, run: int, job_id: bytes) -> None:
        if machine.runs == run and machine.is_up and _is_alive(machine.broker.find(job_id)):
            raise RuleBrokenError(
                "what is done is remembered", f"{job_id!r} came late to {machine.name} and lives there", job_id
            )


def _is_alive(job: Job | None) -> bool:
    return job is not None and bool(job.retry_ms) and job.state not in (ACKED, WAIT_REPL)


def _jobs_in(kind: int, items: list[Any]) -> list[bytes]:
    """Return the ids of the jobs that messages bring to their receiver."""
    if kind == REPLJOB:
        return [item[0][0] for item in items]
    if kind == REPLMANY:
        return [job_id for item in items for job_id in split_ids(item[0])]
    if kind == YOURJOBS:  # A snapshot is None if the body did not come back from disk in time.
        return [snapshot[0] for item in items for snapshot in item[2] if snapshot is not None]
    return []
