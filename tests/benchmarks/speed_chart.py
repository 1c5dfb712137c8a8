"""Draw the README's chart: python tests/benchmarks/speed_chart.py <report of disque-bench> [<SVG file>]

The report comes from `disque-bench ping add get ack cycle -P 1,16 -c 50 --json speed.json`. The chart shows the CPU
time that a server spends on each request. It needs the extra [bench].
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from disque_py.cli.bench.page import COLOURS, matplotlib
from machine import ROOT

CHART: Final = ROOT / "docs" / "images" / "speed.svg"
NAMES: Final = {
    "disque-py": "disque-py",
    "redis-list": "Redis, lists",
    "redis-stream": "Redis, streams",
    "floor": "bare uvloop server (PING only)",
}
TESTS: Final = {"ping": "PING", "add": "add", "get": "fetch", "ack": "ack", "cycle": "add, fetch, ack"}
CELLS: Final = {"p=1 c=50": "one command at a time", "p=16 c=50": "16 commands at a time"}
# CPU seconds per 100,000 requests, times this, are microseconds per request.
MICROSECONDS: Final = 10


class Bar(NamedTuple):
    """The CPU time of one contestant for one request of a test, in µs: median, lowest and highest run."""

    contestant: str
    test: str
    median: float
    low: float
    high: float


def bars_of(summaries: Sequence[Mapping[str, Any]], cell: str) -> list[Bar]:
    """Return the bars of a cell, in the order of NAMES and TESTS. Contestants without a figure are left out."""
    found = {(one["contestant"], one["test"]): one["metrics"]["cpu"] for one in summaries if one["cell"] == cell}
    return [
        Bar(name, test, *(found[name, test][key] * MICROSECONDS for key in ("median", "low", "high")))
        for name in NAMES
        for test in TESTS
        if (name, test) in found
    ]


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Write the chart."""
    library = matplotlib()
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with library.rc_context({"svg.fonttype": "none", "svg.hashsalt": "speed", "font.size": 9}):
        figure = Figure(figsize=(10, 3.4), layout="constrained")
        FigureCanvasSVG(figure)
        for axes, (cell, title) in zip(figure.subplots(1, len(CELLS)), CELLS.items(), strict=True):
            bars = bars_of(report["summaries"], cell)
            names = list(dict.fromkeys(bar.contestant for bar in bars))
            wide = 0.85 / len(names)
            for at, name in enumerate(names):
                own = [bar for bar in bars if bar.contestant == name]
                axes.bar(
                    [list(TESTS).index(bar.test) + (at - (len(names) - 1) / 2) * wide for bar in own],
                    [bar.median for bar in own],
                    wide * 0.92,
                    yerr=[[bar.median - bar.low for bar in own], [bar.high - bar.median for bar in own]],
                    color=COLOURS[list(NAMES).index(name)],
                    label=NAMES[name],
                    error_kw={"elinewidth": 0.8, "ecolor": "#333333"},
                )
            axes.set_title(title, fontsize=10)
            axes.set_xticks(range(len(TESTS)), TESTS.values())
            axes.set_ylabel("CPU of the server, µs per request")
            axes.grid(axis="y", color="#dddddd", linewidth=0.6)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def main(argv: list[str]) -> int:
    """Draw the chart of a report."""
    if not 1 <= len(argv) <= 2:
        print(__doc__, file=sys.stderr)
        return 2
    draw(json.loads(Path(argv[0]).read_text(encoding="utf-8")), Path(argv[1]) if len(argv) == 2 else CHART)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
