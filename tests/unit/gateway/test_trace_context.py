"""The trace context of a request: what is passed on, and what is ignored."""

from __future__ import annotations

import pytest

from disque_py.gateway.trace_context import trace_of, with_trace

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_both_headers_are_passed_on():
    headers = {"traceparent": PARENT, "tracestate": "vendor=1", "host": "h"}
    assert trace_of(headers) == {"traceparent": PARENT, "tracestate": "vendor=1"}


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "nonsense",
        PARENT.upper(),
        PARENT + "-more",
        "ff" + PARENT[2:],
        "00-" + 32 * "0" + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + 16 * "0" + "-01",
    ],
)
def test_a_parent_that_cannot_be_read_is_ignored_with_its_state(parent):
    assert trace_of({"traceparent": parent, "tracestate": "vendor=1"}) == {}


def test_a_later_version_may_have_more_fields():
    assert trace_of({"traceparent": "01" + PARENT[2:] + "-more"}) == {"traceparent": "01" + PARENT[2:] + "-more"}


def test_a_state_that_the_broker_would_refuse_is_left_out():
    """Spec F9: 1,024 bytes together."""
    assert trace_of({"traceparent": PARENT, "tracestate": "v=" + 1000 * "x"}) == {"traceparent": PARENT}
    assert trace_of({"traceparent": PARENT, "tracestate": "v=\n"}) == {"traceparent": PARENT, "tracestate": "v="}
    assert trace_of({"traceparent": PARENT, "tracestate": "v=\u00e4"}) == {"traceparent": PARENT}


def test_a_context_in_the_metadata_wins():
    assert with_trace({"a": "b", "traceparent": "own"}, {"traceparent": PARENT}) == {"a": "b", "traceparent": "own"}
    assert with_trace({"a": "b"}, {"traceparent": PARENT}) == {"a": "b", "traceparent": PARENT}
    assert with_trace(None, {"traceparent": PARENT}) == {"traceparent": PARENT}
    assert with_trace(None, {}) is None
