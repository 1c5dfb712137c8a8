"""The jobs of a node as lines of JSON, written by `export` and read by `import`.

    {"node": "3f0c…", "format": 1, "exported_at_ms": 1700000000000}
    {"id": "D-3f0c9d1e-…-05a1", "queue": "mail", "body": "…", "state": "queued", "retry_ms": 300000, …}
    {"pause": "mail", "state": "in", "version_ms": 0, "version_node": ""}

The first line names the node that the jobs are from; it may be missing. Times are Unix milliseconds, so that a file
means the same when it is read later. Bytes that are no UTF-8 are written as base64 in `queue_base64`, `body_base64` and
`pause_base64`. Only `id`, `queue` and `body` are required; the body may be empty. The other fields have the defaults of
ADDJOB. Fields that a later version added to a job are kept in `more_base64`, with the bytes of the journal.
"""

# Stays Python: runs in programs only, not in a node.
from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any, Final, NamedTuple

import msgpack  # type: ignore[import-untyped]  # It ships no types.

from persistence.items import ID_BYTES, NODE_BYTES, SPAN_MAX, Facts
from persistence.layouts import IS_ACKED, IS_DELIVERED, IS_LEASED, IS_QUEUED, WAS_QUEUED

FORMAT: Final = 1
DAY_MS: Final = 86_400_000
TTL_MS: Final = DAY_MS  # The default of ADDJOB.
RETRY_MS: Final = 300_000
STATES: Final = {"queued": IS_QUEUED | WAS_QUEUED, "active": 0, "acked": IS_ACKED}
PAUSES: Final = ("none", "in", "out", "all")
SHORT_MAX: Final = 65_535
ATTEMPT_MAX: Final = 2**32 - 1


class JobsFileError(ValueError):
    """An error: a line is malformed. The text names the line and the reason."""


class Origin(NamedTuple):
    """The node that the jobs are from."""

    node: bytes


class Pause(NamedTuple):
    """A queue's pause: 1 in, 2 out, 3 both; version 0: set for one node only."""

    queue: bytes
    flags: int
    version_ms: int
    version_node: bytes


# -- writing ------------------------------------------------------------------------------------------


def origin_line(node: bytes, wall_ms: int) -> str:
    """Return the first line."""
    return json.dumps({"node": node.hex(), "format": FORMAT, "exported_at_ms": wall_ms})


def job_line(facts: Facts, *, with_body: bool = True) -> str:
    """Return a job's line."""
    row: dict[str, Any] = {"id": facts.id.decode("latin-1")}
    _put_bytes(row, "queue", facts.queue)
    if with_body:
        _put_bytes(row, "body", facts.body)
    else:
        row["body_bytes"] = len(facts.body)
    row.update(
        state=facts.state,
        replicate=facts.replicate,
        retry_ms=facts.retry_ms,
        delay_ms=facts.delay_ms,
        ctime=facts.ctime,
        expire_at_ms=facts.expire_at_ms,
        due_at_ms=facts.due_at_ms or None,
        delivered=bool(facts.flags & IS_DELIVERED),
        leased=bool(facts.flags & IS_LEASED),
        was_queued=bool(facts.flags & WAS_QUEUED),
        nacks=facts.nacks,
        deliveries=facts.deliveries,
        attempt=facts.attempt,
        version=facts.version,
        holders=[node.hex() for node in facts.holders],
    )
    if facts.more:
        row["more_base64"] = b64encode(msgpack.packb(facts.more)).decode()
    return json.dumps(row)


def pause_line(pause: Pause) -> str:
    """Return a pause's line."""
    row: dict[str, Any] = {}
    _put_bytes(row, "pause", pause.queue)
    row.update(state=PAUSES[pause.flags & 3], version_ms=pause.version_ms, version_node=pause.version_node.hex())
    return json.dumps(row)


def _put_bytes(row: dict[str, Any], name: str, data: bytes) -> None:
    try:
        row[name] = data.decode()
    except UnicodeDecodeError:
        row[f"{name}_base64"] = b64encode(data).decode()


# -- reading ------------------------------------------------------------------------------------------


