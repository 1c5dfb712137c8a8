"""simulator/checks/ticks.py: two jobs of one tick are found, unless there was a fault."""

from __future__ import annotations

import pytest

from disque_py.core.keys import key_chars
from disque_py.core.recurring import Schedule
from disque_py.simulator.checks.cluster_invariants import jobs_of
from disque_py.simulator.checks.ticks import STALE_MS, Generation, Tick, TickBook
from disque_py.simulator.oracle import Oracle, RuleBrokenError
from disque_py.simulator.simulation import Simulation
from simulated import ask, joined, small_plan

TICK = Tick(b"s", 7, b"1000")


@pytest.fixture
def book():
    simulation = Simulation(small_plan(3, weather="fair", duration_ms=1, clients=()))
    return TickBook(simulation.world, simulation.oracle)


def test_two_jobs_of_a_tick_break_the_rule(book):
    """Spec SD4."""
    book.seen(TICK, b"one", is_settled=True)
    book.seen(TICK, b"one", is_settled=True)
    with pytest.raises(RuleBrokenError, match="one job per tick"):
        book.seen(TICK, b"two", is_settled=True)


def test_a_partition_may_make_two_jobs_of_a_tick(book):
    """Spec SD9."""
    book.seen(TICK, b"one", is_settled=True)
    book.seen(TICK, b"two", is_settled=False)
    assert len(book.jobs[TICK]) == 2


def test_two_generations_may_each_have_a_job_at_one_moment(book):
    """Spec SD5: a node that has not heard of a SET fires the ticks of the one before."""
    book.seen(TICK, b"one", is_settled=True)
    book.seen(TICK._replace(generation=8), b"two", is_settled=True)
    assert len(book.jobs) == 2


def test_a_generation_that_no_node_knows_makes_no_job(book):
    """Spec SD5: an ADDJOB that had begun is over after three seconds."""
    now_ms = book.world.now_ms
    book.generations[b"s"] = {7: Generation(b"q", now_ms - STALE_MS)}
    book.seen(TICK, b"one", is_settled=True)
    book.generations[b"s"] = {7: Generation(b"q", now_ms - STALE_MS - 1)}
    with pytest.raises(RuleBrokenError, match="fires no more"):
        book.seen(TICK._replace(tick_ms=b"2000"), b"two", is_settled=True)


def test_the_id_of_a_job_says_the_generation_of_its_tick(book):
    """Spec SD4, K1."""
    book.generations[b"s"] = {6: Generation(b"q", 0), 7: Generation(b"q", 0)}
    job_id = b"D-00000000-%b======-0001" % key_chars(b"q", b"x-disque-tick:s:7:1000")
    assert book.tick_of(b"s", b"1000", job_id) == TICK
    assert book.tick_of(b"s", b"2000", job_id).generation == 0


def test_a_job_counts_as_soon_as_its_addjob_has_succeeded():
    """Seed 8847. A node that is short of memory refuses copies, so a creator may give the job up. Spec SD4."""
    world = joined("ab")
    book = TickBook(world, Oracle())
    assert ask(world, "a", "SCHEDULE", "SET", "s", "EVERY", "1000ms", "QUEUE", "q", "REPLICATE", 2) == b"OK"
    assert ask(world, "b", "CONFIG", "SET", "maxmemory", 1) == b"OK"
    world.until(lambda: any(jobs_of(world.machines["a"].broker)), 10_000)
    book.look()
    assert book.jobs == {}
    assert ask(world, "b", "CONFIG", "SET", "maxmemory", 0) == b"OK"
    world.run(2_000)
    book.look()
    assert {len(jobs) for jobs in book.jobs.values()} == {1}


def test_a_recorded_tick_never_falls_unless_a_reset_makes_the_node_forget_it():
    """Spec SD5: a node that was reset may learn an older state first."""
    world = joined("a")
    assert ask(world, "a", "SCHEDULE", "SET", "s", "EVERY", "1000ms", "QUEUE", "q", "TTL", 6) == b"OK"
    world.run(3_000)
    known = world.machines["a"].broker.recurring.known
    book = TickBook(world, Oracle())
    book.look()
    older = Schedule(b"s", known[b"s"].definition, known[b"s"].packed)
    older.progress = known[b"s"].progress._replace(last_ms=1)
    known[b"s"], newer = older, known[b"s"]
    book.look()
    newer.progress, known[b"s"] = older.progress._replace(last_ms=2), newer
    book.look()
    newer.progress = newer.progress._replace(last_ms=1)
    with pytest.raises(RuleBrokenError, match="never falls"):
        book.look()
