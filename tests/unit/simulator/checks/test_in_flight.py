"""In flight: decisions of a node that no other process can see yet."""

from __future__ import annotations

import pytest

from disque_py.core import handover, lifecycle
from disque_py.simulator.checks.cluster_invariants import Losses, look
from disque_py.simulator.checks.in_flight import is_unsafe, unsafe_ms, unseen_jobs, unsent_jobs
from disque_py.simulator.oracle import Oracle
from disque_py.simulator.world.world import World
from simulated import ask, asker, journaling_pair, words


@pytest.fixture
def world():
    return journaling_pair()


def give(world: World, job_id: bytes) -> None:
    """Let a hand the job over to b."""
    machine = world.machines["a"]
    machine.open()
    broker = machine.broker
    job = broker.find(job_id)
    lifecycle.dequeue(broker, job)
    handover.hand_over(broker, broker.cluster.find(world["b"].me.id), [job])
    machine.close()


def test_a_job_in_a_reply_that_waits_for_its_record_is_under_way(world):
    """The client has not read it."""
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0, "REPLICATE", 1)
    world.machines["a"].journal_storage.disk.is_stuck = True
    asker(world, "a").send([words("GETJOB", "FROM", "q")])
    world.run(5)
    assert list(unseen_jobs(world.machines["a"])) == [job_id]
    world.machines["a"].journal_storage.disk.free()
    world.run(50)
    assert not list(unseen_jobs(world.machines["a"]))


def test_a_job_in_a_message_that_waits_is_under_way_from_the_turn_on(world):
    """A process may be stopped in the middle of a turn."""
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0, "REPLICATE", 1)
    machine = world.machines["a"]
    machine.journal_storage.disk.is_stuck = True
    give(world, job_id)
    assert list(unsent_jobs(machine)) == [job_id]
    world.run(5)
    assert list(unsent_jobs(machine)) == [job_id]
    machine.journal_storage.disk.free()
    world.run(50)
    assert not list(unsent_jobs(machine))


def test_knowledge_that_is_not_on_disk_is_as_old_as_its_record(world):
    """Until then, a crash brings back the state before."""
    machine = world.machines["a"]
    assert unsafe_ms(machine) == world.now_ms
    machine.journal_storage.disk.is_stuck = True
    began_ms = world.now_ms
    asker(world, "a").send([words("ADDJOB", "q", "x", 0, "REPLICATE", 1)])
    world.run(70)
    assert unsafe_ms(machine) == began_ms
    machine.journal_storage.disk.free()
    world.run(50)
    assert unsafe_ms(machine) == world.now_ms


def test_a_node_without_a_journal_has_nothing_to_lose_but_itself():
    """Its death counts as a mishap anyway."""
    world = World("a")
    world.run(10)
    assert unsafe_ms(world.machines["a"]) == world.now_ms


def test_nothing_is_over_while_a_hand_over_waits_for_its_record(world):
    """All nodes know of the ack, but the delivery leaves later and repeats the job: at least once, as promised."""
    oracle = Oracle()
    promise = oracle.add(b"q", 20, 300_000, 3_600_000, 1, world.now_ms)
    job_id = ask(world, "a", "ADDJOB", "q", promise.body(), 0, "REPLICATE", 1, "RETRY", 300)
    oracle.answered(promise, job_id, world.now_ms)
    machine = world.machines["a"]
    machine.journal_storage.disk.is_stuck = True
    give(world, job_id)
    oracle.acknowledging(promise, world.now_ms)
    lifecycle.acknowledge(machine.broker, machine.broker.find(job_id))
    oracle.acknowledged(promise, world.now_ms)
    for _ in range(3):
        world.run(20)
        look(world, oracle, Losses(oracle))
    assert not promise.is_over


def test_a_record_that_a_disk_does_not_take_is_unsafe(world):
    """The end of the process would lose it."""
    machine = world.machines["a"]
    assert not is_unsafe(machine)
    machine.journal_storage.disk.is_stuck = True
    asker(world, "a").send([words("ADDJOB", "q", "x", 0, "REPLICATE", 1)])
    world.run(5)
    assert is_unsafe(machine)
    machine.journal_storage.disk.free()
    world.run(50)
    assert not is_unsafe(machine)
