"""Heartbeats, which extend the leases of running jobs."""

from __future__ import annotations

import asyncio
import itertools

from client_node import HANG_UP, JOB_A, JOB_B, SILENCE, Node, in_turn
from disque_py.client import AsyncDisque, Job
from disque_py.client.address import parse_address
from disque_py.client.errors import StaleError
from disque_py.client.heartbeat import Heartbeat

CANCELED = b"-CANCELED The job was canceled\r\n"
STALE = b"-STALE A later delivery of the job is known\r\n"
ONCE = "D-aaaaaaaa-" + "z" * 24 + "-05a0"


def beat(node, seconds, *ids, ended=()):
    """Run a heartbeat for a while → (id, type of error) of the jobs that were lost."""

    async def run():
        lost = []
        async with AsyncDisque(node.address) as client:
            heartbeat = Heartbeat(client, 0.0, lambda job, error: lost.append((job.id, type(error).__name__)))
            now = asyncio.get_running_loop().time()
            for job_id in ids:
                heartbeat.started(Job("q", job_id, b"", node=client.node), now)
            for job_id in ended:
                heartbeat.ended(Job("q", job_id, b""))
            task = asyncio.ensure_future(heartbeat.beat_for_ever())
            await asyncio.sleep(seconds)
            task.cancel()
        return lost

    return asyncio.run(run())


def test_the_lease_of_a_running_job_is_extended_at_half_of_its_retry():
    """RETRY 1 s, learned from the first answer: a second WORKING half a second later."""
    with Node(answers={"WORKING": b":1\r\n"}) as node:
        assert beat(node, 0.9, JOB_A) == []
        assert len(node.named("WORKING")) == 2


def test_a_long_retry_needs_few_heartbeats():
    """One tells it."""
    with Node(answers={"WORKING": b":300\r\n"}) as node:
        beat(node, 0.5, JOB_A)
        assert len(node.named("WORKING")) == 1


def test_a_job_that_ended_gets_no_heartbeat():
    """A job that is never delivered again gets none either."""
    with Node(answers={"WORKING": b":1\r\n"}) as node:
        beat(node, 0.3, JOB_A, ONCE, ended=[JOB_A])
        assert node.named("WORKING") == []


def test_a_job_past_half_of_its_ttl_is_reported_once():
    """It goes on running, but another worker may get it."""
    with Node(answers={"WORKING": b"-TOOLATE Half of job TTL already elapsed\r\n"}) as node:
        assert beat(node, 0.5, JOB_A) == [(JOB_A, "TooLateError")]
        assert len(node.named("WORKING")) == 1


def test_where_a_job_is_unknown_its_maker_is_asked():
    """The node that delivered it may have handed it over or restarted."""
    with Node("a", {"WORKING": b"-NOJOB Job not known\r\n"}) as node, Node("b", {"WORKING": b":300\r\n"}) as maker:
        node.peers = [maker]
        assert beat(node, 0.3, JOB_B) == []
        assert maker.named("WORKING") == [[b"WORKING", JOB_B.encode()]]


def test_where_its_maker_is_gone_another_node_with_a_copy_is_asked():
    """The job is lost only if no node knows it."""
    unknown = {"WORKING": b"-NOJOB Job not known\r\n"}
    with Node("c", unknown) as node, Node("d", {"WORKING": b":300\r\n"}) as holder:
        node.peers = [holder]
        assert beat(node, 0.3, JOB_A) == []
        assert holder.named("WORKING") == [[b"WORKING", JOB_A.encode()]]
    with Node("c", unknown) as node, Node("d", unknown) as other:
        node.peers = [other]
        assert beat(node, 0.5, JOB_A) == [(JOB_A, "NoJobError")]


def test_other_errors_do_not_end_the_heartbeat_of_a_job():
    """It is tried again, soon."""
    answers = itertools.chain([b"-MISCONF no\r\n"], itertools.repeat(b":300\r\n"))
    with Node(answers={"WORKING": lambda _: next(answers)}) as node:
        assert beat(node, 0.9, JOB_A) == []
        assert len(node.named("WORKING")) == 2


