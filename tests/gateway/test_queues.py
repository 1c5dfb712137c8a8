"""gRPC: messages from end to end, settings, events."""

from __future__ import annotations

import json
import time

import grpc
import pytest

from disque_py.gateway.rpc import queues
from disque_py.gateway.rpc.descriptors import QUEUES, methods
from gateways import until
from rpc_client import RpcClient, code_of


@pytest.fixture(scope="module")
def rpc(gateway):
    """A client without a login."""
    client = RpcClient(gateway)
    yield client
    client.close()


def test_every_call_has_a_method():
    from disque_py.gateway.rpc.calls import snake

    assert [each.name for each in methods(QUEUES) if not hasattr(queues.Queues, snake(each.name))] == []


def test_a_message_is_added_delivered_and_acknowledged(rpc, queue):
    message_id = rpc("Enqueue", queue=queue, payload=b"\xff\0", metadata={"a": "b"}, priority=5).id
    [message] = rpc("Dequeue", queue=queue, wait_ms=2000).messages
    assert (message.id, message.payload, dict(message.metadata), message.attempt) == (
        message_id,
        b"\xff\0",
        {"a": "b"},
        1,
    )
    assert rpc("ExtendLease", id=message_id, attempt=1, lease_ms=5000).lease_ms == 5000
    assert rpc("Fail", id=message_id, attempt=1, reason="why").changed
    rpc("Dequeue", queue=queue, wait_ms=2000)
    shown = rpc("GetMessage", id=message_id).message
    assert (shown.state, shown.error, shown.attempt) == (3, "why", 2)
    with pytest.raises(grpc.RpcError) as error:
        rpc("Complete", id=message_id, attempt=1)
    assert code_of(error) == (grpc.StatusCode.ABORTED, "stale")
    assert rpc("Complete", id=message_id, attempt=2).changed
    assert rpc("WaitMessage", id=message_id, timeout_ms=2000).over


def test_an_enqueue_with_a_request_id_has_its_effect_once(rpc, queue):
    assert rpc("Enqueue", queue=queue, request_id="r").id == rpc("Enqueue", queue=queue, request_id="r").id


def test_a_name_that_is_not_text_does_not_spoil_the_list_of_queues(rpc, nodes, queue):
    """A single job of any producer made each list an error."""
    with nodes.client() as client:
        client.execute("ADDJOB", queue.encode() + b"\xff", "b", "5000")
    assert until(lambda: f"{queue}\ufffd" in [each.name for each in rpc("ListQueues").queues])


def test_bytes_of_other_programs_that_are_not_text_are_replaced(rpc, nodes, queue):
    with nodes.client() as client:
        client.execute("ADDJOB", queue, "b", "5000", "META", "n", b"\xff")
    [taken] = rpc("Dequeue", queue=queue, wait_ms=2000).messages
    found = [dict(each.metadata) for each in (taken, rpc("GetMessage", id=taken.id).message)]
    assert found == [{"n": "\ufffd"}] * 2


def test_a_deadline_takes_no_message(rpc, queue):
    with pytest.raises(grpc.RpcError) as error:
        rpc("Dequeue", queue=queue, wait_ms=10_000, timeout=0.3)
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    time.sleep(0.3)
    message_id = rpc("Enqueue", queue=queue).id
    assert [each.id for each in rpc("Dequeue", queue=queue, wait_ms=5000).messages] == [message_id]


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ({"enqueue_blocked": True}, {"dequeue_blocked": True}, (True, True)),
        ({"enqueue_blocked": True, "dequeue_blocked": True}, {"enqueue_blocked": False}, (False, True)),
        ({"dequeue_blocked": True}, {"enqueue_blocked": False}, (False, True)),
        ({}, {"enqueue_blocked": False}, (False, False)),
    ],
)
def test_a_direction_that_is_not_given_keeps_its_pause(rpc, queue, before, change, after):
    rpc("CreateQueue", config={"name": queue, "maxlen": 5} | before)
    found = rpc("UpdateQueue", config={"name": queue} | change).config
    assert (found.enqueue_blocked, found.dequeue_blocked) == after


def test_a_queue_that_does_not_exist_is_paused_in_one_direction(rpc, queue):
    found = rpc("CreateQueue", config={"name": queue, "dequeue_blocked": True}).config
    assert (found.enqueue_blocked, found.dequeue_blocked) == (False, True)


