"""OpenTelemetry against a real node: spans, their links, and the metrics of clients."""

from __future__ import annotations

import asyncio
import threading
import uuid

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra [test] is not installed")

from opentelemetry import trace
from opentelemetry.trace import StatusCode

from disque_py import testing
from disque_py.client import BatchError, ReplyError, Retry, Worker, WorkerHooks
from disque_py.client.dyno import DynoQueue, Message
from disque_py.client.templates import template_of
from disque_py.integrations import otel
from spans_seen import Seen, linked, trace_id


@pytest.fixture(scope="module")
def node():
    with testing.node() as node:
        yield node


@pytest.fixture
def seen():
    return Seen()


@pytest.fixture
def queue():
    return f"q{uuid.uuid4().hex[:8]}"


@pytest.fixture
def client(node, seen):
    with node.client() as client:
        yield seen.instrument(client)


def work(node, seen, queue, handler, jobs, **settings):
    """Run a worker until it has handled `count` jobs."""

    async def run():
        client = seen.instrument(node.async_client())
        left = [jobs]

        class Hooks(WorkerHooks):
            def count(self):
                left[0] -= 1
                if not left[0]:
                    worker.stop()

            def on_success(self, job, seconds):
                self.count()

            def on_failure(self, job, error, seconds):
                self.count()

            def on_retry(self, job, retry):
                self.count()

        worker = Worker(client, [queue], handler, hooks=Hooks(), concurrency=jobs, **settings)
        try:
            await asyncio.wait_for(worker.serve(), 20)
        finally:
            await client.close()

    asyncio.run(run())


def test_a_command_whose_bytes_were_prepared_carries_its_context(client, seen, queue):
    """The adapters of Celery, Dramatiq and Taskiq add their tasks by such commands."""
    client.run(template_of(queue, retry=60).one(b"body", (b"KEY", b"k")))
    job = client.get_job(queue, timeout_ms=1000, withmeta=True)
    assert job is not None
    assert f"{trace_id(seen.one(f'add {queue}')):032x}" in job.meta["traceparent"]


def test_one_trace_leads_from_producer_to_worker(node, seen, client, queue):
    """The worker's span is below the span that added the job, and linked to it; its ack belongs to the trace, too."""
    with seen.tracer.start_as_current_span("request"):
        job_id = client.add_job(queue, b"body")
    inside = []

    async def handle(job):
        with seen.tracer.start_as_current_span("query"):
            inside.append(job.id)

    work(node, seen, queue, handle, 1)
    add, process = seen.one(f"add {queue}"), seen.one(f"process {queue}")
    assert {f"add {queue} producer", f"get {queue} client", f"process {queue} consumer", f"ack {queue} client"} <= set(
        seen.lines
    )
    assert len({trace_id(seen.one(name)) for name in ("request", "query", add.name, process.name, f"ack {queue}")}) == 1
    assert process.parent.span_id == add.context.span_id
    assert seen.one("query").parent.span_id == process.context.span_id
    assert (
        linked(process) == linked(seen.one(f"get {queue}")) == linked(seen.one(f"ack {queue}")) == [add.context.span_id]
    )
    assert inside == [job_id]


def test_attributes_are_those_of_the_conventions(node, seen, client, queue):
    job_id = client.add_job(queue, b"body")
    work(node, seen, queue, lambda job: None, 1)
    common = {"messaging.system": "disque", "messaging.destination.name": queue}

    def of(name, kind):
        return common | {"messaging.operation.name": name, "messaging.operation.type": kind}

    found = {span.name.partition(" ")[0]: dict(span.attributes) for span in seen.spans}
    assert found["add"] == of("add", "send") | {"messaging.message.id": job_id}
    assert found["get"] == of("get", "receive") | {"messaging.batch.message_count": 1}
    assert found["process"] == of("process", "process") | {"messaging.message.id": job_id}
    assert found["ack"] == of("ack", "settle") | {"messaging.message.id": job_id}
    assert seen.spans[0].instrumentation_scope.schema_url.endswith("1.44.0")


