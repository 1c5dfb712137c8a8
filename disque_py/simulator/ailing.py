"""A disk of the simulator in trouble, and well again: one way for journals and for logs of events."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from disque_py.simulator.disk import DELAYS_MS

if TYPE_CHECKING:
    from disque_py.simulator.disk import SimDisk
    from disque_py.simulator.folder import SimFolder
    from disque_py.simulator.plan import Fault

TROUBLES: Final = ("slow", "stuck", "full", "sync fails", "write fails")


def afflict(folder: SimFolder, disk: SimDisk, kind: str, fault: Fault, slow_ms: int) -> None:
    """Begin a trouble of TROUBLES, as the fault's numbers say; `slow_ms` is added to what a slow disk takes."""
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
    """All is well, with so much room."""
    folder.capacity_bytes = capacity_bytes
    folder.heal()
    disk.delays_ms = list(DELAYS_MS)
    if disk.is_stuck:
        disk.free()
