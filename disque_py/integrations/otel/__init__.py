"""OpenTelemetry: traces from producer to worker, and the metrics of clients.

    from disque_py.integrations import otel

    otel.instrument(client)      # this client, and the workers that use it
    otel.instrument()            # all clients of the process

`opentelemetry-instrument` does the second automatically (instrumentor.py). Clients that are not instrumented import
nothing and have no cost. See docs/tracing.md. Needs the extra [otel].
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from disque_py.client import AsyncDisque, Disque, Job
from disque_py.client.tracing import Processing
from disque_py.integrations.otel.telemetry import Telemetry

__all__ = ["Telemetry", "instrument", "process", "uninstrument"]


def instrument(
    client: Disque | AsyncDisque | None = None,
    *,
    tracer_provider: object | None = None,
    meter_provider: object | None = None,
    create_spans: bool = True,
) -> Telemetry:
    """Trace a client's commands, and the handlers of its workers. Return the telemetry, which may serve other clients.

    client            the client; None, the default: all clients of the process, including those that exist already
    tracer_provider   an OpenTelemetry TracerProvider; None, the default: the global one
    meter_provider    an OpenTelemetry MeterProvider; None, the default: the global one
    create_spans      True, the default: if a call adds several jobs, give each one its own span `create`. False: they
                      share the context of the call's span

    Raises nothing.

    Example: `otel.instrument(client)`
    """
    telemetry = Telemetry(tracer_provider, meter_provider, create_spans=create_spans)
    if client is None:
        Disque.tracing = AsyncDisque.tracing = telemetry
    else:
        client.tracing = telemetry
    return telemetry


def uninstrument(client: Disque | AsyncDisque | None = None) -> None:
    """End the tracing of a client, or that of the process.

    client   the client; None, the default: all clients that were not instrumented individually

    Raises nothing.
    """
    if client is None:
        Disque.tracing = AsyncDisque.tracing = None
    else:
        client.tracing = None


def process(client: Disque | AsyncDisque, job: Job) -> AbstractContextManager[Processing | None]:
    """Return a context for the work on a job, in programs without a Worker.

    client   the client that fetched the job
    job      the job

    The context has a span `process {queue}`. An exception that leaves the block is the error of the span. For a client
    that is not instrumented, the context does nothing. Raises nothing.

    Example: `with otel.process(client, job): handle(job.body)`
    """
    return nullcontext() if client.tracing is None else client.tracing.processing(job)
