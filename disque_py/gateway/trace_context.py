"""The trace context of a request: W3C's headers `traceparent` and `tracestate`, passed on into the job's metadata.

A gateway makes no spans of its own. A worker's span is linked to the span of the program that sent the request, as if
that had added the job itself. A header that can't be read is ignored, as W3C asks. Metadata that the request names win.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

PARENT: Final = "traceparent"
STATE: Final = "tracestate"
# Version, trace id, span id, flags; a later version may have more. Ids of zeros are invalid.
FORM: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?", re.ASCII
)
# Characters of both together; the broker refuses more (spec F9).
LENGTH_MAX: Final = 1024


def trace_of(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the pairs of metadata; none without a `traceparent` that can be read. Names are in lower case."""
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
    """Return a job's metadata with the trace context of the request, unless they have one."""
    if not trace or (meta is not None and PARENT in meta):
        return meta
    return {**trace, **(meta or {})}
