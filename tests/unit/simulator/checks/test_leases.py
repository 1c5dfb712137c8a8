"""Leases: second deliveries, deliveries after an ack, and the exceptions, each for one job, node, link or moment."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from cluster_bus.messages import DELJOB, HOLDERS, SETACK
from disque_py.core import lifecycle
from disque_py.simulator.checks.cluster_invariants import Losses
from disque_py.simulator.checks.leases import Leases, is_well
from disque_py.simulator.oracle import Oracle, RuleBrokenError
from disque_py.simulator.world.machine import Machine
from disque_py.simulator.world.watcher import Watcher
from simulated import ask, joined


class Scene:
    """A job with copies on two of three nodes."""

    def __init__(self) -> None:
        self.world = joined("abc")
        self.world.run(2_000)
        self.oracle = Oracle()
        self.losses = Losses(self.oracle)
        self.leases = Leases(self.world, self.oracle, self.losses)
        self.promise = self.oracle.add(b"q", 20, 10_000, 3_600_000, 2, self.world.now_ms)
        job_id = ask(self.world, "a", "ADDJOB", "q", self.promise.body(), 0, "RETRY", 10, "REPLICATE", 3)
        self.oracle.answered(self.promise, job_id, self.world.now_ms)
        self.world.run(100)

    def deliver(self, name: str, *more: object) -> None:
        """Let a consumer of this node get the job."""
        entry = [b"q", self.promise.id, b"", *more]
        self.leases.delivered(self.world.machines[name], [entry])

    def acknowledge(self, name: str) -> None:
        """Let a consumer acknowledge the job on this node."""
        ask(self.world, name, "ACKJOB", self.promise.id)
        self.oracle.acknowledged(self.promise, self.world.now_ms, self.world.machines[name])


@pytest.mark.parametrize("name", ["a", "b"])
def test_while_a_lease_runs_there_is_no_second_delivery(name):
    scene = Scene()
    scene.deliver("a")
    scene.world.run(3_000)
    with pytest.raises(RuleBrokenError, match=r"during a lease.* by a, and 3000 ms later, of 10000"):
        scene.deliver(name)


@pytest.mark.parametrize("passed_ms", [20, 9_900])
def test_a_second_queue_and_the_end_of_a_lease_are_excused(passed_ms):
    """Messages to other nodes take time."""
    scene = Scene()
    scene.deliver("a")
    scene.world.run(passed_ms)
    scene.deliver("b")


def test_a_lease_is_as_long_as_the_client_was_told():
    scene = Scene()
    scene.deliver("a", b"lease-ms", 2_000, b"attempt", 1)
    scene.world.run(3_000)
    scene.deliver("b")


@pytest.mark.parametrize("excuse", ["nack", "freed", "stopped", "restarted", "link", "loss", "mishap", "other link"])
def test_a_fault_of_the_job_its_node_or_a_link_to_a_holder_excuses_it(excuse):
    scene = Scene()
    world, machine = scene.world, scene.world.machines["a"]
    scene.deliver("a")
    world.run(1_000)
    if excuse == "nack":
        scene.oracle.freeing(scene.promise)
    elif excuse == "freed":
        scene.oracle.freeing(scene.promise)
        scene.oracle.freed(scene.promise, world.now_ms)
    elif excuse == "stopped":
        machine.stop()
        world.run(100)
        machine.go_on()
    elif excuse == "restarted":
        machine.runs += 1
    elif excuse in ("link", "other link"):
        world.network.hiccup("a" if excuse == "link" else "c", "b")
    elif excuse == "loss":
        next(pipe for pipe in machine.pipes.values() if pipe.target.name == "b").was_harmed = True
    else:
        scene.losses.mishap(machine)
    world.run(2_000)
    is_wrong = excuse == "other link"  # This link does not connect the two nodes.
    with pytest.raises(RuleBrokenError, match="during a lease") if is_wrong else nullcontext():
        scene.deliver("b")


def test_a_holder_that_had_refused_its_copy_may_deliver():
    """It could not note the lease, and got the job later from a node that did not know of it (seed 23322)."""
    scene = Scene()
    copy = scene.world["b"].find(scene.promise.id)
    lifecycle.forget(scene.world["b"], copy)
    scene.deliver("a")
    scene.world.run(3_000)
    scene.deliver("b")


def test_after_its_ttl_a_job_may_come_back():
    """A hand-over waited for a disk until all other nodes had forgotten the job with its lease (seed 22289)."""
    scene = Scene()
    scene.promise.ttl_ms = 3_000
    scene.deliver("a")
    scene.world.run(3_000)
    scene.deliver("b")


def test_a_holder_that_the_leasing_node_does_not_know_may_deliver():
    """Another holder handed the job to it meanwhile, so it was not told of the lease."""
    scene = Scene()
    job = scene.world["a"].find(scene.promise.id)
    job.holders = frozenset(node for node in job.holders if node.host != "b")
    scene.deliver("a")
    scene.world.run(3_000)
    scene.deliver("b")


@pytest.mark.parametrize("is_known", [False, True])
def test_a_holder_that_the_leasing_node_does_not_know_may_give_it_an_acknowledged_job(is_known):
    """Spec A8: the holder had been forgotten and had come back, so the ack did not reach it (seed 17072)."""
    scene = Scene()
    world, job = scene.world, scene.world["a"].find(scene.promise.id)
    if not is_known:
        job.holders = frozenset({world["a"].me})
    scene.deliver("a")
    world.run(1_000)
    world.traffic.filter = lambda _sender, _receiver, kind, _item: kind == SETACK
    scene.acknowledge("a")
    world.run(1_000)
    assert world["b"].find(job.id) is not None
    with pytest.raises(RuleBrokenError, match="during a lease") if is_known else nullcontext():
        scene.deliver("a")


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_node_whose_copy_its_creator_deleted_may_deliver_the_job_again(name):
    """Spec C2: another holder gave it the job. A holder that was told of the lease still waits."""
    scene = Scene()
    scene.deliver("a")
    scene.leases.hear("c", "a", [[DELJOB, (scene.promise.id, None)]])
    scene.world.run(3_000)
    with pytest.raises(RuleBrokenError, match="during a lease") if name == "b" else nullcontext():
        scene.deliver(name)


@pytest.mark.parametrize("is_linked", [True, False])
def test_a_holder_that_is_linked_has_heard_of_an_ack(is_linked):
    scene = Scene()
    scene.world.traffic.filter = lambda *_: True
    scene.acknowledge("a")
    scene.deliver("b")  # The message about the ack may be in transit.
    scene.world.run(1_500)
    if not is_linked:
        scene.world.network.hiccup("a", "b")
        scene.world.run(200)
    with pytest.raises(RuleBrokenError, match="an ack reaches") if is_linked else nullcontext():
        scene.deliver("b")


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("passed_ms", [500, 1_500])
def test_a_holder_that_was_named_a_moment_ago_may_not_have_heard(passed_ms, is_known):
    """It got the job from a holder without the ack. Its former process may have had the job."""
    scene = Scene()
    scene.world.traffic.filter = lambda *_: True
    scene.acknowledge("a")
    job = scene.world["a"].find(scene.promise.id)
    named = b"".join(sorted(node.id for node in job.holders))
    if not is_known:
        job.holders = frozenset(node for node in job.holders if node.host != "b")
    scene.world.run(2_000)
    scene.leases.hear("b", "a", [[HOLDERS, [job.id, named]]])
    job.holders = frozenset([*job.holders, *(node for node in scene.world["a"].cluster.linked if node.host == "b")])
    scene.world.run(passed_ms)
    with pytest.raises(RuleBrokenError, match="an ack reaches") if passed_ms > 1_000 else nullcontext():
        scene.deliver("b")


@pytest.mark.parametrize("passed_ms", [500, 1_500])
def test_a_holder_of_which_a_node_hears_with_an_ack_that_it_keeps_again_may_not_have_heard(passed_ms):
    """Seed 11343: a collection ended without a holder that was forgotten. The holder came back and asked the node."""
    scene = Scene()
    scene.world.traffic.filter = lambda *_: True
    scene.acknowledge("a")
    broker = scene.world["a"]
    job = broker.find(scene.promise.id)
    (shard,) = [shard for shard in broker.shards if job.id in shard]
    scene.world.run(2_000)
    del shard[job.id]
    scene.leases.hear("b", "a", [[SETACK, [job.id, b"".join(sorted(node.id for node in job.holders))]]])
    shard[job.id] = job
    scene.world.run(passed_ms)
    with pytest.raises(RuleBrokenError, match="an ack reaches") if passed_ms > 1_000 else nullcontext():
        scene.deliver("b")


@pytest.mark.parametrize("is_named", [True, False])
def test_a_holder_that_was_flushed_has_heard_when_it_was_named_again(is_named):
    """Spec A5: the node with the ack believes that the holder knows it, until that holder says that it has the job."""
    scene = Scene()
    scene.world.traffic.filter = lambda *_: True
    scene.acknowledge("a")
    job = scene.world["a"].find(scene.promise.id)
    scene.losses.flushing(scene.world.machines["b"])
    if is_named:
        scene.world.run(10)
        named = b"".join(sorted(node.id for node in job.holders))
        scene.leases.hear("b", "a", [[HOLDERS, [job.id, named]]])
    scene.world.run(1_500)
    with pytest.raises(RuleBrokenError, match="an ack reaches") if is_named else nullcontext():
        scene.deliver("b")


def test_a_stopped_node_and_a_failing_disk_are_not_healthy():
    world = joined("a")
    machine = world.add("b", journal="always")
    world.run(1_000)
    since_ms = world.now_ms - 500
    assert is_well(machine, since_ms)
    machine.journal_storage.health.fall_ill()
    assert not is_well(machine, since_ms)
    machine.journal_storage.health.get_well(world.now_ms)
    assert not is_well(machine, since_ms)
    world.run(600)
    assert is_well(machine, world.now_ms - 500)
    machine.stop()
    assert not is_well(machine, world.now_ms - 500)


class Loads(Watcher):
    """A watcher that tells the checker when a node has read its journal."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases

    def on_loaded(self, machine: Machine) -> None:
        self._leases.loaded(machine)


