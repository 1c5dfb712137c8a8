"""Bring docs/metrics.md into step with the table of metrics: `python tests/house/rewrite_metrics_page.py`.

The tables after MARK come from disque_py/gateway/metrics/table.py. The text before it is written by hand.
test_metrics_page.py compares the page with the table, and this program rewrites it. Review the difference.
"""

from __future__ import annotations

from pathlib import Path

from disque_py.gateway.metrics.table import EVENT_METRICS, INFO_METRICS, REQUEST_SECONDS, SPECIAL, Metric

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/metrics.md"
HEAD = "| metric | kind | labels | meaning | source |\n|---|---|---|---|---|\n"
MARK = "<!-- What follows is written by tests/house/rewrite_metrics_page.py. -->\n"
SECTIONS = (
    ("Nodes and links", [metric for metric in SPECIAL if not metric.name.startswith("disque_queue")]),
    ("Queues of a node", [metric for metric in SPECIAL if metric.name.startswith("disque_queue")]),
    ("Queues of the cluster", list(EVENT_METRICS)),
    ("Gateway", [REQUEST_SECONDS]),
    ("Fields of INFO", list(INFO_METRICS)),
)


def in_step(text: str) -> str:
    """Return the page with new tables."""
    introduction, mark, _ = text.partition(MARK)
    return introduction + mark + tables()


def tables() -> str:
    """Return a section for each group of metrics."""
    return "".join(f"\n## {title}\n\n{HEAD}{''.join(map(row, metrics))}" for title, metrics in SECTIONS)


def row(metric: Metric) -> str:
    """Return one metric as a line of a table."""
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    if values := ", ".join(f"`{field.label}`" for field in metric.fields if field.label):
        labels += f": {values}"
    cells = (f"`{metric.name}`", metric.kind, labels, metric.help, metric.source)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    PAGE.write_text(in_step(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
