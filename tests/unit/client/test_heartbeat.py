"""Heartbeats, which extend the leases of running jobs.

Each test waits for commands that the node receives. Some tests check that a job gets no heartbeat. They run a second
job, `CLOCK`: its heartbeats show that the heartbeat task is still running.
"""

from __future__ import annotations

import asyncio
import itertools
import time

from client_node import HANG_UP, JOB_A, JOB_B, SILENCE, Node, in_turn
from disque_py.client import AsyncDisque, Job
from disque_py.client.address import parse_address
from disque_py.client.errors import StaleError
from disque_py.client.heartbeat import Heartbeat

CANCELED = b"-CANCELED The job was canceled\r\n"
STALE = b"-STALE A later delivery of the job is known\r\n"
UNKNOWN = b"-NOJOB Job not known\r\n"
ONCE = "D-aaaaaaaa-" + "z" * 24 + "-05a0"
CLOCK = "D-aaaaaaaa-" + "c" * 24 + "-05a1"
PATIENCE_S = 30


def working(node, job_id):
    """Return the WORKING commands for a job that the node received."""
    return [words for words in node.named("WORKING") if words[1] == job_id.encode()]


def ticks(node):
    """Return a condition that is true when the clock's lease has been extended twice since the call."""
    count = len(working(node, CLOCK)) + 2
    return lambda *_: len(working(node, CLOCK)) >= count


def with_clock(answer):
    """Answer WORKING for the clock with a RETRY of one second, and for every other job with this answer."""
    return lambda words: b":1\r\n" if words[1] == CLOCK.encode() else answer(words) if callable(answer) else answer


