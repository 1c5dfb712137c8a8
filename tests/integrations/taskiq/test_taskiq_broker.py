"""The broker of Taskiq: messages are jobs, and each ends once."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta

import pytest
from taskiq import Context, SendTaskError, SimpleRetryMiddleware, TaskiqDepends
from taskiq.result_backends.dummy import DummyResultBackend
from taskiq.serializers import JSONSerializer, PickleSerializer

from client_node import JOB_A, JOB_B, Node, jobs_reply
from disque_py.integrations.taskiq import DisqueBroker
from disque_py.integrations.taskiq import broker as broker_module


def test_each_task_runs_once(broker, work):
    working, eventually = work
    ran = []

    @broker.task(task_name="note")
    async def note(number: int) -> None:
        ran.append(number)

    async def main():
        for number in range(100):
            await note.kiq(number)
        async with working(broker):
            await eventually(lambda: len(ran) >= 100)

    asyncio.run(main())
    assert sorted(ran) == list(range(100))


def test_a_delay_is_the_jobs_own(broker, work, client, name):
    working, eventually = work
    ran = []

    @broker.task(task_name="note")
    async def note() -> None:
        ran.append(time.time())

    async def main():
        sent_at = time.time()
        await note.kicker().with_labels(delay=0.6).kiq()
        assert client.qlen(name, status="invisible") == 1
        async with working(broker):
            await eventually(lambda: ran)
        assert ran[0] - sent_at >= 0.6

    asyncio.run(main())


def test_the_lease_of_a_message_with_a_long_delay_can_be_extended():
    """Nodes extend leases in the first half of a TTL only."""
    options = broker_module.add_options({"delay": 100 * 86_400}, timedelta(seconds=60))
    assert options["ttl"] / 2 >= 114 * 86_400


def test_a_larger_priority_runs_first(broker, work):
    working, eventually = work
    ran = []

    @broker.task(task_name="note")
    async def note(number: int) -> None:
        ran.append(number)

    async def main():
        for priority in (0, 9, 5):
            await note.kicker().with_labels(priority=priority).kiq(priority)
        async with working(broker, max_async_tasks=1):
            await eventually(lambda: len(ran) == 3)

    asyncio.run(main())
    assert ran == [9, 5, 0]


def test_a_label_names_another_queue(make_broker, work, client, name):
    working, eventually = work
    broker = make_broker(queues=[f"{name}-slow"])
    ran = []

    @broker.task(task_name="note", queue_name=f"{name}-slow")
    async def note() -> None:
        ran.append(1)

    async def main():
        await note.kiq()
        assert client.qlen(f"{name}-slow") == 1
        async with working(broker):
            await eventually(lambda: ran)

    asyncio.run(main())


def test_a_task_that_blocks_the_loop_beyond_its_lease_runs_once(broker, work, client, name):
    working, eventually = work
    ran = []

    @broker.task(task_name="long")
    async def long() -> None:
        ran.append(1)
        time.sleep(3.5)  # noqa: ASYNC251  # the loop is blocked on purpose

    async def main():
        await long.kiq()
        async with working(broker):
            await eventually(lambda: ran)
        assert client.get_job(name, timeout_ms=2_500) is None

    asyncio.run(main())
    assert ran == [1]


@pytest.mark.parametrize("ack_type", ["when_received", "when_executed", "when_saved"])
def test_every_kind_of_acknowledgement_ends_the_job(broker, work, client, name, ack_type):
    working, eventually = work

    @broker.task(task_name="note", ack_type=ack_type)
    async def note() -> None:
        pass

    async def main():
        await note.kiq()
        async with working(broker):
            await eventually(lambda: client.qstat(name) is None or not client.jobs_left(name))

    client.jobs_left = lambda queue: sum(client.qlen(queue, status=status) for status in ("pending", "running"))
    asyncio.run(main())


def tasks_that_end_together(broker):
    """Return an event, a task that ends when the event is set, and a task that never ends. Results are not stored."""
    broker.with_result_backend(DummyResultBackend())
    ends = asyncio.Event()

    @broker.task(task_name="short")
    async def short() -> None:
        await ends.wait()

    @broker.task(task_name="long")
    async def long() -> None:
        await asyncio.Event().wait()

    return ends, short, long


def commands_that_acknowledge(count, broker, work, client, name, calls):
    """Return the number of ACKJOBs for `count` tasks that end together, while another task goes on."""
    working, eventually = work

    async def main():
        ends, short, long = tasks_that_end_together(broker)
        for task in (*[short] * count, long):
            await task.kiq()
        async with working(broker, wait_tasks_timeout=0.1):
            await eventually(lambda: len(broker.held) == count + 1)
            before = calls("ackjob")
            ends.set()
            await eventually(lambda: client.qlen(name, status="running") == 1)
            return calls("ackjob") - before

    return asyncio.run(main())


def test_tasks_that_end_together_share_an_acknowledgement(broker, work, client, name, calls):
    assert commands_that_acknowledge(3, broker, work, client, name, calls) == 1


def test_a_job_under_a_claim_is_acknowledged_with_its_fence(broker, work, client, name, calls):
    client.set_queue(name, assign="quorum")
    assert commands_that_acknowledge(2, broker, work, client, name, calls) == 2


def test_a_worker_that_stops_sends_its_last_acknowledgements(broker, work, client, name):
    working, eventually = work

    async def main():
        ends, short, long = tasks_that_end_together(broker)
        for task in (short, long):
            await task.kiq()
        async with working(broker, wait_tasks_timeout=0.1):
            await eventually(lambda: len(broker.held) == 2)
            ends.set()
        assert client.qlen(name) == 1

    asyncio.run(main())
    assert client.qlen(name, status="running") == 0


def test_a_task_that_ends_while_the_last_acknowledgements_leave_is_acknowledged(monkeypatch):
    """Its acknowledgement would wait for others, but the shutdown is about to close the connections."""
    monkeypatch.setattr(broker_module, "ACK_S", 3600.0)
    is_asked, may_answer = threading.Event(), threading.Event()

    def answer(words):
        is_asked.set()
        may_answer.wait(60)
        return b":1\r\n"

    ids = (JOB_A, JOB_B, JOB_B[:-6] + "z" + JOB_B[-5:])
    answers = {"GETJOB": jobs_reply(*ids), "CLIENT": b"+OK\r\n", "ACKJOB": answer, "NACK": b":1\r\n"}
    with Node(answers=answers) as node:

        async def main():
            broker = DisqueBroker(f"disque://{node.address}")
            messages = broker.listen()
            first, second, _ = [await anext(messages) for _ in ids]
            first.ack()
            stopping = asyncio.create_task(broker.shutdown())
            await asyncio.to_thread(is_asked.wait, 60)
            broker.leases.remove_later(broker.held[JOB_B])
            second.ack()
            may_answer.set()
            await stopping
            await messages.aclose()

        asyncio.run(main())
    assert [words[1:] for words in node.named("ACKJOB")] == [[JOB_A.encode()], [JOB_B.encode()]]


def test_a_task_that_a_shutdown_cuts_off_runs_again(broker, work, client, name):
    """Taskiq acknowledges the task when the event loop ends. By then, the worker has given the job back."""
    working, eventually = work

    async def main():
        _, _, long = tasks_that_end_together(broker)
        await long.kiq()
        async with working(broker, wait_tasks_timeout=0.1):
            await eventually(lambda: broker.held)

    asyncio.run(main())
    assert client.get_job(name, timeout_ms=60_000) is not None


def test_a_task_acknowledged_on_receipt_begins_when_the_node_knows(broker, work, client, name):
    working, eventually = work
    running = []

    @broker.task(task_name="once", ack_type="when_received")
    async def once() -> None:
        running.append(client.qlen(name, status="running"))

    async def main():
        await once.kiq()
        async with working(broker):
            await eventually(lambda: running)

    asyncio.run(main())
    assert running == [0]


def test_a_message_that_a_task_acknowledges_itself(broker, work, client, name):
    """Without an acknowledgement the message is delivered again, and a label has the number of the delivery."""
    working, eventually = work
    deliveries = []

    @broker.task(task_name="note", ack_type="manual")
    async def note(context: Context = TaskiqDepends()) -> None:  # noqa: B008
        deliveries.append(context.message.labels["delivery_count"])
        if len(deliveries) == 2:
            await context.ack()

    async def main():
        await note.kiq()
        async with working(broker):
            await eventually(lambda: len(deliveries) == 2)
            await eventually(lambda: client.qlen(name, status="running") == 0)

    asyncio.run(main())
    assert deliveries == [1, 2]


@pytest.mark.parametrize("serializer", [JSONSerializer(), PickleSerializer()])
def test_a_worker_knows_the_task_of_a_message_in_each_format(broker, work, client, name, serializer):
    working, eventually = work
    broker.with_serializer(serializer)
    deliveries = []

    @broker.task(task_name="note")
    async def note(context: Context = TaskiqDepends()) -> None:  # noqa: B008
        deliveries.append(context.message.labels["delivery_count"])

    async def main():
        await note.kiq()
        await note.kicker().with_labels(priority=1).kiq()
        job = client.get_job(name, withmeta=True, withlease=True)
        assert ("task" in job.meta) == isinstance(serializer, PickleSerializer)
        client.put_back([job])
        async with working(broker):
            await eventually(lambda: len(deliveries) == 2)

    asyncio.run(main())
    assert sorted(deliveries) == [1, 2]


def test_a_task_is_tried_again(broker, work):
    working, _ = work
    broker.add_middlewares(SimpleRetryMiddleware())
    tries = []

    @broker.task(task_name="note", retry_on_error=True, max_retries=3)
    async def note() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise RuntimeError("no ink")
        return "printed"

    async def main():
        task = await note.kiq()
        async with working(broker):
            result = await task.wait_result(timeout=60)
        assert result.return_value == "printed"

    asyncio.run(main())


def test_messages_that_were_not_begun_go_back_when_a_worker_stops(broker, work, client, name):
    working, eventually = work
    ran = []

    @broker.task(task_name="note")
    async def note() -> None:
        ran.append(1)
        await asyncio.sleep(1)

    async def main():
        for _ in range(8):
            await note.kiq()
        async with working(broker, max_async_tasks=1):
            await eventually(lambda: ran)
        assert client.qlen(name) == 8 - len(ran)

    asyncio.run(main())
    assert len(ran) < 8


def test_no_node_is_an_error_of_taskiq():
    broker = DisqueBroker("disque://127.0.0.1:1/?patience=0")

    @broker.task(task_name="note")
    async def note() -> None:
        pass

    async def main():
        with pytest.raises(SendTaskError):
            await note.kiq()
        await broker.shutdown()

    asyncio.run(main())


def test_a_message_that_taskiq_drops_comes_again(broker, work, client, name):
    """A label with a wrong value makes Taskiq fail before the task runs, so the message is not acknowledged."""
    working, eventually = work

    @broker.task(task_name="note")
    async def note() -> None:
        pass

    async def main():
        await note.kicker().with_labels(ack_type="never").kiq()
        await note.kiq()
        async with working(broker):
            await eventually(lambda: not client.qlen(name))
        job = client.get_job(name, timeout_ms=60_000)
        assert b"never" in job.body

    asyncio.run(main())
