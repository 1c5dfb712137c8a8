"""A journal on a folder in memory, for tests of the writing end."""

from __future__ import annotations

from random import Random

from disque_py.simulator.world.disk import InlineDisk
from disque_py.simulator.world.folder import SimFolder
from persistence.journal import Journal
from persistence.records import GONE
from persistence.recovery import Recovery

NODE = bytes(20)
RECORD = [[GONE, (b"x" * 40, 1)]]


def make(policy="always", folder=None, *, reserve_bytes=0, segment_bytes=1000, has_windows=True, **more):
    disk = InlineDisk(folder or SimFolder(Random(1)))
    disk.folder.has_windows = has_windows
    changes = []
    journal = Journal(
        disk, NODE, policy, lambda: changes.append(1), segment_bytes=segment_bytes, reserve_bytes=reserve_bytes, **more
    )
    journal.now_ms, journal.wall_ms = 10_000, 1_700_000_000_000
    journal.begin()
    disk.run()
    return journal, disk


def wait(journal, disk, span_ms):
    """Let time pass in steps of ten milliseconds. The disk does all requested work."""
    for _ in range(span_ms // 10):
        journal.now_ms += 10
        journal.tick()
        disk.run()


def read(disk):
    """Return the blocks and the reader, after a kill."""
    recovery = Recovery(disk.folder)
    blocks = []
    while not recovery.is_finished:
        blocks += recovery.step()
    return blocks, recovery
