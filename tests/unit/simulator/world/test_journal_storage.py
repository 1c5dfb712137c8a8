"""A machine's journal: promises before records, and replays."""

from __future__ import annotations

import pytest

from disque_py.core import lifecycle
from disque_py.core.journaling import mark_holders_dirty
from disque_py.simulator.oracle import RuleBrokenError
from disque_py.simulator.world.journal_storage import CAPACITY_BYTES, LOST_MS_MAX
from disque_py.simulator.world.world import World
from simulated import ask


@pytest.fixture
def world():
    world = World("")
    world.add("a", journal="always")
    world.run(200)
    return world


def test_jobs_come_back_after_a_crash(world):
    """With appendfsync always, they also come back after a power cut."""
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0)
    for power in (False, True):
        world.machines["a"].die(power=power)
        world.restart("a")
        world.run(500)
        assert world["a"].find(job_id) is not None
        assert world.machines["a"].journal_storage.is_loaded


def test_before_it_was_read_nothing_is_compared(world):
    """The log of events is opened first (seed 9664)."""
    machine = world.add("b")
    machine.keep_journal("always")
    assert not machine.journal_storage.is_quiet()


def test_a_disk_has_room_for_a_journal_that_is_not_yet_rewritten(world):
    """Only a fault fills it, not a long run (seed 135, 120 s)."""
    assert 2 * world["a"].settings.auto_aof_rewrite_min_size < CAPACITY_BYTES
    assert world.machines["a"].journal_storage.folder.capacity_bytes == CAPACITY_BYTES


def test_memory_is_compared_with_a_replay(world):
    """The check finds a job that only one of them has, and a job that differs."""
    journal_storage = world.machines["a"].journal_storage
    job = world["a"].find(ask(world, "a", "ADDJOB", "q", "x", 0))
    world.run(100)
    assert journal_storage.is_quiet()
    journal_storage.check_replay()
    job.nacks += 1
    with pytest.raises(RuleBrokenError, match="nacks 1 and 0"):
        journal_storage.check_replay()
    job.nacks -= 1
    job.place = 0
    lifecycle.forget(world["a"], job)
    with pytest.raises(RuleBrokenError, match="in its journal only"):
        journal_storage.check_replay()


def test_the_id_that_a_node_had_before_a_hard_reset_is_its_own(world):
    """Other nodes still name it as a holder. A replay of the journal takes it for the node (seed 7834)."""
    broker = world["a"]
    former = broker.me.id
    ask(world, "a", "CLUSTER", "RESET", "HARD")
    world.run(100)
    job = broker.find(ask(world, "a", "ADDJOB", "q", "x", 0))
    job.holders = broker.sets.add(job.holders, broker.cluster.intern(former))
    mark_holders_dirty(broker, job)
    ask(world, "a", "PING")
    world.run(100)
    assert broker.me.id != former
    world.machines["a"].journal_storage.check_replay()


@pytest.mark.parametrize(("policy", "power", "may_lose"), [("always", True, False), ("everysec", False, False),
                                                     ("everysec", True, True), ("no", True, True)])  # fmt: skip
def test_the_policy_limits_the_loss_of_a_crash(policy, power, may_lose):
    """After a kill all writes remain. A power cut takes unsynced writes."""
    world = World("")
    journal_storage = world.add("a", journal=policy).journal_storage
    assert journal_storage.may_lose(power=power) == may_lose
    assert (journal_storage.lost_ms_max(world.now_ms) == LOST_MS_MAX) == (policy == "everysec")


def test_a_job_that_went_and_came_again_is_recorded_anew(world):
    """The first record vanished with the job, so a power cut may take the second one (seed 1046)."""
    world.add("b", journal="everysec")
    world.join()
    recorded = world.machines["b"].journal_storage.recorded
    job_id = ask(world, "a", "ADDJOB", "q", "x", 1_000, "REPLICATE", 2)
    first_ms = recorded[job_id][1]
    ask(world, "b", "DEBUG", "FLUSHALL")
    world.run(1_000)
    assert ask(world, "b", "GETJOB", "FROM", "q")[0][1] == job_id
    assert recorded[job_id][1] >= first_ms + 1_000


def test_a_failing_disk_excuses_only_records_of_that_time():
    world = World("")
    journal_storage = world.add("a", journal="everysec").journal_storage
    journal_storage.had_failure = True
    journal_storage.health.fall_ill()
    world.run(1_000)
    assert journal_storage.may_lose(power=False)
    journal_storage.health.get_well(world.now_ms)
    assert journal_storage.lost_ms_max(world.now_ms + 5_000) > LOST_MS_MAX
    assert journal_storage.lost_ms_max(world.now_ms + 6_000) == LOST_MS_MAX
    world.run(3_100)
    assert not journal_storage.may_lose(power=False)
