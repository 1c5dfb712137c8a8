"""Seeds that once found a defect (found.txt), each played again."""

from __future__ import annotations

from pathlib import Path

import pytest

from disque_py.simulator.plan import Keep, draw
from disque_py.simulator.simulation import simulate

LINES = [
    [part.strip() for part in line.split("|")]
    for line in (Path(__file__).parent / "found.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize(("seed", "seconds", "weather", "keep", "defect"), LINES, ids=[line[0] for line in LINES])
def test_a_seed_that_found_a_defect_finds_it_no_more(seed, seconds, weather, keep, defect):
    """The file names the defect beside the seed."""
    plan = draw(int(seed), round(float(seconds) * 1000), weather=weather.strip("-"))
    failure = simulate(plan.kept(Keep.read(keep.strip("-")))).failure
    assert failure is None, f"{failure.rule}: {failure.detail} (once: {defect})"
