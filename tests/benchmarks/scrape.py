"""The cost of a scrape: python tests/benchmarks/scrape.py [--nodes 3] [--queues 1000] [--jobs 20000] [--rounds 20].

A cluster of real nodes has jobs in many queues. The program scrapes it as disque-exporter does: it asks all nodes and
writes the page. Other processes ping the nodes meanwhile, and the longest answer is the longest stall. The first phase
has no scrape and shows the machine. The last one has counters and durations of every queue on the page.

The goals are 200 ms for three nodes and 1,000 queues, and no stall above 10 ms, on a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from disque_py import event_format, testing
from disque_py.client.address import parse_address
from disque_py.client.options import make_options
from disque_py.gateway.metrics.exposition import Page
from disque_py.gateway.metrics.families import add_nodes
from disque_py.gateway.metrics.selection import Selection
from disque_py.gateway.metrics.transitions import Tally
from disque_py.gateway.metrics.watching import Watchers
from pinger import pinging

PING_MS = 2.0
LIMIT_S = 10.0


def filled(cluster: testing.Cluster, queues: int, jobs: int) -> None:
    """Add the jobs, spread over all nodes."""
    each = max(1, jobs // len(cluster) // queues)
    for node in cluster:
        with node.client(discover=False) as client:
            for queue in range(queues):
                client.add_jobs(f"queue-{queue:05}", [b"x" * 50] * each, replicate=1)


def worked(tally: Tally, queues: int) -> None:
    """Take one job of each queue through its life, so that counters and durations exist."""
    for queue in range(queues):
        name, job_id = b"queue-%05d" % queue, b"D-%038d" % queue
        added = event_format.ADDED, job_id, 10**18, name, 50
        delivered = event_format.DELIVERED, job_id, 2, 1_000, 1, 0, 0, 10**18, name, 50
        acked = event_format.ACKED, job_id, 3, event_format.RUNNING, 1_500, 1, 0, 0, 10**18, name, 50
        tally.count(2_000, (added, delivered, acked), 0.0)


@dataclass
class Round:
    """Milliseconds of the scrapes of a phase, CPU milliseconds of this program, and bytes of the page."""

    spans: list[float]
    costs: list[float]
    size: int


def scraped(watchers: Watchers, tally: Tally | None, rounds: int) -> Round:
    """Scrape `rounds` times, five times a second."""
    found = Round([], [], 0)
    for _ in range(rounds):
        started, cost = time.perf_counter(), time.process_time()
        page = Page("")
        add_nodes(page, watchers.scrape(LIMIT_S))
        if tally is not None:
            tally.add_to(page, 0.0)
        found.size = len(page.text())
        found.spans.append(1_000 * (time.perf_counter() - started))
        found.costs.append(1_000 * (time.process_time() - cost))
        time.sleep(0.2)
    return found


def stalls(nodes: testing.Cluster, folder: Path, work: Callable[[], Round]) -> tuple[Round, list[float]]:
    """Do the work while processes ping the nodes. Return its figures, and the milliseconds of all pings in order."""
    with ExitStack() as stack:
        pings = [stack.enter_context(pinging(parse_address(node.address).port, PING_MS, folder)) for node in nodes]
        found = work()
    return found, sorted(ms for each in pings for ms in each.ordered_ms)


def idle(seconds: float) -> Round:
    """Do nothing, so that the pings show the machine."""
    time.sleep(seconds)
    return Round([0.0], [0.0], 0)


def main() -> None:
    """Measure, and print a line for each phase."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("nodes", 3), ("queues", 1_000), ("jobs", 20_000), ("rounds", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    words = parser.parse_args()
    with testing.cluster(words.nodes) as cluster, TemporaryDirectory() as folder:
        filled(cluster, words.queues, words.jobs)
        addresses = [parse_address(node.address) for node in cluster]
        watchers = Watchers(addresses, make_options((), {}), Selection(limit=words.queues))
        tally = Tally(Selection(limit=words.queues))
        worked(tally, words.queues)
        watchers.scrape(LIMIT_S)
        print(f"{words.nodes} nodes, {words.queues:,} queues; load of the machine before: {os.getloadavg()[0]:.1f}")
        for name, work in (
            ("no scrape", lambda: idle(words.rounds * 0.3)),
            ("without counters of queues", lambda: scraped(watchers, None, words.rounds)),
            ("with counters of queues", lambda: scraped(watchers, tally, words.rounds)),
        ):
            found, pings = stalls(cluster, Path(folder), work)
            print(
                f"{name}: scrape median {statistics.median(found.spans):.0f} ms, longest {max(found.spans):.0f} ms;"
                f" CPU of the program {statistics.median(found.costs):.0f} ms; {found.size / 1e6:.1f} MB;"
                f" pings: 99.9 % {pings[len(pings) * 999 // 1000]:.1f} ms, longest {pings[-1]:.1f} ms"
            )
        watchers.close()


if __name__ == "__main__":
    main()
