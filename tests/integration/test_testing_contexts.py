"""testing/contexts.py: nothing is left of a node after its context."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time

import pytest

from disque_py import testing


def test_a_node_serves_and_leaves_nothing_behind():
    with testing.node() as node:
        with node.client() as disque:
            disque.add_job("q", b"body")
            assert disque.get_job("q").body == b"body"
        pid = node.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not node.folder.exists()


def test_an_error_inside_the_context_has_the_log_as_a_note():
    with pytest.raises(ValueError, match="mine") as caught, testing.node():
        raise ValueError("mine")
    assert "log of the node at 127.0.0.1:" in caught.value.__notes__[0]


def test_there_are_contexts_for_asyncio_programs():
    async def story():
        async with testing.async_node() as node, node.async_client() as disque:
            await disque.add_job("q", b"body")
            return await disque.qlen("q"), node

    length, node = asyncio.run(story())
    assert length == 1
    assert not node.folder.exists()


def test_a_task_that_is_cancelled_while_a_node_starts_leaves_none():
    async def story():
        task = asyncio.ensure_future(testing.async_cluster(2).__aenter__())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())
    listed = subprocess.run(["ps", "-A", "-o", "ppid=,args="], capture_output=True, text=True, check=True).stdout
    ours = [line for line in listed.splitlines() if line.split()[0] == str(os.getpid()) and "testing.child" in line]
    assert ours == []


def test_a_node_is_usable_after_a_short_time():
    """It takes a second on an idle machine. The limit is higher, because tests run on busy machines."""
    began = time.monotonic()
    with testing.node():
        assert time.monotonic() - began < 10