def parse_line(line: bytes, number: int, wall_ms: int) -> Facts | Pause | Origin | None:
    """Parse a line; None for an empty one. JobsFileError with the line's number.

    wall_ms   now, for defaults of missing times
    """
    if not line.strip():
        return None
    try:
        row = json.loads(line)
    except ValueError:
        raise JobsFileError(f"line {number}: not JSON. A file of jobs has one JSON object per line") from None
    try:
        if not isinstance(row, dict):
            raise ValueError("a JSON object expected")
        if "id" in row:
            return _job(row, wall_ms)
        if "pause" in row or "pause_base64" in row:
            return _pause(row)
        if "node" in row:
            if row.get("format", FORMAT) != FORMAT:
                raise ValueError(f"format {row['format']} is not supported, only format {FORMAT} is")
            return Origin(_node(row["node"]))
    except (ValueError, TypeError, KeyError) as wrong:
        reason = f"{wrong} is missing" if isinstance(wrong, KeyError) else wrong
        raise JobsFileError(f"line {number}: {reason}") from None
    raise JobsFileError(f"line {number}: neither a job (`id`), a pause (`pause`) nor an origin (`node`)")


def _job(row: dict[str, Any], wall_ms: int) -> Facts:
    job_id = str(row["id"]).encode("latin-1")
    if len(job_id) != ID_BYTES or job_id[:2] != b"D-" or job_id[10] != 45 or job_id[35] != 45:
        raise ValueError(f"`{row['id']}` is not a job id")
    queue = _bytes(row, "queue")
    state = row.get("state", "queued")
    if state not in STATES:
        raise ValueError(f"state `{state}` is not one of {', '.join(STATES)}")
    flags = STATES[state]
    flags |= IS_DELIVERED if row.get("delivered") else 0
    flags |= WAS_QUEUED if row.get("was_queued") else 0
    flags |= IS_LEASED if row.get("leased") and state == "active" else 0
    due_at_ms = _number(row, "due_at_ms", 0) if row.get("due_at_ms") is not None else 0
    return Facts(
        job_id,
        queue,
        _bytes(row, "body"),
        _number(row, "ctime", wall_ms * 1_000_000),
        _number(row, "expire_at_ms", wall_ms + TTL_MS),
        _number(row, "retry_ms", RETRY_MS),
        _number(row, "delay_ms", 0),
        _number(row, "replicate", 1, SHORT_MAX),
        _number(row, "nacks", 0, SHORT_MAX),
        _number(row, "deliveries", 0, SHORT_MAX),
        _number(row, "attempt", 0, ATTEMPT_MAX),
        flags,
        due_at_ms if state == "active" else 0,
        tuple(_node(name) for name in row.get("holders", ())),
        _number(row, "version", 1, ATTEMPT_MAX),
        _more(row),
    )


def _more(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the fields of a base that are not known here."""
    coded = row.get("more_base64")
    more = msgpack.unpackb(b64decode(coded, validate=True)) if coded is not None else []
    if not isinstance(more, list):
        raise ValueError("`more_base64` is not a value that `export` wrote")
    return tuple(more)


def _pause(row: dict[str, Any]) -> Pause:
    state = row.get("state")
    if state not in PAUSES:
        raise ValueError(f"state `{state}` is not one of {', '.join(PAUSES)}")
    version_node = _node(row["version_node"]) if row.get("version_node") else b""
    return Pause(_bytes(row, "pause"), PAUSES.index(state), _number(row, "version_ms", 0), version_node)


def _bytes(row: dict[str, Any], name: str) -> bytes:
    coded = row.get(f"{name}_base64")
    if coded is not None:
        return b64decode(coded, validate=True)
    text = row[name]
    if not isinstance(text, str):
        raise ValueError(f"`{name}` is not a string")
    return text.encode()


def _number(row: dict[str, Any], name: str, default: int, highest: int = SPAN_MAX) -> int:
    value = row.get(name, default)
    if type(value) is not int or not 0 <= value <= highest:
        raise ValueError(f"`{name}` must be a number from 0 to {highest}")
    return value


def _node(name: Any) -> bytes:
    node = bytes.fromhex(name)
    if len(node) != NODE_BYTES:
        raise ValueError(f"`{name}` is not a node id (40 hex digits)")
    return node
