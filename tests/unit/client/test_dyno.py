"""client/dyno.py without a node: names, shards, and the commands for each message."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from client_node import AT_ONCE, JOB_A, SILENCE, Node, in_turn, jobs_reply
from disque_py.client.aio import AsyncDisque
from disque_py.client.blocking import Disque
from disque_py.client.dyno import (
    AsyncDynoQueue,
    AsyncDynoQueues,
    DynoQueue,
    DynoQueues,
    Layout,
    Message,
    push,
    round_robin,
)
from disque_py.client.results import Job


def test_a_priority_is_between_0_and_99():
    with pytest.raises(ValueError, match="between 0 and 99"):
        Message("m", priority=100)


def test_a_queue_without_shards_is_one_queue():
    assert Layout("q").queues() == ["q"]
    assert Layout("q", shards=["a", "b"], shard="b").queues() == ["q.b", "q.a"]
    with pytest.raises(ValueError, match="not one of the shards"):
        Layout("q", shards=["a"], shard="b")


@pytest.mark.parametrize("unack_time", [0, -1, 0.5, timedelta(0)])
def test_a_queue_with_a_wrong_unack_time_is_refused(unack_time):
    """RETRY 0 would deliver each message at most once."""
    with pytest.raises(ValueError, match="unack_time must be"):
        Layout("q", unack_time=unack_time)


def test_shards_are_taken_in_turns():
    choose = round_robin()
    chosen = [choose(["a", "b", "c"], Message("m")) for _ in range(6)]
    assert sorted(chosen[:3]) == ["a", "b", "c"]
    assert chosen[:3] == chosen[3:]


def test_a_message_becomes_a_job_with_its_id():
    layout = Layout("q", shards=["a"], unack_time=7, ttl=100, overwrite=False)
    request = next(push(layout, [Message("m", "text", priority=5, timeout=3)]))
    words = b" ".join(request.argv)
    assert words.startswith(b"ADDJOB q.a text")
    for part in (b"DELAY 3", b"RETRY 7", b"TTL 100", b"PRIORITY 5", b"META dyno-id m"):
        assert part in words


def test_a_job_becomes_a_message_again():
    layout = Layout("q", shards=["a"])
    job = Job("q.a", "D-1", b"x", meta={"dyno-id": "m", "dyno-priority": "4"})
    assert layout.message(job) == Message("m", b"x", 4, 0, "a")
    layout.delivered([job])
    assert layout.deliveries["m"] is job


@pytest.mark.parametrize("priority", ["abc", "100", "-1", "²", ""])
def test_a_job_with_a_strange_priority_has_none(priority):
    """A program may add one, and an error would return no message of the pop."""
    meta = {"dyno-id": "m", "dyno-priority": priority}
    assert Layout("q").message(Job("q", "D-1", b"x", meta=meta)).priority == 0


def test_queues_of_one_name_are_one_object():
    queues = DynoQueues(Disque("127.0.0.1:1"), shards=["a"])
    assert queues.get("q") is queues.get("q")
    assert [queue.name for queue in queues.queues()] == ["q"]
    queues.close()
    assert AsyncDynoQueues(None).queues() == []


def test_a_cancelled_pop_puts_back_the_messages_that_it_has_taken():
    """It has waited for one message, and looks for those that came with it."""

    async def run(node):
        async with AsyncDisque(node.address) as client:
            popping = asyncio.create_task(AsyncDynoQueue(client, "q").pop(5))
            async with asyncio.timeout(10):
                while len(node.named("GETJOB")) < 3:
                    await asyncio.sleep(0.005)
            popping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await popping

    answers = in_turn(b"*-1\r\n", jobs_reply(JOB_A), SILENCE)
    with Node(answers={"GETJOB": answers, "NACK": b":1\r\n"}) as node:
        asyncio.run(run(node))
        assert node.named("NACK") == [[b"NACK", JOB_A.encode(), *AT_ONCE]]


def test_a_pop_returns_the_messages_that_came_before_an_error():
    answers = in_turn(b"*-1\r\n", jobs_reply(JOB_A), b"-ERR no\r\n")
    with Node(answers={"GETJOB": answers}) as node, Disque(node.address) as client:
        assert [message.job.id for message in DynoQueue(client, "q").pop(5)] == [JOB_A]
