"""The table of queues: in colours on a terminal, elsewhere as plain lines.

disque-cli --queues and disque-admin queue list show it. A narrow terminal leaves out the columns of LESS_URGENT, one
after the other. In a pipe every row stays on one line. A row with errored jobs is red, and one of a paused queue
yellow. The footer says what is not shown: queues that were left out, and nodes that did not answer.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from disque_py.cli.counting import counted
from disque_py.cli.queue_view import Look, QueueRow
from disque_py.cli.visible import visible

COLUMNS: Final = (
    "queue",
    "pending",
    "running",
    "invisible",
    "errored",
    "oldest",
    "in/s",
    "out/s",
    "paused",
    "settings",
)
TEXTS: Final = ("queue", "paused", "settings")
# In a pipe a row must stay on one line, however narrow rich believes the terminal to be.
PIPE_WIDTH: Final = 240
# The columns that a narrow terminal leaves out, in this order.
LESS_URGENT: Final = ("settings", "paused", "invisible", "running", "out/s", "in/s")
QUEUE_WIDTH_MIN: Final = 16
# The width of a column: its title or a number of six digits, and two spaces.
CELL_WIDTH_MIN: Final = 7
# Lines of the live table in addition to its rows.
FRAME_LINES: Final = 4


def console_for(stream: Any = None) -> Console:
    """Return a console for an output stream; standard output by default.

    It shows text as it is. rich would take `[x]` for a style, and `:key:` in the name of a queue for a picture.
    """
    out = stream or sys.stdout or io.StringIO()  # There may be no standard output: `>&-`.
    return Console(file=out, highlight=False, markup=False, emoji=False, width=None if out.isatty() else PIPE_WIDTH)


def queue_table(look: Look, rows_max: int | None = None, width: int | None = None) -> Table:
    """Return the table of a look, with as many rows and columns as there is room for."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = columns_for(width)
    for name in columns:
        table.add_column(
            name,
            justify="left" if name in TEXTS else "right",
            no_wrap=True,
            overflow="ellipsis",
            min_width=None if name == "settings" else len(name),
            max_width=_queue_width(width, columns) if name == "queue" else None,
        )
    for row in look.rows[:rows_max]:
        table.add_row(*(cells_of(row)[COLUMNS.index(name)] for name in columns), style=_style(row))
    return table


def columns_for(width: int | None) -> list[str]:
    """Return the columns that fit into a line. The least urgent ones are left out first."""
    columns = list(COLUMNS)
    for name in LESS_URGENT:
        if width is None or _width_of(columns) <= width:
            break
        columns.remove(name)
    return columns


def _width_of(columns: list[str]) -> int:
    return QUEUE_WIDTH_MIN + sum(
        2 + max(CELL_WIDTH_MIN, len(name)) for name in columns if name not in ("queue", "settings")
    )


def _queue_width(width: int | None, columns: list[str]) -> int | None:
    return None if width is None else max(QUEUE_WIDTH_MIN, QUEUE_WIDTH_MIN + width - _width_of(columns))


def cells_of(row: QueueRow) -> list[str]:
    """Return the cells of a row, in the order of COLUMNS."""
    numbers = [f"{value:,}" for value in (row.pending, row.running, row.invisible, row.errored)]
    paused = "" if row.paused == "none" else row.paused
    return [
        visible(row.queue),
        *numbers,
        "-" if row.oldest_ms is None else age_text(row.oldest_ms),
        _rate(row.rate_in),
        _rate(row.rate_out),
        paused,
        visible(settings_text(row.settings)),
    ]


def footer(look: Look, rows_max: int | None = None) -> str:
    """Return the line below the table: totals, and everything that is not shown."""
    count = len(look.rows)
    pending = sum(row.pending for row in look.rows)
    parts = [f"{count} queue{'' if count == 1 else 's'}, {pending:,} job{'' if pending == 1 else 's'} pending"]
    hidden = max(0, len(look.rows) - rows_max) if rows_max is not None else 0
    if hidden:
        parts.append(f"shorter queues not shown: {hidden}")
    if look.left_out:
        parts.append(f"queues left out: {look.left_out} (use a pattern)")
    if look.missing:
        parts.append(
            f"without {counted(len(look.missing), 'node')} that did not answer: {' '.join(n[:8] for n in look.missing)}"
        )
    return " · ".join(parts)


def screen(look: Look, rows_max: int, width: int, title: str) -> Table:
    """Return a whole screen of the live display."""
    grid = Table.grid()
    grid.add_row(Text(title, style="dim"))
    grid.add_row(queue_table(look, rows_max, width))
    grid.add_row(Text(footer(look, rows_max), style="yellow" if look.missing else "dim"))
    return grid


def settings_text(settings: Mapping[str, str]) -> str:
    """Return settings as one line, in the form that `disque-admin queue set` takes."""
    return " ".join(f"{name}={value}" for name, value in settings.items())


def age_text(milliseconds: int) -> str:
    """Return an age in its two largest units: `340ms`, `12.0s`, `3m05s`, `2h10m`, `4d06h`."""
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02}m"
    return f"{hours // 24}d{hours % 24:02}h"


def _rate(rate: float | None) -> str:
    if rate is None:
        return "-"
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"


def _style(row: QueueRow) -> str | None:
    if row.errored:
        return "red"
    return "yellow" if row.paused != "none" else None
