"""The trace context of a request: W3C's headers `traceparent` and `tracestate`, passed on into the job's metadata.

A gateway makes no spans. A worker's span is linked to the span of the program that sent the request, as if that program
had added the job itself. An invalid header is ignored, as W3C requires. Metadata in the request win over the headers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

PARENT: Final = "traceparent"
STATE: Final = "tracestate"
# Version, trace id, span id, flags; a later version may have more fields. Ids of zeros are invalid.
FORM: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?", re.ASCII
)
# The most characters of both headers together. The broker refuses more (spec F9).
LENGTH_MAX: Final = 1024


def trace_of(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the pairs of metadata; none without a valid `traceparent`. The names of headers are in lower case."""
    parent = headers.get(PARENT, "").strip()
    if not parent or len(parent) > LENGTH_MAX or FORM.fullmatch(parent) is None:
        return {}
    if parent.startswith("00") and parent.count("-") != 3:
        return {}
    state = headers.get(STATE, "").strip()
    if not state or not state.isascii() or not state.isprintable() or len(parent) + len(state) > LENGTH_MAX:
        return {PARENT: parent}
    return {PARENT: parent, STATE: state}


def with_trace(meta: Mapping[str, str] | None, trace: Mapping[str, str]) -> Mapping[str, str] | None:
    """Return a job's metadata, with the trace context of the request unless they already have one."""
    if not trace or (meta is not None and PARENT in meta):
        return meta
    return {**trace, **(meta or {})}
