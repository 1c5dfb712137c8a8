"""The spans and metrics of clients that a test traces, kept in memory."""

from __future__ import annotations

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from disque_py.integrations import otel

KINDS = {kind: kind.name.lower() for kind in SpanKind}


class Seen:
    """Providers whose spans and metrics can be read."""

    def __init__(self):
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.tracer = self.tracers.get_tracer("test")

    def instrument(self, client, **options):
        """Trace a client, and return it."""
        otel.instrument(client, tracer_provider=self.tracers, meter_provider=self.meters, **options)
        return client

    @property
    def spans(self):
        """Return the spans that ended, oldest first."""
        return list(self.exporter.get_finished_spans())

    def named(self, name):
        """Return the spans of that name."""
        return [span for span in self.spans if span.name == name]

    def one(self, name):
        """Return the only span of that name."""
        [span] = self.named(name)
        return span

    @property
    def lines(self):
        """Return name and kind of each span."""
        return [f"{span.name} {KINDS[span.kind]}" for span in self.spans]

    def points(self, name):
        """Return the points of a metric: sorted pairs of the operation and its number (a value or a count)."""
        data = self.reader.get_metrics_data()
        found = []
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == name:
                        found += [
                            (dict(p.attributes), getattr(p, "value", None) or p.count) for p in metric.data.data_points
                        ]
        return found


def trace_id(span):
    """Return the id of a span's trace."""
    return span.context.trace_id


def linked(span):
    """Return the ids of the spans to which a span is linked."""
    return [link.context.span_id for link in span.links]
