"""Simulation: one plan from beginning to end, and its result.

A Simulation makes the world of its plan, with nodes, clients and the calendar of faults. It plays the weather, and then
the liveness phase (liveness_phase.py). Meanwhile the world tells a Reporter of each moment that a checker needs.
`simulate` turns a broken rule, or any exception of the server's code, into a Failure. main.py and shrink.py call it.
The module knows neither the real clock nor the terminal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from disque_py.simulator.checks.cluster_invariants import Losses, look
from disque_py.simulator.checks.collection import CollectionChecker
from disque_py.simulator.checks.filter_indexes import check_indexes
from disque_py.simulator.checks.leases import Leases
from disque_py.simulator.checks.settings import SettingsChecker, check_kept
from disque_py.simulator.checks.voters import VoterChecker
from disque_py.simulator.clients.cappers import Capper
from disque_py.simulator.clients.kinds import start_clients
from disque_py.simulator.faults.processes import EVERYSEC_SETTLE_MS
from disque_py.simulator.faults.weather import Weather
from disque_py.simulator.liveness_phase import LivenessPhase
from disque_py.simulator.oracle import Oracle, RuleBrokenError
from disque_py.simulator.plan import FORGETFUL, FORGETFUL_IDLE_MS, NAMES, Plan
from disque_py.simulator.trace import Trace
from disque_py.simulator.transcript import Ids
from disque_py.simulator.world.watcher import Watcher
from disque_py.simulator.world.world import StuckError, World

if TYPE_CHECKING:
    from disque_py.simulator.world.machine import Machine

JOIN_MS: Final = 30_000
TRANSCRIPT_LINES: Final = 60
DETAIL_MAX: Final = 600
IDS: Final = Ids()
# A link is given up one node timeout after frames got stuck on it. The next link may take as long again.
AFTERMATH_TIMEOUTS: Final = 2
# Commands that make a node forget its jobs. No other node suspects the loss of these copies.
UNSUSPECTED: Final = (("DEBUG", "FLUSHALL"), ("CLUSTER", "RESET"), ("DEBUG", "LOADAOF"))


@dataclass(slots=True)
class Failure:
    """A failure: the rule that broke, or the name of an unexpected exception."""

    rule: str
    detail: str
    at_ms: int
    transcript: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Result:
    """The result of a plan. Figures are sums, so that those of many plans can be added."""

    plan: Plan
    digest: str
    failure: Failure | None
    figures: dict[str, int]
    transcript: list[str] = field(default_factory=list)


class Reporter(Watcher):
    """A watcher that passes the moments of the world on to the checkers."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def on_look(self) -> None:
        """Compare promises with the jobs that exist."""
        self._simulation.look()

    def on_death(self, machine: Machine, *, power: bool) -> None:
        """Note that a process is about to lose its memory."""
        self._simulation.losses.died(machine, power=power)
        self._simulation.collections.pauses.died(machine, power=power)
        self._simulation.targets.called[machine.membership.table.me.id] = None
        self._simulation.deaths += 1
        self._simulation.oracle.deaths += 1
        self._simulation.world.later(0, self._simulation.look)

    def on_reload(self, machine: Machine) -> None:
        """Note that a node's jobs are only on its disk for a while."""
        self._simulation.losses.died(machine, power=False)

    def on_loaded(self, machine: Machine) -> None:
        """Note that a node has read its journal."""
        self._simulation.losses.loaded(machine)
        self._simulation.leases.loaded(machine)

    def on_settings_read(self, machine: Machine) -> None:
        """Check that the settings that a process has read include all that were promised."""
        check_kept(machine)

    def on_asked(self, machine: Machine, command: tuple[str | bytes | int, ...]) -> None:
        """Note an operator's command."""
        if command[:2] in UNSUSPECTED:
            self._simulation.collections.repairs.excuse(machine)
        self._simulation.collections.pauses.asked(machine, command)
        self._simulation.settings.asked(machine, command)

    def on_answered(self, machine: Machine, command: tuple[str | bytes | int, ...], reply: Any) -> None:
        """Note the reply to an operator's command."""
        self._simulation.collections.pauses.answered(machine, command, reply)
        self._simulation.settings.answered(machine, command, reply)

    def on_delivered(self, machine: Machine, entries: list[Any]) -> None:
        """Note that a consumer got jobs."""
        self._simulation.collections.pauses.delivered(machine, entries)
        self._simulation.leases.delivered(machine, entries)
        if self._simulation.caps is not None:
            self._simulation.caps.delivered(entries)


