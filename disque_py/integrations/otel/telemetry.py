"""Spans and metrics of clients and workers, by OpenTelemetry's conventions for messaging.

    add {queue}       PRODUCER, one for a call, also for one that adds many jobs
    create {queue}    PRODUCER, one for each job of such a call, below it
    get {queue}       CLIENT, linked to the jobs' creation contexts; none for a call that brought no job
    process {queue}   CONSUMER, below the creation context of its job and linked to it
    ack|nack {queue}  CLIENT, one for a call, linked to the jobs' creation contexts

`publish {topic}` is the span of TOPIC PUBLISH. A pipeline has one span for each of these operations that it contains.
The creation context of a job is the span `create` if there is one, else `add`. It travels in the job's metadata
(carrier.py), so a traced GETJOB asks for metadata.

A span's name has no queue if a call is about several queues, or about ids whose queues the client does not know. The
span of a GETJOB is made when the answer has arrived, because its links are not known before. It starts at the time of
the call.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, cast

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode

from disque_py import __version__
from disque_py.client.errors import BatchError
from disque_py.client.protocol import text
from disque_py.client.request import Lane, Request
from disque_py.client.results import Job, first_job
from disque_py.client.templates import Adding
from disque_py.client.tracing import Observation, Processing
from disque_py.integrations.otel import conventions as names
from disque_py.integrations.otel.carrier import context_of, has_context, words_of

T = TypeVar("T")

LIBRARY: Final = "disque_py"


@dataclass(frozen=True, slots=True)
class Operation:
    """A kind of command that has spans."""

    name: str
    type: str
    kind: SpanKind


ADD: Final = Operation("add", names.SEND, SpanKind.PRODUCER)
PUBLISH: Final = Operation("publish", names.SEND, SpanKind.PRODUCER)
CREATE: Final = Operation("create", names.CREATE, SpanKind.PRODUCER)
GET: Final = Operation("get", names.RECEIVE, SpanKind.CLIENT)
PROCESS: Final = Operation("process", names.PROCESS, SpanKind.CONSUMER)
ACK: Final = Operation("ack", names.SETTLE, SpanKind.CLIENT)
NACK: Final = Operation("nack", names.SETTLE, SpanKind.CLIENT)

COMMANDS: Final = {
    b"ADDJOB": ADD,
    b"TOPIC": PUBLISH,
    b"GETJOB": GET,
    b"ACKJOB": ACK,
    b"FASTACK": ACK,
    b"ACKTOKEN": ACK,
    b"NACK": NACK,
    b"NACKTOKEN": NACK,
}
# The index of the destination in a command that adds jobs, and of its first option.
DESTINATION_AT: Final = {ADD: 1, PUBLISH: 2}
OPTIONS_AT: Final = {ADD: 4, PUBLISH: 5}


def operation_of(request: Request[Any]) -> Operation | None:
    """Return the operation of a command; None for other commands, and for commands of `execute`."""
    if request.lane is not Lane.ADDS and not request.is_consumers:
        return None
    return COMMANDS.get(request.argv[0])


class Telemetry:
    """The spans and metrics of any number of clients: the value for a client's attribute `tracing`.

    tracer_provider   an OpenTelemetry TracerProvider; None, the default: the global one
    meter_provider    an OpenTelemetry MeterProvider; None, the default: the global one
    create_spans      True, the default: if a call adds several jobs, give each one its own span
    """

    def __init__(
        self,
        tracer_provider: object | None = None,
        meter_provider: object | None = None,
        *,
        create_spans: bool = True,
    ) -> None:
        self.creates = create_spans
        self.tracer = trace.get_tracer(
            LIBRARY, __version__, cast("trace.TracerProvider | None", tracer_provider), names.SCHEMA_URL
        )
        meter = metrics.get_meter(
            LIBRARY, __version__, cast("metrics.MeterProvider | None", meter_provider), names.SCHEMA_URL
        )
        self.durations = meter.create_histogram(
            names.OPERATION_DURATION,
            "s",
            "Duration of a call of the client.",
            explicit_bucket_boundaries_advisory=names.BUCKETS,
        )
        self.process_durations = meter.create_histogram(
            names.PROCESS_DURATION,
            "s",
            "Duration of the work on a job.",
            explicit_bucket_boundaries_advisory=names.BUCKETS,
        )
        self.sent = meter.create_counter(names.SENT, "{message}", "Jobs that the client tried to add.")
        self.consumed = meter.create_counter(names.CONSUMED, "{message}", "Jobs that the client got.")

    # The methods of disque_py.client.tracing.Tracing.

    def one(self, request: Request[T]) -> tuple[Request[T], Observation | None]:
        """Return the command to send, and its observation; None for a command that is not traced."""
        operation = operation_of(request)
        if operation is None:
            return request, None
        sent, observation = self._begin(operation, [request], is_one=True)
        return sent[0], _SingleCommand(observation)

    def many(self, requests: Sequence[Request[Any]]) -> tuple[Sequence[Request[Any]], Observation | None]:
        """Return the commands of a pipeline to send, and the observation of all together."""
        places: dict[Operation, list[int]] = {}
        for place, request in enumerate(requests):
            operation = operation_of(request)
            if operation is not None:
                places.setdefault(operation, []).append(place)
        if not places:
            return requests, None
        sent = list(requests)
        parts: list[tuple[list[int], _Call]] = []
        for operation, at in places.items():
            changed, observation = self._begin(operation, [requests[place] for place in at])
            parts.append((at, observation))
            for place, request in zip(at, changed, strict=True):
                sent[place] = request
        return sent, _Pipeline(parts)

    def adding(self, adding: Adding) -> Observation:
        """Return the observation of an `add_jobs`."""
        queue = text(adding.queue)
        span = self.span(ADD, queue)
        if not has_context(adding.template.options, 0):
            adding.extend(lambda own: () if has_context(own, 0) else self._creation(span, queue))
        return _Sending(self, ADD, queue, span, 1)

    def processing(self, job: Job) -> AbstractContextManager[Processing]:
        """Return a context for the handler of a job, which has its span."""
        return self._processing(job)

    # Spans.

    def _begin(
        self, operation: Operation, requests: list[Request[Any]], *, is_one: bool = False
    ) -> tuple[list[Request[Any]], _Call]:
        if operation is GET:
            is_batch = requests[0].read is not first_job
            return [_with_metadata(request) for request in requests], _Receiving(self, is_batch=is_batch)
        if operation in (ACK, NACK):
            return requests, _Settling(self, operation, [job for request in requests for job in request.about])
        queues = [text(request.argv[DESTINATION_AT[operation]]) for request in requests]
        queue = _only(queues)
        span = self.span(operation, queue)
        sent = []
        for request, name in zip(requests, queues, strict=True):
            if not has_context(request.argv, OPTIONS_AT[operation]):
                words = words_of(span) if len(requests) == 1 else self._creation(span, name)
                request = replace(request, argv=request.argv + words)
            sent.append(request)
        return sent, _Sending(self, operation, queue, span, len(requests), is_one=is_one)

    def _creation(self, span: Span, queue: str) -> tuple[bytes, ...]:
        """Return the words for the creation context of one of several jobs of a call."""
        if not self.creates or not span.is_recording():
            return words_of(span)
        created = self.span(CREATE, queue, trace.set_span_in_context(span))
        created.end()
        return words_of(created)

    def span(
        self,
        operation: Operation,
        queue: str | None,
        parent: Context | None = None,
        links: Sequence[SpanContext] = (),
        began_ns: int | None = None,
    ) -> Span:
        """Begin a span. Without `parent` it is below the current context."""
        return self.tracer.start_span(
            operation.name if queue is None else f"{operation.name} {queue}",
            parent,
            operation.kind,
            attributes_of(operation, queue),
            [Link(found) for found in links],
            began_ns,
        )

    @contextmanager
    def _processing(self, job: Job) -> Iterator[Processing]:
        creation = context_of(job)
        parent = None if creation is None else trace.set_span_in_context(NonRecordingSpan(creation))
        span = self.span(PROCESS, job.queue, parent, () if creation is None else (creation,))
        span.set_attribute(names.MESSAGE_ID, job.id)
        run = _Run(span)
        token = contexts.attach(trace.set_span_in_context(span, parent))
        began = time.perf_counter()
        try:
            yield run
        except BaseException as error:
            run.failed(error)
            raise
        finally:
            contexts.detach(token)
            span.end()
            seconds = time.perf_counter() - began
            self.process_durations.record(seconds, attributes_of(PROCESS, job.queue, run.error))


def attributes_of(operation: Operation, queue: str | None, error: str | None = None) -> dict[str, str]:
    """Return the attributes that spans and metrics share."""
    found = {
        names.SYSTEM: names.DISQUE,
        names.OPERATION_NAME: operation.name,
        names.OPERATION_TYPE: operation.type,
    }
    if queue is not None:
        found[names.DESTINATION] = queue
    if error is not None:
        found[names.ERROR_TYPE] = error
    return found


class _Run:
    """A handler's span."""

    __slots__ = ("_span", "error")

    def __init__(self, span: Span) -> None:
        self._span = span
        self.error: str | None = None

    def failed(self, error: BaseException) -> None:
        self.error = type(error).__name__
        self._span.record_exception(error)
        _set_error(self._span, error)


