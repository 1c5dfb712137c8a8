"""Filtered consumers: GETJOB … WHERE, waiting and polling, with and without LEASE and TOKEN, beside plain consumers.

Each job that they get must have all requested pairs (spec W1). They work on jobs like any other consumer. Keyed
producers give jobs the metadata.
"""

from __future__ import annotations

from typing import Any, Final

from disque_py.simulator.checks.filter_indexes import check_pairs
from disque_py.simulator.clients.connection import words
from disque_py.simulator.clients.keyed_producers import META
from disque_py.simulator.clients.workload import Consumer, Line

META_AT: Final = 4


class FilteredConsumer(Consumer):
    """A consumer that takes only jobs with certain metadata."""

    _count = 0

    def act(self) -> int:
        """Fetch with a filter, if the last fetch is over."""
        rng = self.rng
        line = self.free_line(0.02)
        if isinstance(line, int):
            return line
        pairs = dict(rng.sample(META, rng.choice((1, 1, 1, 2))))
        how: list[str | int] = ["NOHANG"] if rng.random() < 0.3 else ["TIMEOUT", rng.choice((20, 300, 2_000))]
        if rng.random() < 0.3:
            how += ["LEASE", rng.choice((1, 2, 4)), "WITHLEASE"]
        if rng.random() < 0.3:
            self._count += 1
            how += ["TOKEN", f"w{self.number}-{self._count}"]
        for name, value in pairs.items():
            how += ["WHERE", name, value]
        wanted = self.some_queues(3)
        line.since = line.machine.next_event()
        request = words("GETJOB", *how, "WITHMETA", "COUNT", rng.choice((1, 1, 5)), "FROM", *wanted)
        asked = {name.encode(): value.encode() for name, value in pairs.items()}
        line.ask([(request, self._got_filtered, (line, asked))], self.travel())
        return 1 + int(rng.expovariate(self.load / 20))

    def _got_filtered(self, reply: Any, asked: tuple[Line, dict[bytes, bytes]]) -> None:
        line, pairs = asked
        if isinstance(reply, list):
            for entry in reply:
                check_pairs(entry, pairs, META_AT)
            self._got(reply, line)
