"""Ending a worker's deliveries with acks and NACKs."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from client_node import JOB_A, JOB_B, Node, bulk
from disque_py.client import AsyncDisque, Backoff, DisqueError, Job
from disque_py.client.dialect import Dialect
from disque_py.client.settling import Settler
from disque_py.client.verdict import GivenBack

FAILED = b"-OOM command not allowed\r\n"


def settle(node, act, policy=None):
    """Run `act` with a settler. Return the settler and the jobs that the node could not delay."""
    refused = []

    async def run():
        async with AsyncDisque(node.address) as client:
            await client.ping()
            settler = Settler(client, Dialect(), policy, refused.append, Random(1))
            await act(settler, client)
            return settler

    return asyncio.run(run()), refused


def job_of(client, job_id=JOB_A, attempt=1):
    return Job("q", job_id, b"", attempt=attempt, lease_ms=60_000, node=client.node)


def test_an_ack_names_its_delivery_when_half_of_the_lease_is_over():
    """Spec Y9: another worker may have the job. Quick jobs share the plain command, which is cheaper."""

    async def act(settler, client):
        settler.add_done(job_of(client), 31.0)
        settler.add_done(job_of(client, JOB_B), 29.0)
        await settler.acknowledge()
        assert settler.done == []

    with Node(answers={"ACKJOB": b":1\r\n"}) as node:
        settle(node, act)
        assert node.named("ACKJOB") == [
            [b"ACKJOB", JOB_A.encode(), b"ATTEMPT", b"1"],
            [b"ACKJOB", JOB_B.encode()],
        ]


def test_an_ack_of_an_older_delivery_is_not_an_error():
    """The reply is 0, because another worker has the job."""

    async def act(settler, client):
        settler.add_done(job_of(client), 60.0)
        await settler.acknowledge()

    with Node(answers={"ACKJOB": b":0\r\n"}) as node:
        assert settle(node, act)[0].done == []


def test_acks_and_nacks_that_a_node_refused_are_kept():
    """Acks and NACKs name their delivery, so both may be sent again."""

    async def act(settler, client):
        settler.add_done(job_of(client), 60.0)
        settler.add_given_back(GivenBack(job_of(client), "no", 0))
        for settle_them in (settler.acknowledge, settler.give_back):
            with pytest.raises(DisqueError, match="OOM"):
                await settle_them()

    with Node(answers={"ACKJOB": FAILED, "NACK": FAILED}) as node:
        settler, refused = settle(node, act)
    assert (len(settler.done), len(settler.given_back), refused) == (1, 1, [])


def test_a_job_that_a_node_cannot_delay_goes_to_the_worker():
    async def act(settler, client):
        settler.add_given_back(GivenBack(job_of(client), "no", 500))
        await settler.give_back()

    with Node(answers={"NACK": b"-ERR not while node abc runs an older version\r\n"}) as node:
        settler, refused = settle(node, act)
    assert ([back.delay_ms for back in refused], settler.given_back) == ([500], [])


def test_the_settings_of_a_queue_are_asked_for_once():
    """The settings are cached for ten seconds."""

    async def act(settler, client):
        for job_id in (JOB_A, JOB_B):
            settler.add_given_back(GivenBack(job_of(client, job_id), "no"))
            await settler.give_back()

    answers = {"NACK": b":1\r\n", "SHOW": b"$-1\r\n", "QUEUE": b"*2\r\n" + bulk("backoff") + bulk("fixed:9:9")}
    with Node(answers=answers) as node:
        settle(node, act, Backoff())
        assert len(node.named("QUEUE")) == 1
        assert [b"DELAYMS" in words for words in node.named("NACK")] == [False, False]


def test_a_fenced_worker_lets_its_job_go():
    """Another worker has the job, or its exclusive value."""

    async def act(settler, client):
        job = job_of(client)
        job.fence = 5
        settler.add_done(job, 0.0)
        await settler.acknowledge()
        settler.add_given_back(GivenBack(job, "no", 0))
        await settler.give_back()

    fenced = b"-FENCED A later claim is known\r\n"
    with Node(answers={"ACKJOB": fenced, "NACK": fenced}) as node:
        settler, refused = settle(node, act)
        assert [words[-2:] for words in node.named("ACKJOB") + node.named("NACK")] == [[b"FENCE", b"5"]] * 2
    assert (settler.done, settler.given_back, refused) == ([], [], [])
