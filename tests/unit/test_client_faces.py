"""Methods made from the table of commands."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from disque_py.client import commands
from disque_py.client.address import Address
from disque_py.client.faces import AsyncCommands, BlockingCommands, PipelineCommands, Result
from disque_py.client.results import Job

A, B = Address("a", 1), Address("b", 1)

# What a client offers under another name, or by a method of its own.
ELSEWHERE = {"get_jobs", "qscan_page", "jscan_page", "jscan_info_page", "execute", "add_options", "by_node"}


class Echo(BlockingCommands):
    """Answers with the words; keeps them."""

    def __init__(self):
        self.asked = []

    def run(self, request):
        self.asked.append((request.argv, request.node))
        return len(request.argv) - 1


class AsyncEcho(AsyncCommands):
    async def run(self, request):
        await asyncio.sleep(0)
        return request.argv


class QueueEcho(PipelineCommands):
    def add(self, request):
        return request.argv


@pytest.mark.parametrize("face", [AsyncCommands, BlockingCommands])
def test_every_command_is_a_method_of_every_client(face):
    """None is forgotten in one of the tables."""
    builders = {
        name for name, value in vars(commands).items()
        if inspect.isfunction(value) and value.__module__ == commands.__name__ and not name.startswith("_")
    }  # fmt: skip
    assert builders - ELSEWHERE - set(dir(face)) == set()


def test_a_method_takes_the_arguments_of_its_command():
    """And passes them on."""
    assert asyncio.run(AsyncEcho().qpeek("q", 3)) == (b"QPEEK", b"q", b"3")
    assert QueueEcho().qpeek("q", count=3) == (b"QPEEK", b"q", b"3")


def test_a_method_shows_its_signature_and_documentation():
    """`help(client.qpeek)` is of use."""
    assert (
        str(inspect.signature(BlockingCommands.qpeek)) == "(self, /, queue: 'str | bytes', count: 'int') -> 'list[Job]'"
    )
    assert (BlockingCommands.qpeek.__doc__ or "").startswith("QPEEK")


def test_acks_of_several_nodes_become_several_commands():
    """Each goes where its jobs are known; the counts are added."""
    client = Echo()
    jobs = [Job("q", "1", b"", node=A), Job("q", "2", b"", node=B), Job("q", "3", b"", node=A)]
    assert client.ack(*jobs) == 3
    assert client.asked == [((b"ACKJOB", b"1", b"3"), A), ((b"ACKJOB", b"2"), B)]


def test_no_ids_are_allowed():
    """As for the node, which answers 0."""
    assert Echo().nack() == 0


def test_a_result_has_its_value_once_settled():
    """An error comes out as an exception."""
    result = Result[int]()
    with pytest.raises(RuntimeError):
        _ = result.value
    result.settle(5)
    assert result.value == 5
    result.settle(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        _ = result.value