def test_metrics_are_those_of_the_conventions(node, seen, client, queue):
    client.add_jobs(queue, [b"a", b"b"])
    work(node, seen, queue, lambda job: None, 2)
    assert [count for _, count in seen.points("messaging.client.sent.messages")] == [2]
    assert sum(count for _, count in seen.points("messaging.client.consumed.messages")) == 2
    [(attributes, count)] = seen.points("messaging.process.duration")
    assert (attributes["messaging.operation.name"], attributes["messaging.destination.name"], count) == (
        "process",
        queue,
        2,
    )
    names = {found["messaging.operation.name"] for found, _ in seen.points("messaging.client.operation.duration")}
    assert names == {"add", "get", "ack"}


def test_many_jobs_have_one_span_and_a_creation_context_each(seen, client, queue):
    client.add_jobs(queue, [b"a", b"b", b"c"], meta=lambda body: {"body": body})
    add = seen.one(f"add {queue}")
    created = seen.named(f"create {queue}")
    assert add.attributes["messaging.batch.message_count"] == 3
    assert [span.parent.span_id for span in created] == [add.context.span_id] * 3
    jobs = client.get_jobs(queue, count=3)
    assert sorted(job.meta["traceparent"].split("-")[2] for job in jobs) == sorted(
        f"{span.context.span_id:016x}" for span in created
    )
    assert sorted(linked(seen.one(f"get {queue}"))) == sorted(span.context.span_id for span in created)


def test_jobs_of_one_call_may_share_its_context(node, seen, queue):
    with node.client() as client:
        seen.instrument(client, create_spans=False)
        client.add_jobs(queue, [b"a", b"b"])
        assert len({job.meta["traceparent"] for job in client.get_jobs(queue, count=2)}) == 1
    assert seen.lines[0] == f"add {queue} producer"


def test_a_pipeline_has_a_span_for_each_operation(seen, client, queue):
    with client.pipeline() as pipe:
        pipe.add_job(queue, b"a")
        pipe.add_job(queue, b"b")
        pipe.qlen(queue)
        found = pipe.get_job(queue, nohang=True)
    client.ack(found.value)
    assert len(seen.named(f"create {queue}")) == 2
    assert seen.one(f"add {queue}").attributes["messaging.batch.message_count"] == 2
    assert len(linked(seen.one(f"get {queue}"))) == 1
    assert seen.one(f"ack {queue}").attributes["messaging.message.id"] == found.value.id


def test_the_asyncio_client_has_the_same_spans(node, seen, queue):
    async def run():
        client = seen.instrument(node.async_client())
        async with client:
            await client.add_job(queue, b"a")
            await client.add_jobs(queue, [b"b"])
            async with client.pipeline() as pipe:
                pipe.add_job(queue, b"c")
            await client.ack(*await client.get_jobs(queue, count=3))

    asyncio.run(run())
    assert seen.lines == [
        f"add {queue} producer",
        f"create {queue} producer",
        f"add {queue} producer",
        f"add {queue} producer",
        f"get {queue} client",
        f"ack {queue} client",
    ]


def test_topics_and_dyno_queues_are_traced(node, seen, client, queue):
    client.bind(f"t-{queue}", queue)
    client.publish(f"t-{queue}", b"a")
    assert (
        client.get_job(queue).meta["traceparent"].split("-")[2]
        == f"{seen.one(f'publish t-{queue}').context.span_id:016x}"
    )
    dyno = DynoQueue(client, queue)
    dyno.push([Message("m", b"a")])
    dyno.ack(dyno.pop(1, 1_000)[0])
    names = [span.name.partition(" ")[0] for span in seen.spans]
    assert names[-3:] == ["add", "get", "ack"]


