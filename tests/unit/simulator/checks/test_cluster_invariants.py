"""Rules that are checked by a look at all nodes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from copies import make_id
from disque_py.core import lifecycle
from disque_py.simulator.checks.cluster_invariants import Asleep, Losses, jobs_of, look
from disque_py.simulator.oracle import Oracle, RuleBrokenError
from simulated import asker, joined, words

HOUR_MS = 3_600_000


class Scene:
    """Two nodes, an oracle, and the record of losses."""

    def __init__(self, names: str = "ab") -> None:
        self.world = joined(names)
        self.oracle = Oracle()
        self.losses = Losses(self.oracle)

    def add(self, *, retry_s: int = 60, copies: int = 1):
        promise = self.oracle.add(b"q", 20, retry_s * 1000, HOUR_MS, copies if retry_s else 0, self.world.now_ms)
        connection = asker(self.world, "a")
        options = ["RETRY", retry_s, "TTL", 3600] + (["REPLICATE", copies] if retry_s else [])
        connection.send([words("ADDJOB", "q", promise.body(), 0, *options)])
        self.world.run(20)
        self.oracle.answered(promise, connection.replies[0], self.world.now_ms)
        return promise

    def forget(self, promise, names: str) -> None:
        for name in names:
            job = self.world[name].find(promise.id)
            if job is not None:
                lifecycle.forget(self.world[name], job)

    def look(self) -> None:
        look(self.world, self.oracle, self.losses)


def test_a_job_that_is_nowhere_is_lost():
    """No node has died."""
    scene = Scene()
    promise = scene.add(copies=2)
    scene.look()
    scene.forget(promise, "a")
    scene.look()
    scene.forget(promise, "b")
    with pytest.raises(RuleBrokenError, match="no job is lost"):
        scene.look()


def test_a_node_that_starts_again_does_not_know_the_holders_that_it_forgot():
    """Holder sets in its journal do not have them (seed 7248)."""
    scene = Scene()
    promise = scene.add(copies=2)
    machine = scene.world.machines["a"]
    scene.losses.forgetting(machine, scene.world.machines["b"].membership.table.me.id)
    scene.losses.asleep[machine] = Asleep(scene.world.now_ms, may_lose=False)
    assert promise.id not in scene.oracle.parted
    scene.losses.loaded(machine)
    assert promise.id in scene.oracle.parted


@pytest.mark.parametrize("loses_its_memory", [True, False])
def test_the_holders_of_a_job_may_be_parted_by_a_node_that_forgot_one_of_them_and_died(loses_its_memory):
    """It may have made copies meanwhile of which the forgotten node never hears. One failure is no excuse."""
    scene = Scene()
    promise, other = scene.add(copies=2), scene.add(copies=1)
    machine, forgotten = scene.world.machines["a"], scene.world.machines["b"]
    scene.losses.forgetting(machine, forgotten.membership.table.me.id)
    scene.losses.flushing(machine if loses_its_memory else forgotten)
    assert (promise.id in scene.oracle.parted) == loses_its_memory
    assert other.id not in scene.oracle.parted


def test_a_node_that_gives_its_copy_away_can_not_tell_the_holders_that_it_forgot():
    """A leaving node made a copy on a node that was forgotten before its answer came (seed 20718)."""
    scene = Scene()
    promise = scene.add(copies=2)
    machine = scene.world.machines["a"]
    scene.losses.forgetting(machine, scene.world.machines["b"].membership.table.me.id)
    assert not scene.oracle.is_apart(promise.id)
    scene.forget(promise, "a")
    assert scene.oracle.is_apart(promise.id)


@pytest.mark.parametrize("others_know", [True, False])
def test_the_holders_of_a_job_may_be_parted_by_the_loss_of_the_node_that_handed_it_over(others_know):
    """The node that took it has told no other holder yet (seed 7618)."""
    scene = Scene("abc")
    promise = scene.add(copies=2)
    brokers = [scene.world[name] for name in "abc"]
    first, second = [broker for broker in brokers if broker.find(promise.id) is not None]
    third = next(node for node in first.cluster.linked if node.id not in (first.me.id, second.me.id))
    for broker in (first, second) if others_know else (first,):
        job = broker.find(promise.id)
        job.holders = broker.sets.add(job.holders, broker.cluster.find(third.id))
    scene.losses.flushing(next(each for each in scene.world.machines.values() if each.broker is first))
    assert (promise.id in scene.oracle.parted) != others_know


def test_as_many_losses_as_copies_excuse_it():
    """The reply promised this number of copies, not more."""
    scene = Scene()
    promise = scene.add(copies=1)
    scene.losses.flushing(scene.world.machines["a"])
    scene.forget(promise, "a")
    scene.look()
    assert promise not in scene.oracle.open


def test_an_at_most_once_job_that_vanishes_must_be_counted_or_explained():
    """INFO counts jobs that a broken hand-over loses. Losses by a crash without a journal need no count."""
    scene = Scene()
    for is_explained, is_counted in ((True, False), (False, True), (False, False)):
        promise = scene.add(retry_s=0)
        if is_explained:
            scene.losses.flushing(scene.world.machines["a"])
        scene.forget(promise, "a")
        scene.world["a"].stats.once_lost_in_handover += is_counted
        if is_explained or is_counted:
            scene.look()
        else:
            with pytest.raises(RuleBrokenError, match="losses are counted"):
                scene.look()


def test_an_ack_that_all_have_heard_of_is_over_for_good():
    """This applies from the second look on, when no message from before the first look is in transit."""
    scene = Scene()
    promise = scene.add()
    scene.oracle.acknowledging(promise, scene.world.now_ms)
    scene.forget(promise, "a")
    scene.oracle.acknowledged(promise, scene.world.now_ms)
    scene.look()
    assert not promise.is_over
    scene.world.run(50)
    scene.look()
    assert promise.is_over


@pytest.mark.parametrize("stopped_for_ms", [0, 1_000, 3_000])
def test_a_power_cut_may_lose_what_a_stopped_process_could_not_sync(stopped_for_ms):
    """Spec P4 (seed 7382). A record that is two seconds older than the stop must be on disk."""
    scene = Scene()
    promise = scene.add()
    machine = scene.world.machines["a"]
    if stopped_for_ms:
        machine.stop()
        scene.world.now_ms += stopped_for_ms
    [job] = jobs_of(machine.broker)
    recorded = {promise.id: (job, scene.world.now_ms - 4_000)}
    machine.journal_storage = SimpleNamespace(
        is_loaded=True, recorded=recorded, may_lose=lambda power: power, lost_ms_max=lambda at_ms: 2_300, safe_ms=0
    )
    scene.losses.died(machine, power=True)
    scene.forget(promise, "a")
    if stopped_for_ms == 3_000:
        scene.losses.loaded(machine)
    else:
        with pytest.raises(RuleBrokenError, match="everysec loses seconds"):
            scene.losses.loaded(machine)


def test_a_job_that_expired_by_a_wall_clock_is_not_lost():
    """A node that was down reads its wall clock, which was set ahead meanwhile."""
    scene = Scene()
    promise = scene.add()
    machine = scene.world.machines["a"]
    scene.losses.jumped(machine, HOUR_MS)
    asleep = scene.losses.asleep[machine] = Asleep(scene.world.now_ms, may_lose=False)
    asleep.ids = {promise.id: scene.world.now_ms}
    scene.forget(promise, "a")
    scene.losses.loaded(machine)
    assert promise.early_ms == HOUR_MS
    scene.look()
    assert not scene.oracle.delays_ms


def test_a_job_may_expire_by_a_wall_clock_before_its_producer_has_the_reply():
    """Seed 12403."""
    scene = Scene()
    machine = scene.world.machines["a"]
    scene.losses.jumped(machine, HOUR_MS)
    asleep = scene.losses.asleep[machine] = Asleep(scene.world.now_ms, may_lose=False)
    job_id = make_id(retry_s=0)
    asleep.ids = {job_id: scene.world.now_ms}
    scene.losses.loaded(machine)
    promise = scene.oracle.add(b"q", 8, 0, HOUR_MS, 0, scene.world.now_ms)
    scene.oracle.answered(promise, job_id, scene.world.now_ms)
    assert promise.early_ms == HOUR_MS


def test_a_wall_clock_may_free_the_key_of_a_job_that_is_over():
    """The node that remembered it was down when the clock was set ahead."""
    scene = Scene()
    machine = scene.world.machines["a"]
    done, over = scene.add(), scene.add()
    scene.losses.jumped(machine, HOUR_MS)
    asleep = scene.losses.asleep[machine] = Asleep(scene.world.now_ms, may_lose=False)
    asleep.acked, asleep.named = [done.id], [over.id]
    scene.losses.loaded(machine)
    assert done.early_ms == over.early_ms == HOUR_MS


def test_a_clock_that_was_set_back_makes_lives_longer():
    """No time passes while the node is down."""
    scene = Scene()
    machine = scene.world.machines["a"]
    scene.losses.jumped(machine, -HOUR_MS)
    scene.losses.asleep[machine] = Asleep(scene.world.now_ms, may_lose=False)
    scene.losses.loaded(machine)
    assert scene.oracle.delays_ms > HOUR_MS


def test_an_ack_on_a_node_that_sleeps_may_have_to_be_heard_again():
    """The ack may not be on disk, so the job is not over until the node is up."""
    scene = Scene()
    promise = scene.add()
    machine = scene.world.machines["a"]
    scene.oracle.acknowledging(promise, scene.world.now_ms)
    scene.oracle.acknowledged(promise, scene.world.now_ms)
    scene.forget(promise, "a")
    asleep = scene.losses.asleep[machine] = Asleep(scene.world.now_ms, may_lose=False)
    for is_over in (False, True):
        asleep.acked = [] if is_over else [promise.id]
        for _ in range(2):
            scene.look()
            scene.world.run(10)
        assert promise.is_over == is_over


def test_the_record_of_a_forgotten_job_may_be_missing_on_a_full_disk():
    """On a full disk there is no record of it, and a new process has the job (seed 22163 of disks+kills+leaving)."""
    scene = Scene()
    promise = scene.add()
    machine = scene.world.machines["a"]
    scene.oracle.acknowledging(promise, scene.world.now_ms)
    scene.oracle.acknowledged(promise, scene.world.now_ms)
    scene.forget(promise, "a")
    scene.look()
    asleep = scene.losses.asleep[machine] = Asleep(scene.world.now_ms + 10, may_lose=False)
    asleep.safe_ms = scene.world.now_ms
    for is_over in (False, True):
        scene.world.run(10)
        scene.look()
        assert promise.is_over == is_over
        scene.losses.asleep.pop(machine, None)


def test_a_job_that_a_journal_brought_back_is_not_over_before_it_is_gone_again():
    """There may have been no look while it was alive."""
    scene = Scene()
    promise = scene.add()
    promise.clean_ms = scene.world.now_ms
    machine = scene.world.machines["a"]
    scene.losses.asleep[machine] = Asleep(scene.world.now_ms, may_lose=False)
    scene.losses.loaded(machine)
    assert not promise.clean_ms
