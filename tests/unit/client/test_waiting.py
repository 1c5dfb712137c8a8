"""Waiting for the end of a job."""

from __future__ import annotations

import asyncio
import time

import pytest

from client_node import JOB_A, JOB_B, SILENCE, Node, bulk, in_turn
from disque_py.client import AsyncDisque, Disque, aio, blocking
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


def ends(*statuses):
    """Return the reply to WAITJOB for jobs with these statuses."""
    ids = (JOB_A, JOB_B)
    entries = (b"*4\r\n" + bulk(id_) + bulk(status) + NIL * 2 for id_, status in zip(ids, statuses, strict=False))
    return b"*%d\r\n" % len(statuses) + b"".join(entries)


def batch(is_done):
    """Return the reply to BATCH WAIT."""
    counts = ("total", "invisible-or-pending", "running", "completed", "canceled", "errored", "expired")
    pairs = bulk("name") + bulk("b") + bulk("closed") + b":1\r\n" + b"".join(bulk(name) + b":1\r\n" for name in counts)
    return b"*22\r\n" + pairs + bulk("done") + b":%d\r\n" % is_done + bulk("callback") + NIL


def at_end_of_slice(*answers):
    """Answer as a node does whose time-out is over: late, except for the last answer."""
    following = in_turn(*answers)

    def answer(words):
        found = following(words)
        if found is not answers[-1]:
            time.sleep(int(words[words.index(b"TIMEOUT") + 1]) / 1000)
        return found

    return answer


@pytest.fixture(params=["asyncio", "blocking"])
def ask(request, monkeypatch):
    """Call a method of a client of either kind, whose slices of a wait last 50 ms."""
    monkeypatch.setattr(aio, "SLICE_MS", 50)
    monkeypatch.setattr(blocking, "SLICE_MS", 50)

    async def run(name, args, nodes, settings):
        async with AsyncDisque(*nodes, **settings) as disque:
            return await getattr(disque, name)(*args[0], **args[1])

    def call(name, *args, nodes, settings=None, **options):
        addresses, settings = [node.address for node in nodes], settings or {}
        if request.param == "asyncio":
            return asyncio.run(run(name, (args, options), addresses, settings))
        with Disque(*addresses, **settings) as disque:
            return getattr(disque, name)(*args, **options)

    return call


@pytest.mark.parametrize("timeout", [60, None])
def test_a_wait_lasts_longer_than_its_first_slice(ask, timeout):
    """At the end of a slice, the node answers with the status that the job has then."""
    with Node(answers={"WAITJOB": at_end_of_slice(ends("running"), ends("unknown"), ends("completed"))}) as node:
        assert ask("wait", JOB_A, timeout=timeout, nodes=[node]).status == "completed"
        assert [words[-1] for words in node.named("WAITJOB")] == [b"50"] * 3


def test_a_wait_for_several_jobs_lasts_until_all_are_over(ask):
    answers = at_end_of_slice(ends("completed", "running"), ends("completed", "errored"))
    with Node(answers={"WAITJOB": answers}) as node:
        assert [end.is_over for end in ask("wait_jobs", JOB_A, JOB_B, timeout=60, nodes=[node])] == [True, True]
        assert len(node.named("WAITJOB")) == 2


def test_a_wait_for_the_first_of_several_jobs_ends_with_it(ask):
    answers = at_end_of_slice(ends("running", "running"), ends("completed", "running"))
    with Node(answers={"WAITJOB": answers}) as node:
        found = ask("wait_jobs", JOB_A, JOB_B, timeout=60, first=True, nodes=[node])
        assert [end.status for end in found] == ["completed", "running"]
        assert len(node.named("WAITJOB")) == 2


def test_a_wait_for_a_batch_lasts_longer_than_its_first_slice(ask):
    with Node(answers={"BATCH": at_end_of_slice(batch(False), batch(True))}) as node:
        assert ask("wait_batch", "b", timeout=60, nodes=[node]).done
        assert len(node.named("BATCH")) == 2


def test_the_time_of_a_wait_ends_it_between_two_slices(ask):
    with Node(answers={"WAITJOB": at_end_of_slice(ends("running"), ends("running"), ends("canceled"))}) as node:
        assert ask("wait_jobs", JOB_A, timeout=0.08, nodes=[node])[0].status == "running"
        assert len(node.named("WAITJOB")) <= 2


@pytest.mark.parametrize(("name", "job"), [("wait_jobs", JOB_A), ("wait_batch", "b")])
def test_a_wait_without_a_limit_moves_on_from_a_silent_node(ask, name, job):
    """A stopped process keeps its connections open, so only the end of a slice shows that it is silent."""
    answers = {"WAITJOB": ends("completed"), "BATCH": batch(True)}
    with Node(answers=dict.fromkeys(answers, SILENCE)) as silent, Node("b", answers, priority=2) as other:
        silent.peers, other.peers = [other], [silent]
        assert ask(name, job, nodes=[silent], settings={"timeout": 0.3})


def test_the_end_of_a_wait_does_not_count_as_a_delivery():
    """Otherwise a client that only waits for jobs would move its consumers."""
    with Node(answers={"WAITJOB": ends("completed")}) as node, Disque(node.address) as disque:
        disque._watch_feed = lambda *_: pytest.fail("a job was counted")
        assert disque.wait_jobs(JOB_A, timeout=5)[0].is_over
