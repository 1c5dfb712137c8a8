"""An index for the tests of the pipelines that read one: two jobs on two nodes, one done, one failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from index_events import TS, batch, event, index


def step(seq: int, job: str, version: int, before: str | None, after: str, at_ms: int, **more: Any) -> dict[str, Any]:
    """Return one transition."""
    return event(seq, job, version, event=after, from_state=before, to_state=after, ts=TS + at_ms, **more)


def make_moves(path: Path) -> str:
    """Make an index under `path`. Job m moves from queue q to r, and job d becomes a dead letter there.

    Afterwards, a node of a later version writes an event of a kind that this version doesn't know.
    """
    from_q = {"queue": "r", "from_queue": "q", "since": TS}
    events = (
        event(2, "m", 2, event="moved", from_state="pending", ts=TS + 61_000, **from_q),
        step(3, "d", 1, None, "pending", 0),
        step(4, "d", 2, "pending", "running", 0, since=TS),
        event(5, "d", 3, event="progress", from_state="running", to_state="running", ts=TS + 500, since=TS),
        event(6, "d", 4, event="dead-lettered", from_state="running", ts=TS + 122_000, error="no fuel", **from_q),
        event(7, "m", 3, event="unknown", from_state="pending", to_state=None, ts=TS + 150_000, error="why", since=TS),
    )
    index(path, batch(*events))
    return str(path)


def make_index(path: Path) -> str:
    """Make an index under `path`. Job a's second step happened on both sides of a cut."""
    meta = {"carrier": "UA"}
    first = batch(
        step(1, "a", 1, None, "pending", 0, meta=meta),
        step(2, "a", 2, "pending", "running", 61_000, meta=meta, since=TS),
        step(3, "b", 1, None, "pending", 0),
    )
    second = batch(
        step(1, "a", 3, "running", "completed", 185_000, meta=meta),
        step(2, "b", 2, "pending", "running", 122_000),
        step(3, "b", 3, "running", "errored", 183_000, error="no fuel", worker="w1"),
        step(4, "a", 2, "pending", "running", 61_500, meta=meta, since=TS),
        node="n2",
    )
    index(path, first, second)
    return str(path)