class _Call(ABC):
    """A call of one operation: its span, its duration, its messages."""

    def __init__(self, telemetry: Telemetry, operation: Operation) -> None:
        self._telemetry = telemetry
        self._operation = operation
        self._began = time.perf_counter()

    @abstractmethod
    def ended(self, values: list[Any]) -> None:
        """Take the values and errors of all commands of the call."""

    @abstractmethod
    def failed(self, error: BaseException) -> None:
        """Take the error that ends the call."""

    def _record(self, queue: str | None, error: str | None) -> None:
        seconds = time.perf_counter() - self._began
        self._telemetry.durations.record(seconds, attributes_of(self._operation, queue, error))


class _Sending(_Call):
    """Jobs are being added."""

    def __init__(
        self,
        telemetry: Telemetry,
        operation: Operation,
        queue: str | None,
        span: Span,
        count: int,
        *,
        is_one: bool = False,
    ) -> None:
        super().__init__(telemetry, operation)
        self._messages = count
        self._queue = queue
        self._span = span
        self._is_one = is_one

    def ended(self, values: list[Any]) -> None:
        errors = [value for value in values if isinstance(value, BaseException)]
        ids = [job_id for value in values if not isinstance(value, BaseException) for job_id in _ids(value)]
        if self._is_one and len(ids) == 1:
            self._span.set_attribute(names.MESSAGE_ID, ids[0])
        else:
            self._span.set_attribute(names.BATCH_COUNT, len(ids) + len(errors))
        self._count(len(ids), None)
        for error in errors:
            self._count(1, type(error).__name__)
        self._end(errors[0] if errors else None)

    def failed(self, error: BaseException) -> None:
        if isinstance(error, BatchError):
            self.ended(error.results)
            return
        self._count(self._messages, type(error).__name__)
        self._end(error)

    def _count(self, count: int, error: str | None) -> None:
        if count:
            self._telemetry.sent.add(count, attributes_of(self._operation, self._queue, error))

    def _end(self, error: BaseException | None) -> None:
        if error is not None:
            _set_error(self._span, error)
        self._span.end()
        self._record(self._queue, None if error is None else type(error).__name__)


