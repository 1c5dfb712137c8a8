"""Reports of disque-check-journal: an object for scripts, lines for people, records as JSON.

persistence/check.py reads the journal; this module formats the findings.
"""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from disque_py.cli.counting import counted
from disque_py.resp.sizes import human_bytes
from persistence.check import Tally, described_header, described_numbers, described_state
from persistence.items import flag_words, split_nodes
from persistence.layouts import (
    BASE_STATE_AT,
    BODY_AT,
    HEADER_AT,
    HOLDERS_AT,
    ID_AT,
    PAUSE_FLAGS_AT,
    PAUSE_MS_AT,
    PAUSE_NODE_AT,
    PAUSED_AT,
    QUEUE_AT,
    SEGMENT_AT,
    STATE_AT,
    STATE_HOLDERS_AT,
)
from persistence.records import DROPPED, GONE, JOB, KIND_NAMES, PAUSE, STATE, Block
from persistence.recovery import Recovery

PIPE_WIDTH = 200


def summary(directory: str, recovery: Recovery, tally: Tally, *, is_in_use: bool) -> dict[str, Any]:
    """Return everything that `info` shows, by stable names."""
    newest = recovery.newest
    made = {header.number: header for _, header, _ in recovery.files}
    files: dict[int, list[str]] = {}
    for name, header, _ in recovery.files:
        files.setdefault(header.number, []).append(name)
    return {
        "directory": directory,
        "node": newest.node.hex() if newest is not None else None,
        "formats": sorted({header.version for _, header, _ in recovery.files}),
        "in_use": is_in_use,
        "clean": recovery.is_clean,
        "restored": recovery.is_restored,
        "torn": None if recovery.torn is None else dict(zip(("file", "offset", "bytes"), recovery.torn, strict=True)),
        "leftovers": sorted(recovery.leftovers),
        "first_ms": tally.first_ms,
        "last_ms": tally.last_ms,
        "bytes": tally.bytes,
        "live_bytes": tally.live_bytes,
        "blocks": tally.block_count,
        "always_blocks": tally.always_blocks,
        "jobs": tally.job_count,
        "jobs_by_state": tally.states(),
        "records": {kind.name: {"total": kind.total, "live": kind.live} for kind in tally.kinds()},
        "segments": [
            {
                "number": number,
                "files": files.get(number, []),
                "format": made[number].version,
                "made_at_ms": made[number].wall_ms,
                "bytes": segment.bytes,
                "live_bytes": segment.live_bytes,
                "blocks": segment.block_count,
                "records": segment.record_count,
                "jobs": segment.job_count,
                "live_jobs": segment.live_jobs,
            }
            for number, segment in sorted(tally.segments.items())
        ],
    }


def print_summary(row: dict[str, Any]) -> None:
    """Print the summary for people."""
    states = row["jobs_by_state"]
    told = ", ".join(f"{states[name]:,} {name}" for name in ("queued", "active", "acked"))
    lines = [
        ("Journal", row["directory"]),
        ("Node", row["node"] or "-"),
        ("Format", ", ".join(map(str, row["formats"])) or "-"),
        ("State", state_text(row)),
        ("Written", f"{moment(row['first_ms'])} to {moment(row['last_ms'])}" if row["last_ms"] else "-"),
        (
            "Jobs",
            f"{row['jobs']:,}: {told}; {states['at-most-once']:,} at-most-once, {states['delivered']:,} delivered",
        ),
        ("Size", f"{human_bytes(row['bytes'])} in {counted(len(row['segments']), 'segment')}, {share(row)} of it live"),
        ("Blocks", f"{row['blocks']:,}, {row['always_blocks']:,} of them written under `always`"),
    ]
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        click.echo(f"{name:<{width}}  {text}")
    click.echo()
    kinds = [
        (name, f"{kind['total']:,}", f"{kind['live']:,}", f"{kind['total'] - kind['live']:,}")
        for name, kind in row["records"].items()
    ]
    _print_table(("record", "total", "live", "dead"), kinds)
    if row["segments"]:
        click.echo()
        _print_table(("segment", "size", "live", "blocks", "records", "jobs", "live jobs", "made"), _segment_rows(row))


def _segment_rows(row: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            str(segment["number"]) + (f" ({len(segment['files'])} files)" if len(segment["files"]) > 1 else ""),
            human_bytes(segment["bytes"]),
            share(segment),
            f"{segment['blocks']:,}",
            f"{segment['records']:,}",
            f"{segment['jobs']:,}",
            f"{segment['live_jobs']:,}",
            moment(segment["made_at_ms"]),
        )
        for segment in row["segments"]
    ]


def _print_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False)
    for index, name in enumerate(names):
        table.add_column(name, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)


def state_text(row: dict[str, Any]) -> str:
    """Return the state in which the journal was left."""
    if row["in_use"]:
        return "in use by a running node"
    if row["torn"] is not None:
        torn = row["torn"]
        return f"torn: the last {torn['bytes']:,} bytes of {torn['file']} are an incomplete block"
    if row["restored"]:
        return "a backup: at-most-once jobs will not be queued from it"
    return "closed cleanly" if row["clean"] else "not closed cleanly"


def share(row: dict[str, Any]) -> str:
    """Return the share of live bytes, `-` for an empty journal or segment."""
    return f"{min(100, round(100 * row['live_bytes'] / row['bytes']))} %" if row["bytes"] else "-"


def moment(wall_ms: int) -> str:
    """Return a time in UTC, as text for people."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def record_line(number: int, block: Block, kind: int, item: Any, *, with_body: bool) -> str:
    """Return one record as a line of JSON."""
    row: dict[str, Any] = {
        "segment": number,
        "position": block.position,
        "at_ms": block.wall_ms,
        "kind": KIND_NAMES.get(kind, kind),
    }
    if kind == JOB:
        flags, due_ms = described_state(item[BASE_STATE_AT])
        row.update(id=text(item[ID_AT]), queue=text(item[QUEUE_AT]), **described_header(item[HEADER_AT]))
        row.update(body=text(item[BODY_AT]) if with_body else None, body_bytes=len(item[BODY_AT]))
        row.update(
            holders=[node.hex() for node in split_nodes(item[HOLDERS_AT])], flags=flag_words(flags), due_ms=due_ms
        )
    elif kind == STATE:
        flags, due_ms = described_state(item[STATE_AT])
        row.update(id=text(item[ID_AT]), flags=flag_words(flags), due_ms=due_ms)
        row.update(described_numbers(item[STATE_AT]))
        holders = item[STATE_HOLDERS_AT]
        row["holders"] = None if holders is None else [node.hex() for node in split_nodes(holders)]
    elif kind == GONE:
        row.update(id=text(item[ID_AT]), base_segment=item[SEGMENT_AT])
    elif kind == PAUSE:
        row.update(queue=text(item[PAUSED_AT]), flags=item[PAUSE_FLAGS_AT])
        row.update(version_ms=item[PAUSE_MS_AT], version_node=item[PAUSE_NODE_AT].hex())
    elif kind == DROPPED:
        row.update(dropped=item)
    else:
        row["item"] = _plain(item)
    return json.dumps(row)


def _plain(item: Any) -> Any:
    """Return an item of msgpack as JSON has it: its bytes as text."""
    if isinstance(item, bytes):
        return text(item)
    if isinstance(item, list | tuple):
        return [_plain(each) for each in item]
    if isinstance(item, dict):
        return {str(_plain(name)): _plain(value) for name, value in item.items()}
    return item


def text(data: bytes) -> str:
    """Return bytes as text; bytes that are not UTF-8 as base64 with a prefix."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "base64:" + b64encode(data).decode()
