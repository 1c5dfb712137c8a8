"""Clients and workers against real nodes: commands that a node refuses, and handlers that end in unusual ways."""

from __future__ import annotations

import asyncio

import pytest

from disque_py.client import AsyncDisque, BatchError, Disque, ReplyError

TOO_LONG = b"x" * 2_000_000


@pytest.fixture
def small(make_server):
    """A node whose longest body is a megabyte."""
    return make_server("--proto-max-bulk-len", "1mb").start()


def test_a_body_that_is_too_long_fails_alone_in_add_jobs(small):
    """The node has read no later command, so the client sends these again."""
    with Disque(f"127.0.0.1:{small.port}") as client:
        with pytest.raises(BatchError) as caught:
            client.add_jobs("q", [b"a", TOO_LONG, b"c", TOO_LONG, b"e"])
        refused = [place for place, result in enumerate(caught.value.results) if isinstance(result, ReplyError)]
        assert refused == [1, 3]
        assert sorted(job.body for job in client.get_jobs("q", count=5, nohang=True)) == [b"a", b"c", b"e"]


def test_a_body_that_is_too_long_costs_other_tasks_of_an_asyncio_client_nothing(small):
    """They share its connection."""

    async def play():
        async with AsyncDisque(f"127.0.0.1:{small.port}") as client:
            bodies = [b"a", TOO_LONG, *(b"%d" % number for number in range(20)), TOO_LONG, b"z"]
            results = await asyncio.gather(*(client.add_job("q", body) for body in bodies), return_exceptions=True)
            again = await client.add_jobs("q", [b"after"])
            assert await client.qlen("q") == len(bodies) - 2 + len(again)
            return [place for place, result in enumerate(results) if isinstance(result, Exception)]

    assert asyncio.run(play()) == [1, 22]


def test_add_jobs_of_bodies_that_are_all_too_long_ends_with_the_patience(small):
    """Each round of such a pipeline has one answer, and that is no progress."""
    with Disque(f"127.0.0.1:{small.port}", patience=1) as client:
        with pytest.raises(BatchError, match="proto-max-bulk-len") as caught:
            client.add_jobs("q", [TOO_LONG] * 50)
        assert all(isinstance(result, Exception) for result in caught.value.results)
        assert client.qlen("q") == 0
