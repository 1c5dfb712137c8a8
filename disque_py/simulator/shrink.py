"""Shrinking: make a failing plan smaller, as long as the same rule breaks.

It tries less time, fewer faults, fewer clients and fewer nodes, then faults and clients again one by one. Each part of
a plan has its own random generator (plan.py), so the rest behaves about as before. Only a run shows whether the failure
remains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from disque_py.simulator.plan import Keep, Plan
from disque_py.simulator.simulation import Result, simulate

RUNS_MAX: Final = 120


class Shrinking:
    """The shrinking of one failing plan. `best` is the smallest plan so far that fails in the same way."""

    def __init__(self, result: Result, runs_max: int = RUNS_MAX, play: Callable[[Plan], Result] = simulate) -> None:
        assert result.failure is not None
        self.whole = result.plan
        self.best = result
        self.rule = result.failure.rule
        self.runs = 0
        self._runs_max = runs_max
        self._play = play

    def run(self) -> Result:
        """Shrink until no part can be left out, or the limit of runs is reached."""
        self._less_time()
        before = None
        while before != self.best.plan.keep and self.runs < self._runs_max:
            before = self.best.plan.keep
            self._fewer("faults", [fault.number for fault in self.best.plan.faults])
            self._fewer("clients", [client.number for client in self.best.plan.clients])
            self._fewer_nodes()
        return self.best

    def _try(self, keep: Keep) -> bool:
        """Return whether the plan still fails with only these parts."""
        if self.runs >= self._runs_max:
            return False
        self.runs += 1
        result = self._play(self.whole.kept(keep))
        if result.failure is None or result.failure.rule != self.rule:
            return False
        self.best = result
        return True

    def _less_time(self) -> None:
        """Try to end the weather earlier, at the failure at the latest. It may show in the liveness phase, too."""
        assert self.best.failure is not None
        at_ms = self.best.failure.at_ms
        for until_ms in (at_ms // 4, at_ms // 2, at_ms):
            if 0 < until_ms < self.best.plan.duration_ms and self._try(replace(self.best.plan.keep, until_ms=until_ms)):
                return

    def _fewer(self, what: str, numbers: list[int]) -> None:
        """Leave out halves, then quarters and so on, then single parts (delta debugging)."""
        size = len(numbers)
        while size:
            size = (size + 1) // 2 if size > 1 else 0
            at = 0
            while at < len(numbers) and size:
                left = numbers[:at] + numbers[at + size :]
                keep = self.best.plan.keep
                fewer = replace(keep, faults=tuple(left)) if what == "faults" else replace(keep, clients=tuple(left))
                if self._try(fewer):
                    numbers = left
                else:
                    at += size
            if size == 1:
                return

    def _fewer_nodes(self) -> None:
        nodes = self.best.plan.nodes - 1
        while nodes > 0 and self._try(replace(self.best.plan.keep, nodes=nodes)):
            nodes -= 1


def shrink(result: Result, runs_max: int = RUNS_MAX) -> Result:
    """Return the smallest failing plan found, played once more for its transcript."""
    shrinking = Shrinking(result, runs_max)
    return simulate(shrinking.run().plan, is_read=True)
