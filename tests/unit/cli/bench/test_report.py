"""disque_py/cli/bench/report.py: the same figures in three formats."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from disque_py.cli.bench.figures import Sample, lines_of
from disque_py.cli.bench.report import Report, as_json, markdown, number, screen_tables, table_of, warnings_of


def report_of(*, generator=0.5):
    """Return a report of two contestants and two runs. The second contestant is three times as fast."""
    samples = [
        Sample("ping", "p=1 c=1", name, run, {"rate": rate + run, "generator": generator, "cpu": 1.5})
        for run in range(2)
        for name, rate in (("a", 1000.0), ("b", 3000.0))
    ]
    lines = lines_of(samples, {"ping": "rate"}, "a")
    return Report({"cores": "2"}, {"a": "1.0", "b": ""}, "a", ["A note."], samples, lines)


@pytest.mark.parametrize(
    ("value", "text"), [(1234567.0, "1,234,567"), (123.4, "123"), (12.34, "12.3"), (0.567, "0.57"), (-3.21, "-3.21")]
)
def test_a_figure_has_about_three_significant_digits(value, text):
    assert number(value) == text


def test_a_table_has_median_range_ratio_and_costs():
    head, rows = table_of(report_of(), "ping")
    assert head == ["", "contestant", "per second", "× a", "CPU s per 100,000", "generator, % of a core"]
    assert rows[1][:4] == ["p=1 c=1", "b", "3,000 (3,000–3,001)", "3.00 (3.00–3.00)"]
    assert rows[1][4:] == ["1.50", "50"]


def test_a_generator_at_its_limit_is_marked_and_explained():
    busy = report_of(generator=0.95)
    assert table_of(busy, "ping")[1][0][-1] == "95 !"
    assert warnings_of(busy)[0].startswith("In 2 of 2 figures, marked with !, the generator was the limit")
    assert warnings_of(report_of()) == []


def test_markdown_has_machine_notes_and_tables():
    text = markdown(report_of())
    assert "cores 2." in text
    assert "- a: 1.0\n- b: version unknown" in text
    assert "A note." in text
    assert "| p=1 c=1 | b | 3,000 (3,000–3,001) | 3.00 (3.00–3.00) | 1.50 | 50 |" in text


def test_json_has_every_sample():
    found = json.loads(as_json(report_of()))
    assert len(found["samples"]) == 4
    assert found["summaries"][1]["ratio"]["count"] == 2
    assert found["reference"] == "a"


def test_tables_are_shown_on_a_terminal():
    console = Console(file=io.StringIO(), width=120)
    console.print(*screen_tables(report_of()))
    assert "ping: PING" in console.file.getvalue()
