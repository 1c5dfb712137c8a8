"""disque_py/cli/demo/tally.py: counts of adds and deliveries, and the verdict."""

from __future__ import annotations

from array import array

import pytest

from disque_py.cli.demo.flights import Flights
from disque_py.cli.demo.tally import Tally, has_default_copies, percentile


@pytest.fixture
def flights():
    """Three flights of two carriers."""
    return Flights([b"UA", b"B6", b"UA"], [b'{"row":0,"x":1}', b'{"row":1,"x":1}', b'{"row":2,"x":1}'])


@pytest.fixture
def tally(flights):
    """An empty tally for two nodes."""
    return Tally(flights, 2)


def carry(tally, flights, row, *, node=0, at=1.0):
    """Add and deliver a flight. Return whether the delivery was the first."""
    tally.sending(row, at - 1.0)
    tally.was_added(row, node, at)
    return tally.was_delivered(flights.queues[row], flights.bodies[row], node, at)


def test_all_flights_added_and_delivered_is_complete_and_good(tally, flights):
    """Exit status 0 requires this."""
    assert all(carry(tally, flights, row) for row in range(3))
    report = tally.report(2.0)
    assert tally.is_complete
    assert report.is_good
    assert (report.added, report.delivered, report.lost, report.per_second) == (3, 3, 0, 1.5)


def test_a_flight_never_delivered_is_lost(tally, flights):
    """An add means that a node promised to deliver the flight."""
    carry(tally, flights, 0)
    tally.was_added(1, 0, 9.0)
    report = tally.report(1.0)
    assert report.lost == 2
    assert not report.is_good


def test_a_delivered_flight_has_arrived_whatever_reply_its_producer_got(tally, flights):
    """The reply may be late or lost. The display never shows more deliveries than adds."""
    tally.sending(0, 0.0)
    tally.was_delivered(flights.queues[0], flights.bodies[0], 0, 1.0)
    assert (tally.added, tally.delivered, tally.arrived) == (0, 1, 1)
    tally.was_added(0, 0, 9.0)
    tally.was_added(1, 0, 9.0)
    assert (tally.added, tally.delivered, tally.arrived) == (2, 1, 2)


def test_a_second_delivery_counts_the_flight_once(tally, flights):
    """`delivered_again` counts flights that were delivered more than once, not their deliveries."""
    assert carry(tally, flights, 0)
    assert not carry(tally, flights, 0, node=1)
    assert not carry(tally, flights, 0, node=1)
    report = tally.report(1.0)
    assert (report.delivered, report.delivered_again) == (1, 1)
    assert tally.delivered_by == [1, 2]


def test_an_add_that_was_repeated_counts_the_flight_once(tally):
    """Both copies were added, but they are one flight. Its times start at the first attempt."""
    tally.sending(0, 5.0)
    tally.sending(0, 9.0)
    tally.was_added(0, 0, 9.0)
    tally.was_added(0, 1, 9.0)
    assert tally.longest_add == 4.0

    tally.was_delivered(b"UA", b'{"row":0,"x":1}', 0, 10.0)
    assert tally.added == 1
    assert tally.report(1.0).p50 == 5.0


def test_the_longest_wait_is_also_that_of_flights_with_the_default_copies(tally):
    """When a node crashes, producers that don't set the number of copies wait for a second at most."""
    for row, at in ((0, 6.0), (1, 9.0)):
        tally.sending(row, 5.0)
        tally.was_added(row, 0, at)
    assert has_default_copies(0)
    assert not has_default_copies(1)
    assert (tally.longest_default_add, tally.longest_add) == (1.0, 4.0)


@pytest.mark.parametrize(
    ("queue", "body"), [(b"B6", b'{"row":0,"x":1}'), (b"UA", b'{"row":0,"x":2}'), (b"UA", b"?"), (b"UA", b'{"row":9,')]
)
def test_a_delivery_that_differs_from_the_added_flight_is_no_delivery(tally, queue, body):
    """Each delivery is compared with the data set, byte for byte."""
    assert not tally.was_delivered(queue, body, 0, 1.0)
    report = tally.report(1.0)
    assert (report.delivered, report.foreign, report.is_good) == (0, 1, False)


def test_percentiles_are_values_that_occurred():
    """There is no interpolation: p99 of a hundred values is one of the two largest."""
    values = array("d", range(100))
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile(array("d"), 0.5) == 0.0
