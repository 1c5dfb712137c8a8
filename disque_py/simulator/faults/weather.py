"""Faults: what a plan's list says is made to happen, and to end.

What can happen stands in links.py, processes.py, operators.py and event_logs.py, each built on the
one before, as a compiled class has one base; here is when. Whatever makes a node forget jobs by mishap is reported to
the losses (cluster_invariants.py) before it happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from disque_py.simulator.faults.event_logs import EventFaults
from disque_py.simulator.trace import FAULT

if TYPE_CHECKING:
    from disque_py.simulator.checks.cluster_invariants import Losses
    from disque_py.simulator.faults.targets import End
    from disque_py.simulator.oracle import Oracle
    from disque_py.simulator.plan import Fault, Plan
    from disque_py.simulator.world.world import World


class Weather(EventFaults):
    """Makes the faults of a plan happen.

    struck    faults that did happen, with what each did, for people
    """

    def __init__(self, world: World, plan: Plan, oracle: Oracle, losses: Losses) -> None:
        super().__init__(world, plan, oracle, losses)
        self.struck: list[str] = []
        self._ends: dict[int, End] = {}
        world.network.is_rough = plan.is_rough

    def begin(self) -> None:
        """Put the list on the calendar."""
        for fault in self.plan.faults:
            self.world.later(fault.at_ms, self._strike, fault)

    def end(self) -> None:
        """All is over, in the order in which it began."""
        self.is_over = True
        for number in list(self._ends):
            self._end(number)

    def _strike(self, fault: Fault) -> None:
        if self.is_over:
            return
        self.note_whole()
        done = getattr(self, "do_" + fault.kind.replace("-", "_"))(fault)
        if done is not None:
            what, end = done
            self.struck.append(f"{fault.number}: {what}")
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
        """So many last now."""
        self.oracle.faults = len(self._ends)
        self.oracle.unrest_ms = self.world.now_ms
