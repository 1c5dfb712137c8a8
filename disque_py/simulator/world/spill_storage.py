"""A machine's spill files: the server's spill service on a disk in memory.

A process can't use the spill files of the process before it, so each run has its own folder. Limits are small, because
bodies are small here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from disque_py.simulator.world.disk import SimDisk
from disque_py.simulator.world.folder import SimFolder
from disque_py.storage.spill_service import SpillService

if TYPE_CHECKING:
    from collections.abc import Callable

    from disque_py.simulator.world.machine import Machine

FILE_BYTES: Final = 3_000
CAPACITY_BYTES: Final = 1 << 20
BODY_BYTES_MIN: Final = 20
NEAR_JOBS: Final = 2


def give_spill_service(machine: Machine) -> None:
    """Give a spill service to a process that begins, so that bodies can leave its memory. Within a turn."""
    run = machine.runs
    rng = machine.world.stream(f"spill {machine.name} run {run}")

    def later(span_ms: int, call: Callable[[], None]) -> None:
        machine.world.later(span_ms, machine.aside, call, run)

    driver = machine.driver
    spill = machine.broker.spill
    spill.body_bytes_min, spill.near_jobs = BODY_BYTES_MIN, NEAR_JOBS
    driver.spill = SpillService(
        machine.broker,
        SimDisk(SimFolder(rng, CAPACITY_BYTES), later, rng),
        driver.begin,
        driver.wake,
        lambda line: machine.world.trace.write(machine.world.now_ms, f"{machine.name}  {line}"),
        file_bytes=FILE_BYTES,
    )
    driver.spill.open()
