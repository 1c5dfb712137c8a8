"""Output of the demonstration: a live table on a terminal, a line every few seconds elsewhere, and the report.

The figures of a node come from the node. Rates are those of the last seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from disque_py.cli.demo.link import Link, LinkLostError, encode
from disque_py.cli.demo.nodes import info_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from disque_py.cli.demo.load import Load
    from disque_py.cli.demo.nodes import NodeProcess
    from disque_py.cli.demo.tally import Report

ASK_SECONDS: Final = 0.5
LINE_SECONDS: Final = 2.0
RATE_SAMPLES: Final = 6  # Rates are means over this many samples: three seconds.
BAR_COLUMNS: Final = 40


@dataclass(slots=True)
class NodeView:
    """One row of the table."""

    node: NodeProcess
    queued: int = 0
    registered: int = 0
    events: int = 0
    note: str = "up"


class Rate:
    """Events per second, from a counter that is read at intervals."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=RATE_SAMPLES)

    def sample(self, now: float, count: int) -> float:
        """Note the counter's value. Return the mean rate over the latest samples."""
        self._samples.append((now, count))
        then, before = self._samples[0]
        return (count - before) / (now - then) if now > then else 0.0


class Display:
    """Shows a running load. `has_events`: the nodes write event logs, and their events are shown instead of adds."""

    def __init__(self, console: Console, load: Load, nodes: list[NodeProcess], *, has_events: bool = False) -> None:
        self._console = console
        self._load = load
        self._has_events = has_events
        self.views = [NodeView(node) for node in nodes]
        self._total = Rate()
        self._rates = [Rate() for _ in nodes]
        self.message = ""

    async def run(self) -> None:
        """Refresh until cancelled."""
        watches = [asyncio.ensure_future(self._watch(view)) for view in self.views]
        try:
            if self._console.is_terminal:
                with Live(console=self._console, refresh_per_second=4, auto_refresh=False) as live:
                    try:
                        while True:
                            live.update(self.picture(), refresh=True)
                            await asyncio.sleep(ASK_SECONDS)
                    finally:
                        live.update(self.picture(), refresh=True)  # The last picture stays on the screen.
            else:
                while True:
                    await asyncio.sleep(LINE_SECONDS)
                    self._console.print(self.line(), highlight=False, soft_wrap=True)
        finally:
            for watch in watches:
                watch.cancel()

    def say(self, text: str) -> None:
        """Show the user a sentence about an event."""
        self.message = text
        if not self._console.is_terminal:
            self._console.print(text, highlight=False, soft_wrap=True)

    async def _watch(self, view: NodeView) -> None:
        """Ask one node repeatedly for the length of its queues and its jobs."""
        queues = self._load.queues
        request = b"".join(encode(b"QLEN", queue) for queue in queues) + encode(b"INFO", b"jobs")
        request += encode(b"INFO", b"events")
        while True:
            with contextlib.suppress(OSError, TimeoutError, LinkLostError):
                link = await Link.open(view.node.port)
                with contextlib.closing(link):
                    while True:
                        *lengths, info, events = await link.call(request, len(queues) + 2)
                        view.queued = sum(length for length in lengths if isinstance(length, int))
                        view.registered = info_number(info, "registered_jobs")
                        view.events = max(view.events, info_number(events, "events_next_seq") - 1)
                        await asyncio.sleep(ASK_SECONDS)
            view.queued = view.registered = 0
            await asyncio.sleep(ASK_SECONDS)

    def figures(self) -> Iterator[tuple[str, str]]:
        """Yield the totals: name and value."""
        tally = self._load.tally
        rate = self._total.sample(self._load.clock(), tally.delivered)
        yield "rate", f"{rate:,.0f}/s"
        yield "added", f"{tally.arrived:,}"
        yield "delivered", f"{tally.delivered:,}"
        yield "queued", f"{sum(view.queued for view in self.views):,}"
        yield "in flight", f"{self._load.on_the_way:,}"

    def line(self) -> str:
        """Return one line for a log."""
        states = " ".join(f"{view.node.name}:{view.note}" for view in self.views)
        return "  ".join(f"{name} {value}" for name, value in self.figures()) + f"  nodes {states}"

    def picture(self) -> Group:
        """Return the table for a terminal."""
        tally = self._load.tally
        now = self._load.clock()
        totals = Text("   ").join(Text.assemble((name + " ", "dim"), (value, "bold")) for name, value in self.figures())
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
        for heading in ("node", "port", "state"):
            table.add_column(heading)
        first = "events" if self._has_events else "added"
        for heading in ("delivered/s", first, "delivered", "queued", "jobs held"):
            table.add_column(heading, justify="right", min_width=9)
        for number, view in enumerate(self.views):
            rate = self._rates[number].sample(now, tally.delivered_by[number])
            table.add_row(
                view.node.name,
                str(view.node.port),
                Text(view.note, "green" if view.note == "up" else "bold red"),
                f"{rate:,.0f}",
                f"{view.events if self._has_events else tally.added_by[number]:,}",
                f"{tally.delivered_by[number]:,}",
                f"{view.queued:,}",
                f"{view.registered:,}",
            )
        bar = Table.grid()  # A bar outside of a grid would not end its line.
        bar.add_row(ProgressBar(total=max(1, len(self._load.flights)), completed=tally.delivered, width=BAR_COLUMNS))
        return Group(bar, totals, table, Text(self.message, "yellow"))


def table_of(lines: Iterable[tuple[str, str]]) -> Table:
    """Return names and figures as a table, one figure a line."""
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(min_width=26)
    table.add_column(min_width=12, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(*line)
    return table


def print_report(console: Console, report: Report) -> None:
    """Print the final figures, one per line."""
    lines = [
        ("added", f"{report.added:,}"),
        ("delivered", f"{report.delivered:,}"),
        ("delivered more than once", f"{report.delivered_again:,}"),
        ("lost", f"{report.lost:,}"),
        ("seconds", f"{report.seconds:.1f}"),
        ("jobs per second", f"{report.per_second:,.0f}"),
        ("p50 from add to delivery", f"{report.p50 * 1000:,.1f} ms"),
        ("p99 from add to delivery", f"{report.p99 * 1000:,.1f} ms"),
    ]
    if report.longest_add:  # It is unknown if Spark adds the flights.
        lines[4:4] = [
            ("longest wait for an add", f"{report.longest_add:.2f} s"),
            ("with the default copies", f"{report.longest_default_add:.2f} s"),
        ]
    console.print(table_of(lines), highlight=False)
    if report.adds_repeated:
        console.print(f"({report.adds_repeated:,} adds were repeated, because the node was killed before it answered)")
    if report.foreign:
        console.print(f"{report.foreign:,} deliveries differ from what was added", style="bold red")
