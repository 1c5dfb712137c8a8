"""A tracing library sees every command of both clients, and may change it before it is sent."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest

from client_node import Node, bulk
from disque_py.client import AsyncDisque, Disque, ReplyError, Worker
from disque_py.client.tracing import async_observed, observed

ID = "D-aaaaaaaa-000000000000000000000000-05a1"


class Notes:
    """A tracing object that records its calls, and adds a word to some commands."""

    def __init__(self):
        self.lines = []

    def one(self, request):
        self.lines.append(request.argv[0].decode())
        if request.argv[0] == b"QLEN":
            return replace(request, argv=(*request.argv, b"more")), self
        return request, None if request.argv[0] == b"PING" else self

    def many(self, requests):
        self.lines.append(f"many {len(requests)}")
        return requests, self

    def adding(self, adding):
        self.lines.append(f"adding {adding.queue.decode()}")
        adding.extend(lambda own: (b"MORE", *own))
        return self

    @contextlib.contextmanager
    def processing(self, job):
        self.lines.append(f"begin {job.id[:2]}")
        yield self
        self.lines.append("end")

    def ended(self, value):
        self.lines.append(value)

    def failed(self, error):
        self.lines.append(type(error).__name__)


@pytest.fixture
def node():
    """A scripted node."""
    with Node("a", {"QLEN": b":3\r\n", "ADDJOB": bulk(ID), "QPEEK": b"-ERR no\r\n"}) as node:
        yield node


def test_the_blocking_client_reports_its_commands(node):
    with Disque(node.address) as disque:
        notes = disque.tracing = Notes()
        disque.qlen("q")
        with contextlib.suppress(ReplyError):
            disque.qpeek("q", 1)
        disque.add_jobs("q", [b"a"])
        with disque.pipeline() as pipe:
            pipe.qlen("q")
    assert notes.lines == ["QLEN", 3, "QPEEK", "ReplyError", "adding q", [ID], "many 1", [3]]
    assert node.named("QLEN")[0] == [b"QLEN", b"q", b"more"]
    assert node.named("ADDJOB")[0][-1] == b"MORE"


def test_the_asyncio_client_reports_its_commands(node):
    async def run():
        async with AsyncDisque(node.address) as disque:
            notes = disque.tracing = Notes()
            await disque.qlen("q")
            with contextlib.suppress(ReplyError):
                await disque.qpeek("q", 1)
            await disque.add_jobs("q", [b"a"])
            async with disque.pipeline() as pipe:
                pipe.qlen("q")
            return notes.lines

    assert asyncio.run(run()) == ["QLEN", 3, "QPEEK", "ReplyError", "adding q", [ID], "many 1", [3]]


def test_the_handler_of_a_worker_runs_in_the_context(node):
    lines = []

    async def run():
        async with AsyncDisque(node.address) as disque:
            notes = Notes()
            worker = Worker(disque, ["q"], lambda job: worker.stop())
            node.answers["GETJOB"] = b"*1\r\n*3\r\n" + bulk("q") + bulk(ID) + bulk("b")
            disque.tracing = notes
            await worker.serve()
            lines.extend(notes.lines)

    asyncio.run(run())
    assert [line for line in lines if line in ("begin D-", "end")][:2] == ["begin D-", "end"]


def test_work_without_an_observation_is_still_done():
    async def work():
        return 2

    assert (observed(None, lambda: 1), asyncio.run(async_observed(None, work()))) == (1, 2)
