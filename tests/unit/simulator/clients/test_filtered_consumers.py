"""Filtered consumers: they take jobs with certain metadata, and no others."""

from __future__ import annotations

import pytest

from disque_py.simulator.clients.filtered_consumers import FilteredConsumer
from disque_py.simulator.clients.keyed_producers import META
from disque_py.simulator.oracle import Oracle, RuleBrokenError
from disque_py.simulator.plan import ClientPlan
from simulated import ask, joined, small_plan


@pytest.fixture
def consumer():
    world = joined("ab")
    consumer = FilteredConsumer(world, Oracle(), small_plan(3, nodes=2), ClientPlan(0, "filtered consumer"))
    for pair in META:
        promise = consumer.oracle.add(b"q0", 20, 5_000, 3_600_000, 1, world.now_ms)
        options = ("RETRY", 5, "REPLICATE", 1, "META", *pair)
        job_id = ask(world, "a", "ADDJOB", "q0", promise.body(), 0, *options)
        consumer.oracle.answered(promise, job_id, world.now_ms)
    return consumer


def test_a_filtered_consumer_gets_jobs_with_the_pairs_it_asks_for(consumer):
    consumer.begin()
    consumer.world.run(30_000)
    assert consumer.oracle.delivered >= len(META)


@pytest.mark.plain
def test_a_job_that_does_not_match_the_filter_breaks_a_rule(consumer):
    with pytest.raises(RuleBrokenError, match="a filter is kept"):
        consumer._got_filtered([[b"q0", b"id", b"x", b"meta", []]], (None, {b"tail": b"N14228"}))
