"""simulator/faults/disks.py: every disk fault ends with `cure`."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from disque_py.simulator.faults.disks import TROUBLES, Health, afflict, cure
from disque_py.simulator.world.disk import DELAYS_MS, SimDisk


class Patient:
    """A folder and a disk in one object, which records the calls."""

    def __init__(self) -> None:
        self.delays_ms = list(DELAYS_MS)
        self.is_stuck = False
        self.capacity_bytes = 1_000
        self.used_bytes = 10
        self.failing: list[str] = []

    def fail(self, ops: str, errno: int, **how: Any) -> None:
        self.failing.append(ops)

    def heal(self) -> None:
        self.failing.clear()

    def free(self) -> None:
        self.is_stuck = False


@pytest.mark.parametrize("kind", TROUBLES)
@pytest.mark.plain
def test_a_cure_ends_what_an_affliction_began(kind):
    """This is tested for each kind of fault."""
    patient: Any = Patient()
    well = dict(vars(patient), failing=[])
    afflict(patient, patient, kind, cast(Any, SimpleNamespace(picks=(0, 0, 0, 0))), 50)
    assert vars(patient) != well
    cure(patient, patient, 1_000)
    assert vars(patient) == well


@pytest.mark.parametrize("began_slow", [True, False])
def test_work_that_began_on_a_slow_disk_counts_as_a_fault_until_it_is_done(began_slow):
    """docs/simulator.md: a fault excuses decisions during the fault, and its last work belongs to it."""
    asked: list[Any] = []
    world, folder, health = cast(Any, SimpleNamespace(now_ms=500)), cast(Any, SimpleNamespace()), Health()
    disk = SimDisk(folder, lambda _ms, call: asked.append(call), Random(1))
    if began_slow:
        disk.delays_ms = [(20, 2_000)] * len(DELAYS_MS)
    disk.start(0, lambda _: None, lambda _: None)
    disk.delays_ms = list(DELAYS_MS)
    health.get_well(world.now_ms)
    health.follow(world, disk)
    world.now_ms = 1_500
    asked[0]()
    assert health.well_ms == (1_500 if began_slow else 500)
