"""Output of results: JSON, Markdown, and tables for the terminal.

All of them show the same lines. Each contestant has, for each cell, a median with its range, the ratio to the
reference, and the costs. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

from disque_py.cli.bench.figures import Line, Sample, Summary
from disque_py.cli.bench.measures import TESTS

MISSING: Final = "–"
WARNING: Final = "the generator was the limit: it needed more than 90 % of a core, so the server may be faster"
# Metrics in addition to a test's own: key and heading, in the order of columns.
COLUMNS: Final = (
    ("rate", "per second"),
    ("p50", "p50 ms"),
    ("p99", "p99 ms"),
    ("p99.9", "p99.9 ms"),
    ("min", "earliest ms"),
    ("max", "latest ms"),
    ("memory", "bytes per job"),
    ("cpu", "CPU s per 100,000"),
    ("messages", "bus messages per job"),
    ("bus_bytes", "bus bytes per job"),
    ("generator", "generator, % of a core"),
)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a run: the machine, contestants with their versions, notes, samples, and lines."""

    machine: Mapping[str, str]
    contestants: Mapping[str, str]
    reference: str
    notes: Sequence[str]
    samples: Sequence[Sample]
    lines: Sequence[Line]

    def tests(self) -> list[str]:
        """Return the names of the tests that have lines, in the order of the table of tests."""
        there = {line.test for line in self.lines}
        return [name for name in TESTS if name in there]

    def of(self, test: str) -> list[Line]:
        """Return the lines of a test, cell by cell."""
        lines = [line for line in self.lines if line.test == test]
        cells = list(dict.fromkeys(line.cell for line in lines))
        return sorted(lines, key=lambda line: cells.index(line.cell))


def number(value: float) -> str:
    """Return a figure with about three significant digits."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:,.1f}" if size >= 10 else f"{value:,.2f}"


def spread_text(summary: Summary | None) -> str:
    """Return the median, and the range if there was more than one run."""
    if summary is None:
        return MISSING
    middle = number(summary.median)
    return f"{middle} ({number(summary.low)}–{number(summary.high)})" if summary.count > 1 else middle


def ratio_text(summary: Summary | None) -> str:
    """Return a ratio with two digits, and its range."""
    if summary is None:
        return MISSING
    return (
        f"{summary.median:.2f} ({summary.low:.2f}–{summary.high:.2f})" if summary.count > 1 else f"{summary.median:.2f}"
    )


def table_of(report: Report, test: str) -> tuple[list[str], list[list[str]]]:
    """Return the headings and the rows of a test's table; columns that would be empty are left out."""
    lines = report.of(test)
    main = TESTS[test].metric
    columns = [column for column in COLUMNS if any(column[0] in line.metrics for line in lines)]
    columns.sort(key=lambda column: column[0] != main)
    head = ["", "contestant", *(title for _, title in columns)]
    head.insert(3, f"× {report.reference}")
    rows = []
    for line in lines:
        cells = [_cell(line, key, is_main=key == main) for key, _ in columns]
        cells.insert(1, ratio_text(line.ratio))
        rows.append([line.cell, line.contestant, *cells])
    return head, rows


def _cell(line: Line, key: str, *, is_main: bool) -> str:
    found = line.metrics.get(key)
    if found is None:
        return MISSING
    if key == "generator":
        return f"{found.median * 100:.0f}" + (" !" if line.is_generator_bound else "")
    return spread_text(found) if is_main else number(found.median)


def warnings_of(report: Report) -> list[str]:
    """Return a sentence if the generator was the limit anywhere."""
    bound = [f"{line.test} {line.cell} {line.contestant}" for line in report.lines if line.is_generator_bound]
    return [f"In {len(bound)} of {len(report.lines)} figures, marked with !, {WARNING}."] if bound else []


def screen_tables(report: Report) -> list[Table]:
    """Return the tables for a terminal."""
    tables = []
    for test in report.tests():
        head, rows = table_of(report, test)
        title = f"{test}: {TESTS[test].summary}"
        table = Table(title=escape(title), title_justify="left", title_style="bold")
        for at, word in enumerate(head):
            table.add_column(escape(word), justify="left" if at < 2 else "right", no_wrap=at < 2)
        before = ""
        for row in rows:
            if before and row[0] != before:
                table.add_section()
            table.add_row(*(escape(word) for word in ("" if row[0] == before else row[0], *row[1:])))
            before = row[0]
        tables.append(table)
    return tables


def markdown(report: Report) -> str:
    """Return the report as a document."""
    parts = ["# disque-bench", ", ".join(f"{name} {value}" for name, value in report.machine.items()) + "."]
    parts.append("\n".join(f"- {name}: {text or 'version unknown'}" for name, text in report.contestants.items()))
    parts += [*report.notes, *warnings_of(report)]
    for test in report.tests():
        head, rows = table_of(report, test)
        lines = [f"| {' | '.join(head)} |", "|---|---|" + "---:|" * (len(head) - 2)]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        parts += [f"## {test}", f"{TESTS[test].summary}.", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def as_json(report: Report) -> str:
    """Return all samples and summaries as one JSON object."""
    lines: list[dict[str, Any]] = [asdict(line) for line in report.lines]
    whole = {
        "version": 1,
        "machine": dict(report.machine),
        "contestants": dict(report.contestants),
        "reference": report.reference,
        "notes": [*report.notes, *warnings_of(report)],
        "summaries": lines,
        "samples": [asdict(sample) for sample in report.samples],
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"
