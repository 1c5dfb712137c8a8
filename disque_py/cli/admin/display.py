"""Output of disque-admin: tables of fields, jobs and tasks, and JSON objects for `--json`.

Tables are for people: long bodies are cut, empty fields are left out, and a narrow terminal shows fewer characters.
JSON is for scripts: one object per line, with whole bodies and the fields of the library's objects. In both, control
characters of names and bodies are escaped (visible.py), because a terminal would obey them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from disque_py.cli.queue_display import age_text, console_for
from disque_py.cli.visible import visible, visible_json
from disque_py.client import Job, JobInfo

# Bytes of a body that are shown in a table.
BODY_SHOWN: Final = 60


def print_object(value: Any) -> None:
    """Print a value as one line of JSON."""
    print(visible_json(value), flush=True)


def print_fields(fields: Mapping[str, object]) -> None:
    """Print names and values, one pair per line. Empty values are left out."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        if value is not None and value != "":
            table.add_row(name, visible(str(value)))
    console_for().print(table)


def print_rows(
    columns: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = (), *, header: bool = True
) -> None:
    """Print a table. `right` names the columns of numbers, which are aligned to the right.

    On a narrow terminal the widest columns are cut off first, and the first column, which has the ids or names, last.
    """
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=header)
    numbers = set(right)
    for name in columns:
        is_first = not table.columns
        table.add_column(_one_line(name), justify="right" if name in numbers else "left", no_wrap=is_first)
    for row in rows:
        table.add_row(*map(_one_line, row))
    console_for().print(table)


def _one_line(cell: object) -> Text:
    # rich shortens a column with no_wrap only when the others can't be made narrower.
    return Text("" if cell is None else visible(str(cell)), no_wrap=True, overflow="ellipsis")


def body_text(body: bytes | None, limit: int | None = BODY_SHOWN) -> str:
    r"""Return a body as text on one line, cut to a length, with bytes that can't be printed as `\xNN`."""
    if body is None:
        return ""
    text = body.decode("utf-8", "backslashreplace")
    text = visible(text if limit is None else text[: limit + 1])
    return text if limit is None or len(text) <= limit else text[: limit - 1] + "…"


def pairs_text(pairs: Mapping[str, str] | None) -> str:
    """Return metadata as one line."""
    return " ".join(f"{name}={value}" for name, value in (pairs or {}).items())


def job_fields(info: JobInfo) -> dict[str, object]:
    """Return the fields of a job in the order of interest: state first, then limits, then its nodes."""
    attempts = f"{info.attempt} delivered"
    if info.attempts:
        attempts += f", {info.attempts_left} of {info.attempts} left"
    requeue = None if info.next_requeue_within is None else f"in {age_text(info.next_requeue_within)}"
    # A job that was never delivered has waited for its delay only.
    is_first = info.status == "invisible" and not info.attempt
    return {
        "id": info.id,
        "queue": info.queue,
        "status": info.status or info.state,
        "attempts": attempts,
        "error": info.error,
        "backoff": info.backoff,
        "priority": info.priority,
        "meta": pairs_text(info.meta),
        # RESCHEDULE changes the moment at which the job is queued, and not the delay that it was added with.
        "delay when added": _span(info.delay_ms, info.delay),
        "retry": _span(info.retry_ms, info.retry) if info.retry or info.retry_ms else "0 (at most once)",
        "expires in": _span(info.ttl_ms, info.ttl),
        "queued": requeue if is_first else None,
        "queued again": requeue if not is_first and info.status in ("running", "invisible") else None,
        "copies requested": info.repl,
        "holders": " ".join(node[:8] for node in info.nodes_delivered),
        "progress": None if info.progress is None else f"{info.progress} % {info.progress_text or ''}".rstrip(),
        "result": None if info.result is None else body_text(info.result, 2_000),
        "batch": info.batch,
        "topic": info.topic,
        **{name: value for name, value in info.more.items() if value not in (None, "", [])},
        "body": body_text(info.body, 2_000),
    }


def _span(milliseconds: int | None, seconds: int) -> str:
    span_ms = 1000 * seconds if milliseconds is None else milliseconds
    return age_text(span_ms) if span_ms else ""


def job_object(job: Job | JobInfo) -> dict[str, Any]:
    """Return a job for programs: fields by name, the body as text."""
    fields = asdict(job)
    for name in ("decode", "node", "is_canceled"):
        fields.pop(name, None)
    for name in ("body", "result"):
        if isinstance(fields.get(name), bytes):
            fields[name] = body_text_whole(fields[name])
    return fields


def body_text_whole(body: bytes) -> str:
    r"""Return a body as text, with bytes that are not UTF-8 as `\xNN`."""
    return body.decode("utf-8", "backslashreplace")
