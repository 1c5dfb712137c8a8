"""Waiting for the end of a job."""

from __future__ import annotations

import asyncio

import pytest

from client_node import JOB_A, Node, bulk, in_turn
from disque_py.client import AsyncDisque, Disque
from disque_py.client.flow_commands import JobEnd
from disque_py.client.results import Outcome, job_info
from disque_py.client.waiting import Waiting, outcome_of

NIL = b"$-1\r\n"


def shown(status):
    """Return the reply to SHOW for a job with this status."""
    fields = {"id": JOB_A, "state": "active", "status": status, "error": "no"}
    return b"*8\r\n" + b"".join(bulk(name) + bulk(value) for name, value in fields.items())


def info(status):
    return job_info([b"id", JOB_A.encode(), b"state", b"active", b"status", status.encode()])


@pytest.mark.parametrize(
    ("status", "is_over"),
    [("pending", False), ("running", False), ("invisible", False)]
    + [(over, True) for over in ("completed", "canceled", "errored")],
)
def test_a_job_is_over_when_it_needs_no_more_delivery(status, is_over):
    found = Waiting(JOB_A, None, 0.0).outcome(info(status))
    assert found == (Outcome(status, info(status)) if is_over else None)


def test_a_job_that_no_node_knows_is_gone():
    """This applies whether or not the wait has seen the job before."""
    waiting = Waiting(JOB_A, None, 0.0)
    waiting.outcome(info("running"))
    assert waiting.outcome(None) == Outcome("gone", info("running"))
    assert Waiting(JOB_A, None, 0.0).outcome(None) == Outcome("gone", None)


def test_the_pauses_grow_to_a_second():
    """The end of a short job is noticed soon, and a long wait costs little."""
    waiting = Waiting(JOB_A, None, 0.0)
    pauses = [waiting.pause_s(0.0) for _ in range(20)]
    assert (pauses[0], pauses[-1]) == (0.02, 1.0)
    assert pauses == sorted(pauses)


def test_a_wait_ends_with_its_time():
    """The last pause is shortened, so that the last check is at the end."""
    waiting = Waiting(JOB_A, 0.01, 5.0)
    assert waiting.pause_s(5.0) == pytest.approx(0.01)
    with pytest.raises(TimeoutError, match="is not over: unknown"):
        waiting.pause_s(5.01)


def test_a_client_looks_until_the_job_is_over():
    with Node(answers={"SHOW": in_turn(shown("pending"), shown("running"), shown("errored"))}) as node:
        with Disque(node.address) as disque:
            found = disque.wait(JOB_A, timeout=5)
        assert (found.status, found.error) == ("errored", "no")
        assert node.named("SHOW") == [[b"SHOW", JOB_A.encode(), b"CLUSTER"]] * 3


def test_an_asyncio_client_waits_too():
    async def run(address):
        async with AsyncDisque(address) as disque:
            with pytest.raises(TimeoutError):
                await disque.wait(JOB_A, timeout=0.05)

    with Node(answers={"SHOW": shown("pending")}) as node:
        asyncio.run(run(node.address))


def test_a_job_that_is_unknown_before_the_time_out_is_gone():
    """Spec RW6: every known node is linked, and none has the job."""
    end = JobEnd(JOB_A, "unknown", None, None)
    assert outcome_of(end, 1.0) == outcome_of(end, None) == Outcome("gone", None)


def test_a_job_that_is_unknown_at_the_time_out_is_not_gone():
    """Spec RW8: a node that has it may not have been asked."""
    with pytest.raises(TimeoutError, match="is not over: unknown"):
        outcome_of(JobEnd(JOB_A, "unknown", None, None), 0.0)


def test_an_answer_at_the_timeout_proves_nothing_about_an_unknown_job():
    """The node answers when the time-out of 1 ms is over, so `unknown` does not mean that the job is gone."""

    async def run(address):
        async with AsyncDisque(address) as disque:
            with pytest.raises(TimeoutError):
                await disque.wait(JOB_A, timeout=0.001)

    with Node(answers={"WAITJOB": b"*1\r\n*4\r\n" + bulk(JOB_A) + bulk("unknown") + NIL * 2}) as node:
        with Disque(node.address) as disque, pytest.raises(TimeoutError):
            disque.wait(JOB_A, timeout=0.001)
        asyncio.run(run(node.address))
