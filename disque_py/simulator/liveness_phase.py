"""The liveness phase: all faults end, and the cluster must keep the promises that take time.

All nodes that are down start, all cuts heal, memory limits are lifted, and producers stop. The cluster does the rest
by itself. Operators finish the work that they began, as soon as the nodes are up. They end a pause at the node at which
they began it. They send MEET to nodes that they made forget each other. After that an operator acts in two cases only.
It repeats a command that may have been lost (`_end_lost_pauses`, `Targets.meet_torn`), and it sends FORGET to each node
that knows a gone one.

Then these rules are checked, in this order. The mesh is whole. Nodes agree on members, leavers and pauses. Tasks end.
Waiting clients are answered. A leaving node is empty. Every promised job is delivered, and every acknowledged job
vanishes from all nodes. At the end, nodes send nothing but heartbeats. Jobs that wait without a consumer cost one
announcement per second and pair of nodes. Each rule has a limit in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from cluster_bus.messages import (
    BATCHSUM,
    HINT,
    INTEREST,
    NEEDJOBS,
    PAUSE,
    QUEUED,
    QUEUED_WAITING,
    RECALL,
    RECALLED,
    VOTERS,
    WILLQUEUE,
)
from cluster_bus.node import FAIL, FORGOTTEN, LEAVING, UNKNOWN, Node
from disque_py.core.batch_ends import LOOK_MS
from disque_py.core.ids import is_retried_id, is_valid_id
from disque_py.core.job import Handover, Job
from disque_py.core.keeping import KEEPERS_MAX, UNKNOWN_MS
from disque_py.simulator.checks import backups, counting, filter_indexes, moving, order, zones
from disque_py.simulator.checks.batches import CALLED, LastBatches
from disque_py.simulator.checks.books import tell
from disque_py.simulator.checks.cluster_invariants import jobs_of, look
from disque_py.simulator.checks.event_audit import audit
from disque_py.simulator.checks.reachability import travel
from disque_py.simulator.checks.settings import apart
from disque_py.simulator.checks.waits import QUEUE, LastWaits
from disque_py.simulator.clients.batchers import Batcher
from disque_py.simulator.clients.connection import Connection, words
from disque_py.simulator.clients.movers import OWN
from disque_py.simulator.clients.waiters import Waiter
from disque_py.simulator.clients.workload import Line
from disque_py.simulator.oracle import RuleBrokenError
from disque_py.simulator.transcript import Ids, tell_run

if TYPE_CHECKING:
    from disque_py.core.broker import Broker
    from disque_py.simulator.simulation import Simulation
    from disque_py.simulator.world.machine import Machine

STEP_MS: Final = 100
# A MEET to a dead address is given up after the node timeout. The pauses between redials grow to a second.
MESH_MS: Final = 60_000
# Time for a heartbeat to each node, with the longest delay.
AGREED_MS: Final = 10_000
# The longest TIMEOUT of a client, plus a turn or two.
ANSWERED_MS: Final = 4_000
# Several requests wait one after another on a connection, each until its timeout.
IN_A_ROW_MAX: Final = 10
# A silent node is given up after ten seconds.
TASKS_MS: Final = 30_000
LEFT_MS: Final = 30_000
# A second until a failed node's copies are suspected, a minute until jobs that found no node are tried again, and five
# seconds for each holder.
REPAIRED_MS: Final = 150_000
DRAINED_MS: Final = 60_000
TRIPS_PER_SLOT: Final = 4
FETCH_MS: Final = 400
CANCEL_MS: Final = 500
SETTLE_MS: Final = 4_000
IDLE_MS: Final = 3_000
# A shorter TTL may be over before the end of the phase.
LONG_TTL_MS: Final = 600_000
WAITING_JOBS: Final = 30
WAITING_RETRY_S: Final = 8
WAITING_MS: Final = 20_000
IDS: Final = Ids()
# Messages whose items begin with the name of a queue.
QUEUE_KINDS: Final = (NEEDJOBS, INTEREST, HINT, PAUSE)
# A voter that can't read the memories of a majority asks for them until it can. Each time it also sends its list.
OF_VOTERS: Final = (VOTERS, RECALL, RECALLED)
# A holder asks the other holders half a second before it would queue a job.
ANSWER_MS_MAX: Final = 450


class Drainer(Connection):
    """A client that fetches from all queues of one node and acknowledges each job immediately."""

    __slots__ = ("_phase",)

    def __init__(self, phase: LivenessPhase) -> None:
        super().__init__(phase.simulation.world)
        self._phase = phase

    def fetch(self) -> None:
        """Send the next GETJOB."""
        if self.is_open and self._phase.is_draining:
            self.send([words("GETJOB", "TIMEOUT", FETCH_MS, "COUNT", 50, "FROM", *self._phase.drained_queues())], 1)

    def on_reply(self, reply: Any) -> None:
        """Handle jobs, an empty reply, or the reply to an ACKJOB."""
        if isinstance(reply, int):
            for promise in self._phase.acknowledging.pop(self, ()):
                self._phase.simulation.oracle.acknowledged(promise, self.world.now_ms)
            self.world.later(1, self.fetch)
        elif isinstance(reply, list):
            oracle, now_ms = self._phase.simulation.oracle, self.world.now_ms
            promises = [oracle.deliver(queue, job_id, body, now_ms) for queue, job_id, body in reply if queue != CALLED]
            self.world.watcher.on_delivered(self.machine, reply)
            for promise in promises:
                oracle.acknowledging(promise, now_ms)
            self._phase.acknowledging[self] = promises if self.broker.cluster.linked else []
            self.send([words("ACKJOB", *(job_id for _, job_id, _ in reply))], 1)
        elif reply is None:
            self.world.later(1, self.fetch)
        else:
            raise RuleBrokenError("no odd errors", f"{reply!r} in good weather")


class Canceller(Connection):
    """A client that cancels the errored jobs of one node: no consumer gets them, and they would stay for days."""

    __slots__ = ("_phase",)

    def __init__(self, phase: LivenessPhase) -> None:
        super().__init__(phase.simulation.world)
        self._phase = phase

    def look(self) -> None:
        """Look for errored jobs."""
        if self.is_open and self._phase.is_draining:
            self.send([words("JSCAN", 0, "BUSYLOOP", "STATUS", "errored")], 1)

    def on_reply(self, reply: Any) -> None:
        """Cancel the jobs that were found. At-most-once jobs that were lost stay until their TTL."""
        ids = [job_id for job_id in reply[1] if is_retried_id(job_id)] if isinstance(reply, list) else []
        if not ids:
            self.world.later(CANCEL_MS, self.look)
            return
        oracle = self._phase.simulation.oracle
        for job_id in ids:
            promise = oracle.by_id.get(job_id)
            if promise is not None:
                promise.cancels += 1
                oracle.acknowledging(promise, self.world.now_ms)
        self.send([words("CANCELJOB", *ids)], 1)


class LivenessPhase:
    """The end of a simulation. `mesh_ms` and `drain_ms` are the durations of its parts."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.world = simulation.world
        self.acknowledging: dict[Drainer, list[Any]] = {}
        self.is_draining = False
        self.more_queues: list[bytes] = []
        self.mesh_ms = 0
        self.drain_ms = 0

    def drained_queues(self) -> list[bytes]:
        """Return the queues from which all jobs are fetched at the end, on every node."""
        return [*(b"q%d" % number for number in range(self.simulation.plan.queues)), *OWN, *self.more_queues]

    def play(self) -> None:
        """Play the whole phase. Raises RuleBrokenError."""
        self._lift()
        self._mesh()
        self._lift_limits()
        self._answer()
        self._empty_leavers()
        self._repair()
        endings = self._endings()
        for ending in endings:
            ending.begin()
        self._drain()
        if endings:
            self.is_draining = True
            for ending in endings:
                ending.finish()
            self._drain()
        self._verdict()
        audit(self.world, self.simulation.oracle)
        self._idle()
        if self.simulation.plan.seed % 4 == 0:
            self._wait()
        elif self.simulation.plan.seed % 4 == 1:
            travel(self.simulation)
            self._drain()
        elif self.simulation.plan.seed % 4 == 2:
            backups.play(self.simulation)
            self._drain()
        else:
            counting.play(self.simulation)
            moving.play(self.simulation)
            zones.play(self.simulation)
            order.play(self.simulation)
            self._drain()
            filter_indexes.meet(self.simulation)
            self._drain()

    def _lift(self) -> None:
        simulation, world = self.simulation, self.world
        targets = simulation.targets
        for actor in simulation.actors:
            actor.end()
        simulation.weather.end()
        world.network.heal()
        world.traffic.is_rough = False
        for machine in world.machines.values():
            machine.fuse = 0
            if machine.name not in targets.gone and not machine.is_up:
                machine.start()
            elif machine.is_up and machine.is_stopped:
                machine.go_on()

    def _lift_limits(self) -> None:
        """Lift the memory limits, forget gone nodes, and end pauses."""
        targets = self.simulation.targets
        targets.find_gone()
        targets.forget_gone()
        for machine in self.world.running():
            targets.ask(machine, "CONFIG", "SET", "maxmemory", 0)
        self.until("nodes know the same nodes", AGREED_MS, self._is_agreed, self._tell_tables)
        self.until("operators end their pauses", AGREED_MS, lambda: all(each.is_ended for each in targets.paused), str)
        if not targets.has_losses:
            self.until("nodes know the same pauses", AGREED_MS, lambda: not self._pause_apart(), self._pause_apart)
            self.until(
                "nodes know the same settings", AGREED_MS, lambda: not apart(self.world), lambda: apart(self.world)
            )
        for _ in range(2 if targets.has_losses else 1):  # Its node may not have heard of a later pause.
            self._end_lost_pauses()
        self.until(
            "a pause ends everywhere",
            AGREED_MS,
            lambda: not any(machine.broker.pauses.paused_count for machine in self.world.running()),
            lambda: " ".join(f"{m.name} {m.broker.pauses.versions}" for m in self.world.running()),
        )

    def _end_lost_pauses(self) -> None:
        """End pauses whose end was lost, each at one node. Raises RuleBrokenError for any other pause that lasts.

        An operator has ended each pause. The command is lost if the node that got it then lost its process or memory.
        """
        targets = self.simulation.targets
        lasting: dict[bytes, Machine] = {}
        for machine in self.world.running():
            for queue in machine.broker.queues.values():
                if queue.paused:
                    lasting.setdefault(queue.name, machine)
        for name, machine in lasting.items():
            told = [paused for paused in targets.paused if paused.queue == name]
            if not targets.has_losses and not any(paused.may_last() for paused in told):
                raise RuleBrokenError(
                    "an ended pause stays ended", f"{name!r} on {machine.name}: {machine.broker.pauses.versions}"
                )
            targets.ask(machine, "PAUSE", name, "none", "bcast")
        if lasting:
            self.world.run(STEP_MS)

    def _is_agreed(self) -> bool:
        """Return whether all nodes have the same table and agree on which nodes are leaving."""
        up = self.world.running()
        ids = {machine.membership.table.me.id: machine.broker.is_leaving for machine in up}
        return all(
            {node.id: bool(node.flags & LEAVING) for node in machine.membership.table.nodes.values()} == ids
            for machine in up
        )

    def _tell_tables(self) -> str:
        return "; ".join(
            f"{machine.name}{' leaving' if machine.broker.is_leaving else ''} knows"
            f" {' '.join(_tell_node(node) for node in machine.membership.table.nodes.values())}"
            for machine in self.world.running()
        )

    def _pause_apart(self) -> str:
        """Return a line about a queue whose pause has different versions on two nodes; empty if there is none."""
        targets = self.simulation.targets
        up = [machine for machine in self.world.running() if targets.flushed.get(machine.name) != machine.runs]
        for queue in dict.fromkeys(name for machine in up for name in machine.broker.pauses.versions):
            versions = {machine.name: machine.broker.pauses.versions.get(queue) for machine in up}
            if len(set(versions.values())) > 1:
                return f"{queue!r}: {versions}"
        return ""

    def until(self, rule: str, within_ms: int, holds: Callable[[], bool], why: Callable[[], str]) -> int:
        """Let time pass until `holds` is true in time, and return how long that took. Raises RuleBrokenError if not."""
        world = self.world
        start_ms = world.now_ms
        while not holds():
            if world.now_ms - start_ms >= within_ms:
                raise RuleBrokenError(rule, f"not within {within_ms} ms: {why()}")
            world.run(STEP_MS)
        return world.now_ms - start_ms

    # -- the mesh and the clients --------------------------------------------------------------------

    def _mesh(self) -> None:
        """Wait until the mesh is whole. An operator sends MEET once to nodes that were torn apart (`Targets.tear`)."""
        world, targets = self.world, self.simulation.targets
        rule, start_ms = "the mesh becomes whole", world.now_ms
        self.until(
            "a node can start", MESH_MS, lambda: not any(m.broker.is_loading for m in world.running()), self._tell_links
        )
        targets.find_back()
        self.until(rule, MESH_MS, targets.is_whole, self._tell_links)
        world.run(STEP_MS)  # Operators send the MEETs that had to wait for a node.
        targets.meet_torn()
        self.until(rule, MESH_MS, world.is_meshed, self._tell_links)
        self.mesh_ms = world.now_ms - start_ms

    def _tell_links(self) -> str:
        return "; ".join(
            f"{machine.name} → {' '.join(node.host for node in machine.membership.table.linked)}"
            for machine in self.world.running()
        )

    def _answer(self) -> None:
        """Check that each GETJOB is answered (jobs or timeout), and each ADDJOB too if there are enough nodes."""
        world = self.world
        self.until(
            "tasks end", TASKS_MS, lambda: not any(m.broker.tasks.shares for m in world.running()), self._tell_tasks
        )
        before: dict[Line, int] = {}
        for _ in range(IN_A_ROW_MAX):
            before = {line: line.answered for line in self._unanswered()}
            world.run(max([ANSWERED_MS, *(line.slowest_ms for line in before)]))
            if all(line.answered == before.get(line, line.answered) for line in self._unanswered()):
                break
        nodes = sum(not machine.broker.is_leaving for machine in world.running())
        for line in self._unanswered():
            queue = line.has_found()
            is_stuck = line.answered == before.get(line)  # Others repeat a command, and have just sent it again.
            if queue or (is_stuck and not line.forever and line.most_copies() < nodes):
                raise RuleBrokenError(
                    "clients are answered",
                    f"client {line.client.id} of {line.machine.name} waits ({line.client.waiting}) for"
                    f" {line.outstanding} replies, first {line.first_asked()}",
                    line.machine.name,
                )
            line.hang_up()

    def _unanswered(self) -> list[Line]:
        """Return the connections that wait for replies, except those that wait for the end of a job."""
        return [
            connection
            for connection in self.world.connections
            if isinstance(connection, Line) and connection.outstanding and not connection.is_patient
        ]

    def _tell_tasks(self) -> str:
        return "; ".join(
            f"{machine.name} works for {share.leader.host}: round {share.round}, outcome {share.outcome}"
            for machine in self.world.running()
            for share in machine.broker.tasks.shares.values()
        )

    def _empty_leavers(self) -> None:
        """Wait until the leaving nodes are empty, and let them go."""
        world, targets = self.world, self.simulation.targets
        leavers = [machine for machine in world.running() if machine.broker.is_leaving]
        if len(leavers) == len(world.running()):
            for machine in leavers:
                targets.ask(machine, "CLUSTER", "LEAVING", "no")
            return
        for machine in leavers:
            broker = machine.broker
            self.until(
                "a leaving node becomes empty",
                LEFT_MS + self._longest_ms(),
                lambda broker=broker: not broker.job_count,  # type: ignore[misc]  # a default binds it
                lambda machine=machine: _tell_drain(machine),  # type: ignore[misc]  # likewise
            )
            targets.go(machine)
        world.run(STEP_MS)

    def _repair(self) -> None:
        """Wait until lost copies are replaced. An operator lowers `repair-after` first, because the default is long."""
        targets, repairs = self.simulation.targets, self.simulation.collections.repairs
        for machine in self.world.running():
            targets.ask(machine, "CONFIG", "SET", "repair-after", 1)
        self.until("lost copies are replaced", REPAIRED_MS, lambda: not repairs.missing(), repairs.missing)

    def _endings(self) -> list[LastBatches | LastWaits]:
        """Return the final checks for the plan's batches, and for its clients that wait for jobs."""
        found: list[LastBatches | LastWaits] = []
        for actor in self.simulation.actors:
            if isinstance(actor, Batcher) and CALLED not in self.more_queues:
                self.more_queues.append(CALLED)
                found.append(LastBatches(self, actor.book))
            elif isinstance(actor, Waiter) and QUEUE not in self.more_queues:
                self.more_queues.append(QUEUE)
                found.append(LastWaits(self, actor.book))
        return found

    # -- the jobs ------------------------------------------------------------------------------------

    def _drain(self) -> None:
        self.is_draining = self.simulation.oracle.is_settled = True
        for machine in self.world.running():
            drainer = Drainer(self)
            self.world.connect(machine, drainer)
            drainer.fetch()
        for machine in self.world.running():
            canceller = Canceller(self)
            self.world.connect(machine, canceller)
            canceller.look()
        within_ms = DRAINED_MS + self._longest_ms() + self._capped_ms()
        self.drain_ms = self.until(
            "jobs that are done vanish",
            within_ms,
            lambda: next(self._left(), None) is None,
            lambda: "; ".join(self._tell_left()),
        )
        self.is_draining = False

    def _longest_ms(self) -> int:
        """Return the longest time for which a job may be away. It comes back after its RETRY, perhaps minutes.

        Jobs made by nodes count, too. The callback of a batch may have been queued on a node that died.
        """
        asked_for = max((promise.retry_ms for promise in self.simulation.oracle.open), default=0)
        return max(asked_for, max((job.retry_ms for _, job in self._left()), default=0))

    def _capped_ms(self) -> int:
        """Return how much longer the jobs of queues with `max-running` may take.

        A slot serves one job after the other: the coordinator grants it, the job moves to the node with the slot, and
        the ack and the free slot travel back.
        """
        longest_ms = 0
        jobs: dict[bytes, set[bytes]] = {}
        for _, job in self._left():
            jobs.setdefault(job.terms.queue, set()).add(job.id)
        for machine in self.world.running():
            for queue, ids in jobs.items():
                slots = machine.broker.queue_settings.of(queue).max_running
                if slots:
                    longest_ms = max(longest_ms, len(ids) * TRIPS_PER_SLOT * self.simulation.plan.delay_ms[1] // slots)
        return longest_ms

    def _left(self) -> Iterator[tuple[Machine, Job]]:
        """Return the jobs that should be gone. A delivered at-most-once job without an ack stays until its TTL."""
        return (
            (machine, job)
            for machine in self.world.running()
            for job in jobs_of(machine.broker)
            if job.retry_ms or not job.is_delivered or isinstance(job.work, Handover)
        )

    def _tell_left(self) -> list[str]:
        left = list(self._left())
        return [f"{len(left)} left", *(f"{machine.name}: {tell(machine.broker, job)}" for machine, job in left[:5])]

    def _verdict(self) -> None:
        """Check that every promised job was delivered, or lost by a mishap."""
        simulation = self.simulation
        look(self.world, simulation.oracle, simulation.losses)
        for promise in list(simulation.oracle.open):
            if promise.retry_ms and promise.copies and not promise.delivered and not promise.acked_ms:
                if simulation.losses.of(promise) < promise.copies and promise.ttl_ms - promise.early_ms > LONG_TTL_MS:
                    raise RuleBrokenError("every job is delivered", f"{promise} never was", promise.id)

    # -- silence -------------------------------------------------------------------------------------

    def _idle(self) -> None:
        """Check that quiet nodes send only heartbeats, and keep no memory of earlier work."""
        world = self.world
        world.run(SETTLE_MS)
        self._find_keepers()
        self._push_ids()
        self._give_up_reports()
        heard: list[tuple[str, str, list[Any]]] = []
        world.traffic.tap = lambda sender, receiver, runs: heard.extend(
            (sender, receiver, run)
            for run in runs
            if run[0] not in OF_VOTERS and not _is_of_lost_jobs(world.machines[sender], run)
        )
        start_ms = world.now_ms
        while not heard and world.now_ms - start_ms < IDLE_MS:
            world.run(STEP_MS)  # Stop soon, so that the first message that breaks the rule ends the transcript.
        world.traffic.tap = self.simulation.hear
        if heard:
            said = [f"{sender}→{receiver} {tell_run(IDS, run)}" for sender, receiver, run in heard[:5]]
            raise RuleBrokenError(
                "silence",
                f"{len(heard)} messages {world.now_ms - start_ms} ms after all jobs were gone: {said}",
                *_named(heard),
            )
        for machine in world.running():
            for what, number in remains(machine.broker, self._told_again()).items():
                if number:
                    raise RuleBrokenError("nothing is left over", f"{number} {what} on {machine.name}", machine.name)

    def _find_keepers(self) -> None:
        """Wait for nodes to become keepers of batches that lack some (spec BT3), at their second look."""
        world = self.world
        until_ms = world.now_ms + 2 * LOOK_MS
        if any(_lacks_keepers(machine.broker) for machine in world.running()):
            while world.now_ms < until_ms and any(_lacks_keepers(machine.broker) for machine in world.running()):
                world.run(STEP_MS)
            world.run(SETTLE_MS)

    def _push_ids(self) -> None:
        """Wait for keepers to get the ids of batches. Ids that were lost with a link are sent again after LOOK_MS."""
        world = self.world
        until_ms = world.now_ms + LOOK_MS
        while world.now_ms < until_ms and any(machine.broker.batches.pushes for machine in world.running()):
            world.run(STEP_MS)

    def _give_up_reports(self) -> None:
        """Wait for nodes to give up reports about batches that no node knows (spec BT3).

        The node that made a batch may be reset before the batch is on disk, when other nodes have copies of its job.
        """
        world = self.world
        until_ms = world.now_ms + UNKNOWN_MS + LOOK_MS
        while world.now_ms < until_ms and any(_has_strange_reports(machine.broker) for machine in world.running()):
            world.run(STEP_MS)

    def _told_again(self) -> list[bytes] | None:
        """Return the queues whose interest was told again after the weather; None: frames always came, so all count."""
        return self.drained_queues() if self.simulation.targets.has_losses else None

    def _wait(self) -> None:
        """Check that waiting jobs cost one announcement per second and pair of nodes, and no other node queues them.

        In seven of eight seeds the announcements are lost. Then holders ask before they would queue a job, and only the
        answers arrive.
        """
        world, oracle, targets = self.world, self.simulation.oracle, self.simulation.targets
        nodes = len(world.running())
        if nodes < 2:
            return
        for machine in world.running():
            for _ in range(WAITING_JOBS):
                promise = oracle.add(b"q0", 20, WAITING_RETRY_S * 1000, 3_600_000, min(3, nodes), world.now_ms)
                options = ("RETRY", WAITING_RETRY_S, "TTL", 3_600, "REPLICATE", min(3, nodes))
                targets.ask(machine, "ADDJOB", "q0", promise.body(), 0, *options)
            world.run(37)
        world.run(SETTLE_MS)
        told: dict[tuple[str, str, int], dict[int, None]] = {}

        def tap(sender: str, receiver: str, runs: list[list[Any]]) -> None:
            if any(run[0] == QUEUED and run[1][1] == QUEUED_WAITING for run in runs):
                # The messages of one turn come in one frame.
                told.setdefault((sender, receiver, world.now_ms // 1000), {})[world.now_ms] = None

        asked: dict[tuple[str, bytes], int] = {}

        def is_announcement(sender: str, receiver: str, kind: int, item: Any) -> bool:
            if kind == WILLQUEUE:
                asked[sender, item[0]] = world.now_ms
            elif kind == QUEUED and item[1] == QUEUED_WAITING:
                return world.now_ms - asked.get((receiver, item[0]), 0) > ANSWER_MS_MAX
            return False

        world.traffic.tap = tap
        is_deaf = self.simulation.plan.seed % 8 != 0
        world.traffic.filter = is_announcement if is_deaf else None
        world.run(WAITING_MS)
        world.traffic.filter = None
        world.traffic.tap = self.simulation.hear
        # A second of this check may include the end of one announcement and the next one.
        often = [key for key, moments in told.items() if len(moments) > 2]
        if often and not is_deaf:
            raise RuleBrokenError("waiting jobs are cheap", f"more than one announcement a second: {often[:5]}")
        for machine in world.running():
            for job in jobs_of(machine.broker):
                if job.deliveries:
                    raise RuleBrokenError("a waiting job is not queued again", tell(machine.broker, job), job.id)
        self._drain()


def _is_of_lost_jobs(sender: Machine, run: list[Any]) -> bool:
    """Return whether a keeper compares batches that wait for a lost job's TTL, every ten seconds. Spec BT8."""
    if run[0] != BATCHSUM:
        return False
    batches = [sender.broker.batches.by_name.get(name) for name, *_ in run[1:]]
    return all(batch is not None and batch.live for batch in batches)


def _lacks_keepers(broker: Broker) -> bool:
    """Return whether the node knows a batch with fewer keepers than the linked nodes could be."""
    gone = FAIL | FORGOTTEN | LEAVING | UNKNOWN
    able = sum(not node.flags & gone for node in broker.cluster.linked) + 1
    batches = (batch for batch in broker.batches.by_name.values() if batch.is_known)
    return any(sum(not node.flags & gone for node in batch.keepers) < min(able, KEEPERS_MAX) for batch in batches)


def _has_strange_reports(broker: Broker) -> bool:
    """Return whether the node has reports about a batch that it does not know."""
    batches = broker.batches.by_name
    return any(
        report.name not in batches or not batches[report.name].is_known for report in broker.batches.reports.values()
    )


def _named(heard: list[tuple[str, str, list[Any]]]) -> Iterator[bytes | str]:
    """Yield the jobs and queues that the messages name, because earlier messages about them show the cause."""
    for _, _, run in heard:
        for item in run[1:]:
            if run[0] in QUEUE_KINDS:
                yield item[0].decode()
            else:
                yield from _ids_in(item)


def _ids_in(part: Any) -> Iterator[bytes]:
    if isinstance(part, list | tuple):
        for inner in part:
            yield from _ids_in(inner)
    elif isinstance(part, bytes) and is_valid_id(part):
        yield part


def _tell_node(node: Node) -> str:
    return f"{node.host}/{node.id[:4].hex()}{' leaving' if node.flags & LEAVING else ''}"


def _tell_drain(machine: Machine) -> str:
    left = [tell(machine.broker, job) for job in jobs_of(machine.broker)]
    drain = machine.broker.drain
    return f"{machine.name} {drain and drain.blocked_by!r} {left[:5]}"


def remains(broker: Broker, told_again: list[bytes] | None) -> dict[str, int]:
    """Return sizes that must be zero on a quiet node.

    told_again   only interests in these queues count, because others may have ended in a frame that vanished; None: all
    """
    found = {
        "announcements": len(broker.copies.announcements),
        "deferred jobs": len(broker.pauses.deferred),
        "told interests": len(broker.consumers.told_interest),
        "told busy queues": len(broker.consumers.told_busy),
        "told filters": len(broker.consumers.told_filters),
        "incremental commands": len(broker.waits.incremental),
        "blocked clients": broker.waits.blocked_count,
        "questions to all nodes": len(broker.gatherings.asked),
        "shares of answers": len(broker.gatherings.shares),
        "questions about keys": len(broker.producers.lookups),
    }
    for node in broker.cluster.nodes.values():
        if node.core is not None:
            found[f"hand-overs to {node.host}"] = len(node.core.pending)
            names = [name for name in node.core.interest if told_again is None or name in told_again]
            found[f"interests of {node.host}"] = len(names)
    return found
