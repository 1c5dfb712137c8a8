"""simulator/world/settings_disk.py: a file that a death tears."""

from __future__ import annotations

from disque_py.storage.queue_settings_file import QUEUE_SETTINGS
from world import World

A = b"a" * 20


def test_a_death_in_a_write_leaves_a_part_of_the_frame():
    lengths = set()
    for seed in range(8):
        world = World("a", seed)
        disk = world.machines["a"].settings_disk
        disk.write([(b"q", b"lease", b"30", 1, A)], False, lambda failure: None)
        world.run(10)
        before = len(disk.file.data)
        disk.write([(b"q", b"lease", b"31", 2, A)], False, lambda failure: None)
        world.crash("a")
        assert QUEUE_SETTINGS.parse(disk.file.data).items[0] == (b"q", b"lease", b"30", 1, A)
        lengths.add(len(disk.file.data) - before)
        world.restart("a")
        assert world["a"].queue_settings.of(b"q").lease_ms in (30_000, 31_000)
    assert len(lengths) > 3


def test_a_large_file_is_rewritten():
    world = World("a")
    disk = world.machines["a"].settings_disk
    for counter in range(1, 200):
        disk.write([(b"q", b"lease", b"30", counter, A)], False, lambda failure: None)
        world.run(10)
    assert len(disk.file.data) < 5_000
    assert disk.table().states[b"q"].highest() == 199
