"""The fate of each flight. Pure: callers give the times, in seconds on one clock.

A flight counts as delivered when its first delivery carried exactly the queue and body that were added. Every later
delivery counts as repeated. Its cause may be a retry, a lost ack, or an add that was sent again because its answer was
lost with a killed node.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from disque_py.cli.demo.flights import row_of

if TYPE_CHECKING:
    from disque_py.cli.demo.flights import Flights

# One flight in this many is added without a number of copies, so that the cluster chooses. The others have two copies.
# The README has the cost of both.
DEFAULT_COPIES_EVERY: Final = 10


def has_default_copies(row: int) -> bool:
    """Return whether this flight is added without REPLICATE, so that the cluster chooses the number of copies."""
    return row % DEFAULT_COPIES_EVERY == 0


@dataclass(frozen=True, slots=True)
class Report:
    """The figures at the end; counts are flights, times are seconds."""

    wanted: int
    added: int
    delivered: int
    delivered_again: int
    lost: int
    foreign: int
    adds_repeated: int
    longest_add: float
    longest_default_add: float
    seconds: float
    p50: float
    p99: float

    @property
    def per_second(self) -> float:
        """Flights added, delivered and acknowledged per second."""
        return self.delivered / self.seconds if self.seconds else 0.0

    @property
    def is_good(self) -> bool:
        """Whether every flight was added, and delivered as it was added."""
        return not self.lost and not self.foreign and self.added == self.wanted


class Tally:
    """Adds and deliveries, per flight and per node.

    added_by, delivered_by   per node, in the order of the cluster
    unanswered               flights delivered whose add has no answer yet
    acknowledged             ids confirmed by an ACKJOB
    adds_repeated            adds sent again, because they were refused or not answered
    foreign                  deliveries of jobs that were never added
    longest_add              seconds from the first attempt at an add to its answer, of the flight that took longest
    longest_default_add      the same, of the flights that were added with the default number of copies
    """

    def __init__(self, flights: Flights, node_count: int) -> None:
        self._flights = flights
        self._sent_at = array("d", bytes(8 * len(flights)))
        self._latencies = array("d")
        self._is_added = bytearray(len(flights))
        self._deliveries = array("H", bytes(2 * len(flights)))
        self.added_by = [0] * node_count
        self.delivered_by = [0] * node_count
        self.added = 0
        self.delivered = 0
        self.unanswered = 0
        self.acknowledged = 0
        self.adds_repeated = 0
        self.foreign = 0
        self.longest_add = self.longest_default_add = 0.0
        self.last_delivery_at = 0.0

    def sending(self, row: int, now: float) -> None:
        """Note that an ADDJOB is about to be sent. A repeated one keeps the time of the first."""
        if not self._sent_at[row]:
            self._sent_at[row] = now

    def was_added(self, row: int, node: int, now: float) -> None:
        """Note that a node answered with a job id."""
        self.added_by[node] += 1
        waited = now - self._sent_at[row]
        self.longest_add = max(self.longest_add, waited)
        if has_default_copies(row):
            self.longest_default_add = max(self.longest_default_add, waited)
        if not self._is_added[row]:
            self._is_added[row] = 1
            self.added += 1
            if self._deliveries[row]:
                self.unanswered -= 1

    def all_were_added(self) -> None:
        """Note that a producer which reports only once, at the end, has done so."""
        self._is_added = bytearray(b"\1") * len(self._is_added)
        self.added = len(self._is_added)
        self.unanswered = 0

    @property
    def arrived(self) -> int:
        """Flights that are certainly added: a node confirmed it, or a worker got the job. At least `delivered`."""
        return self.added + self.unanswered

    def was_delivered(self, queue: bytes, body: bytes, node: int, now: float) -> bool:
        """Note that a worker got this job. Return whether it is the flight's first delivery."""
        try:
            row = row_of(body)
            is_ours = self._flights.bodies[row] == body and self._flights.queues[row] == queue
        except (ValueError, IndexError):
            is_ours = False
        if not is_ours:
            self.foreign += 1
            return False
        self.delivered_by[node] += 1
        self._deliveries[row] += 1
        if self._deliveries[row] > 1:
            return False
        if not self._is_added[row]:
            self.unanswered += 1
        self.delivered += 1
        self.last_delivery_at = now
        self._latencies.append(now - self._sent_at[row])
        return True

    @property
    def is_complete(self) -> bool:
        """Whether every flight was added and delivered."""
        return self.added == self.delivered == len(self._flights)

    def report(self, seconds: float) -> Report:
        """Return the final figures. `seconds` is the time from the first add to the last first delivery."""
        return Report(
            wanted=len(self._flights),
            added=self.added,
            delivered=self.delivered,
            delivered_again=sum(count > 1 for count in self._deliveries),
            lost=sum(count == 0 for count in self._deliveries),
            foreign=self.foreign,
            adds_repeated=self.adds_repeated,
            longest_add=self.longest_add,
            longest_default_add=self.longest_default_add,
            seconds=seconds,
            p50=percentile(self._latencies, 0.50),
            p99=percentile(self._latencies, 0.99),
        )


def percentile(values: array[float], share: float) -> float:
    """Return the smallest value that `share` of all values do not exceed; 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
