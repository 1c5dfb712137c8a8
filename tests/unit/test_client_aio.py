"""AsyncDisque: commands over nodes that fail."""

from __future__ import annotations

import asyncio
import threading

import pytest
import uvloop

from client_node import HANG_UP, JOB_A, JOB_B, SILENCE, Node, bulk, closed_port, in_turn, jobs_reply, wait_until
from disque_py.client import AsyncDisque
from disque_py.client.errors import (
    AuthError,
    BatchError,
    ClientClosedError,
    ConnectionLostError,
    LeavingError,
    NoReplError,
    NotConnectedError,
    PausedError,
    ReplyTimeoutError,
)
from disque_py.client.feed import WINDOW_JOBS

LEAVING = b"-LEAVING This node is leaving the cluster\r\n"


def with_client(scenario, *nodes, **settings):
    """Run a scenario on a client of the nodes."""

    async def run():
        client = AsyncDisque(*(node if isinstance(node, str) else node.address for node in nodes), **settings)
        try:
            return await scenario(client)
        finally:
            await client.close()

    return asyncio.run(run())


def test_any_loop_will_do():
    """uvloop's transports are asyncio's in all but name; the server brings it along, so many programs have it."""
    with Node(answers={"ADDJOB": f"+{JOB_A}\r\n".encode()}) as node:

        async def scenario():
            async with AsyncDisque(node.address) as client:
                return await client.add_job("q", "hi")

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            assert runner.run(scenario()) == JOB_A


def test_a_job_is_added_fetched_and_acknowledged():
    """The round that everything is about; the body comes back decoded."""
    answers = {"ADDJOB": f"+{JOB_A}\r\n".encode(), "GETJOB": jobs_reply(JOB_A, body=b"hi"), "ACKJOB": b":1\r\n"}
    with Node(answers=answers) as node:

        async def scenario(client):
            assert await client.add_job("q", "hi", retry=5) == JOB_A
            job = await client.get_job("q")
            assert (job.id, job.value, str(job.node)) == (JOB_A, "hi", node.address)
            assert await client.ack(job) == 1

        with_client(scenario, node, decode="utf-8")
        assert node.named("ADDJOB") == [[b"ADDJOB", b"q", b"hi", b"5000", b"RETRY", b"5"]]
        assert node.named("ACKJOB") == [[b"ACKJOB", JOB_A.encode()]]


def test_commands_share_a_connection():
    """A hundred tasks are no hundred connections."""
    with Node(answers={"QLEN": b":1\r\n"}) as node:

        async def scenario(client):
            return sum(await asyncio.gather(*(client.qlen("q") for _ in range(100))))

        assert with_client(scenario, node) == 100
        assert node.greetings == 1


def test_a_waiting_getjob_holds_nobody_up():
    """It has a connection of its own, and so has an ADDJOB that waits for copies."""
    with Node(answers={"GETJOB": SILENCE, "ADDJOB": SILENCE, "QLEN": b":1\r\n"}) as node:

        async def scenario(client):
            waits = [asyncio.ensure_future(client.get_job("q")), asyncio.ensure_future(client.add_job("q", ""))]
            await asyncio.sleep(0.02)
            assert await client.qlen("q") == 1
            for task in waits:
                task.cancel()

        with_client(scenario, node)
        assert node.greetings == 3


def test_errors_have_types():
    """And leave the connection usable."""
    with Node(answers={"ADDJOB": b"-PAUSED Queue paused in input, try later\r\n"}) as node:

        async def scenario(client):
            with pytest.raises(PausedError):
                await client.add_job("q", "")
            return await client.ping()

        assert with_client(scenario, node) == "PONG"


def test_the_next_seed_is_tried_when_one_is_dead():
    """Until an available one is found (spec X4)."""
    with Node() as node:
        dead = [f"127.0.0.1:{closed_port()}" for _ in range(3)]
        assert with_client(lambda client: client.ping(), *dead, node) == "PONG"


def test_when_nobody_answers_the_patience_ends():
    """With what the last one said."""
    with pytest.raises(NotConnectedError, match="last tried"):
        with_client(lambda client: client.ping(), f"127.0.0.1:{closed_port()}", patience=0.05)


def test_a_wrong_password_is_said_at_once():
    """No node is asked twice."""
    with Node(answers={"AUTH": b"-ERR invalid password\r\n"}) as node, pytest.raises(AuthError):
        with_client(lambda client: client.connect(), node, password="x", patience=60)


