"""Checks of acks: the end of a collection, and copies that come late."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from cluster_bus.messages import DELJOB, LEFT, LEFT_OK, REPLJOB, SETACK
from disque_py.core import lifecycle
from disque_py.simulator.checks.cluster_invariants import Asleep, Losses
from disque_py.simulator.checks.collection import CollectionChecker
from disque_py.simulator.oracle import Oracle, RuleBrokenError
from simulated import ask, asker, joined, words


class Scene:
    """A job with copies on both of two nodes, with the checker as a listener."""

    def __init__(self) -> None:
        self.world = joined("ab")
        self.oracle = Oracle()
        self.losses = Losses(self.oracle)
        self.collections = CollectionChecker(self.world, self.oracle, self.losses, 1_000)
        self.promise = self.oracle.add(b"q", 20, 60_000, 3_600_000, 2, self.world.now_ms)
        self.promise.asked = self.world.machines["a"]
        connection = asker(self.world, "a")
        connection.send([words("ADDJOB", "q", self.promise.body(), 0, "REPLICATE", 2)])
        self.world.run(50)
        self.job_id = connection.replies[0]
        self.oracle.answered(self.promise, self.job_id, self.world.now_ms)

    def delete_on_b(self) -> None:
        """Let b read a DELJOB with a set, and forget the job."""
        self.collections.hear("a", "b", [[DELJOB, [self.job_id, b"ids"]]])
        lifecycle.forget(self.world["b"], self.world["b"].find(self.job_id))
        self.world.run(1)


def test_a_job_is_not_deleted_while_a_node_has_it_alive():
    """That node would queue it again."""
    with pytest.raises(RuleBrokenError, match=r"ends when all know.* b deleted .* a has it alive"):
        Scene().delete_on_b()


def test_a_fault_since_then_excuses_the_deletion():
    """Nodes may have lost their knowledge of holders."""
    scene = Scene()
    scene.losses.mishap(scene.world.machines["a"])
    scene.delete_on_b()
    assert scene.collections.heard


def test_a_job_that_its_creator_may_have_given_up_and_others_named_by_its_key_excuses_it():
    """A node that named the job keeps a copy, and may not know all other holders (seed 18589)."""
    scene = Scene()
    scene.promise.asked = None
    scene.delete_on_b()
    assert scene.collections.heard


def test_an_ack_that_was_dropped_for_lack_of_memory_is_an_excuse():
    """The ack's list of holders is gone (spec M3; seed 4446)."""
    scene = Scene()
    scene.world["a"].stats.jobs_evicted += 1
    scene.delete_on_b()
    assert scene.collections.heard


def test_evictions_before_the_job_came_do_not_excuse_it():
    scene = Scene()
    scene.world["a"].stats.jobs_evicted += 1
    scene.collections._last_eviction_ms()
    scene.promise.added_ms = scene.world.now_ms + 1
    with pytest.raises(RuleBrokenError, match="ends when all know"):
        scene.delete_on_b()


@pytest.mark.parametrize("is_given_up", [True, False])
def test_a_leaver_excuses_the_jobs_that_it_gives_up_and_no_others(is_given_up):
    """It drops its copy when the other holders have answered. Sets of holders may lack it before that."""
    scene = Scene()
    scene.losses.leaving(scene.world.machines["a"])
    if is_given_up:
        scene.collections.hear("a", "b", [[LEFT, [scene.job_id, b"a", b"", b""]]])
    with nullcontext() if is_given_up else pytest.raises(RuleBrokenError, match="ends when all know"):
        scene.delete_on_b()


@pytest.mark.parametrize("new", [b"", b"c"])
def test_a_copy_that_a_leaver_gives_up_is_not_missed_if_no_other_node_takes_it(new):
    scene = Scene()
    scene.collections.hear("a", "b", [[LEFT, [scene.job_id, b"a", new, b""]]])
    assert (scene.job_id in scene.collections.repairs.excused) == (not new)


