"""Transitions: from the events of all nodes, the number of jobs by queue, and how long they waited and ran.

The node on which a job changes its state writes an event (docs/events.md). Nodes with copies write none, except for an
end that several holders see, such as an expiry. So the end of a job is counted once, by its id, within the last
ENDS_KEPT ends. Figures are those of the cluster and have no label `node`, because a job may be added on one node and
completed on another.

Counters begin at 0 when the program begins to read. A queue has all of its counters from its first event on. The
selection limits the number of queues with labels, and the others are counted together. A queue frees its place after
IDLE_S seconds without events, if it exists on no node.

An event that can't be read is left out and counted in `disque_events_uncounted_total`, so it stops no reader.

This module counts the events that it gets, in any thread. It knows no node and no clock.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Final, Literal

from disque_py import event_format as events
from disque_py.gateway.metrics.exposition import Page, escaped, line
from disque_py.gateway.metrics.selection import Selection
from disque_py.gateway.metrics.table import OTHER, RUN_SECONDS, TRANSITIONS, UNCOUNTED, WAIT_SECONDS, Metric

# Ends that are remembered, because several nodes may report one. See the module for both.
ENDS_KEPT: Final = 100_000
IDLE_S: Final = 3_600.0
# Upper bounds in seconds, from jobs that are served immediately to jobs that take a night.
BOUNDS: Final = (0.01, 0.1, 0.5, 2.0, 10.0, 60.0, 600.0)

ADDED, DELIVERED, COMPLETED, FAILED, REQUEUED, EXPIRED, ERRORED, CANCELED = range(len(TRANSITIONS))
COUNTED: Final = {
    events.ADDED: ADDED,
    events.ADDED_ANYHOW: ADDED,
    events.ADDED_INVISIBLE: ADDED,
    events.DELIVERED: DELIVERED,
    events.ACKED: COMPLETED,
    events.NACKED: FAILED,
    events.NACKED_INVISIBLE: FAILED,
    events.REQUEUED: REQUEUED,
    events.REQUEUED_INVISIBLE: REQUEUED,
    events.EXPIRED_EVENT: EXPIRED,
    events.ERRORED_EVENT: ERRORED,
    events.CANCELED_EVENT: CANCELED,
    events.DELETED: CANCELED,
}
ENDS: Final = frozenset((COMPLETED, EXPIRED, CANCELED))
# The events that end the work of a consumer. The node knows when that work began.
RUNS: Final = frozenset(
    (
        events.ACKED,
        events.NACKED,
        events.NACKED_INVISIBLE,
        events.ERRORED_EVENT,
        events.DEAD_LETTERED,
        events.DEAD_LETTERED_INVISIBLE,
        events.CANCELED_EVENT,
    )
)
# The reason why events are not counted.
Reason = Literal["trimmed", "unreadable"]

_log = logging.getLogger(__name__)


class Durations:
    """A histogram: the number of durations under each bound, and their sum."""

    __slots__ = ("_heads", "_tail", "buckets", "sum_ms")

    def __init__(self, metric: Metric, label: str) -> None:
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.sum_ms = 0
        bounds = (*(f"{bound:g}" for bound in BOUNDS), "+Inf")
        self._heads = [f'{metric.name}_bucket{{queue="{label}",le="{bound}"}} ' for bound in bounds]
        self._tail = f'{metric.name}_sum{{queue="{label}"}} ', f'{metric.name}_count{{queue="{label}"}} '

    def add(self, ms: int) -> None:
        """Count one duration. If a clock was set back, it counts as 0 and not as a negative number."""
        ms = max(0, ms)
        self.buckets[bisect_left(BOUNDS, ms / 1000)] += 1
        self.sum_ms += ms

    def lines(self) -> str:
        """Return the samples; empty without durations."""
        total = 0
        parts = []
        for head, count in zip(self._heads, self.buckets, strict=True):
            total += count
            parts.append(f"{head}{total}\n")
        if not total:
            return ""
        parts.append(f"{self._tail[0]}{self.sum_ms / 1000}\n{self._tail[1]}{total}\n")
        return "".join(parts)


class QueueTally:
    """The figures of one queue. `seen_s` is the moment of its last event."""

    __slots__ = ("counts", "heads", "run", "seen_s", "wait")

    def __init__(self, name: str) -> None:
        label = escaped(name)
        self.counts = [0] * len(TRANSITIONS)
        self.heads = [f'{metric.name}{{queue="{label}"}} ' for metric in TRANSITIONS]
        self.wait = Durations(WAIT_SECONDS, label)
        self.run = Durations(RUN_SECONDS, label)
        self.seen_s = 0.0


class Tally:
    """The figures of all queues.

    selection   the queues with labels, shared with other metrics of the scrape
    """

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._lock = threading.Lock()
        self._queues: dict[bytes, QueueTally] = {}
        self._other = QueueTally(OTHER)
        self._ended: dict[bytes, None] = {}
        self._uncounted: dict[Reason, int] = {"trimmed": 0, "unreadable": 0}

    def count(self, wall_ms: int, found: Iterable[Any], now_s: float) -> None:
        """Count the events of one block. They happened at `wall_ms`, Unix milliseconds by the clock of their node."""
        with self._lock:
            for event in found:
                try:
                    if len(event) > events.FIELDS_OF_NODE:
                        self._count(wall_ms, events.in_full(event), now_s)
                except Exception as error:  # A node may send anything, and the events behind this one are good.
                    self._miss("unreadable", 1, error)

    def miss(self, reason: Reason, count: int, error: Exception | None = None) -> None:
        """Count events that are not counted by queue."""
        with self._lock:
            self._miss(reason, count, error)

    def _miss(self, reason: Reason, count: int, error: Exception | None) -> None:
        if reason == "unreadable" and not self._uncounted[reason]:
            _log.error("an event can't be read, and is missing in the counters of queues", exc_info=error)
        self._uncounted[reason] += count

    def _count(self, wall_ms: int, event: Any, now_s: float) -> None:
        code, job_id, _, left, since_ms, _, _, _, _, queue, *_ = event
        at = COUNTED.get(code)
        if at is None and code not in RUNS:
            return
        if at in ENDS and not self._ends(job_id):
            return
        tally = self._queues.get(queue) or self._of(queue)
        tally.seen_s = now_s
        if at is not None:
            tally.counts[at] += 1
        if since_ms:
            if at == DELIVERED and left == events.PENDING:
                tally.wait.add(wall_ms - since_ms)
            elif left == events.RUNNING and code in RUNS:
                tally.run.add(wall_ms - since_ms)

    def _ends(self, job_id: bytes) -> bool:
        """Return whether this is the first end of this job."""
        if job_id in self._ended:
            return False
        self._ended[job_id] = None
        if len(self._ended) > ENDS_KEPT:
            del self._ended[next(iter(self._ended))]
        return True

    def _of(self, queue: bytes) -> QueueTally:
        name = queue.decode("utf-8", "surrogateescape")
        if not self._selection.take(self, name):
            return self._other
        tally = self._queues[queue] = QueueTally(name)
        return tally

    def add_to(self, page: Page, now_s: float) -> None:
        """Add the metrics to a page. Free the places of queues that are gone for long."""
        with self._lock:
            for queue, tally in list(self._queues.items()):
                name = queue.decode("utf-8", "surrogateescape")
                if now_s - tally.seen_s > IDLE_S and self._selection.is_only(self, name):
                    self._selection.give_up(self, name)
                    del self._queues[queue]
            tallies = list(self._queues.values())
            if any(self._other.counts):
                tallies.append(self._other)
            for at, metric in enumerate(TRANSITIONS):
                page.add(metric, [f"{tally.heads[at]}{tally.counts[at]}\n" for tally in tallies])
            page.add(WAIT_SECONDS, [lines for tally in tallies if (lines := tally.wait.lines())])
            page.add(RUN_SECONDS, [lines for tally in tallies if (lines := tally.run.lines())])
            page.add(UNCOUNTED, [line(UNCOUNTED, (reason,), count) for reason, count in self._uncounted.items()])
