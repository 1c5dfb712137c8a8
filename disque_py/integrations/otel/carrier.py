"""The trace context of a job: the pairs `traceparent` and `tracestate` of its metadata.

The format is W3C Trace Context, whatever propagators the program uses for other protocols. The reason is that only
these two names do not count towards the broker's limit of pairs (spec F9). A job that already has a `traceparent` keeps
it, because its creator chose it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from disque_py.client import Job

PARENT: Final = "traceparent"
STATE: Final = "tracestate"
# The most bytes of both values together. The broker refuses more.
BYTES_MAX: Final = 1024

_FORMAT: Final = TraceContextTextMapPropagator()
_NOTHING: Final = Context()


def words_of(span: Span) -> tuple[bytes, ...]:
    """Return the words of ADDJOB that give a job this span as its creation context; none for an invalid span.

    A `tracestate` that is too long is left out, as W3C allows.
    """
    pairs: dict[str, str] = {}
    _FORMAT.inject(pairs, set_span_in_context(span, _NOTHING))
    parent, state = pairs.get(PARENT, "").encode(), pairs.get(STATE, "").encode()
    if not parent:
        return ()
    words = (b"META", PARENT.encode(), parent)
    if not state or len(parent) + len(state) > BYTES_MAX:
        return words
    return (*words, b"META", STATE.encode(), state)


def has_context(argv: Sequence[bytes], start: int) -> bool:
    """Return whether the options of an ADDJOB, which begin at `start`, have a `traceparent`."""
    parent = PARENT.encode()
    return any(argv[at] == parent and argv[at - 1] == b"META" for at in range(start + 1, len(argv)))


def context_of(job: Job) -> SpanContext | None:
    """Return the creation context of a job; None if it has none, or an invalid one."""
    if not job.meta or PARENT not in job.meta:
        return None
    found = get_current_span(_FORMAT.extract(job.meta, _NOTHING)).get_span_context()
    return found if found.is_valid else None
