"""Batches: the counts of a batch are true, and its callback comes once, after the last of its jobs. Spec BT1 to BT7.

The book records the requests and replies of the producers of each batch. It looks at all nodes, and at the replies of
BATCH SHOW and BATCH WAIT. Counts are checked if there was no fault since the batch began, and at the end.

At the end, every batch is closed and all its jobs are over. A batch whose ids are all over must be done and have a
callback. A batch is *excused* if a node forgot ids since it began. One keeper's record is enough for a reply (spec
BT1), so ids that only this node had recorded are no longer counted. If a job of a batch was lost with all its copies,
the batch is done after the job's TTL (spec BT8). No plan lasts that long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.commands.adding import TTL_DEFAULT_S
from disque_py.core.batch_callbacks import META_BATCH
from disque_py.core.batch_state import CALLBACK_ID, CALLBACK_QUEUE, DONE
from disque_py.core.id_sets import pack_id
from disque_py.core.job import ACKED
from disque_py.core.keys import KEY_AT, KEY_END
from disque_py.simulator.checks.cluster_invariants import is_made, jobs_of, may_have_died
from disque_py.simulator.clients.connection import Connection, words
from disque_py.simulator.oracle import Oracle, Promise, RuleBrokenError
from disque_py.simulator.world.world import World

if TYPE_CHECKING:
    from disque_py.simulator.checks.cluster_invariants import Losses
    from disque_py.simulator.liveness_phase import LivenessPhase
    from disque_py.simulator.world.machine import Machine

COUNTS: Final = "a batch counts what is so"
DONE_AFTER: Final = "a batch is done when its jobs are over"
ONE_CALLBACK: Final = "a batch has one callback"
ENDS: Final = "a batch whose jobs are over is done"
CLOSED: Final = "a closed batch takes no job"
RECORDED: Final = "a producer hears of a job after a keeper"
WAITS: Final = "BATCH WAIT ends with its batch"
# The queue of callbacks. No client of a plan takes them; the liveness phase does.
CALLED: Final = b"called"
# A count is at most one second late (docs/batches.md), on links of up to 100 ms.
LATE_MS: Final = 1_500
# Reports and callbacks are repeated every second. A dead keeper is noticed after the node timeout.
ENDED_MS: Final = 30_000
ANSWERED_MS: Final = 5_000
STEP_MS: Final = 50
LOOK_MS: Final = 50
# Callbacks have the default TTL.
CALLBACK_TTL_MS: Final = 1_000 * TTL_DEFAULT_S
# Clocks drift by half a percent at most.
DRIFT_SHARE: Final = 100
OVER: Final = (b"completed", b"canceled", b"errored", b"expired")


class Known:
    """A batch as its producers know it.

    jobs         jobs that were requested, without refused ones
    refused      jobs that were refused. A copy may have ended before that, or remain where it can't be reached (BT1)
    made_ms      when the first job was requested
    closing_ms   when CLOSE was first sent; 0: never
    closed_ms    when CLOSE was answered; 0: not yet
    callbacks    ids of the callbacks that were seen
    keepers      id of a callback -> node that has it -> its run, and when the callback was seen there
    is_early     the batch was made before all nodes had met
    """

    __slots__ = ("callbacks", "closed_ms", "closing_ms", "is_early", "jobs", "keepers", "made_ms", "name", "refused")

    def __init__(self, name: bytes, now_ms: int, *, is_early: bool) -> None:
        self.name = name
        self.is_early = is_early
        self.jobs: list[Promise] = []
        self.refused: list[Promise] = []
        self.made_ms = now_ms
        self.closing_ms = 0
        self.closed_ms = 0
        self.callbacks: dict[bytes, None] = {}
        self.keepers: dict[bytes, dict[str, tuple[int, int]]] = {}


class BatchBook:
    """All batches of a plan.

    by_name   the batches
    name_of   number of a promise -> its batch
    has_losses   whether frames vanished without a broken connection
    shown     number of replies to BATCH SHOW that were checked
    excused   batches whose counts are not checked -> the reason
    """

    def __init__(self, world: World, oracle: Oracle, losses: Losses) -> None:
        self._world = world
        self._oracle = oracle
        self._losses = losses
        self.has_losses = False
        self.by_name: dict[bytes, Known] = {}
        self.name_of: dict[int, bytes] = {}
        self.shown = 0
        self.excused: dict[bytes, str] = {}
        self._looked_ms = -LOOK_MS

    def open_names(self) -> list[bytes]:
        """Return the names of batches that no client has closed."""
        return [name for name, known in self.by_name.items() if not known.closing_ms]

    def adding(self, name: bytes, promise: Promise) -> None:
        """Note that an ADDJOB with BATCH is about to be sent."""
        known = self.by_name.get(name)
        if known is None:
            known = self.by_name[name] = Known(name, self._world.now_ms, is_early=not self._world.is_meshed())
        known.jobs.append(promise)
        self.name_of[promise.number] = name

    def refused(self, promise: Promise) -> None:
        """Note that an ADDJOB was answered with an error, so it adds no job."""
        known = self.by_name[self.name_of[promise.number]]
        known.jobs.remove(promise)
        known.refused.append(promise)

    def added(self, promise: Promise) -> None:
        """Note that an ADDJOB was answered with an id. Raises RuleBrokenError if the batch was closed before."""
        known = self.by_name[self.name_of[promise.number]]
        if 0 < known.closed_ms < promise.added_ms and self._is_calm(known):
            raise RuleBrokenError(CLOSED, f"{promise} was added to {known.name!r}, closed before", promise.id)
        if self._losses.amnesia_ms < promise.added_ms and not self._is_recorded(known.name, promise.id):
            raise RuleBrokenError(RECORDED, f"{promise} of {known.name!r} was answered", promise.id)

    def _is_recorded(self, name: bytes, job_id: bytes) -> bool:
        """Return whether a node has recorded a job of a batch, or may have (it is down, or reads its journal)."""
        key = pack_id(job_id)
        assert key is not None
        for machine in self._world.machines.values():
            if not machine.is_up or machine.broker.is_loading:
                return True
            batch = machine.broker.batches.by_name.get(name)
            if batch is not None and any(part.status_of(key) is not None for part in batch.parts.values()):
                return True
        return False

    def closing(self, name: bytes) -> None:
        """Note that a CLOSE is about to be sent."""
        known = self.by_name[name]
        known.closing_ms = known.closing_ms or self._world.now_ms

    def closed(self, name: bytes) -> None:
        """Note that a CLOSE was answered."""
        known = self.by_name[name]
        known.closed_ms = known.closed_ms or self._world.now_ms

    def look(self) -> None:
        """Look at the batches and the callbacks of all nodes, if no one did so just now. Raises RuleBrokenError."""
        now_ms = self._world.now_ms
        if now_ms < self._looked_ms + LOOK_MS:
            return
        self._looked_ms = now_ms
        for machine in self._world.running():
            for name, batch in machine.broker.batches.by_name.items():
                known = self.by_name.get(name)
                if known is not None and batch.fields.get(DONE):
                    self._check_done(known, f"done on {machine.name}")
            for job in jobs_of(machine.broker):
                if job.meta and job.terms.queue == CALLED and job.meta[0] == META_BATCH:
                    succeeded = is_made(self._world, job, _age_ms(job.id, machine))
                    self.called_back(job.meta[1], job.id, machine, is_made=succeeded)

    def called_back(self, name: bytes, job_id: bytes, machine: Machine, *, is_made: bool = True) -> None:
        """Note a callback of a batch on a node. Raises RuleBrokenError if it comes too early, or is a second one.

        is_made   whether it exists for certain; if not, it does not count yet
        """
        known = self.by_name.get(name)
        if known is None:
            return
        keepers = known.keepers.setdefault(job_id, {})
        if machine.name not in keepers or keepers[machine.name][0] != machine.runs:
            keepers[machine.name] = (machine.runs, self._world.now_ms)
        if job_id in known.callbacks or not is_made:
            return
        known.callbacks[job_id] = None
        self._check_done(known, "it has a callback")
        if len(known.callbacks) > 1 and (self._is_calm(known) or self._is_findable(known, job_id)):
            raise RuleBrokenError(ONE_CALLBACK, f"{name!r} has {list(known.callbacks)}", *known.callbacks)

    def _is_findable(self, known: Known, new: bytes) -> bool:
        """Return whether a node had an earlier callback when the new one was begun, and was linked to every other node.

        The maker of the new one needs no link to itself.

        If the maker of a callback died and another node makes the callback again, it asks all linked nodes for its key
        first (spec K2). Two makers that can't ask each other may both make it (spec K7), even if another node is linked
        to both. A batch that began on two sides of a partition has two keys until the nodes agree (spec BT4).
        """
        world = self._world
        begun_ms = world.now_ms - max([_age_ms(new, machine) for machine in world.running()])
        for job_id in known.callbacks:
            if job_id[KEY_AT:KEY_END] != new[KEY_AT:KEY_END]:
                continue
            for name, (runs, since_ms) in known.keepers.get(job_id, {}).items():
                keeper = world.machines[name]
                if job_id == new or not keeper.is_up or keeper.is_stopped or keeper.runs != runs:
                    continue
                if since_ms >= begun_ms:
                    continue
                job = keeper.broker.find(job_id)
                is_maker = keeper.broker.me.name[:8] == new[2:10]
                others = [] if is_maker else [machine for machine in world.running() if machine is not keeper]
                if (
                    job is not None
                    and job.state != ACKED
                    and all(world.network.whole_since_ms(keeper, other) < since_ms for other in others)
                ):
                    return True
        return False

    def _is_calm(self, known: Known) -> bool:
        """Return whether there was no fault since the batch began."""
        return bool(known.jobs) and not known.is_early and self._oracle.is_calm_since(known.jobs[0])

    def _check_done(self, known: Known, how: str) -> None:
        """Check that all jobs that were added before the CLOSE are over."""
        if not self._is_calm(known):
            return
        if not known.closing_ms:
            raise RuleBrokenError(DONE_AFTER, f"{known.name!r}: {how}, but it was not closed")
        for promise in known.jobs:
            if 0 < promise.answered_ms < known.closing_ms and not self._may_be_over(promise):
                raise RuleBrokenError(DONE_AFTER, f"{known.name!r}: {how}, but {promise} is not over", promise.id)

    def _may_be_over(self, promise: Promise) -> bool:
        """Return whether a client sent a request that may have ended the job, or its TTL may be over."""
        was_ended = promise.acked_ms or promise.cancels or promise.nacks or promise.limit or promise.is_deleted
        return bool(was_ended) or may_have_died(promise, self._world.now_ms)

    # -- answers ---------------------------------------------------------------------------------------

    def told(self, name: bytes, reply: Any, sent_ms: int) -> None:
        """Check the reply to BATCH SHOW, or to a BATCH WAIT that has ended. Raises RuleBrokenError."""
        known = self.by_name.get(name)
        if known is None or not isinstance(reply, list):
            return
        pairs = dict(zip(reply[::2], reply[1::2], strict=True))
        total, over = pairs[b"total"], sum(pairs[status] for status in OVER)
        if (
            pairs[b"running"] + pairs[b"invisible-or-pending"] + over != total
            or min(value for value in pairs.values() if isinstance(value, int)) < 0
        ):
            raise RuleBrokenError(COUNTS, f"{name!r}: {pairs} does not add up")
        if pairs[b"done"]:
            self._check_done(known, "a client was told that it is done")
        if not self._is_calm(known):
            return
        self.shown += 1
        least = sum(0 < promise.answered_ms < sent_ms - LATE_MS for promise in known.jobs)
        if not least <= total <= len(known.jobs):
            raise RuleBrokenError(COUNTS, f"{name!r}: {pairs}, but it has {least} to {len(known.jobs)} jobs")
        ended = sum(self._may_be_over(promise) for promise in known.jobs)
        sure = sum(self._is_surely_completed(promise, sent_ms - LATE_MS) for promise in known.jobs)
        if not sure <= over <= ended:
            raise RuleBrokenError(COUNTS, f"{name!r}: {pairs}, but {sure} to {ended} jobs are over")

    def _is_surely_completed(self, promise: Promise, at_ms: int) -> bool:
        """Return whether an ACKJOB was answered before this moment and no other request can have ended the job."""
        is_plain = not (promise.cancels or promise.nacks or promise.limit or promise.is_deleted)
        return is_plain and 0 < promise.ack_answered_ms < at_ms and bool(promise.answered_ms)

    # -- the end -----------------------------------------------------------------------------------------

    def unfinished(self) -> list[str]:
        """Return the batches that should be done at the end and are not, each with the reason."""
        found = []
        for name, known in self.by_name.items():
            if not known.closed_ms:
                if known.jobs and any(promise.answered_ms for promise in known.jobs) and not self._excuse(known):
                    found.append(f"{name!r} is not closed")
                continue
            for machine in self._world.running():
                batch = machine.broker.batches.by_name.get(name)
                if batch is None or not batch.is_known:
                    if not self._excuse(known):
                        found.append(f"{machine.name} does not know {name!r}")
                elif self._live(name):
                    if not self._excuse(known):
                        found.append(f"{name!r} has live ids: {self._live(name)}")
                elif self.has_losses:
                    continue
                elif not batch.is_done:
                    # The only node that knew of the CLOSE may be lost.
                    if batch.is_closed or not self._excuse(known):
                        found.append(f"{name!r} is not done on {machine.name}")
                elif CALLBACK_QUEUE in batch.fields and CALLBACK_ID not in batch.fields:
                    found.append(f"{name!r} has no callback on {machine.name}")
        return found

    def moving(self) -> list[bytes]:
        """Return the batches that may still end by themselves, including excused ones.

        Keepers with different records exchange them, and a batch without live ids gets its callback.
        """
        found = []
        for name in self.by_name:
            digests = set()
            is_ending = False
            for machine in self._world.running():
                batch = machine.broker.batches.by_name.get(name)
                if batch is None or not batch.is_known:
                    continue
                if machine.broker.me in batch.keepers:
                    digests.add(tuple(batch.digests()))
                    is_ending = is_ending or (batch.is_closed and not batch.is_done and not batch.live)
                if batch.is_done and CALLBACK_QUEUE in batch.fields and CALLBACK_ID not in batch.fields:
                    is_ending = True
            if is_ending or len(digests) > 1:
                found.append(name)
        return found

    def _live(self, name: bytes) -> str:
        """Return the nodes where an id of the batch is not over."""
        return " ".join(
            machine.name
            for machine in self._world.running()
            if name in machine.broker.batches.by_name and machine.broker.batches.by_name[name].live
        )

    def _excuse(self, known: Known) -> str:
        """Return why the counts of a batch are not checked; empty if they are."""
        if self._losses.amnesia_ms > known.made_ms:
            self.excused[known.name] = "a node forgot ids since the batch began"
        elif self._losses.aged_ms > known.made_ms:
            self.excused[known.name] = "a node read its journal with a clock that was set forward, so the batch was old"
        elif self.has_losses:
            self.excused[known.name] = "a report may have vanished"
        return self.excused.get(known.name, "")

    def check_counts(self, name: bytes, reply: Any, node: str) -> None:
        """Check the counts that a node gives for a batch whose jobs are all over. Raises RuleBrokenError."""
        known = self.by_name[name]
        if self._excuse(known) or not known.closed_ms:
            return
        if not isinstance(reply, list):
            raise RuleBrokenError(COUNTS, f"{node} does not know {name!r}")
        pairs = dict(zip(reply[::2], reply[1::2], strict=True))
        least = sum(bool(promise.answered_ms) for promise in known.jobs)
        total, over = pairs[b"total"], sum(pairs[status] for status in OVER)
        sure = sum(self._is_surely_completed(promise, self._world.now_ms) for promise in known.jobs)
        ghosts = sum(self._may_be_over(promise) for promise in known.refused)
        acked = sum(bool(promise.acked_ms) for promise in (*known.jobs, *known.refused))
        if not least <= total <= len(known.jobs) + ghosts or over != total or not sure <= pairs[b"completed"] <= acked:
            raise RuleBrokenError(
                COUNTS,
                f"{node} tells {pairs} of {name!r}: {least} to {len(known.jobs)} jobs, {sure} to {acked} completed",
            )


def _age_ms(job_id: bytes, machine: Machine) -> int:
    """Return how long ago the ADDJOB of a callback began at least, as a node knows it; 0 if it doesn't have the job.

    The creator knows it exactly. A copy is believed to be younger, because its message took some time.
    """
    job = machine.broker.find(job_id)
    age_ms = 0 if job is None else CALLBACK_TTL_MS - (job.expire_at_ms - machine.now_ms())
    return age_ms + age_ms // DRIFT_SHARE


class Asker(Connection):
    """A client that asks for one batch, and keeps the reply."""

    __slots__ = ("reply",)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.reply: Any = None

    def on_reply(self, reply: Any) -> None:
        """Keep the reply."""
        self.reply = reply if reply is not None else b""


class LastBatches:
    """The end of a plan's batches: clients that wait for them, and counts when all is over."""

    def __init__(self, phase: LivenessPhase, book: BatchBook) -> None:
        self._phase = phase
        self._book = book
        self._waiting: list[tuple[bytes, Asker]] = []

    def begin(self) -> None:
        """Let clients wait for batches that are not done yet, at nodes that know them."""
        world = self._phase.world
        self._book.has_losses = self._phase.simulation.targets.has_losses
        machines = world.running()
        for number, name in enumerate(self._book.by_name):
            machine = machines[number % len(machines)]
            batch = machine.broker.batches.by_name.get(name)
            if batch is not None and batch.is_known:
                self._waiting.append((name, self._ask(machine, "BATCH", "WAIT", name)))

    def finish(self) -> None:
        """Check that batches end, that the clients are answered, and that the counts are true. Raises RuleBrokenError.

        This also waits for the callbacks of excused batches, so that consumers get them before the check for silence.
        """
        book, world = self._book, self._phase.world
        book.look()
        self._phase.until(ENDS, ENDED_MS, lambda: not book.unfinished(), lambda: "; ".join(book.unfinished()[:5]))
        start_ms = world.now_ms
        while book.moving() and world.now_ms - start_ms < ENDED_MS:
            world.run(STEP_MS)
        self._phase.until(WAITS, ANSWERED_MS, lambda: not self._open(), lambda: f"{self._open()}")
        for name, asker in self._waiting:
            if isinstance(asker.reply, list):
                book.told(name, asker.reply, world.now_ms)
            if asker.is_open:
                asker.hang_up()
        for machine in world.running():
            for name in book.by_name:
                asker = self._ask(machine, "BATCH", "SHOW", name)
                # A default binds the loop's asker.
                self._phase.until(WAITS, ANSWERED_MS, lambda asker=asker: asker.reply is not None, str)  # type: ignore[misc]
                book.check_counts(name, asker.reply or None, machine.name)
                asker.hang_up()

    def _open(self) -> list[bytes]:
        """Return the batches that are done and whose clients still wait."""
        done = [name for name, known in self._book.by_name.items() if known.closed_ms]
        return [
            name
            for name, asker in self._waiting
            if asker.is_open and asker.reply is None and name in done and asker.broker.batches.by_name[name].is_done
        ]

    def _ask(self, machine: Machine, *command: str | bytes) -> Asker:
        asker = Asker(self._phase.world)
        self._phase.world.connect(machine, asker)
        asker.send([words(*command)])
        return asker