class Simulation:
    """One plan and its world; `play` plays it."""

    def __init__(self, plan: Plan, trace: Trace | None = None) -> None:
        self.plan = plan
        self.trace = trace if trace is not None else Trace()
        self.oracle = Oracle()
        self.oracle.sides = plan.nodes
        self.oracle.aftermath_ms = AFTERMATH_TIMEOUTS * plan.node_timeout_ms
        self.losses = Losses(self.oracle)
        self.deaths = 0
        self.replays = 0
        self._looks = 0
        rewriting: dict[str, Any] = {"auto_aof_rewrite_min_size": plan.rewrite_bytes} if plan.rewrite_bytes else {}
        self.world = World(
            "",
            plan.seed,
            delay_ms=plan.delay_ms,
            is_prompt=plan.is_prompt,
            repair_after=plan.repair_after_s,
            trace=self.trace,
            watcher=Reporter(self),
            cluster_node_timeout=plan.node_timeout_ms,
            maxmemory=plan.maxmemory,
            maxmemory_spill=plan.is_spilling,
            cluster_secret=plan.secret,
            events=plan.has_events,
            events_max_bytes=plan.events_bytes,
            **rewriting,
        )
        if FORGETFUL in plan.weather:
            self.world.votes_idle_ms = FORGETFUL_IDLE_MS
        self.weather = Weather(self.world, plan, self.oracle, self.losses)
        self.targets = self.weather.targets
        self.collections = CollectionChecker(self.world, self.oracle, self.losses, plan.node_timeout_ms)
        self.settings = SettingsChecker()
        self.leases = Leases(self.world, self.oracle, self.losses)
        self.voters = VoterChecker(self.world)
        self.world.traffic.tap = self.hear
        self.liveness = LivenessPhase(self)
        for at in range(plan.nodes):
            self.world.add(
                NAMES[at],
                offset_ms=plan.offsets_ms[at],
                drift_ppm=plan.drifts_ppm[at],
                version=plan.versions[at],
                journal=plan.journals[at],
                place=plan.places[at] if plan.places else ("", ""),
            )
        if "everysec" in plan.journals:
            self.losses.settle_ms = EVERYSEC_SETTLE_MS
        if "no" in plan.journals:
            self.losses.settle_ms = 1 << 60  # An ack may be forgotten at any time.
        self.actors = start_clients(self.world, self.oracle, plan, self.losses)
        self.caps = next((actor.book for actor in self.actors if isinstance(actor, Capper)), None)

    def play(self) -> None:
        """Play the weather, then the liveness phase. Raises RuleBrokenError, or any error of the server's code."""
        world = self.world
        world.join(JOIN_MS)
        self.weather.begin()
        world.run(self.plan.duration_ms)
        self.look()
        self.liveness.play()
        self.look()
        self.collections.pauses.check_agreed()

    def hear(self, sender: str, receiver: str, runs: list[list[Any]]) -> None:
        """Check messages that are about to be read (`Traffic.tap`)."""
        self.leases.hear(sender, receiver, runs)
        self.collections.hear(sender, receiver, runs)
        self.voters.hear(sender, receiver, runs)

    def look(self) -> None:
        """Compare promises with the jobs that exist, and one node's memory with its journal."""
        look(self.world, self.oracle, self.losses)
        self.collections.repairs.look()
        for machine in self.world.running():
            check_indexes(machine)
            if machine.event_logs is not None:
                machine.event_logs.check_states()
        machines = [machine for machine in self.world.running() if machine.journal_storage is not None]
        if machines:
            self._looks += 1
            journal_storage = machines[self._looks % len(machines)].journal_storage
            if journal_storage is not None and journal_storage.is_quiet():
                journal_storage.check_replay()
                self.replays += 1

    def figures(self) -> dict[str, int]:
        """Return the sums; see docs/simulator.md."""
        machines = self.world.machines.values()
        oracle = self.oracle
        traffic = self.world.traffic
        commands = sum(machine.count("commands_processed") for machine in machines)
        messages = sum(machine.count("messages_received") for machine in machines)
        return {
            "seeds": 1,
            "virtual_ms": self.world.elapsed_ms,
            "commands": commands,
            "messages": messages,
            "timers": sum(machine.ticks for machine in machines),
            "frames": traffic.frames,
            "bytes": traffic.bytes,
            "faults": len(self.weather.done),
            "deaths": self.deaths,
            "replays": self.replays,
            "jobs": oracle.added,
            "deliveries": oracle.delivered,
            "duplicates": oracle.duplicates,
            "acked": oracle.acked,
            "after_ack": oracle.after_ack,
            "repaired": sum(machine.count("copies_repaired") for machine in machines),
            "once_lost": sum(machine.count("once_lost_in_handover") for machine in machines),
            "mesh_ms": self.liveness.mesh_ms,
            "drain_ms": self.liveness.drain_ms,
        }


def simulate(plan: Plan, *, is_read: bool = False) -> Result:
    """Play a plan. With `is_read`, a failure has a transcript."""
    trace = Trace(is_read=is_read)
    simulation: Simulation | None = None
    failure = None
    try:
        simulation = Simulation(plan, trace)
        simulation.play()
    except RuleBrokenError as broken:
        failure = Failure(
            broken.rule, broken.detail[:DETAIL_MAX], _moment(simulation), _transcript(trace, broken.words)
        )
    except StuckError as stuck:
        failure = Failure("the cluster forms", str(stuck), _moment(simulation), _transcript(trace, []))
    except Exception as error:  # Any error of the server's code is a failure of that code.
        failure = Failure(type(error).__name__, _where(error), _moment(simulation), _transcript(trace, []))
    figures: dict[str, int] = {}
    if simulation is not None:
        figures = simulation.figures()
        for machine in simulation.world.machines.values():
            machine.free_memory()
    return Result(plan, trace.digest(), failure, figures, _transcript(trace, []))


def _moment(simulation: Simulation | None) -> int:
    return simulation.world.elapsed_ms if simulation is not None else 0


def _transcript(trace: Trace, words: list[Any]) -> list[str]:
    if trace.lines is None:
        return []
    named = [IDS.of(word) if isinstance(word, bytes) else str(word) for word in words]
    return trace.around([name for name in named if name], TRANSCRIPT_LINES)


def _where(error: Exception) -> str:
    """Return the error with the innermost function of the server's code that was running."""
    place = ""
    at = error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        if "disque_py/simulator/" not in code.co_filename.replace("\\", "/"):
            name = code.co_filename.replace("\\", "/").rpartition("/")[2]
            place = f" in {name}:{at.tb_lineno} {code.co_name}"
        at = at.tb_next
    return f"{error}{place}"
