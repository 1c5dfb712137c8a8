"""The liveness phase: rules for the time after the weather, each broken once."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from cluster_bus.messages import BATCHSUM, GOTJOB, INTEREST, PAUSE
from copies import make_id
from disque_py.core import acks, keeping, requeue, timers
from disque_py.core.batch_ends import LOOK_MS
from disque_py.core.batch_state import KEEPERS, LIVE, PARTS, Push
from disque_py.core.id_sets import pack_id
from disque_py.event_format import COMPLETED
from disque_py.node import dispatch
from disque_py.simulator.clients.connection import words
from disque_py.simulator.liveness_phase import SETTLE_MS, remains
from disque_py.simulator.oracle import RuleBrokenError
from disque_py.simulator.simulation import IDS, Simulation
from disque_py.simulator.trace import Trace
from simulated import ask, joined, small_plan


def played(trace: Trace | None = None, **options) -> Simulation:
    """Return a simulation that was played up to the liveness phase."""
    simulation = Simulation(small_plan(4, duration_ms=800, **options), trace)
    simulation.world.join(30_000)
    simulation.world.run(800)
    return simulation


def test_the_liveness_phase_drains_everything():
    """No node has jobs left, and the duration is known."""
    simulation = played()
    simulation.liveness.play()
    assert list(simulation.liveness._left()) == []
    assert simulation.liveness.drain_ms > 0


def test_a_queue_with_a_cap_gets_the_time_that_its_slots_need():
    """On slow links a slot serves only a few jobs per second (seed 24185)."""
    simulation = played()
    assert simulation.liveness._capped_ms() == 0
    assert ask(simulation.world, simulation.world.running()[0].name, "QUEUE", "SET", "q0", "max-running", 2) == b"OK"
    ids = {job.id for _, job in simulation.liveness._left() if job.terms.queue == b"q0"}
    assert simulation.liveness._capped_ms() == len(ids) * 2 * simulation.plan.delay_ms[1] > 0


def test_nodes_that_are_down_come_up():
    """Stopped nodes go on, and killed nodes start."""
    simulation = played()
    first, second, *_ = simulation.world.machines.values()
    first.die(power=True)
    second.stop()
    simulation.oracle.unrest_ms = simulation.world.now_ms
    simulation.liveness.play()
    assert len(simulation.world.running()) == len(simulation.world.machines)


def test_a_pause_of_all_nodes_is_lifted_on_nodes_that_hear_of_it_late():
    """They would learn of it with the next link (seed 30101)."""
    simulation = played()
    world = simulation.world
    world.traffic.filter = lambda sender, receiver, kind, item: kind == PAUSE
    paused = simulation.targets.pause(world.machines["a"], b"q0", "all", ("bcast",))
    world.traffic.filter = None
    simulation.targets.end_pause(paused)
    simulation.liveness._lift_limits()
    world.run(100)
    world.network.hiccup("a", "b")
    world.run(1_000)
    assert [machine.broker.pauses.paused_count for machine in world.running()] == [0] * len(world.machines)


def test_the_liveness_phase_ends_no_pause_that_an_operator_has_ended():
    """The cluster must do that. A lasting pause is excused only if a node lost the operator's command."""
    simulation = played()
    world, targets = simulation.world, simulation.targets
    paused = targets.pause(world.machines["a"], b"q0", "all", ("bcast",))
    paused.is_ended = True
    world.run(100)
    with pytest.raises(RuleBrokenError, match="an ended pause stays ended"):
        simulation.liveness._lift_limits()
    targets.lose_pauses(world.machines["a"])
    simulation.liveness._lift_limits()
    assert not any(machine.broker.pauses.paused_count for machine in world.running())


@pytest.mark.parametrize(
    ("module", "name", "rule"),
    [
        (acks, "on_gotack", "jobs that are done vanish"),
        (requeue, "on_timer", "books are right"),
        (requeue, "on_willqueue", "a waiting job is not queued again"),
    ],
)
@pytest.mark.plain
def test_work_that_does_not_come_to_an_end_is_found(monkeypatch, module, name, rule):
    """Examples are acks without answers, jobs that no node queues again, and endless questions about waiting jobs."""
    for table in (module, timers, dispatch):
        if hasattr(table, name):
            monkeypatch.setattr(table, name, lambda *_: None)
    for kind, handler in list(dispatch.MESSAGES.items()):
        if handler.__name__ == name:
            monkeypatch.setitem(dispatch.MESSAGES, kind, lambda *_: None)
    with pytest.raises(RuleBrokenError, match=rule):
        played().liveness.play()


def idle_line(simulation):
    """Return the connection of a client that asks nothing any more."""
    for actor in simulation.actors:
        actor.end()
    simulation.world.run(3_000)
    return next(actor.line for actor in simulation.actors if actor.line is not None and not actor.line.outstanding)


