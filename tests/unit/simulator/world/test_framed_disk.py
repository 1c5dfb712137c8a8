"""simulator/world/framed_disk.py: a file of frames that a power cut tears."""

from __future__ import annotations

from disque_py.core.voter_memory import FLOOR
from world import World


def lengths_after(*, power):
    lengths = set()
    for seed in range(12):
        world = World("a", seed)
        disk = world.machines["a"].votes_disk
        disk.write([(FLOOR, 1)], False, lambda failure: None)
        world.run(10)
        before = len(disk.data)
        disk.write([(FLOOR, 2)], False, lambda failure: None)
        world.machines["a"].die(power=power)
        lengths.add(len(disk.data) - before)
    return lengths


def test_a_kill_leaves_all_bytes_of_a_write_or_none():
    assert len(lengths_after(power=False)) == 2


def test_a_power_cut_leaves_any_part():
    assert len(lengths_after(power=True)) > 3
