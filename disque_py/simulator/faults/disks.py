"""Disk faults of journals and event logs: a simulated disk becomes slow, stuck, full or failing, and recovers."""

from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING, Final

from disque_py.simulator.world.disk import DELAYS_MS

if TYPE_CHECKING:
    from disque_py.simulator.plan import Fault
    from disque_py.simulator.world.disk import SimDisk
    from disque_py.simulator.world.folder import SimFolder
    from disque_py.simulator.world.world import World

FOR_EVER_MS: Final = 1 << 60
TROUBLES: Final = ("slow", "stuck", "full", "sync fails", "write fails")


class Health:
    """The health of a disk.

    is_troubled   whether the disk is slow, stuck, full or failing now
    well_ms       when the last fault ended, or the last work that began on a slow disk; FOR_EVER_MS during a fault
    """

    __slots__ = ("well_ms",)

    def __init__(self) -> None:
        self.well_ms = 0

    @property
    def is_troubled(self) -> bool:
        """Return whether a fault lasts."""
        return self.well_ms == FOR_EVER_MS

    def fall_ill(self) -> None:
        """Note that a fault begins."""
        self.well_ms = FOR_EVER_MS

    def get_well(self, now_ms: int) -> None:
        """Note that all faults are over."""
        self.well_ms = now_ms

    def follow(self, world: World, disk: SimDisk) -> None:
        """Count work that began on a slow disk as a fault until it is done."""
        disk.on_late = partial(self._on_late, world)

    def _on_late(self, world: World) -> None:
        if not self.is_troubled:
            self.well_ms = world.now_ms

    def is_well(self, since_ms: int) -> bool:
        """Return whether there has been no fault since this moment."""
        return self.well_ms < since_ms


def afflict(folder: SimFolder, disk: SimDisk, kind: str, fault: Fault, slow_ms: int) -> None:
    """Begin a fault of TROUBLES. The plan's numbers choose the details. A slow disk takes up to `slow_ms` longer."""
    if kind == "slow":
        disk.delays_ms = [(low_ms + 20, high_ms + slow_ms) for low_ms, high_ms in disk.delays_ms]
    elif kind == "stuck":
        disk.is_stuck = True
    elif kind == "full":
        folder.capacity_bytes = folder.used_bytes + fault.picks[2] % 3_000
    elif kind == "sync fails":
        folder.fail("sync", errno.EIO, nth=1 + fault.picks[2] % 3, times=1 + fault.picks[3] % 3)
    else:
        folder.fail(
            "write create", errno.EIO, nth=1 + fault.picks[2] % 5, times=1 + fault.picks[3] % 4, is_partial=True
        )


def cure(folder: SimFolder, disk: SimDisk, capacity_bytes: int) -> None:
    """End all faults, and give the disk this capacity."""
    folder.capacity_bytes = capacity_bytes
    folder.heal()
    disk.delays_ms = list(DELAYS_MS)
    if disk.is_stuck:
        disk.free()
