"""Methods that are derived from the commands."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from disque_py.client import commands
from disque_py.client.address import Address
from disque_py.client.faces import AsyncCommands, BlockingCommands, PipelineCommands, Result
from disque_py.client.results import Job

A, B = Address("a", 1), Address("b", 1)

# These commands have another name in clients, or a method that is not derived.
ELSEWHERE = {"qscan_page", "jscan_page", "jscan_info_page", "execute", "add_options", "by_node", "read_schedule"}


class Echo(BlockingCommands):
    """Keeps the words of each command, and answers with their number."""

    def __init__(self):
        self.asked = []

    def run(self, request):
        self.asked.append((request.argv, request.node))
        return len(request.argv) - 1

    def run_adding(self, adding):
        return [payload for bulk in adding.bulks(retry_unsafe=False) for payload, _ in bulk.chunks()]

    def iterate(self, request):
        return iter(request.argv)

    def scan(self, page):
        return iter(page(7).argv)


class AsyncEcho(AsyncCommands):
    async def run(self, request):
        await asyncio.sleep(0)
        return request.argv

    async def run_adding(self, adding):
        await asyncio.sleep(0)
        return adding.template.request.argv

    def iterate(self, request):
        return request.argv

    def scan(self, page):
        return page(7).argv


class AsyncCounter(AsyncEcho):
    async def run(self, request):
        return len(await super().run(request)) - 1


class QueueEcho(PipelineCommands):
    def add(self, request):
        return request.argv


@pytest.mark.parametrize("face", [AsyncCommands, BlockingCommands])
def test_every_command_is_a_method_of_every_client(face):
    """No table lacks a command."""
    assert set(commands.__all__) - ELSEWHERE - set(dir(face)) == set()


def test_a_method_takes_the_arguments_of_its_command():
    """The method passes its arguments on."""
    assert asyncio.run(AsyncEcho().qpeek("q", 3)) == (b"QPEEK", b"q", b"3")
    assert QueueEcho().qpeek("q", count=3) == (b"QPEEK", b"q", b"3")
    assert asyncio.run(AsyncEcho().add_jobs("r", []))[1] == b"r"
    assert AsyncEcho().jobs("r", withmeta=True)[-3:] == (b"WITHMETA", b"FROM", b"r")
    assert AsyncEcho().jscan(queue="r") == (b"JSCAN", b"7", b"QUEUE", b"r") == tuple(Echo().jscan(queue="r"))


def test_a_method_shows_its_signature_and_documentation():
    """So `help(client.qpeek)` is useful."""
    assert (
        str(inspect.signature(BlockingCommands.qstat))
        == "(self, /, queue: 'str | bytes', *, cluster: 'bool' = False, recent: 'bool' = False) -> 'QueueStat | None'"
    )
    assert (BlockingCommands.qpeek.__doc__ or "").startswith("Look at jobs of a queue")


def test_acks_of_several_nodes_become_several_commands():
    """Each command goes to the node that knows its jobs. The counts are added."""
    jobs = [Job("q", "1", b"", node=A), Job("q", "2", b"", node=B), Job("q", "3", b"", node=A)]
    client = Echo()
    assert client.ack(*jobs) == 3
    assert client.asked == [((b"ACKJOB", b"1", b"3"), A), ((b"ACKJOB", b"2"), B)]
    assert asyncio.run(AsyncCounter().ack(*jobs)) == 3


def test_a_collection_is_put_back_as_single_jobs_are():
    """The collection may be a generator."""
    client = Echo()
    assert client.nack_jobs(job_id for job_id in ("1", "2")) == 2
    assert client.asked == [((b"NACK", b"1", b"2"), None)]


def test_jobs_and_many_jobs_take_every_option():
    """The options are those of GETJOB and ADDJOB."""
    client = Echo()
    options = {"withmeta": True, "withlease": True, "lease": 5, "where": {"a": "b"}}
    words = b" ".join(client.jobs("q", count=2, idle_ms=9, **options))
    assert words == b"GETJOB TIMEOUT 9 COUNT 2 WITHMETA WITHLEASE LEASE 5 WHERE a b FROM q"
    (payload,) = client.add_jobs("q", [b"b"], priority=3, meta={"a": "b"}, key=lambda body: b"k" + body)
    assert payload.split()[2::2] == [b"ADDJOB", b"q", b"b", b"5000", *b"PRIORITY 3 META a b KEY kb".split()]


def test_no_ids_are_allowed():
    """The result is 0, as from a node."""
    assert Echo().nack() == 0


def test_a_result_has_its_value_once_settled():
    """An error is raised as an exception."""
    result = Result[int]()
    with pytest.raises(RuntimeError):
        _ = result.value
    result.settle(5)
    assert result.value == 5
    result.settle(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        _ = result.value
