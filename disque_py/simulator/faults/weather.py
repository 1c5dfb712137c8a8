"""Weather: the schedule of a plan's faults.

Each kind of fault is a method of one of the classes in links.py, processes.py, operators.py and event_logs.py. They
share one `Targets`. This module finds a fault's method by its name, and calls it at the fault's time.

A fault that makes a node forget jobs reports that to the losses (cluster_invariants.py) before it happens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from disque_py.simulator.faults.event_logs import EventLogFaults
from disque_py.simulator.faults.links import LinkFaults
from disque_py.simulator.faults.operators import OperatorFaults
from disque_py.simulator.faults.processes import ProcessFaults
from disque_py.simulator.faults.targets import Targets
from disque_py.simulator.trace import FAULT

if TYPE_CHECKING:
    from disque_py.simulator.checks.cluster_invariants import Losses
    from disque_py.simulator.faults.targets import Effect, End
    from disque_py.simulator.oracle import Oracle
    from disque_py.simulator.plan import Fault, Plan
    from disque_py.simulator.world.world import World


class Weather:
    """The faults of a plan, each at its time.

    targets   the nodes that faults strike
    kinds     the faults by name
    done      faults that happened, each as a line for people
    """

    def __init__(self, world: World, plan: Plan, oracle: Oracle, losses: Losses) -> None:
        self.world = world
        targets = self.targets = Targets(world, plan, oracle, losses)
        self.kinds: dict[str, Callable[[Fault], Effect]] = {
            **LinkFaults(targets).kinds,
            **ProcessFaults(targets).kinds,
            **OperatorFaults(targets).kinds,
            **EventLogFaults(targets).kinds,
        }
        self.done: list[str] = []
        self._ends: dict[int, End] = {}
        world.traffic.is_rough = plan.is_rough

    def begin(self) -> None:
        """Schedule the plan's faults."""
        for fault in self.targets.plan.faults:
            self.world.later(fault.at_ms, self.strike, fault)

    def end(self) -> None:
        """End all faults, in the order in which they began."""
        self.targets.is_over = True
        for number in list(self._ends):
            self._end(number)

    def strike(self, fault: Fault) -> None:
        """Let a fault happen now, if that is possible."""
        if self.targets.is_over:
            return
        self.targets.note_whole()
        self.targets.oracle.faults += 1  # Replies may already come while the fault begins.
        effect = self.kinds[fault.kind](fault)
        self.targets.oracle.faults -= 1
        if effect is not None:
            what, end = effect
            self.done.append(f"{fault.number}: {what}")
            self.world.trace.tell(self.world.now_ms, f"{FAULT} {fault.number}: {what}, {fault.span_ms} ms")
            self._ends[fault.number] = end
            self._note()
            self.world.later(fault.span_ms, self._end, fault.number)

    def _end(self, number: int) -> None:
        end = self._ends.pop(number, None)
        if end is not None:
            self.world.trace.tell(self.world.now_ms, f"{FAULT} {number} is over")
            end()
            self._note()

    def _note(self) -> None:
        """Tell the oracle how many faults last now."""
        oracle = self.targets.oracle
        oracle.faults = len(self._ends)
        oracle.unrest_ms = self.world.now_ms