def test_a_job_whose_life_is_over_on_some_node_excuses_it():
    """That node forgot the job with its holders, and another node's clock is behind (seed 7913)."""
    scene = Scene()
    scene.promise.ttl_ms = 50
    scene.delete_on_b()
    assert scene.collections.heard


def test_while_a_node_is_forgotten_its_copy_is_excused():
    """It counts as confirmed, even for jobs that come later (spec A8; seed 20102)."""
    scene = Scene()
    forgotten = scene.world["a"].me.id
    scene.world.machines["b"].forgot[forgotten] = scene.world.now_ms
    ask(scene.world, "b", "CLUSTER", "FORGET", forgotten.hex())
    scene.delete_on_b()
    assert scene.collections.heard


@pytest.mark.parametrize("lives", [False, True])
def test_a_late_copy_does_not_live_where_the_job_is_known_as_done(lives):
    """The node answers the copy with the ack."""
    scene = Scene()
    lifecycle.acknowledge(scene.world["a"], scene.world["a"].find(scene.job_id))
    scene.delete_on_b()
    if lives:
        scene.collections.hear(
            "b", "a", [[REPLJOB, [(scene.job_id,), 0]]]
        )  # The message goes to a, which did not delete the job.
        scene.world["b"].shards = scene.world["a"].shards
        scene.world["a"].find(scene.job_id).state = 1
        scene.collections.hear("a", "b", [[REPLJOB, [(scene.job_id,), 0]]])
        with pytest.raises(RuleBrokenError, match="done is remembered"):
            scene.world.run(1)
    else:
        scene.collections.hear("a", "b", [[REPLJOB, [(scene.job_id,), 0]]])
        scene.world.run(1)


@pytest.mark.parametrize("excuse", ["", "a disk has it", "a client asked for its end"])
def test_a_leaver_keeps_the_last_copy(excuse):
    """The other holders have answered that they don't have the job."""
    scene = Scene()
    lifecycle.forget(scene.world["b"], scene.world["b"].find(scene.job_id))
    if excuse == "a disk has it":
        asleep = scene.losses.asleep[scene.world.machines["b"]] = Asleep(scene.world.now_ms, may_lose=False)
        asleep.ids = {scene.job_id: scene.world.now_ms}
    elif excuse:
        scene.oracle.acknowledging(scene.promise, scene.world.now_ms)
    scene.collections.hear("b", "a", [[LEFT_OK, [scene.job_id, 0]]])
    lifecycle.forget(scene.world["a"], scene.world["a"].find(scene.job_id))
    with nullcontext() if excuse else pytest.raises(RuleBrokenError, match="keeps the last copy"):
        scene.world.run(1)


def test_a_node_that_was_asked_as_a_holder_remembers_the_ack():
    """A copy that comes after the question meets the ack."""
    scene = Scene()
    machine = scene.world.machines["b"]
    lifecycle.forget(machine.broker, machine.broker.find(scene.job_id))
    scene.collections.hear("a", "b", [[SETACK, [scene.job_id, machine.node_id, 1]]])
    scene.world.run(1)
    machine.broker.shards = scene.world["a"].shards  # The copy becomes alive here.
    scene.collections.hear("a", "b", [[REPLJOB, [(scene.job_id,), 0]]])
    with pytest.raises(RuleBrokenError, match="done is remembered"):
        scene.world.run(1)


def test_a_node_that_reads_its_journal_hears_of_no_ack():
    """A message to it is practically lost (seed 22158 of disks+kills+leaving)."""
    scene = Scene()
    machine = scene.world.machines["b"]
    lifecycle.forget(machine.broker, machine.broker.find(scene.job_id))
    machine.broker.is_loading = True
    scene.collections.hear("a", "b", [[SETACK, [scene.job_id, machine.node_id, 1]]])
    scene.world.run(1)
    assert not scene.collections.heard