def test_a_silent_node_delays_only_its_own_jobs():
    """The others would be delivered again while they run."""

    async def run():
        async with AsyncDisque(node.address) as client:
            heartbeat = Heartbeat(client, 0.0, lambda job, error: None)
            heartbeat.started(Job("q", JOB_A, b"", node=parse_address(silent.address)), 0.0)
            heartbeat.started(Job("q", JOB_B, b"", node=client.node), 0.0)
            task = asyncio.ensure_future(heartbeat.beat_for_ever())
            await asyncio.sleep(0.9)
            task.cancel()

    with Node("a", {"WORKING": SILENCE}) as silent, Node("b", {"WORKING": b":1\r\n"}) as node:
        node.peers = [silent]
        asyncio.run(run())
        assert len(silent.named("WORKING")) == 1
        assert len(node.named("WORKING")) == 2


def test_the_leases_of_ten_jobs_are_extended_together():
    """None waits for another's answer."""
    ids = [f"D-aaaaaaaa-{number:024d}-05a1" for number in range(10)]
    with Node(answers={"WORKING": in_turn(*[b":300\r\n"] * 10)}) as node:
        beat(node, 0.25, *ids)
        assert sorted(words[1].decode() for words in node.named("WORKING")) == ids


def test_a_heartbeat_in_flight_ends_with_its_job():
    """A WORKING that is sent again must not come behind the job's NACK."""

    async def run():
        async with AsyncDisque(node.address) as client:
            job = Job("q", JOB_A, b"", node=client.node)
            heartbeat = Heartbeat(client, 0.0, lambda job, error: None)
            heartbeat.started(job, 0.0)
            task = asyncio.ensure_future(heartbeat.beat_for_ever())
            while not node.named("WORKING"):
                await asyncio.sleep(0.005)
            heartbeat.ended(job)
            count = len(node.named("WORKING"))
            await asyncio.sleep(0.5)
            task.cancel()
            return count

    with Node(answers={"WORKING": HANG_UP}) as node:
        assert asyncio.run(run()) == len(node.named("WORKING"))


def numbered(node, seconds, **settings):
    """Run a heartbeat of a job whose delivery has a number → the jobs that were lost, and that were canceled."""

    async def run():
        lost, canceled = [], []
        async with AsyncDisque(node.address) as client:
            heartbeat = Heartbeat(
                client, 0.0, lambda job, error: lost.append(type(error)), on_canceled=canceled.append, **settings
            )
            job = Job("q", JOB_A, b"", attempt=2, lease_ms=60_000, node=client.node)
            heartbeat.started(job, asyncio.get_running_loop().time())
            task = asyncio.ensure_future(heartbeat.beat_for_ever())
            await asyncio.sleep(seconds)
            task.cancel()
        return lost, [job.id for job in canceled]

    return asyncio.run(run())


def test_a_heartbeat_names_its_delivery():
    """Spec Y9: it can't take the job from the next worker."""
    with Node(answers={"WORKING": STALE}) as node:
        assert numbered(node, 0.5) == ([StaleError], [])
        assert node.named("WORKING") == [[b"WORKING", JOB_A.encode(), b"ATTEMPT", b"2"]]


def test_a_cancellation_is_heard_once():
    with Node(answers={"WORKING": CANCELED}) as node:
        assert numbered(node, 0.5) == ([], [JOB_A])
        assert len(node.named("WORKING")) == 1


def test_a_long_lease_is_extended_early_to_hear_of_a_cancellation():
    with Node(answers={"WORKING": b":60\r\n"}) as node:
        numbered(node, 0.9, check_s=0.2)
        assert len(node.named("WORKING")) >= 2


def test_a_node_that_knows_no_attempt_gets_the_plain_command():
    """And only for its lease: such a node cancels no job."""
    refuse = lambda words: b"-ERR syntax error\r\n" if b"ATTEMPT" in words else b":60\r\n"  # noqa: E731
    with Node(answers={"WORKING": refuse}) as node:
        assert numbered(node, 0.9, check_s=0.3) == ([], [])
        assert [len(words) for words in node.named("WORKING")] == [4, 2]
