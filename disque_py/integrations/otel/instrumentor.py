"""The instrumentor that `opentelemetry-instrument` loads by its entry point.

    opentelemetry-instrument python worker.py

It needs the package opentelemetry-instrumentation, which is a part of the extra [otel].
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

from disque_py.integrations import otel


class DisqueInstrumentor(BaseInstrumentor):
    """Instruments all clients of the process. `instrument` takes the arguments of `otel.instrument`."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return the packages that must be installed: this one."""
        return ("disque-py",)

    def _instrument(self, **kwargs: Any) -> None:
        known = ("tracer_provider", "meter_provider", "create_spans")
        otel.instrument(**{name: kwargs[name] for name in known if name in kwargs})

    def _uninstrument(self, **kwargs: Any) -> None:
        otel.uninstrument()
