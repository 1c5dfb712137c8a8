"""client/batch.py: batches as contexts. See tests/integration/test_flows.py for real nodes."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from client_node import JOB_A, Node
from disque_py.client import AsyncDisque, Disque, EmptyBatchError, ReplyError
from disque_py.client.batch import BatchJobOptions

ANSWERS = {"ADDJOB": b"+%b\r\n" % JOB_A.encode(), "BATCH": b"+OK\r\n"}


def test_the_end_of_the_block_closes_the_batch():
    with Node(answers=ANSWERS) as node, Disque(node.address) as disque:
        with disque.batch("b", callback=("q", "x")) as batch:
            batch.add_job("q", "body", delay=5)
        assert batch.job_ids == [JOB_A]
        assert node.named("ADDJOB")[0][-2:] == [b"BATCH", b"b"]
        assert node.named("BATCH") == [[b"BATCH", b"CLOSE", b"b", b"CALLBACK", b"q", b"x"]]


@pytest.mark.parametrize("fails", [True, False])
def test_a_block_that_fails_or_adds_nothing_closes_nothing(fails):
    async def run(address):
        async with AsyncDisque(address) as disque, disque.batch("b") as batch:
            if fails:
                await batch.add_job("q", "body")
                raise KeyError("x")

    with Node(answers=ANSWERS) as node:
        if fails:
            with pytest.raises(KeyError):
                asyncio.run(run(node.address))
        else:
            asyncio.run(run(node.address))
        assert node.named("BATCH") == []


NO_BATCH = ANSWERS | {"BATCH": b"-ERR no such batch\r\n"}


def test_a_batch_whose_jobs_were_all_there_before_says_so():
    """An ADDJOB whose key is known answers with the first job, which does not join the batch."""
    with Node(answers=NO_BATCH) as node, Disque(node.address) as disque:
        batch = disque.batch("b")
        with pytest.raises(EmptyBatchError, match="b has no job") as caught, batch:
            batch.add_job("q", "body", key="k")
        assert caught.value.job_ids == [JOB_A]
        with pytest.raises(EmptyBatchError):
            batch.wait(timeout=1)


def test_an_asyncio_batch_whose_jobs_were_all_there_before_says_so():
    async def run(address):
        async with AsyncDisque(address) as disque:
            batch = disque.batch("b")
            with pytest.raises(EmptyBatchError):
                async with batch:
                    await batch.add_job("q", "body", key="k")
            with pytest.raises(EmptyBatchError):
                await batch.wait(timeout=1)

    with Node(answers=NO_BATCH) as node:
        asyncio.run(run(node.address))


def test_a_batch_without_a_job_can_t_be_closed():
    with (
        Node(answers=NO_BATCH) as node,
        Disque(node.address) as disque,
        pytest.raises(ReplyError, match="no such batch"),
    ):
        disque.batch("b").close()


def test_jobs_of_a_batch_take_every_option_of_add_job():
    """Each option also has the same type."""
    options = inspect.signature(Disque.add_job).parameters
    named = {name: one.annotation for name, one in options.items() if one.kind == inspect.Parameter.KEYWORD_ONLY}
    del named["batch"]
    assert {name: one.__forward_arg__ for name, one in BatchJobOptions.__annotations__.items()} == named
