"""Seeds that once found a defect (found.txt), each played again.

Every defect also has a test beside the code that had it, and later changes of the plan gave old seeds other events. So
only the newest seeds are played by default. The others have the marker `soak`: `pytest -m soak tests/simulation`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from disque_py.simulator.focused_plans import draw_focused
from disque_py.simulator.plan import Keep, draw
from disque_py.simulator.simulation import simulate

LINES = [
    [part.strip() for part in line.split("|")]
    for line in (Path(__file__).parent / "found.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
NEWEST: Final = 16
FOCUS: Final = "focus "
CASES = [
    pytest.param(*line, id=line[0], marks=[pytest.mark.soak] if age > NEWEST else [])
    for age, line in zip(range(len(LINES), 0, -1), LINES, strict=True)
]


@pytest.mark.timeout(600)  # Some of these seeds need a minute of a processor.
@pytest.mark.parametrize(("seed", "seconds", "weather", "keep", "defect"), CASES)
def test_a_seed_that_found_a_defect_finds_it_no_more(seed, seconds, weather, keep, defect):
    """The file names the defect beside the seed."""
    duration_ms = round(float(seconds) * 1000)
    if weather.startswith(FOCUS):
        plan = draw_focused(weather.removeprefix(FOCUS), int(seed), duration_ms)
    else:
        plan = draw(int(seed), duration_ms, weather=weather.strip("-"))
    failure = simulate(plan.kept(Keep.read(keep.strip("-")))).failure
    assert failure is None, f"{failure.rule}: {failure.detail} (once: {defect})"