def test_a_failed_handler_is_an_error_and_its_job_a_nack(node, seen, client, queue):
    client.add_job(queue, b"a")

    def handle(job):
        raise KeyError("no address")

    work(node, seen, queue, handle, 1)
    process = seen.one(f"process {queue}")
    assert (process.status.status_code, process.attributes["error.type"]) == (StatusCode.ERROR, "KeyError")
    assert process.events[0].name == "exception"
    assert seen.one(f"nack {queue}").attributes["messaging.operation.type"] == "settle"
    [(attributes, _)] = seen.points("messaging.process.duration")
    assert attributes["error.type"] == "KeyError"


def test_a_handler_that_returns_retry_did_not_succeed(node, seen, client, queue):
    client.add_job(queue, b"a")
    work(node, seen, queue, lambda job: Retry(delay=60), 1)
    assert seen.one(f"process {queue}").attributes["error.type"] == "Retry"


def test_a_plain_function_sees_its_span_in_its_thread(node, seen, client, queue):
    client.add_job(queue, b"a")
    found = []

    def handle(job):
        found.append((threading.current_thread().name, trace.get_current_span().get_span_context().span_id))

    work(node, seen, queue, handle, 1)
    assert found[0][0].startswith("disque-worker")
    assert found[0][1] == seen.one(f"process {queue}").context.span_id


def test_a_program_without_a_worker_marks_its_work(seen, client, queue):
    client.add_job(queue, b"a")
    job = client.get_job(queue)
    with otel.process(client, job):
        trace_of_work = trace.get_current_span().get_span_context().trace_id
    client.ack(job)
    assert trace_of_work == trace_id(seen.one(f"add {queue}")) == trace_id(seen.one(f"ack {queue}"))


def test_a_refused_command_is_an_error(node, seen, client, queue):
    client.pause(queue, "in")
    with pytest.raises(ReplyError):
        client.add_job(queue, b"a")
    with pytest.raises(BatchError):
        client.add_jobs(queue, [b"a", b"b"])
    client.pause(queue, "none")
    one, many = seen.named(f"add {queue}")
    assert (one.attributes["error.type"], many.attributes["error.type"]) == ("PausedError", "PausedError")
    assert one.status.status_code is many.status.status_code is StatusCode.ERROR
    [(attributes, count)] = seen.points("messaging.client.sent.messages")
    assert (attributes["error.type"], count) == ("PausedError", 3)


def test_a_call_without_a_job_has_no_span(seen, client, queue):
    """A waiting worker makes no span."""
    assert client.get_job(queue, nohang=True) is None
    assert seen.lines == []
    assert seen.points("messaging.client.operation.duration")[0][1] == 1


def test_a_context_of_the_program_itself_is_kept(seen, client, queue):
    """The program adds on behalf of another one, as the gateway does."""
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    client.add_job(queue, b"a", meta={"traceparent": parent})
    client.add_jobs(queue, [b"b"], meta={"traceparent": parent})
    client.add_jobs(queue, [b"c"], meta=lambda body: {"traceparent": parent})
    jobs = client.get_jobs(queue, count=3)
    assert [job.meta["traceparent"] for job in jobs] == [parent] * 3


def test_a_trace_that_is_not_sampled_stays_so(node, seen, queue):
    """The decision travels with the job, and no span is made for it."""
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

    seen.tracers.sampler = ParentBased(ALWAYS_OFF)
    with node.client() as client:
        otel.instrument(client, tracer_provider=seen.tracers)
        client.add_jobs(queue, [b"a"])
        assert not int(client.get_job(queue).meta["traceparent"].split("-")[3]) & 1
    assert seen.spans == []


def test_the_pairs_do_not_count_as_metadata(seen, client, queue):
    """Spec F9: also a job with as many pairs as a node allows."""
    most = client.config_get("job-meta-max-pairs")["job-meta-max-pairs"]
    client.add_job(queue, b"a", meta={f"n{number}": "v" for number in range(int(most))})
    assert len(client.get_job(queue).meta) == int(most) + 1
