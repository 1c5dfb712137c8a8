"""Askers: operators who ask one node about all nodes, in any weather (spec Z1).

During faults the figures mean nothing, because jobs are in transit and nodes are missing. So an asker checks only the
form of a reply. checks/counting.py checks the figures without faults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.event_format import JOB_STATUSES
from disque_py.simulator.clients.connection import Request, words
from disque_py.simulator.clients.workload import EXPECTED_ERRORS, RECONNECT_MS, Actor
from disque_py.simulator.oracle import RuleBrokenError

if TYPE_CHECKING:
    from disque_py.simulator.clients.workload import Line

STATUSES: Final = JOB_STATUSES
PEEKED_MAX: Final = 8
HANG_UP_SHARE: Final = 0.15
EVERY_MS: Final = 250


class Asker(Actor):
    """An operator that uses CLUSTER and JOBID, and sometimes hangs up before the reply."""

    def act(self) -> int:
        """Send a question."""
        line = self.reach()
        if line is None:
            return RECONNECT_MS
        request = self._question()
        line.ask([(request, self._answered, request)], self.travel())
        if self.rng.random() < HANG_UP_SHARE:
            self.world.later(1 + int(self.rng.random() * 2 * EVERY_MS), self._hang_up, line)
        return 5 + int(self.rng.expovariate(1 / EVERY_MS))

    def _hang_up(self, line: Line) -> None:
        if line.is_open:
            line.hang_up()

    def _question(self) -> Request:
        rng = self.rng
        dice = rng.random()
        queue, status = rng.choice(self.queues), rng.choice(STATUSES)
        if dice < 0.3:
            return words("QLEN", queue, "STATUS", status, "CLUSTER")
        if dice < 0.5:
            return words("QPEEK", queue, rng.choice((PEEKED_MAX, -PEEKED_MAX)), "CLUSTER", "STATUS", status, "WITHMETA")
        if dice < 0.6:
            return words("QDEPTH", queue, "BY", "name", "STATUS", status, "CLUSTER")
        if dice < 0.7:
            return words("JOBID", queue, "k1", "k2")
        if dice < 0.85:
            return words("QSTAT", queue, "CLUSTER")
        promise = rng.choice(self.oracle.promises) if self.oracle.promises else None
        return words("SHOW", promise.id, "CLUSTER") if promise is not None and promise.id else words("PING")

    def _answered(self, reply: Any, request: Request) -> None:
        command = request[0]
        if isinstance(reply, Exception):
            is_good = str(reply).startswith(EXPECTED_ERRORS)
        elif command == b"QLEN":
            is_good = isinstance(reply, int) and reply >= 0
        elif command == b"QPEEK":
            is_good = len(reply) <= PEEKED_MAX and len({entry[1] for entry in reply}) == len(reply)
        elif command == b"JOBID":
            is_good = len(reply) == 2
        elif command == b"QSTAT" and reply is not None:
            figures = dict(zip(reply[::2], reply[1::2], strict=True))
            is_good = figures[b"nodes"] >= 1 and len(set(figures[b"nodes-missing"])) == len(figures[b"nodes-missing"])
        else:
            is_good = True
        if not is_good:
            raise RuleBrokenError("one node answers for all", f"{reply!r} for {request!r}")
