"""Percentiles, tables, results files and the tables of the document."""

from __future__ import annotations

import re

import pytest
from rich.console import Console

from catalogue import BENCHMARKS
from document import DOCUMENT, with_figures
from figures import Benchmark, Column, Past, Results, Row, markdown_table, percentile, read_results, screen_table

SPEED = Benchmark("core", "Speed", "what", (Column("ns", "ns each", 1),), "ns", lambda plan: iter(()))
ROW = Row("PING", {"ns": 1234.56}, {"ns": 1000})
MACHINE = {"processor": "abacus", "load": 0.0}


@pytest.fixture
def results_path(tmp_path):
    """Return a results file with a quick run after a full one."""
    path = tmp_path / "results"
    for run, is_quick, ns in (("1", False, 10.0), ("2", True, 20.0)):
        results = Results(path, run)
        results.note_machine(MACHINE, is_quick=is_quick)
        results.note_row("core", Row("PING", {"ns": ns}))
    return path


@pytest.mark.parametrize(("percent", "wanted"), [(1, 1), (50, 50), (99, 99), (99.5, 100), (100, 100)])
def test_a_percentile_is_the_nearest_rank(percent, wanted):
    """Of a hundred samples, it is the last but one: one in a hundred is worse."""
    assert percentile(range(1, 101), percent) == wanted


def test_with_few_samples_a_percentile_is_the_worst():
    """Twenty samples can't show the worst of a hundred. The worst of the twenty is an honest estimate."""
    assert percentile([1.0] * 19 + [7.0], 99) == 7.0
    assert percentile([], 99) == 0.0


def test_the_newest_run_of_a_benchmark_is_read(results_path):
    """A results file is a history."""
    assert read_results(results_path).rows["core"]["PING"]["ns"] == 20.0


def test_quick_figures_are_skipped_on_request(results_path):
    """The document needs the figures of a full run."""
    past = read_results(results_path, with_quick=False)
    assert past.rows["core"]["PING"]["ns"] == 10.0
    assert past.machines["core"] == MACHINE


def test_a_missed_goal_is_shown_and_a_missing_figure_is_a_dash():
    """The goals are shown beside the figures."""
    console = Console(width=120)
    with console.capture() as captured:
        console.print(screen_table(SPEED, [ROW, Row("PONG", {"ns": None})]))
    assert "✗ 1,234.6" in captured.get()
    assert "Goal: ns each < 1000" in " ".join(captured.get().split())
    assert re.search(r"PONG\W+–", captured.get())


def test_an_earlier_run_gives_a_column_of_ratios():
    """A ratio is the new figure divided by the old one; above 1 is slower."""
    console = Console(width=120)
    with console.capture() as captured:
        console.print(screen_table(SPEED, [ROW], {"PING": {"ns": 617.28}}))
    assert "2.00" in captured.get()


def test_figures_replace_those_of_the_same_benchmark_only():
    """The rest of the document is written by hand."""
    text = "a\n<!-- figures: core -->\nold\n<!-- end -->\nb\n<!-- figures: idle -->\nold\n<!-- end -->\n"
    rewritten = with_figures(text, Past({"core": {"PING": {"ns": 5}}}, {"core": {}}))
    core = next(benchmark for benchmark in BENCHMARKS if benchmark.name == "core")
    table = markdown_table(core, [Row("PING", {"ns": 5})])
    assert rewritten == text.replace("core -->\nold\n", f"core -->\n{table}")


def test_the_document_has_a_place_for_every_benchmark():
    """It has no other places, except for the libraries that tests/integrations/load/ratios.py compares."""
    places = re.findall(r"^<!-- figures: (\S+) -->$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(places) == sorted(["libraries", *(benchmark.name for benchmark in BENCHMARKS)])
