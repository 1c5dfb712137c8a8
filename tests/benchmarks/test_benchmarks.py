"""The benchmarks as a command, with very small numbers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

FOLDER = Path(__file__).parent


def start(tmp_path, *words):
    """Start the command, with its scratch folders below tmp_path."""
    return subprocess.Popen(
        [sys.executable, FOLDER, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )


def test_figures_are_printed_and_kept(tmp_path):
    """The table is for people, the file for comparisons."""
    out = tmp_path / "results"
    with start(tmp_path, "core", "--quick", "--jobs", "200", "--out", out) as process:
        assert "ADDJOB, three nodes" in process.communicate(timeout=60)[0]
    machine, *rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert process.returncode == 0
    assert machine["machine"]["calibration_ns"] > 0
    assert all(row["ratio"] > 0 for row in rows)


def test_an_interrupted_benchmark_leaves_nothing_behind(tmp_path):
    """When it ends, its node and its scratch folder are gone."""
    with start(tmp_path, "idle", "--quick") as process:
        while not list(tmp_path.glob("disque-benchmark.*/node-3/output")):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []


def test_a_benchmark_that_exceeds_its_time_is_reported(tmp_path):
    """Rows that were measured before would be shown."""
    with start(tmp_path, "latency", "--quick", "--limit", "1") as process:
        assert "latency: not finished after 1 s" in process.communicate(timeout=60)[0]
    assert process.returncode == 1


def test_a_benchmark_that_does_not_exist_is_refused(tmp_path):
    """The error names the existing ones."""
    with start(tmp_path, "corr") as process:
        assert "there are core, events, latency" in process.communicate(timeout=60)[0]
    assert process.returncode == 2


def test_the_installed_build_is_measured():
    """Otherwise `make bench build=compiled` would find the plain Python of the checkout first."""
    root = str(FOLDER.parents[1])
    code = f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import catalogue; print(*sys.path, sep='\\n')"
    found = subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True, text=True).stdout
    paths = found.splitlines()
    assert paths.index(sysconfig.get_path("purelib")) < paths.index(root)
