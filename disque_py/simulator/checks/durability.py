"""Durability: the record of a promise must be safe when the node makes the promise to a client or another node.

Spec P1, P2 and P3 list the output that waits for its record: replies of commands that wrote something, GOTJOB, GOTACK,
YOURJOBS and its answer, and the DELJOB that ends a collection. `JournalStorage` calls `note` with all records that the
journal gets. So the checker knows for each job the position from which on the journal records that it is here, done,
delivered, being handed over or gone. The policy decides which position is safe: `Journal.ready_position`.

The checker looks at replies and frames at the moment when they leave. If everything in a node's memory is recorded,
its frames need no check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cluster_bus.codec import Decoder
from cluster_bus.messages import DELJOB, GOTACK, GOTJOB, GOTMANY, TOOK, YOURJOBS
from disque_py.core.handover import TAKEN, exchange
from disque_py.core.job import ACKED, Handover, Job
from disque_py.core.shared_copies import split_ids
from disque_py.simulator.oracle import RuleBrokenError
from disque_py.simulator.world.codecs import NEW, PREVIOUS
from persistence.layouts import (
    BASE_STATE_AT,
    ID_AT,
    IS_ACKED,
    IS_CANCELED,
    IS_DELIVERED,
    IS_GIVEN,
    SEGMENT_AT,
    STATE_AT,
)
from persistence.records import GONE, JOB, STATE

if TYPE_CHECKING:
    from cluster_bus.node import Node
    from disque_py.simulator.world.machine import Machine
    from persistence.journal import Journal

NOWHERE: Final = -1
SAID: Final = frozenset((GOTJOB, GOTMANY, GOTACK, YOURJOBS, TOOK, DELJOB))


class Noted:
    """The positions behind a job's records in the journal; NOWHERE if there is no such record.

    base        the latest record that the job is here
    first       the first record that it was here; statements about that time may be repeated when it has come again
    acked       the first record that it is done
    canceled    the first record that it is canceled
    delivered   the first record that a consumer got it
    given       the first record that it is being handed over, of the current hand-over
    is_gone     the job is not here any more
    gone        the first record that it was not here any more; it may have come again
    left        the segments whose base of the job has a GONE
    """

    __slots__ = ("acked", "base", "canceled", "delivered", "first", "given", "gone", "is_gone", "left")

    def __init__(self, position: int) -> None:
        self.base = self.first = position
        self.acked = self.canceled = self.delivered = self.given = self.gone = NOWHERE
        self.is_gone = False
        self.left: dict[int, None] = {}

    def come_again(self, position: int) -> None:
        """Note another base of the same id. Statements about the base before may still be in flight."""
        if self.is_gone:
            self.base = position
            self.delivered = self.given = NOWHERE
            self.is_gone = False

    def go(self, position: int, segment: int, *, is_here: bool) -> None:
        """Note that the job is not here any more.

        A rewrite repeats the GONE of an earlier base. If the job `is_here`, its base follows behind it. Then the job is
        not gone, and its records stay as they are.
        """
        if is_here and segment in self.left:
            return
        self.left[segment] = None
        self.is_gone = True
        if self.gone == NOWHERE:
            self.gone = position

    def take(self, flags: int, position: int) -> None:
        """Note the flags of a record."""
        if flags & IS_ACKED and self.acked == NOWHERE:
            self.acked = position
        if flags & IS_CANCELED and self.canceled == NOWHERE:
            self.canceled = position
        if flags & IS_DELIVERED and self.delivered == NOWHERE:
            self.delivered = position
        if not flags & IS_GIVEN:
            self.given = NOWHERE
        elif self.given == NOWHERE:
            self.given = position


class DurabilityChecker:
    """The checker of one run of a machine with a journal."""

    def __init__(self, machine: Machine, journal: Journal) -> None:
        self._machine = machine
        self._journal = journal
        self._decoder = Decoder(versions=(PREVIOUS, NEW))
        self._noted: dict[bytes, Noted] = {}
        # The first and the last position of records that were made while the disk had a fault.
        self._unwaited = (1, 0)
        for shard in machine.broker.shards:
            for job in shard.values():
                noted = self._noted[job.id] = Noted(0)
                noted.acked = 0 if job.state == ACKED else NOWHERE
                noted.delivered = 0 if job.is_delivered else NOWHERE
                noted.given = 0 if isinstance(job.work, Handover) else NOWHERE

    def note(self, runs: list[list[Any]], position: int) -> None:
        """Note records that the journal got. They end at `position`."""
        known = self._noted
        if not self._journal.must_wait():
            start, end = self._unwaited
            self._unwaited = position if self._journal.ready_position() >= end else start, position
        for run in runs:
            kind = run[0]
            if kind == STATE:
                for item in run[1:]:
                    known[item[ID_AT]].take(item[STATE_AT][0], position)
            elif kind == JOB:
                for item in run[1:]:
                    noted = known.get(item[ID_AT])
                    if noted is None:
                        noted = known[item[ID_AT]] = Noted(position)
                    noted.come_again(position)
                    noted.take(item[BASE_STATE_AT][0], position)
            elif kind == GONE:
                here = {item[ID_AT] for bases in runs if bases[0] == JOB for item in bases[1:]}
                for item in run[1:]:
                    job_id = item[ID_AT]
                    if job_id in known:
                        known[job_id].go(position, item[SEGMENT_AT], is_here=job_id in here)

    def flushing(self) -> None:
        """Note that the node is about to forget all jobs, and to start its journal again."""
        for noted in self._noted.values():
            noted.is_gone = True

    def is_kept(self, job_id: bytes) -> bool:
        """Return whether the job is on this disk, as safely as the policy promises."""
        noted = self._noted.get(job_id)
        return noted is not None and noted.base <= self._journal.ready_position()

    # -- to clients ----------------------------------------------------------------------------------

    def check_added(self, job_id: bytes, copies: int) -> None:
        """Check a reply to ADDJOB: this node's copy is safe, or there are enough others and it was not counted.

        The job may also be done by then, and another node may know that.
        """
        if not self.is_kept(job_id):
            machine = self._machine
            others = [other for other in machine.world.machines.values() if other is not machine]
            if any(_knows_done(other, job_id) for other in others):
                return
            if sum(_has(other, job_id) for other in others) < max(1, copies):
                self._check_here(job_id, "the answer to an ADDJOB")

    def check_acked(self, job_id: bytes, what: str = "the answer to an ACKJOB") -> None:
        """Check a statement to a client or node that the job is done."""
        noted = self._noted.get(job_id)
        job = self._machine.broker.find(job_id)
        # The job may be gone with its ack, and the recorded ack may be a later one.
        said = [at for at in (noted.acked, noted.gone) if at != NOWHERE] if noted is not None else []
        if job is None:
            if noted is not None and noted.gone != NOWHERE:
                self._check(job_id, min(said), what)
        elif job.state == ACKED:
            self._check(job_id, min(said, default=NOWHERE), what)

    def check_delivered(self, job_id: bytes) -> None:
        """Check the reply with which a consumer gets a job."""
        noted = self._noted.get(job_id)
        job = self._machine.broker.find(job_id)
        if job is None or job.is_delivered:
            if noted is not None and not noted.is_gone:
                self._check(job_id, noted.delivered, "a delivery")

    # -- to nodes ------------------------------------------------------------------------------------

    def check_frame(self, node: Node, frame: bytes) -> None:
        """Check a frame that leaves."""
        journal = self._journal
        if journal.ready_position() >= journal.position or not journal.must_wait():
            return
        for runs in self._decoder.feed(frame):
            for kind, *items in runs:
                if kind in SAID:
                    for item in items:
                        self._check_said(node, kind, item)

    def _check_said(self, node: Node, kind: int, item: Any) -> None:
        if kind == GOTJOB:
            self._check_here(item if isinstance(item, bytes) else item[0], "GOTJOB")
        elif kind == GOTMANY:
            for job_id in split_ids(item):
                self._check_here(job_id, "GOTMANY")
        elif kind == GOTACK:
            if (item[1] or item[2]) and not self._was_held_for_a_moment(item[0]):
                self.check_acked(item[0], "GOTACK")
        elif kind == DELJOB:
            noted = self._noted.get(item[0])
            if item[1] and noted is not None and noted.gone != NOWHERE:
                # The ack or cancellation is enough: after a restart the node collects again. The end on disk may be a
                # later one, because the same ack may have come and gone again since.
                said = [at for at in (noted.acked, noted.canceled, noted.gone) if at != NOWHERE]
                self._check(item[0], min(said), "DELJOB")
        elif kind == YOURJOBS:
            # The job may have a later hand-over to another node by now, and each node has its own numbers.
            for snapshot in item[2]:
                job = self._machine.broker.find(snapshot[0]) if snapshot is not None else None
                work = job.work if job is not None else None
                if job is not None and isinstance(work, Handover) and work.node is node and work.number == item[0]:
                    noted = self._noted.get(job.id)
                    self._check(job.id, NOWHERE if noted is None else noted.given, "YOURJOBS")
        else:
            for job, answer in zip(self._offered(node, item[0], item[1]), item[1], strict=False):
                if answer == TAKEN and job is not None:
                    self._check_here(job.id, "the answer to YOURJOBS")

    def _was_held_for_a_moment(self, job_id: bytes) -> bool:
        """Return whether an ack came and went within one turn, or had no room (acks.py, `_hold_ack`).

        It has no record; recorded acks are later ones.
        """
        noted = self._noted.get(job_id)
        return (
            noted is not None
            and noted.base > self._journal.ready_position()
            and job_id in self._machine.broker.tombstones
        )

    def _offered(self, node: Node, number: int, answers: bytes) -> list[Job | None]:
        """Return the jobs of a hand-over that the giving node still has."""
        giver = self._machine.world.machines.get(node.host)
        if giver is None or not giver.is_up or exchange(node).answers.get(number) != answers:
            return []
        us = giver.broker.cluster.find(self._machine.membership.table.me.id)
        batch = exchange(us).pending.get(number) if us is not None and us.core is not None else None
        return batch.jobs if batch is not None else []

    def _had_failure(self) -> bool:
        journal_storage = self._machine.journal_storage
        return journal_storage is not None and journal_storage.had_failure

    # -- the rule ------------------------------------------------------------------------------------

    def _check_here(self, job_id: bytes, what: str) -> None:
        """Check a statement that the job is here, or was here at that time.

        Since then the job may be done and forgotten, and its ack may have come again.
        """
        noted = self._noted.get(job_id)
        if noted is not None:
            self._check(job_id, noted.first, what)
        else:
            job = self._machine.broker.find(job_id)
            if job is not None and not job.place:
                self._check(job_id, NOWHERE, what)

    def _check(self, job_id: bytes, position: int, what: str) -> None:
        journal = self._journal
        ready = journal.ready_position()
        if position == NOWHERE or position > ready:
            if self._unwaited[0] <= position <= self._unwaited[1] and self._had_failure():
                return  # Decisions made during a disk fault wait for no record, even behind output that does.
            if not journal.must_wait():
                journal_storage = self._machine.journal_storage
                if journal_storage is not None and journal_storage.is_excused():
                    return  # Commands that are allowed during a disk fault need no disk (spec P5).
                raise RuleBrokenError(
                    "a disk without faults is well", f"{self._machine.name}: {journal.refusal_reason}", job_id
                )
            recorded = "not recorded" if position == NOWHERE else f"recorded up to {position}, ready up to {ready}"
            raise RuleBrokenError(
                "no promise before its record", f"{what} of {job_id!r} by {self._machine.name}, {recorded}", job_id
            )


def _has(machine: Machine, job_id: bytes) -> bool:
    """Return whether a node has a copy, or had one when it was last awake."""
    journal_storage = machine.journal_storage
    if not machine.is_up or machine.broker.is_loading:
        return True
    if journal_storage is None or journal_storage.durability is None:
        return machine.broker.find(job_id) is not None
    return journal_storage.durability.is_kept(job_id)


def _knows_done(machine: Machine, job_id: bytes) -> bool:
    """Return whether a node has the record of a done job."""
    job = machine.broker.find(job_id) if machine.is_up else None
    return job is not None and job.state == ACKED
