"""Shapes: results of the client library as JSON for answers.

A body is the field `body` if it is UTF-8, else `body_base64`. Times are milliseconds. Pure.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any, Final

from disque_py.client.results import Job, JobInfo, LockInfo, QueueSettings, Task

# Programs choose the content of these fields, so only callers that may see bodies see them.
_FLOW_FIELDS: Final = ("progress", "progress_text", "batch", "topic", "key_window_ms")
_INFO_FIELDS: Final = tuple(
    each.name
    for each in fields(JobInfo)
    if each.name not in ("more", "body", "meta", "result", "ttl", "delay", "retry", *_FLOW_FIELDS)
)
_SURROGATES: Final = re.compile(r"[\ud800-\udfff]")
_MILLISECOND: Final = timedelta(milliseconds=1)


def body_of(body: bytes) -> dict[str, str]:
    """Return the body as text, or as Base64 if it is not UTF-8."""
    return octets_of("body", body)


def octets_of(name: str, value: bytes) -> dict[str, str]:
    """Return bytes as a field with text, or as a field with Base64 if they are not UTF-8."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def job(found: Job, *, has_body: bool = True) -> dict[str, Any]:
    """Return a job that was taken or peeked at."""
    shape: dict[str, Any] = {"id": found.id, "queue": found.queue}
    if has_body:
        shape |= body_of(found.body)
    shape["body_size"] = len(found.body)
    for name in ("attempt", "lease_ms", "nacks", "additional_deliveries"):
        value = getattr(found, name)
        if value is not None:
            shape[name] = value
    if has_body and found.meta is not None:
        shape["meta"] = found.meta
    return shape


def job_info(found: JobInfo, *, has_body: bool) -> dict[str, Any]:
    """Return a job as SHOW reports it, with body and metadata only if the caller may see them."""
    shape = {name: getattr(found, name) for name in _INFO_FIELDS}
    shape["created_ms"] = found.ctime // 1_000_000
    shape["error"] = found.error if has_body else None
    if found.body is not None:
        shape["body_size"] = len(found.body)
        if has_body:
            shape |= body_of(found.body)
    if has_body:
        shape["meta"] = found.meta or {}
        shape |= {name: getattr(found, name) for name in _FLOW_FIELDS}
        shape |= {"result": None} if found.result is None else octets_of("result", found.result)
        shape |= {name.replace("-", "_"): readable(value) for name, value in found.more.items()}
    return shape


def readable(value: Any) -> Any:
    """Return a value for JSON, in which bytes become text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list):
        return [readable(each) for each in value]
    if isinstance(value, Mapping):
        return {str(readable(name)): readable(each) for name, each in value.items()}
    return value


def as_text(value: Any) -> Any:
    """Return a value with texts that can be encoded.

    The client library keeps bytes that are not UTF-8 as surrogates. Each of them becomes U+FFFD.
    """
    if isinstance(value, str):
        return value if value.isascii() else _SURROGATES.sub("\ufffd", value)
    if isinstance(value, list):
        return [as_text(each) for each in value]
    if isinstance(value, Mapping):
        return {as_text(name): as_text(each) for name, each in value.items()}
    return value


def _ms(span: timedelta | None) -> int | None:
    return None if span is None else span // _MILLISECOND


def settings(found: QueueSettings) -> dict[str, Any]:
    """Return the settings of a queue. Settings without an argument are in `more`, as PUT takes them."""
    more: dict[str, Any] = {
        "index": ",".join(found.index),
        "exclusive-by": found.exclusive_by,
        "assign": found.assign,
        "rate": found.rate,
        "rate-by": found.rate_by,
        "max-running": str(found.max_running),
        "max-running-by": found.max_running_by,
    }
    if found.result_retention is not None:
        more["result-retention"] = f"{_ms(found.result_retention)}ms"
    return {
        "lease_ms": _ms(found.lease),
        "delay_ms": _ms(found.delay),
        "ttl_ms": _ms(found.ttl),
        "replicate": found.replicate,
        "attempts": found.attempts,
        "backoff": found.backoff,
        "dead_letter": found.dead_letter,
        "retention_ms": _ms(found.retention),
        "maxlen": found.maxlen,
        "maxsize": found.maxsize,
        "require_meta": found.require_meta,
        "type": found.type,
        "paused": found.paused,
        "version": found.version,
        "behind": found.behind,
        "more": more | readable(found.more),
    }


def task(found: Task) -> dict[str, Any]:
    """Return bulk work."""
    return {
        "id": found.id,
        "command": found.command,
        "queue": found.queue,
        "state": found.state or "done",
        "jobs": found.jobs,
        "failed": found.failed,
        "nodes": found.nodes,
        "nodes_missing": found.nodes_missing,
        "started_ms": found.started,
    }


def lock(name: str, found: LockInfo | None) -> dict[str, Any]:
    """Return a lock."""
    if found is None:
        return {"name": name, "owner": None}
    return {
        "name": name,
        "owner": found.owner,
        "fence": found.fence,
        "attempt": found.attempt,
        "ms_left": found.ms_left,
        "done_ms_left": found.done_ms_left,
    }
