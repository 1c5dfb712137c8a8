"""The benchmark of task libraries, with a small number of tasks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import ratios
from waits import eventually


def test_the_cpu_of_a_process_group_grows_with_its_work():
    before = ratios.cpu_of_group(os.getpgid(0))
    while ratios.cpu_of_group(os.getpgid(0)) < before + 0.05:
        sum(range(100_000))


@pytest.mark.parametrize("broker", ["redis", "disque-py"])
def test_a_round_has_a_figure_of_each_kind(broker, tmp_path):
    pytest.importorskip("dramatiq", reason="the extra [dramatiq] is not installed")
    if broker == "redis" and shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    found = ratios.measure(ratios.PROGRAMS["dramatiq"], broker, 100, tmp_path)
    assert len(found) == len(ratios.FIGURES)
    assert found[1] > 0


# Its first argument is the folder of `ratios`: the working folder may be no import path.
PARENT = """
import sys, time
sys.path.insert(0, sys.argv[1])
import ratios
with ratios.guarded(["sh", "-c", "sleep 600 & sleep 600"]) as process:
    print(process.pid, flush=True)
    time.sleep(600)
"""


def members(group):
    """Return the processes of a group: the fifth word of their stat."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            words = stat.read_text().rpartition(")")[2].split()
            if int(words[2]) == group and words[0] != "Z":
                found.append(stat.parent.name)
    return found


def test_a_killed_run_leaves_no_process_not_even_those_of_its_workers():
    folder = str(Path(ratios.__file__).parent)
    with subprocess.Popen([sys.executable, "-c", PARENT, folder], stdout=subprocess.PIPE, text=True) as parent:
        group = int(parent.stdout.readline())
        eventually(lambda: len(members(group)) == 4)  # The guard, the shell and two sleeps.
        parent.kill()
    eventually(lambda: not members(group))


def test_a_program_that_ended_well_leaves_no_process():
    with ratios.guarded(["sh", "-c", "sleep 600 & exit 3"]) as process:
        assert process.wait(30) == 3
    eventually(lambda: not members(process.pid))


ROUND = {"redis": [(400.0, 100.0, 10.0, 5.0)], "disque-py": [(100.0, 300.0, 8.0, 5.0)]}


def results(folder, *, is_quick):
    lines = [
        {"run": "1", "is_quick": is_quick, "machine": {}},
        {"run": "1", "benchmark": ratios.NAME, "row": "taskiq", **ratios.compared(ROUND)},
    ]
    path = folder / "results"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_figures_are_put_into_the_document(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- figures: libraries -->\nold\n<!-- end -->\nbehind\n")
    ratios.fill(results(tmp_path, is_quick=False), page)
    assert "| Taskiq | 400 → 100: 0.25 | 100 → 300: 3.0 | 10 → 8: 0.8 | 5 → 5: 1.0 |" in page.read_text()
    assert "old" not in page.read_text()


def test_figures_of_few_rounds_are_not_put_into_the_document(tmp_path):
    with pytest.raises(ValueError, match="no run of 3 rounds"):
        ratios.fill(results(tmp_path, is_quick=True), tmp_path / "page.md")


def test_the_document_has_a_place_for_the_figures():
    from document import DOCUMENT

    assert f"<!-- figures: {ratios.NAME} -->" in DOCUMENT.read_text(encoding="utf-8")