def test_a_queue_is_configured_listed_and_purged(rpc, queue):
    config = {"name": queue, "lease_ms": 90_000, "dequeues": 3, "maxlen": 0}
    found = rpc("CreateQueue", config=config).config
    assert (found.lease_ms, found.dequeues) == (90_000, 3)
    texts = {"dead_letter": f"{queue}.dead", "backoff": "exponential:1000:60000:20", "replicate": "quorum"}
    rpc("UpdateQueue", config={"name": queue, "maxlen": 5} | texts)
    found = rpc("UpdateQueue", config={"name": queue, "maxlen": 0} | dict.fromkeys(texts, "")).config
    assert (found.dead_letter, found.backoff, found.replicate, found.dequeues) == ("", "", "", 3)
    assert rpc("UpdateQueue", config={"name": queue, "enqueue_blocked": True}).config.enqueue_blocked
    with pytest.raises(grpc.RpcError) as error:
        rpc("Enqueue", queue=queue)
    assert code_of(error) == (grpc.StatusCode.FAILED_PRECONDITION, "paused")
    assert not rpc("UpdateQueue", config={"name": queue, "enqueue_blocked": False}).config.enqueue_blocked
    rpc("Enqueue", queue=queue, invisibility_ms=60_000)
    rpc("Enqueue", queue=queue)
    depth = rpc("GetDepth", queue=queue).depth
    assert (depth.pending, depth.invisible) == (1, 1)
    assert len(rpc("ListMessages", queue=queue, state=1).messages) == 1
    assert rpc("GetQueue", queue=queue).depth.pending == 1
    deadline = time.monotonic() + 10
    while not rpc("ListQueues", match=queue).queues and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [each.name for each in rpc("ListQueues", match=queue).queues] == [queue]
    with pytest.raises(grpc.RpcError) as error:
        rpc("DeleteQueue", queue=queue)
    assert code_of(error)[1] == "confirm"
    assert rpc("DeleteQueue", queue=queue, confirm=queue).operation_id


def test_a_message_is_canceled_or_queued_again(rpc, queue):
    message_id = rpc("Enqueue", queue=queue, invisibility_ms=60_000).id
    assert rpc("Requeue", id=message_id).changed
    assert rpc("Cancel", id=message_id).changed
    assert not rpc("Cancel", id=message_id).changed


def next_event(stream):
    """Return the next response with an event."""
    return next(response for response in stream if response.event)


def test_events_can_be_followed_from_a_place(rpc, queue):
    stream = rpc("WatchEvents", timeout=30, queue=queue, event="added")
    next(stream)
    ids = [rpc("Enqueue", queue=queue).id for _ in range(2)]
    first = next_event(stream)
    assert json.loads(first.json)["job_id"] == ids[0]
    stream.cancel()
    again = rpc("WatchEvents", timeout=30, queue=queue, event="added", place=first.place)
    assert json.loads(next_event(again).json)["job_id"] == ids[1]
    again.cancel()


def test_a_caller_that_goes_before_its_first_event_has_a_place(rpc, queue):
    stream = rpc("WatchEvents", timeout=30, queue=queue, event="added")
    begin = next(stream)
    assert (begin.event, json.loads(begin.json)) == ("", {})
    stream.cancel()
    missed = [rpc("Enqueue", queue=queue).id for _ in range(2)]
    again = rpc("WatchEvents", timeout=30, queue=queue, event="added", place=begin.place)
    assert [json.loads(next_event(again).json)["job_id"] for _ in missed] == missed
    again.cancel()


def test_the_place_moves_past_events_that_the_filter_leaves_out(rpc, queue):
    stream = rpc("WatchEvents", timeout=30, queue=queue, event="canceled")
    begin = next(stream)
    rpc("Enqueue", queue=queue)
    later = next(stream)
    assert (later.event, json.loads(later.json)) == ("", {})
    assert later.place not in ("", begin.place)
    stream.cancel()


@pytest.mark.parametrize(
    ("name", "fields", "status", "code"),
    [
        ("Enqueue", {}, grpc.StatusCode.INVALID_ARGUMENT, "err"),
        ("GetMessage", {"id": "x"}, grpc.StatusCode.INVALID_ARGUMENT, "badid"),
        ("GetMessage", {"id": "D-015ef0ef-djnn/iAXoyTWuipD8+yjDbcJ-05a1"}, grpc.StatusCode.NOT_FOUND, "nojob"),
        ("Dequeue", {"queue": "q", "wait_ms": 10**9}, grpc.StatusCode.INVALID_ARGUMENT, "err"),
        ("ListMessages", {"queue": "q", "state": 99}, grpc.StatusCode.INVALID_ARGUMENT, "err"),
        ("GetQueue", {"queue": "no-such"}, grpc.StatusCode.NOT_FOUND, "notfound"),
    ],
)
def test_wrong_input_has_the_status_of_the_table(rpc, name, fields, status, code):
    with pytest.raises(grpc.RpcError) as error:
        rpc(name, **fields)
    assert code_of(error) == (status, code)


def test_states_have_names_of_the_definition():
    assert [queues.state_of(status) for status in ("pending", None, "gone")] == [
        "MESSAGE_STATE_PENDING",
        "MESSAGE_STATE_UNSPECIFIED",
        "MESSAGE_STATE_UNSPECIFIED",
    ]
    assert (queues.status_of(2), queues.status_of(0)) == ("pending", None)


def test_a_stream_of_events_that_are_not_read_ends(make_gateway, queue):
    gateway = make_gateway(stream_idle_ms=300)
    rpc = RpcClient(gateway)
    events = rpc("WatchEvents", queue=queue)
    next(events)
    lines = b"\n".join([b'{"body": "b", "meta": {"n": "%b"}}' % (b"x" * 3000)] * 300)
    for _ in range(10):
        gateway.post(f"/v1/queues/{queue}/jobs:batch", body=lines, headers={"Content-Type": "application/x-ndjson"})
    assert until(lambda: not gateway.gateway.service._streams)
    with pytest.raises(grpc.RpcError) as error:
        list(events)
    assert code_of(error) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "limit")
    rpc.close()
