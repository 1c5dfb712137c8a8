"""Faults of processes, machines and disks."""

from __future__ import annotations

import pytest

from disque_py.simulator.world.codecs import NEW, OLD
from disque_py.simulator.world.traffic import Pipe
from simulated import ask, strike, weathered


def test_killing_takes_the_node_that_the_numbers_say():
    """Only nodes that are up count."""
    weather = weathered()
    strike(weather, "kill", picks=(6, 0, 0, 0))
    assert [machine.name for machine in weather.targets.up()] == ["a", "b", "d"]
    weather.world.run(300)
    assert len(weather.targets.up()) == 4


def test_an_upgrade_changes_the_version_a_node_speaks():
    """It does so in an orderly restart."""
    weather = weathered("ab")
    strike(weather, "upgrade", picks=(0, 0, 0, 0))
    weather.world.run(300)
    assert [machine.version for machine in weather.targets.up()] == [NEW, OLD]


@pytest.mark.parametrize("trouble", range(5))
def test_a_failing_disk_breaks_no_promise(trouble):
    """The disk is slow, stuck, full, or failing. Promised jobs still exist after the next crash."""
    weather = weathered("a")
    world = weather.world
    strike(weather, "disk", span_ms=3_000, picks=(0, trouble, 0, 0))
    replies = [ask(world, "a", "ADDJOB", "q0", "x", 0, within_ms=8_000) for _ in range(3)]
    world.run(4_000)
    weather.end()
    world.crash("a")
    world.restart("a")
    world.run(1_000)
    for reply in replies:
        assert isinstance(reply, Exception) or world["a"].find(reply)


def test_a_node_may_refuse_to_start_on_a_failing_disk_and_starts_when_it_works_again():
    """Its supervisor tries again. Damage would not be excused."""
    weather = weathered("a")
    world = weather.world
    job_id = ask(world, "a", "ADDJOB", "q0", "x", 0)
    strike(weather, "disk", span_ms=2_000, picks=(0, 4, 0, 3))
    machine = world.machines["a"]
    world.crash("a")
    world.restart("a")
    world.run(500)
    assert (machine.is_up, machine.journal_storage.has_refused) == (False, True)
    world.run(2_500)
    assert machine.is_up
    assert world["a"].find(job_id) is not None


def test_a_node_speaks_its_old_version_until_its_process_ends():
    """The upgrade takes effect with the next process. A link that is made before then has the old version."""
    weather = weathered("ab")
    world = weather.world
    strike(weather, "upgrade", picks=(0, 0, 0, 0))
    machine = world.machines["a"]
    assert (machine.version, machine.membership.versions[1]) == (NEW, OLD)
    assert Pipe(world.machines["b"], machine, world.machines["b"].membership.hello()).version == OLD


def test_a_changed_appendfsync_is_that_of_the_process():
    """The weakest policy of a process decides what a power cut may lose. The next one has the policy of its file."""
    weather = weathered("a")
    machine = weather.world.machines["a"]
    strike(weather, "policy", picks=(0, 1, 0, 0))
    assert machine.broker.settings.appendfsync == "everysec"
    assert machine.journal_storage.may_lose(power=True)
    weather.world.run(1_000)
    assert machine.broker.settings.appendfsync == "always"
    weather.world.crash("a")
    weather.world.restart("a")
    assert not machine.journal_storage.may_lose(power=True)


def test_a_journal_is_loaded_again():
    """DEBUG LOADAOF: for a while the jobs are only on disk, and then in memory as before."""
    weather = weathered("a")
    world = weather.world
    job_id = ask(world, "a", "ADDJOB", "q0", "x", 0)
    strike(weather, "reload", picks=(0, 0, 0, 0))
    assert not world.machines["a"].journal_storage.is_loaded
    world.run(1_000)
    assert world.machines["a"].journal_storage.is_loaded
    assert world["a"].find(job_id) is not None