async def come(condition):
    """Wait for a condition."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


def beat(node, until, *jobs, ended=(), **settings):
    """Run a heartbeat of jobs until `until(lost, canceled)`.

    `ended` are jobs, or ids, that end at the start. Return (id, type of error) of lost jobs, and canceled ids.
    """

    async def run():
        lost, canceled = [], []
        async with AsyncDisque(node.address) as client:
            heartbeat = Heartbeat(
                client,
                0.0,
                lambda job, error: lost.append((job.id, type(error).__name__)),
                on_canceled=lambda job: canceled.append(job.id),
                **settings,
            )
            now = asyncio.get_running_loop().time()
            for job in jobs:
                found = job if isinstance(job, Job) else Job("q", job, b"")
                found.node = client.node
                heartbeat.started(found, now)
            for job_id in ended:
                heartbeat.ended(job_id if isinstance(job_id, Job) else Job("q", job_id, b""))
            task = asyncio.ensure_future(heartbeat.beat_for_ever())
            await come(lambda: until(lost, canceled))
            task.cancel()
        return lost, canceled

    return asyncio.run(run())


def test_the_lease_of_a_running_job_is_extended_at_half_of_its_retry():
    """RETRY is 1 s, known from the first reply. A second WORKING follows half a second later."""
    moments = []

    def answer(words):
        moments.append(time.monotonic())
        return b":1\r\n"

    with Node(answers={"WORKING": answer}) as node:
        assert beat(node, lambda *_: len(moments) == 2, JOB_A) == ([], [])
        assert moments[1] - moments[0] > 0.4


def test_a_long_retry_needs_few_heartbeats():
    """The reply to the first one gives the long RETRY."""
    with Node(answers={"WORKING": with_clock(b":300\r\n")}) as node:
        beat(node, ticks(node), JOB_A, CLOCK)
        assert len(working(node, JOB_A)) == 1


def test_a_job_that_ended_gets_no_heartbeat():
    """A job that is delivered only once gets none either."""
    with Node(answers={"WORKING": with_clock(b":1\r\n")}) as node:
        beat(node, ticks(node), JOB_A, ONCE, CLOCK, ended=[JOB_A])
        assert working(node, JOB_A) == working(node, ONCE) == []


def test_a_job_past_half_of_its_ttl_is_reported_once():
    """It continues to run, but another worker may get it."""
    with Node(answers={"WORKING": with_clock(b"-TOOLATE Half of job TTL already elapsed\r\n")}) as node:
        assert beat(node, ticks(node), JOB_A, CLOCK)[0] == [(JOB_A, "TooLateError")]
        assert len(working(node, JOB_A)) == 1


def test_if_a_job_is_unknown_its_creator_is_asked():
    """The node that delivered it may have handed it over, or restarted."""
    with Node("a", {"WORKING": UNKNOWN}) as node, Node("b", {"WORKING": b":1\r\n"}) as maker:
        node.peers = [maker]
        assert beat(node, lambda *_: len(maker.named("WORKING")) == 2, JOB_B) == ([], [])
        assert maker.named("WORKING") == [[b"WORKING", JOB_B.encode()]] * 2


def test_if_the_creator_is_gone_another_node_with_a_copy_is_asked():
    """The job is lost only if no node knows it."""
    with Node("c", {"WORKING": UNKNOWN}) as node, Node("d", {"WORKING": b":1\r\n"}) as holder:
        node.peers = [holder]
        assert beat(node, lambda *_: len(holder.named("WORKING")) == 2, JOB_A) == ([], [])
        assert holder.named("WORKING") == [[b"WORKING", JOB_A.encode()]] * 2
    with Node("c", {"WORKING": UNKNOWN}) as node, Node("d", {"WORKING": UNKNOWN}) as other:
        node.peers = [other]
        assert beat(node, lambda lost, _: lost, JOB_A) == ([(JOB_A, "NoJobError")], [])


def test_other_errors_do_not_end_the_heartbeat_of_a_job():
    """The client soon tries again."""
    answers = itertools.chain([b"-MISCONF no\r\n"], itertools.repeat(b":300\r\n"))
    with Node(answers={"WORKING": lambda _: next(answers)}) as node:
        assert beat(node, lambda *_: len(node.named("WORKING")) == 2, JOB_A) == ([], [])


def test_a_silent_node_delays_only_its_own_jobs():
    """Otherwise other jobs would be delivered again while they run."""

    async def run():
        async with AsyncDisque(node.address) as client:
            heartbeat = Heartbeat(client, 0.0, lambda job, error: None)
            heartbeat.started(Job("q", JOB_A, b"", node=parse_address(silent.address)), 0.0)
            heartbeat.started(Job("q", JOB_B, b"", node=client.node), 0.0)
            task = asyncio.ensure_future(heartbeat.beat_for_ever())
            await come(lambda: silent.named("WORKING") and len(node.named("WORKING")) >= 2)
            task.cancel()

    with Node("a", {"WORKING": SILENCE}) as silent, Node("b", {"WORKING": b":1\r\n"}) as node:
        node.peers = [silent]
        asyncio.run(run())


def test_if_a_node_is_silent_another_one_extends_the_lease_in_time():
    """The client would wait five seconds for the silent node, and the lease lasts 1.2 seconds."""
    with Node("a", {"WORKING": SILENCE}) as silent, Node("c", {"WORKING": b":2\r\n"}) as holder:
        silent.peers = [holder]
        began = time.monotonic()
        job = Job("q", JOB_A, b"", attempt=1, lease_ms=1200)
        assert beat(silent, lambda *_: len(holder.named("WORKING")) == 2, job) == ([], [])
        assert time.monotonic() - began < 4
        assert holder.named("WORKING")[0] == [b"WORKING", JOB_A.encode(), b"ATTEMPT", b"1"]


def test_the_reply_to_the_first_heartbeat_says_how_long_to_wait_for_a_silent_node():
    """An older node does not send the length of the lease with the job."""
    with Node("a", {"WORKING": in_turn(b":1\r\n", SILENCE)}) as silent, Node("c", {"WORKING": b":1\r\n"}) as holder:
        silent.peers = [holder]
        began = time.monotonic()
        assert beat(silent, lambda *_: holder.named("WORKING"), JOB_A) == ([], [])
        assert time.monotonic() - began < 4


def test_a_silent_node_does_not_lose_a_job_that_the_others_do_not_know():
    """The job may be in good order there, so the next attempt follows."""
    with Node("a", {"WORKING": SILENCE}) as silent, Node("c", {"WORKING": UNKNOWN}) as other:
        silent.peers = [other]
        job = Job("q", JOB_A, b"", attempt=1, lease_ms=600)
        assert beat(silent, lambda *_: len(other.named("WORKING")) == 2, job) == ([], [])


def test_the_leases_of_ten_jobs_are_extended_together():
    """No job waits for the reply to another."""
    ids = [f"D-aaaaaaaa-{number:024d}-05a1" for number in range(10)]
    with Node(answers={"WORKING": in_turn(*[b":300\r\n"] * 10)}) as node:
        beat(node, lambda *_: len(node.named("WORKING")) == 10, *ids)
        assert sorted(words[1].decode() for words in node.named("WORKING")) == ids


def test_a_heartbeat_in_flight_ends_with_its_job():
    """A repeated WORKING must not arrive after the job's NACK."""

    async def run():
        async with AsyncDisque(node.address) as client:
            job = Job("q", JOB_A, b"", node=client.node)
            heartbeat = Heartbeat(client, 0.0, lambda job, error: None)
            heartbeat.started(job, 0.0)
            heartbeat.started(Job("q", CLOCK, b"", node=client.node), 0.0)
            task = asyncio.ensure_future(heartbeat.beat_for_ever())
            await come(lambda: working(node, JOB_A))
            heartbeat.ended(job)
            await come(ticks(node))  # Any WORKING that was sent before has arrived now.
            count = len(working(node, JOB_A))
            await come(ticks(node))
            task.cancel()
            return count

    with Node(answers={"WORKING": with_clock(HANG_UP)}) as node:
        assert asyncio.run(run()) == len(working(node, JOB_A))


