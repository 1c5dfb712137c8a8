"""simulator/clients/claimers.py: producers and workers of queues whose jobs need a claim."""

from __future__ import annotations

from dataclasses import replace

import hiredis
import pytest

from disque_py.simulator.checks.claims import ClaimBook
from disque_py.simulator.clients.claimers import (
    FENCE_AT,
    NAMED_ONLY,
    SETTINGS,
    ClaimProducer,
    ClaimWorker,
    Work,
    knows,
    requires_user,
)
from disque_py.simulator.clients.lockers import VoterKeeper
from disque_py.simulator.oracle import Oracle, RuleBrokenError
from disque_py.simulator.plan import ClientPlan
from disque_py.simulator.simulation import Simulation, simulate
from simulated import ask, joined, small_plan

KINDS = ("voter keeper", "claim producer", "claim worker", "claim worker")


def test_workers_take_jobs_under_claims_while_the_voters_change():
    """Spec EX3, EX7."""
    simulation = Simulation(small_plan(3, weather="fair", duration_ms=1, clients=()))
    simulation.world.join(30_000)
    book = ClaimBook()
    for number, kind in enumerate((VoterKeeper, ClaimProducer, ClaimWorker, ClaimWorker)):
        actor = kind(simulation.world, simulation.oracle, simulation.plan, ClientPlan(number, "some"))
        if isinstance(actor, ClaimProducer | ClaimWorker):
            actor.claims = book
        actor.begin()
    simulation.world.run(15_000)
    assert book.deliveries > 10
    assert book.keys
    assert book.limits


def test_a_worker_stops_when_working_tells_it_that_its_job_is_over():
    """Spec EX5."""
    worker = ClaimWorker(
        joined("a"), Oracle(), small_plan(3, weather="fair", duration_ms=1, clients=()), ClientPlan(0, "claim worker")
    )
    worker.claims = ClaimBook()
    worker.claims.added(b"job", ("u0",), 0)
    worker.claims.delivered(b"job", 7, 1, 1_000, 0, 1, "a", 1)
    worker._extended(hiredis.ReplyError("NOJOB Job not known"), (Work(b"job", 7, 1, 1_000), True, 0))
    assert worker.claims.beliefs == {"u0": {}}


@pytest.mark.parametrize(("is_early", "counted"), [(True, ["x0:u0"]), (False, [])])
def test_a_job_counts_if_its_node_knew_the_settings_when_it_was_added(is_early, counted):
    """Spec EX1: without them, a node stamps no jobs, and may deliver them without a claim. Seed 14330."""
    world = joined("a")
    producer = ClaimProducer(
        world, Oracle(), small_plan(3, weather="fair", duration_ms=1, clients=()), ClientPlan(0, "claim producer")
    )
    producer.claims = ClaimBook()
    assert ask(world, "a", "CLUSTER", "VOTERS", "INIT", world.machines["a"].broker.me.id.hex()) == b"OK"
    setting = ("QUEUE", "SET", "x0", "type", "exclusive", "exclusive-by", "user")
    if is_early:
        assert ask(world, "a", *setting) == b"OK"
    was_known = knows(world.machines["a"], "x0")
    if not is_early:
        assert ask(world, "a", *setting) == b"OK"
    producer._added(b"job", ("x0", ("x0:u0",), 0, world.machines["a"], was_known))
    assert [key for keys in producer.claims.keys.values() for key in keys] == counted


def test_a_worker_that_comes_late_is_fenced_by_a_later_delivery():
    """Spec EX6."""
    world = joined("a")
    for words in (("CLUSTER", "VOTERS", "INIT", world.machines["a"].broker.me.id.hex()),
                  ("QUEUE", "SET", "x0", "type", "exclusive", "exclusive-by", "user")):  # fmt: skip
        assert ask(world, "a", *words) == b"OK"
    job_id = ask(world, "a", "ADDJOB", "x0", "body", 0, "RETRY", 5, "META", "user", "u0")
    fence = ask(world, "a", "GETJOB", "WITHLEASE", "FROM", "x0")[0][FENCE_AT]
    plan = small_plan(3, weather="fair", duration_ms=1, clients=())
    worker = ClaimWorker(world, Oracle(), plan, ClientPlan(0, "claim worker"))
    worker._come_late(Work(job_id, fence - 1, 1, 400), world.machines["a"])
    world.run(200)
    assert worker.oracle.errors == {"FENCED": 1}


def test_a_worker_that_learns_that_its_job_is_gone_gives_it_up():
    """Spec EX5: the claim ends with the answer to its WORKING."""
    plan = small_plan(3, weather="fair", duration_ms=1, clients=())
    worker = ClaimWorker(joined("a"), Oracle(), plan, ClientPlan(0, "claim worker"))
    worker.claims.added(b"one", ("ann",), 0)
    worker.claims.delivered(b"one", 5, 1, 10_000, 0, 10, "a", 1)
    about = (Work(b"one", 5, 1, 10_000), False, 20)
    worker._extended(Exception("TOOLATE …"), about)
    assert worker.claims.beliefs["ann"]
    worker._extended(Exception("NOJOB …"), about)
    assert not worker.claims.beliefs["ann"]


@pytest.mark.parametrize("weather", ["fair", "halves", "pauses", "drift"])
def test_claims_keep_their_rules_in_all_weathers(weather):
    """Spec EX3, EX6."""
    clients = tuple(ClientPlan(number, kind) for number, kind in enumerate(KINDS))
    plan = replace(small_plan(5, weather=weather, duration_ms=5_000), clients=clients)
    result = simulate(plan)
    assert result.failure is None


@pytest.mark.parametrize("name", ["x0", "x1"])
def test_a_job_without_the_meta_that_its_queue_requires_must_be_refused(name):
    """Spec EX1, QS7."""
    world = joined("a")
    machine = world.machines["a"]
    producer = ClaimProducer(
        world, Oracle(), small_plan(3, weather="fair", duration_ms=1, clients=()), ClientPlan(0, "claim producer")
    )
    assert ask(world, "a", "CLUSTER", "VOTERS", "INIT", machine.broker.me.id.hex()) == b"OK"
    producer._nameless(b"job", (name, machine, requires_user(machine, name)))
    assert ask(world, "a", "QUEUE", "SET", name, *SETTINGS[name]) == b"OK"
    reply = ask(world, "a", "ADDJOB", name, "body", 0, "RETRY", 5, "META", "x", "user")
    assert str(reply) == "NOKEY The queue requires META 'user'"
    producer._nameless(reply, (name, machine, True))
    with pytest.raises(RuleBrokenError, match=NAMED_ONLY):
        producer._nameless(b"job", (name, machine, True))
    with pytest.raises(RuleBrokenError, match=NAMED_ONLY):
        producer._added(reply, (name, (), 0, machine, True))