class Returned:
    """b comes back with a live job that a knows to be done."""

    def __init__(self) -> None:
        self.world = joined("a", cluster_node_timeout=60_000)
        self.back = self.world.add("b", journal="always")
        self.world.join()
        self.oracle = Oracle()
        self.losses = Losses(self.oracle)
        self.leases = Leases(self.world, self.oracle, self.losses)
        self.promise = self.oracle.add(b"q", 20, 2_000, 3_600_000, 2, self.world.now_ms)
        job_id = ask(self.world, "a", "ADDJOB", "q", self.promise.body(), 0, "RETRY", 2, "REPLICATE", 2)
        self.oracle.answered(self.promise, job_id, self.world.now_ms)
        self.back.die()
        ask(self.world, "a", "ACKJOB", job_id)
        self.oracle.acknowledged(self.promise, self.world.now_ms)  # The node does not matter for this rule.
        self.world.run(4_000)
        self.world.watcher = Loads(self.leases)
        self.world.traffic.filter = lambda *_: True  # No message about the ack arrives.
        self.world.restart("b")
        self.world.run(2_000)


@pytest.mark.plain
def test_a_node_that_comes_back_has_asked_before_it_delivers():
    scene = Returned()
    assert scene.leases.returns
    with pytest.raises(RuleBrokenError, match=r"asks first.*a knows that it is done, and b delivered it"):
        scene.leases.delivered(scene.back, [[b"q", scene.promise.id, b""]])


@pytest.mark.parametrize("excuse", ["enqueue", "knower restarted", "link"])
@pytest.mark.plain
def test_an_enqueue_a_restarted_node_and_a_cut_are_excuses(excuse):
    scene = Returned()
    if excuse == "enqueue":
        scene.oracle.freeing(scene.promise)
    elif excuse == "knower restarted":
        scene.world.machines["a"].runs += 1
    else:
        scene.world.cut("a", "b")
    scene.leases.delivered(scene.back, [[b"q", scene.promise.id, b""]])