def numbered():
    """Return a job whose delivery has a number."""
    return Job("q", JOB_A, b"", attempt=2, lease_ms=60_000)


def test_a_heartbeat_names_its_delivery():
    """Spec Y9: a heartbeat with a number can't take the job from the next worker."""
    with Node(answers={"WORKING": STALE}) as node:
        assert beat(node, lambda lost, _: lost, numbered()) == ([(JOB_A, StaleError.__name__)], [])
        assert node.named("WORKING") == [[b"WORKING", JOB_A.encode(), b"ATTEMPT", b"2"]]


def test_the_end_of_a_lost_delivery_leaves_the_heartbeat_of_the_next_one():
    """After its lease was lost, a job may come to the same worker again while its first handler still runs."""
    first = Job("q", JOB_A, b"", attempt=1, lease_ms=60_000)
    with Node(answers={"WORKING": with_clock(b":60\r\n")}) as node:
        beat(node, ticks(node), first, numbered(), CLOCK, ended=(first,))
        assert working(node, JOB_A) == [[b"WORKING", JOB_A.encode(), b"ATTEMPT", b"2"]]


def test_a_cancellation_is_heard_once():
    with Node(answers={"WORKING": with_clock(CANCELED)}) as node:
        assert beat(node, ticks(node), numbered(), CLOCK) == ([], [JOB_A])
        assert len(working(node, JOB_A)) == 1


def test_a_long_lease_is_extended_early_to_hear_of_a_cancellation():
    with Node(answers={"WORKING": b":60\r\n"}) as node:
        beat(node, lambda *_: len(node.named("WORKING")) >= 2, numbered(), check_s=0.2)


def test_a_node_that_knows_no_attempt_gets_the_plain_command():
    """It gets heartbeats only for the lease, because such a node cancels no jobs."""
    refuse = lambda words: b"-ERR syntax error\r\n" if b"ATTEMPT" in words else b":60\r\n"  # noqa: E731
    with Node(answers={"WORKING": with_clock(refuse)}) as node:
        assert beat(node, ticks(node), numbered(), CLOCK, check_s=0.1) == ([], [])
        assert [len(words) for words in working(node, JOB_A)] == [4, 2]
