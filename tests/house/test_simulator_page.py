"""The page of the simulator lists each deliberate defect of mutating.py, and says what finds it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "simulation"))

import mutating


@pytest.fixture(scope="module")
def rows(root):
    """The cells of the list: defect, weather, seeds needed, found by."""
    page = (root / "docs/simulator.md").read_text(encoding="utf-8")
    section = page.partition(mutating.TITLE)[2].partition("\n## ")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.+\|$", section, re.M)]
    assert lines[0] == ["defect", "weather", "seeds needed", "found by"]
    return lines[2:]


def test_each_defect_has_its_row_and_each_row_its_defect(rows):
    """The order is that of the program. The weather and the clients of a row are those of its hunt."""
    assert [tuple(row[:2]) for row in rows] == [(each.name, mutating.place_of(each)) for each in mutating.MUTATIONS]


def test_each_row_says_what_finds_the_defect(rows):
    """Either seeds have found it, and the row has their number. Or a test finds it."""
    by_test = {name: f"spec {rule}: `{test}`" for name, (rule, test) in mutating.FOUND_BY_TEST.items()}
    assert [row for row in rows if not row[3]] == []
    assert {row[0]: row[3] for row in rows if not row[2].isdigit()} == by_test


def test_the_tests_that_find_defects_exist(root):
    """A renamed test must be renamed in the list, too."""
    code = "".join(path.read_text(encoding="utf-8") for path in (root / "tests").rglob("test_*.py"))
    named = [test for _, test in mutating.FOUND_BY_TEST.values()]
    assert named
    assert [test for test in named if f"def {test}(" not in code] == []
