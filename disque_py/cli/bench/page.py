"""The HTML page of a report: charts as SVG and tables, in one file that loads nothing.

matplotlib draws the charts. It writes plain SVG, so a page has about 30 KB per test, and can be viewed, printed and
archived without scripts. Libraries for interactive charts would add megabytes of JavaScript to every page. matplotlib
comes with the extra [bench], because a server does not need it.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from html import escape
from typing import Any, Final

from disque_py.cli.bench.figures import Line
from disque_py.cli.bench.measures import TESTS
from disque_py.cli.bench.report import Report, number, table_of, warnings_of

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999")
# Values that differ by more than this factor are shown on a logarithmic axis.
LOGARITHMIC_FROM: Final = 50
WIDTH_INCHES: Final = 11.0
STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem }
body { color: #222; background: #fff }
h1 { margin-bottom: 0 } h2 { margin-top: 3rem; border-bottom: 1px solid #ddd }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; width: 100% }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #eee }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left } tr.first td { border-top: 2px solid #ccc }
th { background: #f5f5f5 } svg { max-width: 100%; height: auto } .scroll { overflow-x: auto }
.note { background: #fff6e0; border-left: 4px solid #E69F00; padding: .5rem 1rem }
dl { display: flex; flex-wrap: wrap; gap: .3rem 2rem } dt { font-weight: 600 } dd { margin: 0 }
"""


class NoChartsError(Exception):
    """matplotlib is not installed; the text says how to install it."""


def matplotlib() -> Any:
    """Return the library. Raises NoChartsError if it is missing, before anything is measured."""
    try:
        import matplotlib as library
    except ImportError as error:
        raise NoChartsError(
            "CHARTS --html needs matplotlib: pip install 'disque-py[bench]'; --json and --markdown don't"
        ) from error
    return library


def page(report: Report) -> str:
    """Return the report as HTML. Raises NoChartsError."""
    facts = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in report.machine.items())
    names = "".join(f"<li><b>{escape(k)}</b> {escape(v)}</li>" for k, v in report.contestants.items())
    notes = "".join(f'<p class="note">{escape(text)}</p>' for text in [*report.notes, *warnings_of(report)])
    contents = "".join(
        f'<li><a href="#{test}">{test}</a>: {escape(TESTS[test].summary)}</li>' for test in report.tests()
    )
    sections = "".join(_section(report, test) for test in report.tests())
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>disque-bench</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>\n'
        f"<h1>disque-bench</h1>\n<p>Bars and dots are medians over the runs. Lines reach from the lowest to the "
        f"highest run. Ratios are computed within each run, to {escape(report.reference)}.</p>\n"
        f"{notes}<dl>{facts}</dl><ul>{names}</ul><h2>Tests</h2><ul>{contents}</ul>{sections}</body></html>\n"
    )


def _section(report: Report, test: str) -> str:
    head, rows = table_of(report, test)
    before = None
    body = []
    for row in rows:
        mark = ' class="first"' if row[0] != before else ""
        before = row[0]
        body.append(f"<tr{mark}>" + "".join(f"<td>{escape(word)}</td>" for word in row) + "</tr>")
    top = "".join(f"<th>{escape(word)}</th>" for word in head)
    return (
        f'<h2 id="{test}">{test}</h2><p>{escape(TESTS[test].summary)}.</p>{chart(report, test)}'
        f'<div class="scroll"><table><tr>{top}</tr>{"".join(body)}</table></div>\n'
    )


def chart(report: Report, test: str) -> str:
    """Return the chart of a test's own metric: a group of bars for every cell, a colour for every contestant."""
    library = matplotlib()
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    lines = report.of(test)
    metric = TESTS[test].metric
    cells = list(dict.fromkeys(line.cell for line in lines))
    names = [name for name in report.contestants if any(line.contestant == name for line in lines)]
    with library.rc_context({"svg.fonttype": "none", "svg.hashsalt": f"disque-bench {test}", "font.size": 9}):
        figure = Figure(figsize=(WIDTH_INCHES, 3.6), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        wide = 0.85 / max(1, len(names))
        # A bar needs an axis that begins at zero, and a logarithmic axis does not.
        has_bars = not is_logarithmic([line.metrics[metric].median for line in lines if metric in line.metrics])
        for at, name in enumerate(names):
            own = [line for line in lines if line.contestant == name and metric in line.metrics]
            places = [cells.index(line.cell) + (at - (len(names) - 1) / 2) * wide for line in own]
            colour = COLOURS[list(report.contestants).index(name) % len(COLOURS)]
            if has_bars:
                _bars(axes, own, metric, places, wide, colour, name)
            else:
                _dots(axes, own, metric, places, colour, name)
        axes.set_xticks(range(len(cells)), cells, rotation=0 if len(cells) < 9 else 30)
        axes.set_xlim(-0.6, max(len(cells), 2) - 0.4)
        axes.set_ylabel(TESTS[test].unit)
        if not has_bars:
            axes.set_yscale("log")
            for at in range(len(cells) - 1):
                axes.axvline(at + 0.5, color="#eeeeee", linewidth=0.8)
        axes.yaxis.set_major_formatter(lambda value, _: number(value) if value < 10 else f"{value:,.0f}")
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside upper center", ncols=max(1, len(names)), frameon=False)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    # HTML does not need the XML declaration and the document type, and no browser should load the type's address.
    return text[text.index("<svg") :]


def _bars(
    axes: Any, lines: Sequence[Line], metric: str, places: Sequence[float], wide: float, colour: str, name: str
) -> None:
    found = [line.metrics[metric] for line in lines]
    heights = [one.median for one in found]
    below = [one.median - one.low for one in found]
    above = [one.high - one.median for one in found]
    hatches = ["///" if line.is_generator_bound else "" for line in lines]
    axes.bar(
        places, heights, wide * 0.92, yerr=[below, above], color=colour, label=name, hatch=hatches,
        edgecolor="white", linewidth=0, error_kw={"elinewidth": 0.9, "ecolor": "#333333", "capsize": 1.5},
    )  # fmt: skip


def _dots(axes: Any, lines: Sequence[Line], metric: str, places: Sequence[float], colour: str, name: str) -> None:
    found = [line.metrics[metric] for line in lines]
    axes.vlines(places, [one.low for one in found], [one.high for one in found], color=colour, linewidth=1.5)
    axes.scatter(
        places, [one.median for one in found], s=36, label=name, zorder=3, edgecolors=colour,
        facecolors=["white" if line.is_generator_bound else colour for line in lines],
    )  # fmt: skip


def is_logarithmic(values: Sequence[float]) -> bool:
    """Return whether to use a logarithmic axis: values are all positive, and small ones would vanish otherwise."""
    return bool(values) and min(values) > 0 and math.ceil(max(values) / min(values)) > LOGARITHMIC_FROM
