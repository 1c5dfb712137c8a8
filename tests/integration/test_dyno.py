"""DynoQueue against three real nodes: every operation, blocking and asyncio."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from disque_py.client import AsyncDisque, Disque
from disque_py.client.dyno import AsyncDynoQueue, DynoQueue, Message
from servers import HOST, Cluster, until


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("dyno"), 3) as cluster:
        yield cluster


@pytest.fixture
def queues(three, request):
    """A queue of two shards, and the same for a program of the other shard, on another node."""
    name = request.node.name
    with Disque(f"{HOST}:{three[0].port}", discover=False) as here, Disque(f"{HOST}:{three[1].port}") as there:
        shards = ["a", "b"]
        yield DynoQueue(here, name, shards=shards), DynoQueue(there, name, shards=shards, shard="b")


def ids(messages):
    return [message.id for message in messages]


def test_messages_are_popped_by_priority_then_age(queues):
    queue, _ = queues
    queue.push([Message(f"m{number}", b"x", priority=number % 3, shard="a") for number in range(6)])
    assert ids(queue.peek(2)) == ["m0", "m3"]
    popped = queue.pop(4)
    assert ids(popped) == ["m0", "m3", "m1", "m4"]
    assert [(message.payload, message.shard, message.priority) for message in popped[1:3]] == [
        (b"x", "a", 0),
        (b"x", "a", 1),
    ]
    assert ids(queue.bulk_pop(9)) == ["m2", "m5"]


def test_an_acknowledged_message_is_done_once(queues):
    queue, other = queues
    queue.push([Message("one", shard="a"), Message("two", shard="a"), Message("three", shard="b")])
    one, _ = queue.pop(2)
    assert (queue.ack(one), queue.ack(one), queue.ack("unknown")) == (True, False, False)
    assert other.ack("two")
    until(lambda: queue.get("two") is None)
    assert not queue.ack("two")
    assert other.ack_all(other.pop(5)) == 1
    assert queue.size() == 0


def test_only_popped_messages_are_acknowledged_and_leased(queues):
    """As in dyno-queues. Otherwise a message would be lost, or leased without a consumer."""
    queue, other = queues
    queue.push([Message("m", shard="a")])
    for message in ("m", queue.peek(1)[0], queue.get("m")):
        for each in (queue, other):
            assert not each.ack(message)
            assert each.ack_all([Message("m")]) == 0
            assert not each.set_unack_timeout(message, 60)
    assert queue.shard_sizes()["a"] == {"size": 1, "uacked": 0}


def test_an_acknowledged_message_names_no_later_one_with_its_id(queues):
    queue, _ = queues
    again = DynoQueue(queue.client, queue.name, shards=["a", "b"])
    queue.push([Message("m", b"old", shard="a")])
    (old,) = queue.pop(1)
    assert queue.ack(old)
    queue.push([Message("m", b"new", shard="a")])
    assert [each.ack(old) for each in (queue, again)] == [False, False]
    assert [message.payload for message in again.pop(1)] == [b"new"]
    assert (again.ack(old), again.ack("m"), queue.size()) == (False, True, 0)


def test_a_popped_message_is_found_from_a_node_without_a_copy(queues):
    queue, other = queues
    queue.client.set_queue(f"{queue.name}.a", replicate=1)
    queue.push([Message("m", shard="a"), Message("n", shard="a")])
    assert len(queue.pop(2)) == 2
    assert other.set_unack_timeout("m", 600)
    assert [other.ack("m"), other.ack_all([Message("n")])] == [True, 1]
    until(lambda: queue.shard_sizes()["a"] == {"size": 0, "uacked": 0})


def test_a_consumer_whose_message_was_popped_again_changes_no_lease(three):
    with Disque(f"{HOST}:{three[0].port}") as here, Disque(f"{HOST}:{three[1].port}", discover=False) as there:
        first, second = DynoQueue(here, "late", unack_time=1), DynoQueue(there, "late", unack_time=60)
        first.push([Message("m")])
        (early,) = first.pop(1)
        (late,) = second.pop(1, wait=10_000)
        assert not first.set_unack_timeout(early, 1)
        assert second.set_unack_timeout(late, 60)
        assert second.ack(late)


def test_a_message_that_was_pushed_again_can_be_delayed(queues):
    queue, other = queues
    queue.push([Message("m", shard="a")])
    queue.pop(1)
    other.push([Message("m", timeout=60, shard="a")])
    assert queue.set_timeout("m", 0)
    assert ids(queue.pop(1, wait=2_000)) == ["m"]


def test_shards_are_taken_in_turns_and_popped_alone(queues):
    queue, other = queues
    queue.push([Message(f"m{number}") for number in range(10)])
    assert queue.shard_sizes() == {"a": {"size": 5, "uacked": 0}, "b": {"size": 5, "uacked": 0}}
    assert len(queue.pop(9)) == 5
    assert queue.shard_sizes()["a"] == {"size": 0, "uacked": 5}
    assert queue.process_unacks() == 5
    assert ids(queue.unsafe_peek_all_shards(9)) == ids(other.peek(9))
    assert len(queue.unsafe_pop_all_shards(3)) == 3
    rest = other.unsafe_bulk_pop(9)
    while len(rest) < 2:
        rest += other.unsafe_bulk_pop(9, wait=2_000)
    assert len(set(ids(rest))) == 2


def test_a_pushed_id_takes_the_place_of_the_older_message(queues):
    queue, _ = queues
    queue.push([Message("same", b"old")])
    assert queue.push([Message("same", b"new")]) == ["same"]
    assert queue.size() == 1
    assert queue.get("same").payload == b"new"


def test_ensure_adds_a_message_that_no_queue_has(queues):
    queue, other = queues
    assert [queue.ensure(Message("m")), other.ensure(Message("m"))] == [True, False]
    popped = queue.unsafe_pop_with_msg_id_all_shards("m")
    assert other.ensure(Message("m")) is False
    queue.ack(popped)
    assert other.ensure(Message("m")) is True


def test_many_callers_of_ensure_leave_one_message(queues):
    queue, other = queues
    threads = [threading.Thread(target=each.ensure, args=(Message("m"),)) for each in (queue, other) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert queue.size() == 1


def test_a_message_is_popped_by_its_id(queues):
    queue, other = queues
    queue.push([Message("x", shard="b"), Message("y", shard="a"), Message("z", shard="a")])
    assert queue.pop_with_msg_id("x") is None
    assert queue.pop_with_msg_id("z").id == "z"
    assert queue.unsafe_pop_with_msg_id_all_shards("x").shard == "b"
    assert ids(queue.peek(9)) == ["y"]
    assert other.get("x").id == "x"


def test_a_message_that_another_node_has_just_taken_is_popped_by_its_id(queues):
    """Spec I7: it rests there for longer than a short look."""
    queue, other = queues
    other.unsafe_pop_all_shards(1)
    queue.push([Message("m", shard="a")])
    until(lambda: queue.client.qlen(f"{queue.name}.a") == 0)
    assert queue.pop_with_msg_id("m").id == "m"
    assert queue.pop_with_msg_id("m") is None


def test_leases_and_delays_can_be_changed(queues):
    queue, other = queues
    queue.push([Message("m", shard="a"), Message("late", timeout=3600, shard="a")])
    (popped,) = queue.pop(5)
    assert queue.set_unack_timeout(popped, 600)
    assert not other.set_unack_timeout("late", 5)
    assert other.set_timeout("late", 0)
    assert not other.set_timeout("nothing", 0)
    assert ids(queue.pop(5, wait=2_000)) == ["late"]


def test_a_message_that_is_not_acknowledged_comes_again(three):
    with Disque(f"{HOST}:{three[0].port}") as client:
        queue = DynoQueue(client, "again", unack_time=1)
        queue.push([Message("m", b"x")])
        queue.pop(1)
        assert ids(queue.pop(1, wait=10_000)) == ["m"]


def test_messages_are_removed_whatever_their_state(queues):
    queue, other = queues
    queue.push([Message("a", shard="a"), Message("b", shard="b"), Message("c", timeout=60)])
    queue.pop(1)
    assert [other.remove("a"), other.atomic_remove("c"), other.remove("nothing")] == [True, True, False]
    assert ids(queue.get_all_messages()) == ["b"]
    assert queue.get("c") is None
    queue.push([Message("d", shard="a")])
    assert queue.local_get("d").id == "d"
    assert queue.remove("d")
    assert queue.find_stale_messages() == []
    assert queue.clear() == 1
    assert queue.size() == 0


def test_predicates_are_functions_of_a_message(queues):
    queue, _ = queues
    queue.push([Message("a", b'{"kind": "x"}', shard="b"), Message("b", b'{"kind": "y"}', priority=9, shard="a")])

    def is_x(message):
        return b'"x"' in message.payload

    assert queue.contains_predicate(is_x)
    assert not queue.contains_predicate(is_x, local_only=True)
    assert queue.get_msg_with_predicate(is_x).id == "a"
    assert queue.pop_msg_with_predicate(is_x).id == "a"
    assert queue.pop_msg_with_predicate(is_x) is None


def test_the_asyncio_face_does_the_same(three):
    async def play():
        async with AsyncDisque(f"{HOST}:{three[2].port}") as client:
            queue = AsyncDynoQueue(client, "aio", shards=["a"], unack_time=30)
            await queue.push([Message("m", b"x"), Message("n", b"y", priority=5)])
            popped = await queue.pop(2, wait=1_000)
            assert await queue.set_unack_timeout(popped[0], 60)
            assert [await queue.ack(message) for message in popped] == [True, True]
            assert (queue.name, queue.unack_time, await queue.size()) == ("aio", 30, 0)
            queue.close()

    asyncio.run(play())


def test_many_workers_pop_every_message_once(queues):
    """The benchmark of dyno-queues, smaller: producers and consumers in threads, no duplicates."""
    queue, other = queues
    fast = DynoQueue(queue.client, queue.name, shards=["a", "b"], overwrite=False)
    fast.push([Message(f"m{number}") for number in range(600)])
    seen, deadline = [], time.monotonic() + 20

    def work(face):
        while len(seen) < 600 and time.monotonic() < deadline:
            for message in face.pop(20, wait=200):
                seen.append(message.id)
                face.ack(message)

    threads = [threading.Thread(target=work, args=(face,)) for face in (queue, other) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == sorted(f"m{number}" for number in range(600))
