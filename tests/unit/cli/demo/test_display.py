"""disque_py/cli/demo/display.py: the output for the user."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

from rich.console import Console

from disque_py.cli.demo.display import Display, Rate, print_report
from disque_py.cli.demo.flights import Flights
from disque_py.cli.demo.load import Load
from disque_py.cli.demo.nodes import NodeProcess
from disque_py.cli.demo.tally import Report, Tally

GOOD = Report(
    wanted=10, added=10, delivered=10, delivered_again=1, lost=0, foreign=0, adds_repeated=0, longest_add=0.8,
    longest_default_add=0.7,
    seconds=2.0, p50=0.0123, p99=0.5,
)  # fmt: skip


def printed(report):
    """Return the report as text."""
    console = Console(file=io.StringIO(), width=100)
    print_report(console, report)
    return console.file.getvalue()


def test_the_report_has_one_figure_a_line():
    """The names are those in the README."""
    lines = [line.rsplit(maxsplit=1) for line in printed(GOOD).replace(" ms", "ms").replace(" s\n", "s\n").splitlines()]
    assert [[name.strip(), value] for name, value in lines] == [
        ["added", "10"],
        ["delivered", "10"],
        ["delivered more than once", "1"],
        ["lost", "0"],
        ["longest wait for an add", "0.80s"],
        ["with the default copies", "0.70s"],
        ["seconds", "2.0"],
        ["jobs per second", "5"],
        ["p50 from add to delivery", "12.3ms"],
        ["p99 from add to delivery", "500.0ms"],
    ]


def test_a_rate_is_the_mean_over_the_last_samples():
    """A single sample gives no rate."""
    rate = Rate()
    assert rate.sample(0.0, 100) == 0.0
    assert rate.sample(2.0, 300) == 100.0
    for second in range(3, 20):
        last = rate.sample(float(second), 300)
    assert last == 0.0


def test_line_and_table_show_totals_and_nodes():
    """The terminal and the log show the same figures."""

    async def story():
        flights = Flights([b"UA"] * 4, [b'{"row":%d,' % row for row in range(4)])
        tally = Tally(flights, 1)
        tally.was_added(0, 0, 1.0)
        console = Console(file=io.StringIO(), width=120)
        display = Display(console, Load(flights, tally), [NodeProcess("a", 7711, Path("unused"))])
        display.views[0].note = "killed"
        display.say("Node a was killed.")
        console.print(display.picture())
        return display.line(), console.file.getvalue()

    line, text = asyncio.run(story())
    assert "added 1" in line
    assert "a:killed" in line
    assert "Node a was killed." in text
    assert "7711" in text
