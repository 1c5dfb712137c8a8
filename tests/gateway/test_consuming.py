"""Consume: credit, settlements, and streams that end."""

from __future__ import annotations

import queue as queues
import time

import grpc
import pytest

from rpc_client import RpcClient


class Consumer:
    """A consumer's stream."""

    def __init__(self, rpc, name, credit, **start):
        self.rpc = rpc
        self.out = queues.SimpleQueue()
        self.send(start={"queue": name} | start, credit=credit)
        self.answers = rpc.stream("Consume", iter(self.out.get, None))

    def send(self, **fields):
        self.out.put(self.rpc.request("Consume", **fields))

    def messages(self, count):
        found = []
        while len(found) < count:
            found += next(self.answers).messages
        return found

    def close(self):
        self.answers.cancel()
        self.out.put(None)


@pytest.fixture(scope="module")
def rpc(gateway):
    """A client without a login."""
    client = RpcClient(gateway)
    yield client
    client.close()


@pytest.fixture
def consume(rpc):
    """A function that opens streams: consume(queue, credit)."""
    opened = []

    def open_(name, credit, **start):
        opened.append(Consumer(rpc, name, credit, **start))
        return opened[-1]

    yield open_
    for each in opened:
        each.close()


def test_metadata_of_other_programs_that_are_not_text_do_not_end_the_stream(rpc, nodes, queue):
    with nodes.client() as client:
        client.execute("ADDJOB", queue, "b", "5000", "META", "n", b"\xff")
    consumer = Consumer(rpc, queue, 1)
    [message] = consumer.messages(1)
    consumer.close()
    assert dict(message.metadata) == {"n": "\ufffd"}


def test_a_consumer_gets_as_many_messages_as_it_has_credit_for(rpc, queue, consume):
    ids = {rpc("Enqueue", queue=queue).id for _ in range(3)}
    consumer = consume(queue, 2)
    found = {each.id for each in consumer.messages(2)}
    consumer.send(credit=1, settlements=[{"id": each} for each in found])
    answers = [next(consumer.answers), next(consumer.answers)]
    assert {each for answer in answers for each in answer.settled} == found
    assert found | {each.id for answer in answers for each in answer.messages} == ids
    assert rpc("GetDepth", queue=queue).depth.running == 1


def test_messages_that_were_not_settled_go_back(rpc, queue, consume):
    rpc("Enqueue", queue=queue)
    consumer = consume(queue, 1)
    [message] = consumer.messages(1)
    consumer.close()
    assert [each.id for each in rpc("Dequeue", queue=queue, wait_ms=5000).messages] == [message.id]


def test_a_failed_message_comes_again_with_its_reason(rpc, queue, consume):
    rpc("Enqueue", queue=queue)
    consumer = consume(queue, 2)
    [message] = consumer.messages(1)
    consumer.send(settlements=[{"id": message.id, "failed": True, "reason": "why"}])
    [again] = consumer.messages(1)
    assert (again.id, again.attempt) == (message.id, 2)
    assert rpc("GetMessage", id=message.id).message.error == "why"


def test_a_waiting_stream_gets_new_messages(rpc, queue, consume):
    consumer = consume(queue, 1)
    time.sleep(0.3)
    message_id = rpc("Enqueue", queue=queue).id
    assert [each.id for each in consumer.messages(1)] == [message_id]


@pytest.mark.parametrize("fields", [{"credit": -1}, {"settlements": [{"id": "D-x"}]}])
def test_wrong_requests_end_the_stream(queue, consume, fields):
    consumer = consume(queue, 0)
    consumer.send(**fields)
    with pytest.raises(grpc.RpcError) as error:
        next(consumer.answers)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_the_first_request_names_the_queue(rpc):
    answers = rpc.stream("Consume", iter([rpc.request("Consume", credit=1)]))
    with pytest.raises(grpc.RpcError, match="start"):
        next(answers)


def test_settlements_of_many_requests_are_sent_together(rpc, queue, consume):
    """Each settlement is answered once, whichever request has it. The stream ends after the last answer."""
    ids = {rpc("Enqueue", queue=queue).id for _ in range(30)}
    consumer = consume(queue, 30)
    assert {each.id for each in consumer.messages(30)} == ids
    for job_id in ids:
        consumer.send(settlements=[{"id": job_id}])
    consumer.out.put(None)
    assert sorted(each for answer in consumer.answers for each in answer.settled) == sorted(ids)
    depth = rpc("GetDepth", queue=queue).depth
    assert (depth.pending, depth.running) == (0, 0)


def test_settlements_before_an_invalid_one_take_effect(rpc, queue, consume):
    rpc("Enqueue", queue=queue)
    consumer = consume(queue, 1)
    [message] = consumer.messages(1)
    consumer.send(settlements=[{"id": message.id}, {"id": "D-x"}])
    with pytest.raises(grpc.RpcError, match="does not have the message D-x"):
        for _ in consumer.answers:
            pass
    depth = rpc("GetDepth", queue=queue).depth
    assert (depth.pending, depth.running) == (0, 0)


def test_settling_a_message_after_its_lease_does_no_harm(rpc, queue, consume):
    """Another consumer has got the job in the meantime, and keeps it."""
    rpc("Enqueue", queue=queue, lease_ms=1000)
    late = consume(queue, 1)
    [message] = late.messages(1)
    [again] = rpc("Dequeue", queue=queue, wait_ms=20_000, lease_ms=600_000).messages
    assert (again.id, again.attempt) == (message.id, 2)
    late.send(settlements=[{"id": message.id}])
    assert list(next(late.answers).settled) == [message.id]
    assert rpc("GetDepth", queue=queue).depth.running == 1


def test_the_end_of_a_stream_takes_no_message_from_another_consumer(rpc, queue, consume):
    """The lease of the message was over, and another consumer has got it."""
    rpc("Enqueue", queue=queue, lease_ms=1000)
    late = consume(queue, 1)
    [message] = late.messages(1)
    [again] = rpc("Dequeue", queue=queue, wait_ms=20_000, lease_ms=600_000).messages
    assert (again.id, again.attempt) == (message.id, 2)
    fresh = rpc("Enqueue", queue=queue).id
    late.send(credit=1)
    assert [each.id for each in late.messages(1)] == [fresh]
    late.close()
    # The stream puts back both of its messages together.
    assert [each.id for each in rpc("Dequeue", queue=queue, max_messages=2, wait_ms=20_000).messages] == [fresh]
    assert rpc("GetMessage", id=message.id).message.attempt == 2
    assert rpc("Complete", id=again.id, attempt=2).changed
