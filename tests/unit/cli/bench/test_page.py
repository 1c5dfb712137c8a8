"""disque_py/cli/bench/page.py: an HTML page that loads no other files."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import pytest

from disque_py.cli.bench import page as pages
from disque_py.cli.bench.figures import Sample, lines_of
from disque_py.cli.bench.page import NoChartsError, is_logarithmic
from disque_py.cli.bench.report import Report

# Older releases of matplotlib use names that a newer pyparsing has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:matplotlib")


@pytest.fixture
def report():
    """One test with two cells. The name of one contestant must be escaped in HTML."""
    samples = [
        Sample("ping", cell, name, run, {"rate": 10.0**run})
        for cell in ("p=1", "p=16")
        for name in ("a", "<b>")
        for run in range(2)
    ]
    lines = lines_of(samples, {"ping": "rate"}, "a")
    return Report({"cores": "2"}, {"a": "", "<b>": ""}, "a", ["Mind <this>."], samples, lines)


def test_a_page_has_charts_and_tables_and_loads_nothing(report):
    pytest.importorskip("matplotlib")
    text = pages.page(report)
    assert text.count("<svg") == 1
    assert text.count("<table>") == 1
    assert not re.search(r"""(?:src|href)=(?!["']#)|@import|url\((?!#)|<script|<!DOCTYPE svg""", text)


def test_names_are_text_and_not_markup(report):
    pytest.importorskip("matplotlib")
    text = pages.page(report)
    assert "<b>&lt;b&gt;</b>" in text
    assert "Mind &lt;this&gt;." in text


def test_the_same_figures_give_the_same_chart(report):
    """A page in version control changes only when its figures change."""
    pytest.importorskip("matplotlib")
    assert pages.chart(report, "ping") == pages.chart(report, "ping")


def test_a_chart_of_very_different_figures_has_dots(report):
    """On a logarithmic axis a bar has no meaningful start."""
    pytest.importorskip("matplotlib")
    samples = [Sample("ping", "p=1", name, 0, {"rate": rate}) for name, rate in (("a", 1.0), ("<b>", 1e6))]
    different = replace(report, samples=samples, lines=lines_of(samples, {"ping": "rate"}, "a"))
    assert "PathCollection" in pages.chart(different, "ping")
    assert "PathCollection" not in pages.chart(report, "ping")


def test_a_missing_library_is_reported_before_anything_is_measured(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NoChartsError, match=r"^CHARTS .*disque-py\[bench\]"):
        pages.matplotlib()


@pytest.mark.parametrize(("values", "expected"), [([1, 51], True), ([1, 50], False), ([-1, 500], False), ([], False)])
def test_an_axis_is_logarithmic_where_small_values_would_vanish(values, expected):
    assert is_logarithmic(values) is expected
