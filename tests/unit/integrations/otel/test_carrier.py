"""Trace contexts in the metadata of jobs."""

from __future__ import annotations

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra [test] is not installed")

from opentelemetry.trace import INVALID_SPAN, NonRecordingSpan, SpanContext, TraceFlags, TraceState

from disque_py.client import Job
from disque_py.integrations.otel.carrier import context_of, has_context, words_of

PARENT = "00-0000000000000000000000000000000a-000000000000000b-01"


def span(**entries):
    return NonRecordingSpan(
        SpanContext(10, 11, is_remote=False, trace_flags=TraceFlags(1), trace_state=TraceState(list(entries.items())))
    )


def test_a_context_becomes_pairs_of_metadata():
    assert words_of(span()) == (b"META", b"traceparent", PARENT.encode())
    assert words_of(span(v="1"))[3:] == (b"META", b"tracestate", b"v=1")


def test_a_state_that_the_broker_would_refuse_is_left_out():
    """Spec F9: 1,024 bytes together."""
    entries = {f"k{number}": 200 * "x" for number in range(6)}
    assert words_of(span(**entries)) == (b"META", b"traceparent", PARENT.encode())


def test_an_invalid_span_gives_no_words():
    """As without an SDK: then nothing is stored with the job."""
    assert words_of(INVALID_SPAN) == ()


def test_a_job_has_its_creation_context():
    found = context_of(Job("q", "D-1", b"", meta={"traceparent": PARENT, "tracestate": "v=1"}))
    assert (found.trace_id, found.span_id, found.trace_state.to_header(), found.is_remote) == (10, 11, "v=1", True)


@pytest.mark.parametrize("meta", [None, {}, {"a": "b"}, {"traceparent": "nonsense"}])
def test_a_job_may_have_no_creation_context(meta):
    assert context_of(Job("q", "D-1", b"", meta=meta)) is None


def test_a_body_is_not_taken_for_an_option():
    """The words before the options may be anything."""
    argv = (b"ADDJOB", b"META", b"traceparent", b"0")
    assert not has_context(argv, 4)
    assert has_context((*argv, b"META", b"traceparent", b"x"), 4)
