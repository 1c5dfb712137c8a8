"""Figures: the results of a benchmark as a table on the screen, as JSON lines in a file, and as a table of a document.

A benchmark is a name, the columns of its table, and a function that yields rows as it goes, so that rows from before an
interruption are kept. A row's goals are upper bounds that the project has set itself. A missed goal is shown, but it is
not an error, because a busy machine misses goals, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from plan import Plan

Value = float | int | str | None
MISSING = "–"
MISSED = "✗"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its key in the JSON lines (unit last), its heading, and the digits after the point."""

    key: str
    title: str
    digits: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One line of figures, by the keys of the columns. `goals` has upper bounds for some of them."""

    name: str
    values: Mapping[str, Value]
    goals: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark. `compared` is the column that `--against` compares."""

    name: str
    title: str
    first: str
    columns: tuple[Column, ...]
    compared: str
    run: Callable[[Plan], Iterator[Row]]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the value below which `percent` of the ordered samples are, by the nearest rank."""
    if not ordered:
        return 0.0
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, min(len(ordered), int(rank)) - 1)]


def written(value: Value, digits: int) -> str:
    """Return a figure as readable text."""
    if value is None:
        return MISSING
    return value if isinstance(value, str) else f"{value:,.{digits}f}"


def screen_table(benchmark: Benchmark, rows: Sequence[Row], before: dict[str, dict[str, Any]] | None = None) -> Table:
    """Return the rows as a table for a terminal. Figures of an earlier run give a column of ratios."""
    table = Table(title=benchmark.title, title_justify="left", title_style="bold", caption_justify="left")
    table.add_column(benchmark.first, no_wrap=True)
    for column in benchmark.columns:
        table.add_column(column.title, justify="right")
    if before is not None:
        table.add_column("now / then", justify="right")
    for row in rows:
        cells = [_cell(row, column) for column in benchmark.columns]
        if before is not None:
            cells.append(_ratio(row.values.get(benchmark.compared), before.get(row.name, {}).get(benchmark.compared)))
        table.add_row(row.name, *cells)
    goals = [
        f"{column.title} < {goal:g}"
        for column in benchmark.columns
        for goal in {row.goals[column.key]: None for row in rows if column.key in row.goals}
    ]
    if goals:
        table.caption = f"Goal: {', '.join(goals)} ({MISSED}: missed)"
    return table


def _cell(row: Row, column: Column) -> str:
    value = row.values.get(column.key)
    text = written(value, column.digits)
    goal = row.goals.get(column.key)
    if goal is None or not isinstance(value, int | float):
        return text
    return f"[green]{text}[/]" if value < goal else f"[red]{MISSED} {text}[/]"


def _ratio(now: Value, then: Value) -> str:
    if not isinstance(now, int | float) or not isinstance(then, int | float) or not then:
        return MISSING
    return f"{now / then:.2f}"


def markdown_table(benchmark: Benchmark, rows: Sequence[Row]) -> str:
    """Return the rows as a table for a document."""
    lines = [
        f"| {benchmark.first} | " + " | ".join(column.title for column in benchmark.columns) + " |",
        "|---|" + "---:|" * len(benchmark.columns),
    ]
    for row in rows:
        cells = [written(row.values.get(column.key), column.digits) for column in benchmark.columns]
        lines.append(f"| {row.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


class Results:
    """A file of JSON lines: for each run a line about the machine and the options, then one line per row.

    Lines are appended, so the file is a history. Lines of one run have the same `run`.
    """

    def __init__(self, path: Path | None, run: str) -> None:
        self._path = path
        self._run = run

    def note_machine(self, machine: dict[str, Value], *, is_quick: bool) -> None:
        """Write the first line of a run."""
        self._append({"run": self._run, "is_quick": is_quick, "machine": machine})

    def note_row(self, benchmark: str, row: Row) -> None:
        """Write one row."""
        line: dict[str, Any] = {"run": self._run, "benchmark": benchmark, "row": row.name, **row.values}
        if row.goals:
            line["goals"] = row.goals
        self._append(line)

    def _append(self, line: dict[str, Any]) -> None:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


@dataclass(frozen=True, slots=True)
class Past:
    """Return the last results of each benchmark in a file: rows by name, and the machine they come from."""

    rows: dict[str, dict[str, dict[str, Any]]]
    machines: dict[str, dict[str, Value]]


def read_results(path: Path, *, with_quick: bool = True) -> Past:
    """Return the newest run of each benchmark in a results file. Raises OSError, and ValueError for other lines."""
    machines: dict[str, dict[str, Value]] = {}
    skipped: set[str] = set()
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    runs: dict[str, str] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        run = line["run"]
        if "machine" in line:
            machines[run] = line["machine"]
            if line["is_quick"] and not with_quick:
                skipped.add(run)
        elif run not in skipped:
            name = line["benchmark"]
            if runs.get(name) != run:
                runs[name] = run
                rows[name] = {}
            rows[name][line["row"]] = line
    return Past(rows, {name: machines.get(run, {}) for name, run in runs.items()})
