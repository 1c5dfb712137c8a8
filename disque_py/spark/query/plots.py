"""Tables and curves made of characters. Pure; the command prints the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final

from disque_py.spark.query.questions import Answer

BLOCKS: Final = " ▁▂▃▄▅▆▇█"
CELL_MAX: Final = 60


def cell(value: Any) -> str:
    """Return a value as readable text."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    text = " ".join(f"{key}={item}" for key, item in value.items()) if isinstance(value, Mapping) else str(value)
    # Queue names and meta may contain control characters, and PIVOT makes columns of them. They must not move the
    # terminal's cursor.
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def is_number(value: Any) -> bool:
    """Return whether a value is a number, which is aligned to the right."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def table(answer: Answer, *, rows_max: int = 1_000) -> str:
    """Return a table with a line under its head, without columns that are empty in all rows."""
    rows = answer.rows[:rows_max]
    used = [at for at in range(len(answer.columns)) if any(row[at] not in (None, "", {}, []) for row in rows)]
    if not rows:
        return "nothing\n"
    head = [cell(answer.columns[at]) for at in used]
    body = [[cell(row[at])[:CELL_MAX] for at in used] for row in rows]
    widths = [max(len(line[at]) for line in [head, *body]) for at in range(len(used))]
    right = [all(row[at] is None or is_number(row[at]) for row in rows) for at in used]

    def line(words: Sequence[str]) -> str:
        parts = [
            word.rjust(width) if is_right else word.ljust(width)
            for word, width, is_right in zip(words, widths, right, strict=True)
        ]
        return "  ".join(parts).rstrip()

    lines = [line(head), "  ".join("─" * width for width in widths), *(line(words) for words in body)]
    if len(answer.rows) > rows_max:
        lines.append(f"… and {len(answer.rows) - rows_max:,} more rows")
    return "".join(f"{text}\n" for text in lines)


def curve(values: Sequence[float], width: int = 60, height: int = 1) -> list[str]:
    """Return a curve of blocks as `height` lines, the top first. Each column shows the largest of its values."""
    if not values:
        return [""] * height
    width = max(1, min(width, len(values)))  # The terminal may be narrower than the labels.
    columns = [
        max(values[at * len(values) // width : max(at * len(values) // width + 1, (at + 1) * len(values) // width)])
        for at in range(width)
    ]
    top = max(columns)
    levels = [0 if top <= 0 else max(round(value / top * height * 8), 1 if value > 0 else 0) for value in columns]
    return ["".join(BLOCKS[min(8, max(0, level - line * 8))] for level in levels) for line in range(height - 1, -1, -1)]


def curves(answer: Answer, width: int = 60, height: int = 4) -> str:
    """Return (moment, series, value) rows as a curve per series, with its largest value and the span of time."""
    series: dict[str, list[tuple[Any, float]]] = {}
    for at, name, value in answer.rows:
        series.setdefault(str(name), []).append((at, float(value)))
    if not series:
        return "nothing\n"
    lines = []
    for name, points in series.items():
        top = max(value for _, value in points)
        for number, text in enumerate(curve([value for _, value in points], width, height)):
            label = f"{cell(int(top))} ┤" if number == 0 else "0 ┤" if number == height - 1 else "│"
            lines.append(f"{label:>14}{text}")
        lines.append(f"{name:>12}  {cell(points[0][0])} … {cell(points[-1][0])}")
        lines.append("")
    return "".join(f"{text}\n" for text in lines)


def bars(answer: Answer, label: str, value: str, width: int = 40, rows_max: int = 20) -> str:
    """Return rows as bars: labelled by the column `label`, as long as the column `value`."""
    at, of = answer.columns.index(label), answer.columns.index(value)
    rows = answer.rows[:rows_max]
    top = max((row[of] or 0 for row in rows), default=0)
    names = [cell(row[at])[:CELL_MAX] or "–" for row in rows]
    space = max((len(name) for name in names), default=0)
    return "".join(
        f"{name:<{space}}  {'█' * round((row[of] or 0) / top * width) if top else '':<{width}} {cell(row[of])}\n"
        for name, row in zip(names, rows, strict=True)
    )