class _Receiving(_Call):
    """Jobs are being fetched."""

    def __init__(self, telemetry: Telemetry, *, is_batch: bool) -> None:
        super().__init__(telemetry, GET)
        self._began_ns = time.time_ns()
        self._is_batch = is_batch

    def ended(self, values: list[Any]) -> None:
        jobs = [job for value in values for job in _jobs(value)]
        error = next((value for value in values if isinstance(value, BaseException)), None)
        queue = _only(job.queue for job in jobs)
        if jobs or error is not None:
            span = self._telemetry.span(GET, queue, None, _creations(jobs), self._began_ns)
            if self._is_batch:
                span.set_attribute(names.BATCH_COUNT, len(jobs))
            elif jobs:
                span.set_attribute(names.MESSAGE_ID, jobs[0].id)
            if error is not None:
                _set_error(span, error)
            span.end()
        counts: dict[str, int] = {}
        for job in jobs:
            counts[job.queue] = counts.get(job.queue, 0) + 1
        for name, count in counts.items():
            self._telemetry.consumed.add(count, attributes_of(GET, name))
        self._record(queue, None if error is None else type(error).__name__)

    def failed(self, error: BaseException) -> None:
        if not isinstance(error, (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit)):
            self.ended([error])  # It is no failure if a program ends while it waits for jobs.


