"""Leases and acks, compared with deliveries: during a lease and after an ack, no consumer gets the job again.

Three rules look at each delivery, and only at the nodes and links that it concerns:

* A holder that was told of a lease does not deliver the job a second time, while the lease runs, its node lives, and
  that node's links to the other holders are whole. A node whose copy was deleted meanwhile, because the creator had
  given the job up, knows of no lease. It may get the job again from a holder that the deletion has not reached. The
  same holds after an ack, for a holder that the node did not know.
* A node does not deliver a job after its ack, if it was linked to the node that answered the ACKJOB, and that node had
  known it as a holder for a second. A node that has forgotten its jobs is no holder until it is named again.
* A node that comes back with a journal asks before it queues jobs whose leases ran out meanwhile. If a holder that it
  names knows of the ack and is linked in time, the job is not delivered again.

Each exception is narrow. It concerns one job (a NACK or ENQUEUE is under way), one node (it was stopped, or its disk
had a fault), one link (a frame was lost, stuck or late), or the moment when a node lost its knowledge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cluster_bus.messages import DELJOB, GOTACK, HOLDERS, LEFT, SETACK
from cluster_bus.node import ID_BYTES
from disque_py.core.ids import is_retried_id
from disque_py.core.job import ACKED
from disque_py.core.lifecycle import WILLQUEUE_LEAD_MS
from disque_py.core.restoring import ASK_AFTER_MS
from disque_py.simulator.checks.cluster_invariants import jobs_of, may_have_died
from disque_py.simulator.oracle import Oracle, Promise, RuleBrokenError

if TYPE_CHECKING:
    from disque_py.simulator.checks.cluster_invariants import Losses
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

# The time in which a reply waits for a disk without faults, and for the turns around it.
TURNS_MS: Final = 200
# After this time, messages that were in transit when a lease began have arrived.
SETTLED_MS: Final = 1_000
# Clocks drift by half a percent at most.
DRIFT_SHARE: Final = 100
# Time for a question, its answer, and the disks of both nodes.
HEARD_MS: Final = 1_000
# Messages that name holders to a node, and the position of the set.
NAMING: Final = {GOTACK: 1, HOLDERS: 1, LEFT: 3, SETACK: 1}


class Lease:
    """The last delivery of a job that a consumer saw.

    told       the ids of the holders that heard of it; not of a node that had no copy, and could not note it
    is_deleted whether the delivering node was told since to delete its copy, whatever its state
    """

    __slots__ = ("is_deleted", "left_ms", "machine", "run", "seen_ms", "told")

    def __init__(self, machine: Machine, told: list[bytes], seen_ms: int, left_ms: int) -> None:
        self.machine = machine
        self.told = told
        self.run = machine.runs
        self.seen_ms = seen_ms
        self.left_ms = left_ms
        self.is_deleted = False


class Return:
    """A job that a node has alive when it comes back, and that others know to be done."""

    __slots__ = ("knowers", "loaded_ms")

    def __init__(self, loaded_ms: int, knowers: list[tuple[Machine, int]]) -> None:
        self.loaded_ms = loaded_ms
        self.knowers = knowers


class Leases:
    """The checker of leases and acks.

    running   the last delivery of each job
    returns   by node, run and job
    named     (node, job, id of a holder) -> when the node heard of this new holder, from itself or after the ack
    """

    def __init__(self, world: World, oracle: Oracle, losses: Losses) -> None:
        self._world = world
        self._oracle = oracle
        self._losses = losses
        self.running: dict[bytes, Lease] = {}
        self.returns: dict[tuple[str, int, bytes], Return] = {}
        self.named: dict[tuple[str, bytes, bytes], int] = {}

    def hear(self, sender: str, receiver: str, runs: list[list[Any]]) -> None:
        """Note deleted copies and new holders, in messages that a node will read.

        A holder is new if the node does not know it for a job that it knows to be done. HOLDERS comes from a node that
        got the job a moment ago, perhaps for the second time, after it had forgotten its jobs. It may come before the
        ack. A node that has forgotten the job may keep its ack again, because of a SETACK.
        """
        broker = self._world.machines[receiver].broker
        taker = self._world.machines[sender].membership.table.me.id
        for run in runs:
            at = NAMING.get(run[0])
            if at is None:
                if run[0] == DELJOB:
                    self._hear_deletions(receiver, run)
                continue
            for item in run[1:]:
                job = broker.find(item[0])
                is_heard = run[0] == SETACK if job is None else job.state == ACKED or run[0] == HOLDERS
                if not is_heard:
                    continue
                holders = () if job is None else job.holders
                known = [node.id for node in holders if run[0] != HOLDERS or node.id != taker]
                for start in range(0, len(item[at]), ID_BYTES):
                    node_id = item[at][start : start + ID_BYTES]
                    if node_id not in known:
                        self.named[receiver, item[0], node_id] = self._world.now_ms

    def _hear_deletions(self, receiver: str, run: list[Any]) -> None:
        for item in run[1:]:
            lease = self.running.get(item[0])
            if item[1] is None and lease is not None and lease.machine.name == receiver:
                lease.is_deleted = True

    def delivered(self, machine: Machine, entries: list[Any]) -> None:
        """Check and note jobs that a consumer got. Raises RuleBrokenError."""
        for entry in entries:
            job_id = entry[1]
            promise = self._oracle.by_id.get(job_id)
            if promise is None or not is_retried_id(job_id):
                continue
            if promise.ack_answered_ms and not promise.is_deleted and promise.loose == 0:
                self._check_heard(machine, promise)
                self._check_return(machine, promise)
            lease = self.running.get(job_id)
            if lease is not None and promise.loose == 0:
                self._check_lease(machine, promise, lease)
            self.running[job_id] = Lease(
                machine, self._told(machine, job_id), self._world.now_ms, _left_ms(entry, promise)
            )

    def _told(self, machine: Machine, job_id: bytes) -> list[bytes]:
        without = [other.membership.table.me.id for other in self._world.running() if other.broker.find(job_id) is None]
        return [node_id for node_id in holder_ids(machine, job_id) if node_id not in without]

    # -- leases ------------------------------------------------------------------------------------

    def _check_lease(self, machine: Machine, promise: Promise, lease: Lease) -> None:
        world = self._world
        passed_ms = world.now_ms - lease.seen_ms
        race_ms = TURNS_MS + 2 * world.traffic.delay_ms[1]
        if not race_ms < passed_ms < lease.left_ms - lease.left_ms // DRIFT_SHARE - TURNS_MS:
            return
        if machine is lease.machine and (lease.is_deleted or self._has_unknown_holder(promise, lease)):
            return  # A holder that the deletion or the ack had not reached gave the job to this node (spec C2, A8).
        if machine is not lease.machine and machine.membership.table.me.id not in lease.told:
            return  # A holder gave the job to this node, and the leasing node does not know that (spec L2).
        if may_have_died(promise, world.now_ms):
            return  # The leasing node has forgotten the job. A message that waited for a disk may bring it back.
        since_ms = lease.seen_ms - SETTLED_MS
        if promise.freed_ms > since_ms or self._losses.mishap_ms > since_ms or lease.machine.runs != lease.run:
            return
        holders = [other for other in world.running() if other is machine or other.broker.find(promise.id) is not None]
        if is_well(lease.machine, since_ms) and all(
            self._is_whole(lease.machine, other, since_ms) for other in holders
        ):
            raise RuleBrokenError(
                "no second delivery during a lease",
                f"{promise}: by {lease.machine.name}, and {passed_ms} ms later, of {lease.left_ms}, by {machine.name}",
                promise.id,
            )

    def _has_unknown_holder(self, promise: Promise, lease: Lease) -> bool:
        """Return whether the leasing node did not know a holder when the lease began, and the job was acked since.

        The holder may have been forgotten, and have come back. The ack then ends the copies that the node knows.
        """
        return promise.ack_answered_ms > lease.seen_ms and any(
            other is not lease.machine
            and other.membership.table.me.id not in lease.told
            and other.broker.find(promise.id) is not None
            for other in self._world.running()
        )

    def _is_whole(self, one: Machine, other: Machine, since_ms: int) -> bool:
        """Return whether the other node, and the link to it, have had no fault since this moment."""
        if one is other:
            return True
        return is_well(other, since_ms) and self._world.network.whole_since_ms(one, other) < since_ms

    # -- acks --------------------------------------------------------------------------------------

    def _check_heard(self, machine: Machine, promise: Promise) -> None:
        knower, now_ms = promise.acked_at, self._world.now_ms
        if knower is None or knower.runs != promise.acked_run or not knower.is_up or knower is machine:
            return
        since_ms = now_ms - HEARD_MS
        job = knower.broker.find(promise.id)
        if job is None or job.state != ACKED or machine.membership.table.me.id not in [node.id for node in job.holders]:
            return
        named_ms = self.named.get((knower.name, promise.id, machine.membership.table.me.id), 0)
        forgot_ms = self._losses.forgot_ms.get(machine.name, 0)
        if forgot_ms > max(promise.added_ms, named_ms):
            return  # It got the job again, and has forgotten the ack. The knower has yet to hear that it has the job.
        if max(promise.ack_answered_ms, promise.freed_ms, named_ms) > since_ms or not is_well(knower, since_ms):
            return
        if self._is_whole(knower, machine, since_ms):
            raise RuleBrokenError(
                "an ack reaches linked holders",
                f"{promise}: acknowledged on {knower.name}, and {now_ms - promise.ack_answered_ms} ms later"
                f" delivered by {machine.name}",
                promise.id,
            )

    def loaded(self, machine: Machine) -> None:
        """Note the jobs that a node has after it has read its journal."""
        by_id = self._oracle.by_id
        for job in jobs_of(machine.broker):
            promise = by_id.get(job.id)
            if promise is None or not promise.ack_answered_ms or not job.retry_ms or job.state == ACKED:
                continue
            knowers = []
            for other in self._world.running():
                known = other.broker.find(job.id) if other is not machine else None
                if known is not None and known.state != ACKED:
                    break
                if known is not None and other.membership.table.me.id in [node.id for node in job.holders]:
                    knowers.append((other, other.runs))
            else:
                if knowers and not self._losses.may_come_back(job.id):
                    self.returns[machine.name, machine.runs, job.id] = Return(self._world.now_ms, knowers)

    def _check_return(self, machine: Machine, promise: Promise) -> None:
        back = self.returns.get((machine.name, machine.runs, promise.id))
        if back is None or promise.freed_ms > back.loaded_ms or not is_well(machine, back.loaded_ms):
            return
        asked_ms = back.loaded_ms + ASK_AFTER_MS - WILLQUEUE_LEAD_MS - TURNS_MS
        for knower, run in back.knowers:
            known = knower.broker.find(promise.id) if knower.is_up and knower.runs == run else None
            if known is not None and known.state == ACKED and is_well(knower, back.loaded_ms):
                if self._is_whole(machine, knower, asked_ms):
                    raise RuleBrokenError(
                        "a node that comes back asks first",
                        f"{promise}: {knower.name} knows that it is done, and {machine.name} delivered it",
                        promise.id,
                    )


def holder_ids(machine: Machine, job_id: bytes) -> list[bytes]:
    """Return the ids of the holders of the job that this node knows; empty if it doesn't have the job."""
    job = machine.broker.find(job_id)
    return [] if job is None else [node.id for node in job.holders]


def is_well(machine: Machine, since_ms: int) -> bool:
    """Return whether a node has run without a stop and without a disk fault since this moment."""
    journal_storage, event_logs = machine.journal_storage, machine.event_logs
    return (
        machine.is_up
        and not machine.is_stopped
        and max(machine.stopped_ms, machine.continued_ms) < since_ms
        and (journal_storage is None or journal_storage.health.is_well(since_ms))
        and (event_logs is None or event_logs.health.is_well(since_ms))
    )


def _left_ms(entry: list[Any], promise: Promise) -> int:
    """Return how long the lease runs: the time in the reply, or else the job's RETRY."""
    if b"lease-ms" in entry:
        left_ms: int = entry[entry.index(b"lease-ms") + 1]
        return left_ms
    return promise.retry_ms
