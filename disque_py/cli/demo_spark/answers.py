"""Answers from the indexes as text: depth over time, time in state by carrier, the trace of one flight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.spark.query import plots, questions
from disque_py.spark.query.questions import Answer, ask

if TYPE_CHECKING:
    from collections.abc import Iterator

STATES: Final = ("pending", "running")
TRACED: Final = ("ts", "event", "from_state", "to_state", "ms_in_state", "attempt", "node")


def carriers(db: Any) -> Answer:
    """Return a row per carrier: jobs, and p50 and p95 in milliseconds of the states on the way."""
    answer = questions.latency(db, ["carrier"])
    at = {name: number for number, name in enumerate(answer.columns)}
    found: dict[str, dict[str, tuple[Any, ...]]] = {}
    for row in answer.rows:
        found.setdefault(row[at["carrier"]], {})[row[at["state"]]] = row
    columns = ["carrier", "flights", *(f"{state} {share}" for state in STATES for share in ("p50 ms", "p95 ms"))]
    rows = []
    for carrier, states in sorted(found.items()):
        known = [states.get(state) for state in STATES]
        figures = [row[at[share]] if row else None for row in known for share in ("p50_ms", "p95_ms")]
        rows.append((carrier, known[-1][at["jobs"]] if known[-1] else 0, *figures))
    return Answer(columns, rows)


def eventful_job(db: Any) -> str:
    """Return a job that was delivered again, as those of the killed node are, or else the one with most events."""
    rows = ask(
        db,
        """
        SELECT job_id FROM history WHERE job_id IS NOT NULL GROUP BY 1
        ORDER BY count(*) FILTER (event = 'requeued') DESC, count(*) DESC, 1 LIMIT 1
        """,
    ).rows
    return str(rows[0][0]) if rows else ""


def trace(db: Any, job_id: str) -> tuple[str, Answer]:
    """Return a job's metadata and its events as text, with nodes by their first eight characters."""
    answer = questions.trace(db, job_id)
    at = [answer.columns.index(name) for name in TRACED]
    rows = [tuple(row[place][:8] if name == "node" else row[place] for name, place in zip(TRACED, at, strict=True))
            for row in answer.rows]  # fmt: skip
    metas = [row[answer.columns.index("meta")] for row in answer.rows]
    return plots.cell(next((meta for meta in metas if meta), "")), Answer(list(TRACED), rows)


def texts(db: Any, width: int) -> Iterator[tuple[str, str]]:
    """Yield headings, each with its text."""
    yield "Depth over time, from the index", plots.curves(questions.depth_over_time(db), width)
    yield "Time in state by carrier, from the index", plots.table(carriers(db))
    job_id = eventful_job(db)
    meta, steps = trace(db, job_id)
    yield f"One flight, job {job_id} ({meta})", plots.table(steps)
