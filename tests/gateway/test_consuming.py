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
    """Opens streams: consume(queue, credit)."""
    opened = []

    def open_(name, credit, **start):
        opened.append(Consumer(rpc, name, credit, **start))
        return opened[-1]

    yield open_
    for each in opened:
        each.close()


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


def test_a_stream_that_waits_hears_of_new_messages(rpc, queue, consume):
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
