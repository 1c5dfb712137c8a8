"""simulator/faults/disks.py: every trouble ends when it is cured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from disque_py.simulator.faults.disks import TROUBLES, afflict, cure
from disque_py.simulator.world.disk import DELAYS_MS


class Patient:
    """Folder and disk in one: what was done to them."""

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
    """Each kind of affliction has its cure."""
    patient: Any = Patient()
    well = dict(vars(patient), failing=[])
    afflict(patient, patient, kind, cast(Any, SimpleNamespace(picks=(0, 0, 0, 0))), 50)
    assert vars(patient) != well
    cure(patient, patient, 1_000)
    assert vars(patient) == well
