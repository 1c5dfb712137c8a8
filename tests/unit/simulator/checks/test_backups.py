"""Backups: a flipped bit is found, and a node starts from an earlier copy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from disque_py.simulator.checks import backups
from disque_py.simulator.oracle import RuleBrokenError
from disque_py.simulator.simulation import Simulation
from disque_py.storage.compaction import Compaction
from simulated import small_plan


def in_good_weather(seed: int) -> Simulation:
    """Return the simulation of a cluster of two nodes with journals, without work."""
    plan = replace(small_plan(seed, nodes=2), journals=("always",) * 26, clients=(), is_long=False)
    simulation = Simulation(plan)
    simulation.world.join(30_000)
    return simulation


@pytest.mark.parametrize("seed", range(1, 9))
def test_no_bit_that_rots_costs_a_job(seed):
    """The node refuses to start, and has all jobs once the backup is in place. Or the bit was without effect."""
    simulation = in_good_weather(seed)
    machine = simulation.world.machines["a"]
    backups.play(simulation)
    assert machine.broker.job_count >= 2 * backups.JOBS
    assert machine.runs == 2 + 2 * backups.ROUNDS


@pytest.mark.plain
def test_a_backup_that_lacks_a_job_is_found(monkeypatch):
    """The backup was made before the job was added. It replaces a journal with a damaged header."""
    simulation = in_good_weather(1)
    files = backups._back_up(simulation.world, simulation.world.machines["a"])

    def rot(machine, *_):
        machine.journal_storage.is_rotten = True
        folder = machine.journal_storage.folder
        folder.flip(min(name for name in folder.names() if name.endswith(".seg")), 0)

    monkeypatch.setattr(backups, "_back_up", lambda *_: files)
    monkeypatch.setattr(backups, "_rot", rot)
    with pytest.raises(RuleBrokenError, match="a backup has what was promised before it"):
        backups.play(simulation)


@pytest.mark.plain
def test_a_journal_that_is_switched_on_without_its_jobs_is_found(monkeypatch):
    """A new journal must record all jobs in memory."""
    simulation = in_good_weather(1)
    monkeypatch.setattr(Compaction, "record_all", lambda _: None)
    with pytest.raises(RuleBrokenError, match=r"switched|replay"):
        backups.play(simulation)
