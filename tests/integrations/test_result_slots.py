"""Result slots: results that are stored under names."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from disque_py import testing
from disque_py.integrations.result_slots import INLINE, AsyncResultSlots, ResultSlots, pack, unpack


@pytest.fixture
def slots(client, name):
    """The slots of a queue that no other test uses."""
    return ResultSlots(client, name)


def test_a_packed_result_ends_at_its_moment():
    assert unpack(pack(INLINE, b"12:3", 1_000), 999) == (INLINE, b"12:3")
    assert unpack(pack(INLINE, b"12:3", 1_000), 1_000) is None


def test_the_first_result_counts(slots):
    slots.put("task", b"one", 60_000)
    slots.put("task", b"two", 60_000)
    assert slots.get("task") == slots.wait("task", 1) == b"one"


def test_reading_a_result_that_was_not_stored_returns_none(slots):
    assert slots.get("task") is None
    assert slots.wait("task", 0.05) is None
    assert slots.get("task") is None


def test_waiting_readers_get_the_result(slots):
    found = []
    readers = [threading.Thread(target=lambda: found.append(slots.wait("task", 60))) for _ in range(3)]
    for reader in readers:
        reader.start()
    time.sleep(0.2)
    slots.put("task", b"result", 60_000)
    for reader in readers:
        reader.join()
    assert found == [b"result"] * 3


def test_a_long_result_is_a_job_of_its_own(slots, client, name):
    slots.put("task", b"x" * 200_000, 60_000)
    assert slots.get("task") == b"x" * 200_000
    assert client.qlen(f"{name}.long", status="invisible") == 1


def test_a_result_longer_than_the_nodes_take_is_a_job_of_its_own(slots, client):
    before = client.config_get("result-max-bytes")["result-max-bytes"]
    client.config_set("result-max-bytes", "100")
    try:
        slots.put("task", b"x" * 1_000, 60_000)
    finally:
        client.config_set("result-max-bytes", before)
    assert slots.get("task") == b"x" * 1_000


def test_the_time_that_nodes_keep_results_is_raised_and_never_lowered(slots, client, name):
    client.set_queue(name, result_retention=100_000)
    slots.put("one", b"", 10_000_000)
    assert client.queue_settings(name).result_retention.total_seconds() == 100_000
    slots.put("two", b"", 200_000_000)
    assert client.queue_settings(name).result_retention.total_seconds() == 200_000


def test_asyncio_has_the_same_slots(shared_node, name):
    async def main():
        async with shared_node.async_client() as client:
            slots = AsyncResultSlots(client, name)
            waiting = asyncio.create_task(slots.wait("task", 60))
            await asyncio.sleep(0.1)
            await slots.put("task", b"x" * 100_000, 7_200_000)
            return await waiting, await slots.get("task"), await slots.get("other")

    assert asyncio.run(main()) == (b"x" * 100_000, b"x" * 100_000, None)


def test_while_a_node_is_dead_a_missing_result_is_missing_at_once(name):
    """The dead node might know it, so JOBID is an error. Callers that poll must not get it."""

    async def ask(node):
        async with node.async_client(discover=False) as client:
            return await AsyncResultSlots(client, name).get("task")

    with testing.cluster(2, cluster_node_timeout=1000) as cluster:
        cluster.kill(1)
        with cluster[0].client(discover=False) as client:
            began = time.monotonic()
            assert ResultSlots(client, name).get("task") is None
            assert asyncio.run(ask(cluster[0])) is None
        assert time.monotonic() - began < 20
