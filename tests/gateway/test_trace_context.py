"""The gateway passes the trace of a request on to a worker: from HTTP, NDJSON, gRPC and the paths of dyno-queues."""

from __future__ import annotations

import asyncio

import pytest

from rpc_client import RpcClient

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
HEADERS = {"traceparent": PARENT, "tracestate": "vendor=1"}
PAIRS = {"traceparent": PARENT, "tracestate": "vendor=1"}


def meta_of(nodes, queue):
    """Return the metadata of the next job."""
    with nodes.client() as client:
        return client.get_job(queue, timeout_ms=5_000, withmeta=True).meta


def test_http_passes_the_trace_context_on(gateway, nodes, queue):
    reply = gateway.request("POST", f"/v1/queues/{queue}/jobs", {"body": "b", "meta": {"a": "b"}}, headers=HEADERS)
    assert reply.status == 201
    assert meta_of(nodes, queue) == {"a": "b"} | PAIRS


def test_a_batch_passes_the_trace_context_on(gateway, nodes, queue):
    kind = {"Content-Type": "application/x-ndjson"}
    path = f"/v1/queues/{queue}/jobs:batch"
    assert gateway.request("POST", path, body=b'{"body":"b"}\n', headers=HEADERS | kind).status == 200
    assert meta_of(nodes, queue) == PAIRS


def test_a_context_in_the_metadata_of_the_job_wins(gateway, nodes, queue):
    own = "00-" + 32 * "1" + "-" + 16 * "1" + "-00"
    words = {"body": "b", "meta": {"traceparent": own}}
    assert gateway.request("POST", f"/v1/queues/{queue}/jobs", words, headers=HEADERS).status == 201
    assert meta_of(nodes, queue) == {"traceparent": own}


def test_a_header_that_cannot_be_read_changes_nothing(gateway, nodes, queue):
    headers = {"traceparent": "nonsense"}
    assert gateway.request("POST", f"/v1/queues/{queue}/jobs", {"body": "b"}, headers=headers).status == 201
    assert not meta_of(nodes, queue)


def test_grpc_passes_the_trace_context_on(gateway, nodes, queue):
    rpc = RpcClient(gateway)
    rpc.metadata = tuple(HEADERS.items())
    rpc("Enqueue", queue=queue, payload=b"b")
    rpc.close()
    assert meta_of(nodes, queue) == PAIRS


def test_paths_of_dyno_queues_pass_the_trace_context_on(gateway, nodes, queue):
    path = f"/dyno/{queue}/push"
    assert gateway.request("POST", path, [{"id": "m", "payload": "b"}], headers=HEADERS).status == 200
    found = meta_of(nodes, queue)
    assert {name: found[name] for name in PAIRS} == PAIRS


def test_one_trace_leads_from_an_http_request_to_a_worker(gateway, nodes, queue):
    """On the producer's side, the only span is that of the program which sends the request."""
    pytest.importorskip("opentelemetry.sdk", reason="the extra [test] is not installed")
    from opentelemetry.propagate import inject

    from disque_py.client import Worker
    from spans_seen import Seen, linked, trace_id

    seen = Seen()
    with seen.tracer.start_as_current_span("request") as request:
        headers = {}
        inject(headers)
        assert gateway.request("POST", f"/v1/queues/{queue}/jobs", {"body": "b"}, headers=headers).status == 201

    async def run():
        client = seen.instrument(nodes.async_client())
        worker = Worker(client, [queue], lambda job: worker.stop())
        await asyncio.wait_for(worker.serve(), 20)
        await client.close()

    asyncio.run(run())
    process = seen.one(f"process {queue}")
    assert trace_id(process) == request.get_span_context().trace_id
    assert linked(process) == [request.get_span_context().span_id]
