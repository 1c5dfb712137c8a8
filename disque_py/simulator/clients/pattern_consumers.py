"""Pattern consumers: GETJOB … FROMMATCH, waiting and polling, with and without WHERE, LEASE and TOKEN.

Each job that they get must come from a queue whose name matches (spec TP1). They work on jobs like any other consumer.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from disque_py.resp.glob import matches
from disque_py.simulator.clients.connection import words
from disque_py.simulator.clients.keyed_producers import META
from disque_py.simulator.clients.workload import LEASE_TOO_LONG, Consumer, Line
from disque_py.simulator.oracle import RuleBrokenError

PATTERNS: Final = (("q*",), ("q*",), ("q[0-3]",), ("q*1", "q0"), ("q?", "q1?"), ("none*", "q0*"))
MATCHES: Final = "patterns take queues that match"


class PatternConsumer(Consumer):
    """A consumer that names no queue. If a matching queue needs claims, a long LEASE is refused."""

    REFUSALS: ClassVar[tuple[str, ...]] = (LEASE_TOO_LONG,)

    _count = 0

    def act(self) -> int:
        """Fetch with patterns, if the last fetch is over."""
        rng = self.rng
        line = self.free_line(0.02)
        if isinstance(line, int):
            return line
        patterns = rng.choice(PATTERNS)
        how: list[str | int] = ["NOHANG"] if rng.random() < 0.3 else ["TIMEOUT", rng.choice((20, 300, 2_000))]
        if rng.random() < 0.2:
            how += ["LEASE", rng.choice((1, 2, 4)), "WITHLEASE"]
        if rng.random() < 0.2:
            self._count += 1
            how += ["TOKEN", f"p{self.number}-{self._count}"]
        if rng.random() < 0.15:
            how += ["WHERE", *rng.choice(META)]
        line.since = line.machine.next_event()
        request = words("GETJOB", *how, "COUNT", rng.choice((1, 1, 5)), "FROMMATCH", *patterns)
        line.ask([(request, self._got_matching, (line, patterns))], self.travel())
        return 1 + int(rng.expovariate(self.load / 20))

    def _got_matching(self, reply: Any, asked: tuple[Line, tuple[str, ...]]) -> None:
        line, patterns = asked
        if isinstance(reply, list):
            for queue, job_id, *_ in reply:
                if not any(matches(pattern, queue.decode()) for pattern in patterns):
                    raise RuleBrokenError(MATCHES, f"{queue!r} for {patterns}", job_id)
            self._got(reply, line)
