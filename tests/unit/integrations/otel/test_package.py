"""Tracing is switched on for a client, or for all, and off again."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra [test] is not installed")

from disque_py.client import AsyncDisque, Disque, Job
from disque_py.integrations import otel


@pytest.fixture(autouse=True)
def end():
    """No other test is traced."""
    yield
    otel.uninstrument()


def test_one_client_is_traced():
    one, other = Disque(), AsyncDisque()
    telemetry = otel.instrument(one)
    assert (one.tracing, other.tracing) == (telemetry, None)
    otel.uninstrument(one)
    assert one.tracing is None


def test_all_clients_are_traced_including_existing_ones():
    one, other = Disque(), AsyncDisque()
    telemetry = otel.instrument()
    assert one.tracing is other.tracing is telemetry
    otel.uninstrument()
    assert one.tracing is other.tracing is None


def test_a_block_of_an_untraced_client_has_no_span():
    with otel.process(Disque(), Job("q", "D-1", b"")) as run:
        assert run is None


def test_a_client_that_is_not_traced_imports_no_opentelemetry():
    """Also with a worker."""
    code = "import disque_py.client, sys; print([name for name in sys.modules if 'opentelemetry' in name])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
