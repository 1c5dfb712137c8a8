"""Output of disque-cluster: the table of nodes, and the progress of a leaving node.

On a terminal the output has colours and a moving bar; in a pipe it is plain lines, one per node or change.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from disque_py.cli.cluster.draining import DrainProgress
from disque_py.cli.cluster.view import ClusterView, NodeView
from disque_py.cli.cluster.voters import VotersView
from disque_py.cli.cluster.zones import zone_of
from disque_py.resp.sizes import human_bytes

COLUMNS: Final = ("node", "address", "state", "jobs", "queues", "memory", "links", "priority", "voter")
PIPE_WIDTH: Final = 200
NUMBERS: Final = ("jobs", "queues", "memory", "links", "priority")


def rows_of(cluster: ClusterView) -> list[dict[str, Any]]:
    """Return one row per node, by address; None for a value that the node did not give."""
    rows: list[dict[str, Any]] = []
    voters = VotersView(cluster)
    for node in sorted(cluster.nodes, key=lambda node: (node.address.host, node.address.port)):
        numbers = {name: value for name, value in node.info.items() if isinstance(value, int)}
        rows.append(
            {
                "node": node.id,
                "address": str(node.address),
                "state": cluster.state_of(node),
                "jobs": numbers.get("registered_jobs"),
                "queues": numbers.get("registered_queues"),
                "memory": numbers.get("used_memory"),
                "links": sum(row.is_linked for row in node.others) if not node.error else None,
                "others": len(node.others) if not node.error else None,
                "priority": int(priority) if (priority := cluster.priority_of(node)).isdigit() else None,
                "voter": voters.role_of(node),
                "zone": zone_of(node),
                "voters": voters.as_json(node.voters),
            }
        )
    return rows


def print_table(cluster: ClusterView) -> None:
    """Print the table of `status`, and a line about the voters; on a terminal in colours."""
    table = Table(box=None, pad_edge=False)
    rows = rows_of(cluster)
    # A cluster without zones has no column for them.
    columns = (*COLUMNS, "zone") if any(row["zone"] for row in rows) else COLUMNS
    for name in columns:
        table.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=True)
    for row in rows:
        cells = {name: "-" if row[name] in (None, "") else str(row[name]) for name in columns}
        cells["node"] = row["node"][:8] or "-"
        if row["memory"] is not None:
            cells["memory"] = human_bytes(row["memory"])
        if row["links"] is not None:
            cells["links"] = f"{row['links']}/{row['others']}"
        table.add_row(*cells.values(), style=None if row["state"] == "ok" else "yellow")
    # rich would take `[fe80::1]` for a style and leave it out, and the `:a:` of an address for a picture.
    console = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    # A row stays one line. A terminal that is too narrow breaks the line, because rich would cut off addresses.
    needed = console.measure(table, options=console.options.update(max_width=PIPE_WIDTH)).maximum
    console.width = max(console.width, needed)
    console.print(table)
    summary = VotersView(cluster).summary()
    if summary:
        console.print(f"\n{summary}", soft_wrap=True)


class DrainDisplay:
    """A bar on a terminal, with new reasons above it; elsewhere a line whenever the number or the reasons change."""

    def __init__(self, leaver: NodeView) -> None:
        self._console = Console()
        self._bar = Progress(
            TextColumn("draining {task.fields[name]}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[jobs]} left"),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._task = self._bar.add_task("", total=None, name=leaver.name, jobs="? jobs")
        self._most = 0
        self._last: DrainProgress | None = None

    def __enter__(self) -> DrainDisplay:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def show(self, progress: DrainProgress) -> None:
        """Show one look."""
        self._most = max(self._most, progress.remaining, 1)
        if self._console.is_terminal:
            self._bar.update(
                self._task,
                total=self._most,
                completed=self._most - progress.remaining,
                jobs=progress.jobs,
            )
            # A reason is a sentence. Beside the bar it would push the number of jobs off the line.
            if progress.reasons and (self._last is None or progress.reasons != self._last.reasons):
                self._console.print(Text("\n".join(progress.reasons), style="yellow"))
        elif progress != self._last:
            click.echo("; ".join((f"{progress.jobs} left", *progress.reasons)))
        self._last = progress