def test_a_harmless_command_is_repeated_on_another_node():
    """QLEN twice is QLEN once."""
    with Node("a", {"QLEN": HANG_UP}) as bad, Node("b", {"QLEN": b":7\r\n"}) as good:
        bad.peers, good.peers = [good], [bad]
        assert with_client(lambda client: client.qlen("q"), bad) == 7


def test_an_addjob_that_may_have_been_executed_is_not_repeated():
    """The caller hears of it: nobody knows whether the job exists."""
    with Node(answers={"ADDJOB": HANG_UP}) as node:
        with pytest.raises(ConnectionLostError) as caught:
            with_client(lambda client: client.add_job("q", ""), node)
        assert caught.value.sent
        assert len(node.named("ADDJOB")) == 1


def test_unless_the_caller_allows_it():
    """Then the job may exist twice."""
    answers = {"ADDJOB": in_turn(HANG_UP, f"+{JOB_A}\r\n".encode())}
    with Node(answers=answers) as node:
        assert with_client(lambda client: client.add_job("q", "", retry_unsafe=True), node) == JOB_A
    with Node(answers={"ADDJOB": in_turn(HANG_UP, f"+{JOB_A}\r\n".encode())}) as node:
        assert with_client(lambda client: client.add_job("q", ""), node, retry_unsafe=True) == JOB_A


def test_a_node_that_leaves_sends_us_to_another():
    """It refused, so nothing happens twice."""
    with Node("a", {"ADDJOB": LEAVING}) as bad, Node("b", {"ADDJOB": f"+{JOB_B}\r\n".encode()}) as good:
        bad.peers = [good]

        async def scenario(client):
            assert await client.add_job("q", "") == JOB_B
            return str(client.node)

        assert with_client(scenario, bad) == good.address


def test_leaving_is_an_error_when_there_is_nowhere_to_go():
    """After the patience."""
    with Node(answers={"GETJOB": LEAVING}) as node, pytest.raises(LeavingError):
        with_client(lambda client: client.get_job("q"), node, patience=0.05)


def test_a_leaving_node_is_no_home_if_another_is_well():
    """HELLO says so before it refuses anything."""
    with Node("a", priority=100) as bad, Node("b") as good:
        bad.peers = [good]

        async def scenario(client):
            await client.connect()
            return str(client.node)

        assert with_client(scenario, bad) == good.address


def test_a_getjob_goes_on_on_another_node():
    """With the rest of its time."""
    with Node("a", {"GETJOB": HANG_UP}) as bad, Node("b", {"GETJOB": jobs_reply(JOB_B)}) as good:
        bad.peers = [good]
        job = with_client(lambda client: client.get_job("q", timeout_ms=5_000), bad)
        assert job.id == JOB_B
        assert 0 < int(good.named("GETJOB")[0][2]) < 5_000


def test_no_job_in_time_is_none():
    """And with NOHANG, too, over the shared connection."""
    with Node(answers={"GETJOB": b"*-1\r\n"}) as node:

        async def scenario(client):
            return await client.get_job("q", timeout_ms=10), await client.get_jobs("q", nohang=True)

        assert with_client(scenario, node) == (None, [])


def test_a_silent_node_is_given_up():
    """A wait for ever is asked in slices, so that silence can be told from an empty queue."""
    with Node(answers={"QLEN": SILENCE}) as node, pytest.raises(ReplyTimeoutError):
        with_client(lambda client: client.qlen("q"), node, timeout=0.05, patience=0)


def test_a_cancelled_getjob_gives_back_what_was_on_its_way():
    """Else the job would wait for its RETRY."""
    with Node(answers={"GETJOB": SILENCE, "NACK": b":1\r\n"}) as node:
        node.last_word = jobs_reply(JOB_A)

        async def scenario(client):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.get_job("q"), 0.05)

        with_client(scenario, node)
        assert node.named("NACK") == [[b"NACK", JOB_A.encode()]]


def test_a_cancelled_getjob_that_does_not_wait_gives_back_too():
    """It shares its connection, which goes on: the answer is awaited, and put back."""
    late = threading.Event()
    with Node(answers={"GETJOB": lambda _: late.wait(5) and jobs_reply(JOB_A), "NACK": b":1\r\n"}) as node:

        async def scenario(client):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.get_jobs("q", nohang=True), 0.05)
            late.set()
            return await client.ping()

        assert with_client(scenario, node) == "PONG"
        assert node.named("NACK") == [[b"NACK", JOB_A.encode()]]
        assert node.greetings == 1


