"""The benchmark of task libraries: its own parts, on a small number of tasks."""

from __future__ import annotations

import os
import shutil

import pytest

import ratios


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