def test_a_client_that_repeats_a_command_is_answered():
    """Seed 18871: it sent the command again in the moment of the check."""
    simulation = played()
    world = simulation.world
    line = idle_line(simulation)

    def repeat():
        line.ask([(words("PING"), lambda reply, about: None, "PING")], 1)
        world.later(500, repeat)

    repeat()
    simulation.liveness._answer()
    assert line.answered > 1


def test_a_client_without_an_answer_is_found():
    simulation = played()
    line = idle_line(simulation)
    line._waiting.append((lambda reply, about: None, "PING"))
    with pytest.raises(RuleBrokenError, match=r"clients are answered.*first PING"):
        simulation.liveness._answer()


def test_a_cluster_that_talks_without_need_is_found():
    """Here nodes repeat their interest although no client waits."""
    simulation = played()
    world = simulation.world
    machine = world.machines["a"]

    def talk():
        machine.open()
        machine.broker.send(machine.membership.table.linked, INTEREST, (b"q0", -1))
        machine.close()
        world.later(500, talk)

    talk()
    with pytest.raises(RuleBrokenError, match="silence"):
        simulation.liveness.play()


def test_broken_silence_is_reported_with_the_beginning_of_it():
    """The transcript ends with the first of the endless messages, and shows the job that they name."""
    simulation = played(Trace(is_read=True))
    world = simulation.world
    job = next(promise.id for promise in simulation.oracle.promises if promise.id)

    def talk():
        machine = world.machines["a"]
        machine.open()
        machine.broker.send(machine.membership.table.linked, GOTJOB, job)
        machine.close()
        world.later(300, talk)

    talk()
    with pytest.raises(RuleBrokenError, match="silence") as broken:
        simulation.liveness.play()
    lines = simulation.trace.around([IDS.of(word) for word in broken.value.words], 60)
    assert "GOTJOB" in lines[-1]
    assert any("ACKJOB" in line for line in lines)
    assert "after all jobs were gone" in broken.value.detail


@pytest.mark.parametrize(("confirmed_ms", "waited_ms"), [(0, 0), (2_000, 2_000), (60_000, LOOK_MS)])
def test_before_the_silence_lost_ids_of_batches_are_sent_again(confirmed_ms, waited_ms):
    """Seed 10229: a link came up on one side only, so the first message with the ids was lost."""
    simulation = played()
    world, machine = simulation.world, simulation.world.machines["a"]
    if confirmed_ms:
        machine.broker.batches.pushes[b"b"] = Push(b"b", 1, machine.broker.now_ms)
        world.later(confirmed_ms, machine.broker.batches.pushes.clear)
    start_ms = world.now_ms
    simulation.liveness._push_ids()
    assert waited_ms <= world.now_ms - start_ms <= waited_ms + 100


def test_before_the_silence_batches_get_new_keepers():
    """Seed 18344: both nodes were reset, so each became a keeper of older batches at its second look."""
    simulation = played()
    world, machine = simulation.world, simulation.world.machines["a"]
    machine.open()
    keeping.begin(machine.broker, b"b")
    machine.close()
    world.run(200)
    batch = machine.broker.batches.by_name[b"b"]
    machine.open()
    keeping.change(machine.broker, batch, [(KEEPERS, bytes(20))])
    machine.close()
    world.run(200)
    start_ms = world.now_ms
    simulation.liveness._find_keepers()
    assert len(batch.keepers) == len(world.machines)
    assert LOOK_MS <= world.now_ms - start_ms <= 2 * LOOK_MS + SETTLE_MS


@pytest.mark.parametrize(("status", "is_wrong"), [(LIVE, False), (COMPLETED, True)])
def test_keepers_may_compare_batches_whose_jobs_were_lost(status, is_wrong):
    """Spec BT8: their ids stay alive until their TTL is over."""
    simulation = played()
    world, machine = simulation.world, simulation.world.machines["a"]
    batch = machine.broker.batches.get(b"b")
    machine.broker.batches.enter(batch, pack_id(make_id(1)), status, 1)

    def compare():
        machine.open()
        machine.broker.send(machine.membership.table.linked, BATCHSUM, (b"b", [0] * PARTS, 1))
        machine.close()
        world.later(500, compare)

    compare()
    with pytest.raises(RuleBrokenError, match="silence") if is_wrong else nullcontext():
        simulation.liveness.play()


def test_an_interest_whose_end_was_lost_with_its_frame_is_not_left_over():
    """Spec I1: it is told once. Only queues whose interest was told again after the weather count then."""
    world = joined("ab")
    ask(world, "a", "GETJOB", "TIMEOUT", 10, "FROM", "x0", "q0")
    world.traffic.filter = lambda sender, receiver, kind, item: kind == INTEREST
    world.run(3_000)
    told = {what: number for what, number in remains(world.machines["b"].broker, None).items() if number}
    assert list(told.values()) == [2]
    ((what, _),) = told.items()
    assert remains(world.machines["b"].broker, [b"q0"])[what] == 1
    assert remains(world.machines["b"].broker, [])[what] == 0
