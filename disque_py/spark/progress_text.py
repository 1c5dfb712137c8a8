"""The progress of a streaming query, as one line for people and as Prometheus text. Pure.

`progress` is Spark's own report of a batch (StreamingQueryProgress as a dict). `note` is the note that the index sink
left beside its tables (progress_file.py). Lag is the number of events that the logs held beyond the end of the batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

HELP = {
    "disque_pipeline_rows_total": ("counter", "Rows that the query has read since it was started."),
    "disque_pipeline_batches_total": ("counter", "Batches since the query was started."),
    "disque_pipeline_batch": ("gauge", "Number of the last batch."),
    "disque_pipeline_batch_ms": ("gauge", "Milliseconds that the last batch took."),
    "disque_pipeline_lag_events": ("gauge", "Events in the logs that the last batch did not reach."),
    "disque_pipeline_lag_seconds": ("gauge", "Age of the newest event that was indexed, 0 when nothing waits."),
    "disque_pipeline_lost_events": ("gauge", "Events that were gone before they were read, and passed over."),
    "disque_pipeline_lost_logs": ("gauge", "Logs that were replaced before they were read to their end."),
    "disque_pipeline_nodes_away": ("gauge", "Nodes of the cluster that can't be read from."),
    "disque_pipeline_merge_ms": ("gauge", "Milliseconds of the last merge into the table of newest events."),
    "disque_pipeline_jobs": ("gauge", "Jobs that the last batch has changed."),
}


def lag_events(progress: Mapping[str, Any]) -> int | None:
    """Return the number of events between the end of the batch and the ends of the logs; None if no source says."""
    lag = None
    for source in progress.get("sources", ()):
        end, latest = _nodes(source.get("endOffset")), _nodes(source.get("latestOffset"))
        if end is None or latest is None:
            continue
        lag = lag or 0
        for node, place in latest.items():
            reached = end.get(node, {})
            behind = reached.get("next", 0) if reached.get("log") == place.get("log") else 0
            lag += max(0, place.get("next", 0) - behind)
    return lag


def _nodes(offset: Any) -> dict[str, Any] | None:
    nodes = _offset(offset).get("nodes")
    return nodes if isinstance(nodes, dict) else None


def _offset(offset: Any) -> Mapping[str, Any]:
    """Return an offset as a mapping; empty if it belongs to another kind of source."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    return offset if isinstance(offset, Mapping) else {}


def lost(progress: Mapping[str, Any]) -> dict[str, int]:
    """Return the losses that the query has passed over (failOnDataLoss=false): `events` and `logs`; empty for none."""
    total: dict[str, int] = {}
    for source in progress.get("sources", ()):
        end = _offset(source.get("endOffset"))
        for name, count in (end.get("lost") or {}).items():
            total[name] = total.get(name, 0) + int(count)
    return total


def lag_seconds(progress: Mapping[str, Any], note: Mapping[str, Any], now_ms: int) -> float | None:
    """Return the age of the newest indexed event while others wait; 0 when none waits, None when it is unknown."""
    waiting = lag_events(progress)
    if waiting is None or "newest_ms" not in note:
        return None
    return max(0, now_ms - int(note["newest_ms"])) / 1000 if waiting else 0.0


def rows_of(progress: Mapping[str, Any], note: Mapping[str, Any]) -> int:
    """Return the rows of the batch: the sink's number, since a row may carry many events, or else Spark's."""
    if note.get("batch") == progress.get("batchId") and "rows" in note:
        return int(note["rows"]) + int(note.get("dropped", 0))
    return int(progress.get("numInputRows", 0))


def line_of(name: str, progress: Mapping[str, Any], note: Mapping[str, Any], now_ms: int) -> str:
    """Return a batch as one line."""
    took_ms = int(progress.get("durationMs", {}).get("triggerExecution", 0))
    rows = rows_of(progress, note)
    words = [f"{name}: batch {progress.get('batchId')}", f"{rows} rows in {took_ms} ms"]
    if took_ms:
        words.append(f"{rows * 1000 // took_ms}/s")
    lag = lag_events(progress)
    if lag is not None:
        words.append(f"lag {lag} events")
    seconds = lag_seconds(progress, note, now_ms)
    if seconds:
        words.append(f"{seconds:.1f} s")
    gone = lost(progress)
    if gone:
        words.append(f"lost {gone.get('events', 0)} events and the ends of {gone.get('logs', 0)} logs")
    if note.get("batch") == progress.get("batchId") and "merge_ms" in note:
        words.append(f"{note.get('jobs', 0)} jobs merged in {note['merge_ms']} ms")
        if note.get("dropped"):
            words.append(f"{note['dropped']} known already")
    return ", ".join(words)


def figures_of(
    progress: Mapping[str, Any], note: Mapping[str, Any], rows_total: int, batches_total: int, now_ms: int
) -> dict[str, float]:
    """Return a query's figures by their Prometheus names, without unknown ones."""
    figures: dict[str, float | None] = {
        "disque_pipeline_rows_total": rows_total,
        "disque_pipeline_batches_total": batches_total,
        "disque_pipeline_batch": progress.get("batchId", 0),
        "disque_pipeline_batch_ms": progress.get("durationMs", {}).get("triggerExecution", 0),
        "disque_pipeline_lag_events": lag_events(progress),
        "disque_pipeline_lag_seconds": lag_seconds(progress, note, now_ms),
        "disque_pipeline_lost_events": lost(progress).get("events"),
        "disque_pipeline_lost_logs": lost(progress).get("logs"),
        "disque_pipeline_merge_ms": note.get("merge_ms"),
        "disque_pipeline_jobs": note.get("jobs"),
    }
    return {name: value for name, value in figures.items() if value is not None}


def prometheus_of(queries: Mapping[str, Mapping[str, float]]) -> str:
    """Return the figures of all queries in Prometheus' text format. `queries` maps a query's name to its figures."""
    lines = []
    for name, (kind, text) in HELP.items():
        samples = [(query, figures[name]) for query, figures in sorted(queries.items()) if name in figures]
        if samples:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
            lines += [f'{name}{{query="{_escaped(query)}"}} {_number(value)}' for query, value in samples]
    return "".join(f"{line}\n" for line in lines)


def _number(value: float) -> str:
    """Return a number with all of its digits: the last digits of a counter are the ones that change."""
    number = float(value)
    return str(int(number)) if number.is_integer() else repr(number)


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
