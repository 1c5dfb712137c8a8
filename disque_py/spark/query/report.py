"""One HTML file that shows an index: depth over time, time in states, failures.

Charts are SVG, the file loads no other files, and all text from the data is escaped. So the file may be mailed and
opened anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Final

from disque_py.spark.query.plots import cell, is_number
from disque_py.spark.query.questions import Answer

WIDTH, HEIGHT, LEFT, BOTTOM = 860, 220, 70, 24
# Okabe and Ito's palette: colour-blind readers can tell these colours apart.
COLORS: Final = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9")

STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 960px; margin: 2rem auto; padding: 0 1rem; }
body { color: #222; background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; font-size: 13px; display: block; overflow-x: auto; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid #ddd; text-align: left; white-space: nowrap; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: #555; }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 1em; }
@media (prefers-color-scheme: dark) {
  body { background: #16181c; color: #ddd; } th, td { border-color: #333; } svg text { fill: #aaa; }
}
"""


def page(title: str, summary: dict[str, Any], parts: Sequence[tuple[str, str]]) -> str:
    """Return the whole file: a title, figures, and sections of (heading, HTML)."""
    facts = ", ".join(f"{escape(cell(value))} {escape(name.replace('_', ' '))}" for name, value in summary.items())
    sections = "".join(f"<h2>{escape(heading)}</h2>\n{html}\n" for heading, html in parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>\n'
        f"<body><h1>{escape(title)}</h1>\n<p>{facts}</p>\n{sections}</body></html>\n"
    )


def table(answer: Answer, rows_max: int = 500) -> str:
    """Return rows as an HTML table."""
    if not answer.rows:
        return "<p>nothing</p>"
    head = "".join(f"<th>{escape(name)}</th>" for name in answer.columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td{' class=n' if is_number(value) else ''}>{escape(cell(value))}</td>" for value in row)
        + "</tr>\n"
        for row in answer.rows[:rows_max]
    )
    more = f"<p>… and {len(answer.rows) - rows_max:,} more</p>" if len(answer.rows) > rows_max else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>{more}"


def lines(answer: Answer) -> str:
    """Return (moment, series, value) rows as a line chart."""
    series: dict[str, list[tuple[Any, float]]] = {}
    for at, name, value in answer.rows:
        series.setdefault(str(name), []).append((at, float(value)))
    if not series:
        return "<p>nothing</p>"
    top = max([1.0, *(value for points in series.values() for _, value in points)])
    moments = [at for points in series.values() for at, _ in points]
    first, last = min(moments), max(moments)
    span = max(1e-9, (last - first).total_seconds())

    def place(at: Any, value: float) -> str:
        x = LEFT + (WIDTH - LEFT - 10) * (at - first).total_seconds() / span
        return f"{x:.1f},{10 + (HEIGHT - BOTTOM - 10) * (1 - value / top):.1f}"

    marks = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8884"/>'
        f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(cell(round(top * share)))}</text>'
        for share in (0, 0.5, 1)
        for y in [10 + (HEIGHT - BOTTOM - 10) * (1 - share)]
    )
    drawn = "".join(
        f'<polyline fill="none" stroke="{COLORS[number % len(COLORS)]}" stroke-width="1.8" '
        f'points="{" ".join(place(at, value) for at, value in points)}"><title>{escape(name)}</title></polyline>'
        for number, (name, points) in enumerate(series.items())
    )
    keys = "".join(
        f'<span class="key" style="background:{COLORS[number % len(COLORS)]}"></span>{escape(name)}'
        for number, name in enumerate(series)
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(", ".join(series))} over time">'
        f"{marks}{drawn}"
        f'<text x="{LEFT}" y="{HEIGHT - 6}">{escape(cell(first))}</text>'
        f'<text x="{WIDTH - 10}" y="{HEIGHT - 6}" text-anchor="end">{escape(cell(last))}</text></svg><p>{keys}</p>'
    )


def bars(answer: Answer, labels: Sequence[str], value: str, rows_max: int = 30) -> str:
    """Return rows as horizontal bars: labelled by the columns `labels`, as long as the column `value`."""
    of = answer.columns.index(value)
    places = [answer.columns.index(name) for name in labels]
    rows = answer.rows[:rows_max]
    if not rows:
        return "<p>nothing</p>"
    top = max(1, *(row[of] or 0 for row in rows))
    step = 20
    drawn = "".join(
        f'<rect x="300" y="{number * step + 3}" width="{(WIDTH - 400) * (row[of] or 0) / top:.1f}" height="13" '
        f'fill="{COLORS[0]}"/><text x="292" y="{number * step + 14}" text-anchor="end">'
        f"{escape(' · '.join(cell(row[at]) or '–' for at in places)[:48])}</text>"
        f'<text x="{306 + (WIDTH - 400) * (row[of] or 0) / top:.1f}" y="{number * step + 14}">'
        f"{escape(cell(row[of]))}</text>"
        for number, row in enumerate(rows)
    )
    return f'<svg viewBox="0 0 {WIDTH} {len(rows) * step + 6}" role="img">{drawn}</svg>'
