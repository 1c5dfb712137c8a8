"""Instructions per command: the commands run, and the totals between two marks are read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import instructions


def test_the_commands_run_on_three_nodes():
    program = [sys.executable, "-P", instructions.__file__, "--inside", "--nodes", "3"]
    assert subprocess.run(program, capture_output=True, text=True, timeout=120).stderr == ""


def test_each_command_has_the_total_between_its_two_marks(tmp_path: Path):
    for number in range(1, 10):
        (tmp_path / f"out.{number}").write_text(f"events: Ir\nsummary: 1\ntotals: {100 * number}\n")
    assert list(instructions.totals(tmp_path)) == [200, 400, 600, 800]


def test_without_callgrind_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("PATH", "")
    assert instructions.main([]) == 1
    assert "install the package valgrind" in capsys.readouterr().err