class _Settling(_Call):
    """Jobs are being acknowledged, or given back."""

    def __init__(self, telemetry: Telemetry, operation: Operation, about: list[Job | str | bytes]) -> None:
        super().__init__(telemetry, operation)
        jobs = [job for job in about if isinstance(job, Job)]
        self._queue = _only(job.queue for job in jobs) if len(jobs) == len(about) else None
        creations = _creations(jobs)
        parent = None
        if len(about) == 1 and creations and not trace.get_current_span().get_span_context().is_valid:
            parent = trace.set_span_in_context(NonRecordingSpan(creations[0]))
        self._span = telemetry.span(operation, self._queue, parent, creations)
        if len(about) == 1:
            only = about[0]
            self._span.set_attribute(names.MESSAGE_ID, only.id if isinstance(only, Job) else _name(only))
        elif about:
            self._span.set_attribute(names.BATCH_COUNT, len(about))

    def ended(self, values: list[Any]) -> None:
        error = next((value for value in values if isinstance(value, BaseException)), None)
        if error is not None:
            _set_error(self._span, error)
        self._span.end()
        self._record(self._queue, None if error is None else type(error).__name__)

    def failed(self, error: BaseException) -> None:
        self.ended([error])


class _SingleCommand:
    """The call of one command."""

    __slots__ = ("_call",)

    def __init__(self, call: _Call) -> None:
        self._call = call

    def ended(self, value: Any) -> None:
        self._call.ended([value])

    def failed(self, error: BaseException) -> None:
        self._call.failed(error)


class _Pipeline:
    """The calls of a pipeline, and the indexes of the commands of each operation."""

    __slots__ = ("_parts",)

    def __init__(self, parts: list[tuple[list[int], _Call]]) -> None:
        self._parts = parts

    def ended(self, values: list[Any]) -> None:
        for places, call in self._parts:
            call.ended([values[place] for place in places])

    def failed(self, error: BaseException) -> None:
        for _, call in self._parts:
            call.failed(error)


def _with_metadata(request: Request[T]) -> Request[T]:
    """Return a GETJOB that also asks for metadata. The option may occur twice."""
    at = 1 if request.wait_word is None else request.wait_word + 1
    return replace(request, argv=(*request.argv[:at], b"WITHMETA", *request.argv[at:]))


def _only(found: Iterable[str]) -> str | None:
    """Return the common value; None if the values differ, or there are none."""
    values = set(found)
    return values.pop() if len(values) == 1 else None


def _creations(jobs: Sequence[Job]) -> list[SpanContext]:
    """Return the creation contexts of jobs, each once."""
    found = {context.span_id: context for job in jobs if (context := context_of(job)) is not None}
    return list(found.values())


def _jobs(value: Any) -> list[Job]:
    if isinstance(value, Job):
        return [value]
    return value if isinstance(value, list) else []


def _ids(value: Any) -> list[str]:
    """Return the ids of the answer to ADDJOB, or to TOPIC PUBLISH."""
    return [job_id for _, job_id in value] if isinstance(value, list) else [value]


def _name(job_id: str | bytes) -> str:
    return text(job_id) if isinstance(job_id, bytes) else job_id


def _set_error(span: Span, error: BaseException) -> None:
    span.set_attribute(names.ERROR_TYPE, type(error).__name__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