def test_a_cancelled_pipeline_gives_back_what_its_getjobs_got():
    """What was answered before, and what was on its way; and no connection stays behind."""
    with Node(answers={"GETJOB": in_turn(jobs_reply(JOB_A), SILENCE), "NACK": b":1\r\n"}) as node:
        node.last_word = jobs_reply(JOB_B)

        async def scenario(client):
            pipe = client.pipeline()
            pipe.get_jobs("q", timeout_ms=60_000)
            pipe.get_jobs("q")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(pipe.execute(), 0.05)

        with_client(scenario, node)
        assert node.named("NACK") == [[b"NACK", JOB_A.encode(), JOB_B.encode()]]


def test_a_cancelled_pipeline_leaves_no_connection_behind():
    """The node would wait on it for ever."""
    with Node(answers={"WAIT": SILENCE}) as node:

        async def scenario(client):
            pipe = client.pipeline()
            pipe.command("WAIT", wait_ms=0)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(pipe.execute(), 0.05)
            await asyncio.sleep(0.05)
            return len(client.pool._own)

        assert with_client(scenario, node) == 0


def test_many_jobs_are_added_in_one_pipeline():
    """Ids in the order of the bodies."""
    with Node(answers={"ADDJOB": lambda words: bulk(b"D-" + words[2])}) as node:

        async def scenario(client):
            return await client.add_jobs("q", (b"%d" % number for number in range(2_000)), replicate=1)

        assert with_client(scenario, node) == [f"D-{number}" for number in range(2_000)]
        assert node.greetings == 2


def test_a_pipeline_that_breaks_tells_what_was_done():
    """The first was answered, the second may exist, the rest went to another node."""
    answers = {"ADDJOB": in_turn(b"+one\r\n", HANG_UP, b"+three\r\n")}
    with Node(answers=answers) as node:

        async def scenario(client):
            with pytest.raises(BatchError) as caught:
                await client.add_jobs("q", [b"1", b"2"])
            return caught.value.results

        first, second = with_client(scenario, node)
        assert first == "one"
        assert isinstance(second, ConnectionLostError)
        assert second.sent


def test_pipelines_mix_commands():
    """Over one connection, so that one node executes them in order."""
    with Node(answers={"QLEN": b":3\r\n", "ADDJOB": f"+{JOB_A}\r\n".encode()}) as node:

        async def scenario(client):
            async with client.pipeline() as pipe:
                first, second = pipe.add_job("q", ""), pipe.qlen("q")
            return first.value, second.value

        assert with_client(scenario, node) == (JOB_A, 3)


def test_a_restarted_node_is_found_again():
    """Idle connections that died are replaced without a word."""
    with Node(answers={"QLEN": b":1\r\n"}) as node:

        async def scenario(client):
            await client.qlen("q")
            node.close()
            await asyncio.sleep(0.05)
            node.listen()
            return await client.qlen("q")

        assert with_client(scenario, node) == 1


def test_consumers_move_to_the_node_that_feeds_them():
    """Spec X4. Producers stay where they are."""
    far = jobs_reply(*[JOB_B] * WINDOW_JOBS)
    with Node("a", {"GETJOB": far, "QLEN": b":0\r\n"}) as here, Node("b", {"GETJOB": jobs_reply(JOB_B)}) as there:
        here.peers, there.peers = [there], [here]

        async def scenario(client):
            await client.get_jobs("q", count=WINDOW_JOBS)
            await client.get_jobs("q")
            await client.qlen("q")
            return str(client.node), str(client.consumer_node)

        assert with_client(scenario, here) == (here.address, there.address)
        assert len(there.named("GETJOB")) == 1


def test_following_can_be_turned_off():
    """`follow=False`."""
    with Node("a", {"GETJOB": jobs_reply(*[JOB_B] * WINDOW_JOBS)}) as here, Node("b") as there:
        here.peers = [there]

        async def scenario(client):
            await client.get_jobs("q")
            return str(client.consumer_node)

        assert with_client(scenario, here, follow=False) == here.address


def test_jobs_come_as_an_iterator():
    """Until none came for a while."""
    with Node(answers={"GETJOB": in_turn(jobs_reply(JOB_A, JOB_A), jobs_reply(JOB_B), b"*-1\r\n")}) as node:

        async def scenario(client):
            return [job.id async for job in client.jobs("q", count=2, idle_ms=5)]

        assert with_client(scenario, node) == [JOB_A, JOB_A, JOB_B]


