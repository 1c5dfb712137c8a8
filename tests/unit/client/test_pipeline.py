"""Explicit pipelines."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from disque_py.client import commands
from disque_py.client.address import Address
from disque_py.client.errors import BatchError, from_reply
from disque_py.client.pipeline import AsyncPipeline, Pipeline, envelope, read_all
from disque_py.client.request import Lane
from disque_py.client.results import Job

REFUSAL = from_reply("ERR no")


def test_results_have_their_values_after_the_block():
    """Values are in the order of the commands."""
    with Pipeline(lambda requests: list(range(len(requests)))) as pipe:
        first, second = pipe.qlen("a"), pipe.qlen("b")
    assert (first.value, second.value) == (0, 1)


def test_leaving_the_block_raises_what_failed():
    """The other results are available anyway."""
    with pytest.raises(BatchError) as caught, Pipeline(lambda _: [7, REFUSAL]) as pipe:
        first, second = pipe.qlen("a"), pipe.qlen("b")
    assert caught.value.results == [7, REFUSAL]
    assert first.value == 7
    with pytest.raises(type(REFUSAL)):
        _ = second.value


def test_execute_returns_errors_in_their_places():
    """Afterwards the pipeline is empty."""
    pipe = Pipeline(lambda _: [7, REFUSAL])
    pipe.qlen("a")
    pipe.qlen("b")
    assert len(pipe) == 2
    assert pipe.execute() == [7, REFUSAL]
    assert pipe.execute() == []


def test_an_exception_in_the_block_sends_nothing():
    """An incomplete pipeline is not executed."""
    sent = []
    with pytest.raises(KeyError), Pipeline(sent.append) as pipe:
        _ = {}[pipe.qlen("a")]
    assert sent == []


def test_the_asyncio_pipeline_is_the_same():
    """The only difference is the `await`."""

    async def scenario():
        async def send(requests):
            await asyncio.sleep(0)
            return [len(request.argv) for request in requests]

        async with AsyncPipeline(send) as pipe:
            length = pipe.qlen("a")
        return length.value, await pipe.execute()

    assert asyncio.run(scenario()) == (2, [])


def test_a_pipeline_travels_as_its_heaviest_command():
    """The pipeline has the longest wait of its commands, and goes to the node that all of them name."""
    job = Job("q", "i", b"", node=Address("a", 1))
    cover = envelope([commands.ack(job), commands.working(job)])
    assert (cover.lane, cover.wait_ms, cover.node, cover.is_consumers) == (Lane.PLAIN, None, job.node, True)
    hasty = replace(commands.working(job), silence_s=0.2)
    assert envelope([hasty, replace(hasty, silence_s=0.1)]).silence_s == 0.2
    assert envelope([hasty, commands.ack(job)]).silence_s is None
    cover = envelope([commands.ack(job), commands.add_job("q", b"", timeout_ms=9), commands.get_jobs("q")])
    assert (cover.lane, cover.wait_ms, cover.node, cover.is_consumers) == (Lane.OWN, 0, None, False)


def test_a_pipeline_goes_where_one_of_its_commands_must_go():
    """Only one node knows a token. Another node would not acknowledge its jobs."""
    here, there = Address("a", 1), Address("b", 1)
    cover = envelope([commands.ack_token("t", node=here), commands.qlen("q"), commands.add_job("q", b"")])
    assert (cover.node, cover.is_pinned, cover.lane) == (here, True, Lane.ADDS)
    with pytest.raises(ValueError, match="a:1 and b:1"):
        envelope([commands.ack_token("t", node=here), commands.ack_token("u", node=there)])


def test_replies_are_read_and_errors_left_in_place():
    """Jobs of a pipeline have their node, too."""
    here = Address("a", 1)
    length, jobs, error = read_all(
        [commands.qlen("q"), commands.get_jobs("q"), commands.qlen("r")],
        [3, [[b"q", b"i", b""]], REFUSAL],
        here,
        None,
    )
    assert (length, jobs[0].node, error) == (3, here, REFUSAL)
