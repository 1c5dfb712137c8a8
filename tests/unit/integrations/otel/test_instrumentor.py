"""`opentelemetry-instrument` finds the instrumentor, which traces all clients."""

from __future__ import annotations

import importlib.metadata

import pytest

pytest.importorskip("opentelemetry.instrumentation", reason="the extra [test] is not installed")

from disque_py.client import AsyncDisque, Disque
from disque_py.integrations.otel.instrumentor import DisqueInstrumentor


def test_the_instrumentor_traces_all_clients_until_it_is_removed():
    DisqueInstrumentor().instrument(create_spans=False)
    try:
        assert Disque.tracing is AsyncDisque.tracing is not None
        assert not Disque.tracing.creates
    finally:
        DisqueInstrumentor().uninstrument()
    assert Disque.tracing is AsyncDisque.tracing is None


def test_opentelemetry_instrument_finds_the_instrumentor():
    entries = importlib.metadata.entry_points(group="opentelemetry_instrumentor")
    if "disque" not in entries.names:
        pytest.skip("this installation is older than the entry point")
    assert entries["disque"].load() is DisqueInstrumentor