def test_a_closed_client_says_so():
    """Before and during a wait."""
    with Node(answers={"GETJOB": SILENCE}) as node:

        async def scenario(client):
            waits = asyncio.ensure_future(client.get_job("q"))
            await asyncio.sleep(0.05)
            await client.close()
            with pytest.raises((ConnectionLostError, ClientClosedError)):
                await waits
            with pytest.raises(ClientClosedError):
                await client.ping()

        with_client(scenario, node)


def test_a_url_makes_a_client():
    """With settings of its own."""
    with Node(answers={"AUTH": b"+OK\r\n"}) as node:

        async def scenario():
            async with AsyncDisque.from_url(f"disque://:pw@{node.address}/?timeout=2", name=None) as client:
                return client.options.timeout, await client.ping()

        assert asyncio.run(scenario()) == (2.0, "PONG")
        wait_until(lambda: [b"AUTH", b"pw"] in node.commands)


MISSING = b"-NOREPL Not enough reachable nodes for the requested replication level\r\n"
ADDED = f"+{JOB_A}\r\n".encode()


def test_missing_nodes_are_waited_for():
    """A crash of one node of three costs a producer a moment; one that asked for a number of copies is told at once."""
    with Node(answers={"ADDJOB": in_turn(MISSING, MISSING, ADDED, MISSING)}) as node:

        async def scenario(client):
            assert await client.add_job("q", "") == JOB_A
            with pytest.raises(NoReplError):
                await client.add_job("q", "", replicate=3)

        with_client(scenario, node)
        assert len(node.named("ADDJOB")) == 4


def test_missing_nodes_are_waited_for_no_longer_than_the_patience():
    """Then the node's refusal is the answer; so it is when the job may exist already."""
    late = b"-NOREPL Timeout reached before replicating to the requested number of nodes\r\n"
    with Node(answers={"ADDJOB": MISSING}) as node, pytest.raises(NoReplError):
        with_client(lambda client: client.add_job("q", ""), node, patience=0.1)
    with Node(answers={"ADDJOB": in_turn(late, ADDED)}) as node, pytest.raises(NoReplError):
        with_client(lambda client: client.add_job("q", ""), node)


def test_missing_nodes_are_waited_for_by_many_jobs_too():
    """Those that were refused are sent again."""
    with Node(answers={"ADDJOB": in_turn(MISSING, ADDED)}) as node:
        assert with_client(lambda client: client.add_jobs("q", [b"1", b"2"]), node) == [JOB_A, JOB_A]


def test_an_iterator_left_early_gives_the_rest_back():
    """With the loop, and before the client is closed."""
    with Node(answers={"GETJOB": jobs_reply(JOB_A, JOB_B), "NACK": b":1\r\n"}) as node:

        async def scenario(client):
            async for job in client.jobs("q", count=2):
                assert job.id == JOB_A
                break

        with_client(scenario, node)
        assert node.named("NACK") == [[b"NACK", JOB_B.encode()]]


def test_an_iterator_that_is_kept_gives_the_rest_back_with_its_client():
    """Or when it is closed itself; then it ends."""
    with Node(answers={"GETJOB": jobs_reply(JOB_A, JOB_B), "NACK": b":1\r\n"}) as node:

        async def scenario(client):
            stream, kept = client.jobs("q", count=2), client.jobs("q", count=2)
            assert [(await anext(stream)).id, (await anext(kept)).id] == [JOB_A, JOB_A]
            await stream.aclose()
            assert [job async for job in stream] == []
            return kept

        with_client(scenario, node)
        assert node.named("NACK") == [[b"NACK", JOB_B.encode()]] * 2


def test_an_iterator_whose_task_is_cancelled_gives_the_rest_back():
    """The job that was being worked on is its handler's."""
    with Node(answers={"GETJOB": jobs_reply(JOB_A, JOB_B), "NACK": b":1\r\n"}) as node:

        async def scenario(client):
            async def consume():
                async for _ in client.jobs("q", count=2):
                    await asyncio.sleep(60)

            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consume(), 0.1)

        with_client(scenario, node)
        assert node.named("NACK") == [[b"NACK", JOB_B.encode()]]


def test_a_silent_node_does_not_hold_up_the_end():
    """A GETJOB that was cancelled may still be answered; near nodes do so in a tenth of a second or never."""
    released = threading.Event()

    def stuck(words):
        released.wait(5)
        return HANG_UP

    with Node(answers={"GETJOB": stuck}) as node:

        async def scenario():
            client = AsyncDisque(node.address)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.get_job("q"), 0.05)
            began = asyncio.get_running_loop().time()
            await client.close()
            return asyncio.get_running_loop().time() - began

        seconds = asyncio.run(scenario())
        released.set()
        assert seconds < 0.5
