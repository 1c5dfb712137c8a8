"""AsyncDisque: commands over nodes that fail."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import pytest
import uvloop

from client_node import (
    AT_ONCE,
    HANG_UP,
    JOB_A,
    JOB_B,
    SILENCE,
    Node,
    bulk,
    closed_port,
    in_turn,
    jobs_reply,
    node_that_closes_its_door,
    wait_until,
)
from disque_py.client import AsyncDisque, commands
from disque_py.client.address import parse_address
from disque_py.client.errors import (
    AuthError,
    BatchError,
    ClientClosedError,
    ConnectionLostError,
    LeavingError,
    NoReplError,
    NotConnectedError,
    OutOfMemoryError,
    PausedError,
    ProtocolError,
    ReplyTimeoutError,
)
from disque_py.client.feed import WINDOW_JOBS
from disque_py.client.templates import SLAB

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


async def until(is_true):
    """Wait for a condition."""
    async with asyncio.timeout(60):
        while not is_true():
            await asyncio.sleep(0.005)


async def cancelled(work, is_sent):
    """Cancel a command as soon as the node has received it."""
    task = asyncio.ensure_future(work)
    await until(is_sent)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_the_client_runs_on_uvloop_and_on_asyncio():
    """uvloop's transports behave like asyncio's. Many programs have uvloop, because the server depends on it."""
    with Node(answers={"ADDJOB": f"+{JOB_A}\r\n".encode()}) as node:

        async def scenario():
            async with AsyncDisque(node.address) as client:
                return await client.add_job("q", "hi")

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            assert runner.run(scenario()) == JOB_A


def test_a_job_is_added_fetched_and_acknowledged():
    """This is the basic cycle of every program. The body comes back decoded."""
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
    """A hundred tasks use one connection."""
    with Node(answers={"QLEN": b":1\r\n"}) as node:

        async def scenario(client):
            return sum(await asyncio.gather(*(client.qlen("q") for _ in range(100))))

        assert with_client(scenario, node) == 100
        assert node.greetings == 1


def test_a_waiting_getjob_delays_no_other_command():
    """A waiting GETJOB has its own connection, and so does an ADDJOB that waits for copies."""
    with Node(answers={"GETJOB": SILENCE, "ADDJOB": SILENCE, "QLEN": b":1\r\n"}) as node:

        async def scenario(client):
            waits = [asyncio.ensure_future(client.get_job("q")), asyncio.ensure_future(client.add_job("q", ""))]
            async with asyncio.timeout(10):
                while node.greetings < len(waits):
                    await asyncio.sleep(0.01)
            assert await client.qlen("q") == 1
            for task in waits:
                task.cancel()

        with_client(scenario, node)
        assert node.greetings == 3


def test_errors_have_types():
    """An error reply leaves the connection usable."""
    with Node(answers={"ADDJOB": b"-PAUSED Queue paused in input, try later\r\n"}) as node:

        async def scenario(client):
            with pytest.raises(PausedError):
                await client.add_job("q", "")
            return await client.ping()

        assert with_client(scenario, node) == "PONG"


def test_the_next_seed_is_tried_when_one_is_dead():
    """The client tries seeds until it finds an available one (spec X4)."""
    with Node() as node:
        dead = [f"127.0.0.1:{closed_port()}" for _ in range(3)]
        assert with_client(lambda client: client.ping(), *dead, node) == "PONG"


def test_without_any_answer_the_patience_ends():
    """The error gives the reason of the last attempt."""
    with pytest.raises(NotConnectedError, match="last tried"):
        with_client(lambda client: client.ping(), f"127.0.0.1:{closed_port()}", patience=0.05)


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="the system does not tell what it has sent")
def test_a_long_body_may_take_longer_than_a_time_out():
    """The node is not silent: it still reads. The system takes some megabytes of the body at once."""
    with Node(answers={"ECHO": b"+heard\r\n"}, pause_s=0.02) as node:

        async def scenario(client):
            began = time.monotonic()
            assert await client.execute("ECHO", b"x" * 8_000_000) == b"heard"
            return time.monotonic() - began

        assert with_client(scenario, node, timeout=0.4) > 0.8


def test_a_long_body_to_a_node_that_does_not_read_ends_with_a_time_out():
    with Node(pause_s=2) as node, pytest.raises(ReplyTimeoutError):
        with_client(lambda client: client.execute("ECHO", b"x" * 8_000_000), node, timeout=0.3, patience=0)


def test_a_client_leaves_a_server_that_is_no_node_for_a_node():
    with Node("a", {"HELLO": b"*2\r\n$6\r\nserver\r\n$5\r\nredis\r\n"}) as redis, Node("b") as node:
        assert with_client(lambda client: client.ping(), redis, node, patience=1) == "PONG"
        with pytest.raises(NotConnectedError, match="a redis server answers here"):
            with_client(lambda client: client.ping(), redis, patience=0)


def test_a_wrong_password_is_reported_at_once():
    """The client asks no node twice."""
    with Node(answers={"AUTH": b"-ERR invalid password\r\n"}) as node, pytest.raises(AuthError):
        with_client(lambda client: client.connect(), node, password="x", patience=60)


def test_a_command_for_one_node_is_told_that_this_node_refuses_the_login():
    """Another node accepts it, so the client itself is logged in."""
    with Node("a", {"AUTH": b"+OK\r\n"}) as node, Node("b", {"AUTH": b"-WRONGPASS no\r\n"}) as refusing:

        async def scenario(client):
            await client.ping()
            with pytest.raises(AuthError, match="WRONGPASS"):
                await client.execute("QLEN", "q", node=parse_address(refusing.address))
            pipe = client.pipeline()
            pipe.command("QLEN", "q", node=parse_address(refusing.address))
            with pytest.raises(AuthError, match="WRONGPASS"):
                await pipe.execute()
            return await client.ping()

        assert with_client(scenario, node, password="x") == "PONG"


def test_a_login_that_is_refused_in_the_middle_of_many_jobs_leaves_the_ids_of_the_others():
    """The first part of the jobs was added, then the node began to ask for a password."""
    with node_that_closes_its_door() as node, pytest.raises(BatchError) as caught:
        with_client(lambda client: client.add_jobs("q", [b"first"] * SLAB + [b"last"], retry_unsafe=True), node)
    assert caught.value.results[: SLAB - 1] == ["D-1"] * (SLAB - 1)
    assert all(isinstance(result, AuthError) for result in caught.value.results[SLAB - 1 :])


def test_a_node_that_answers_garbage_is_left_for_another_one():
    """For example behind a proxy. An ADDJOB may have been executed, so it is not sent again."""
    garbage = {"QLEN": b"HTTP/1.1 502 Bad Gateway\r\n", "ADDJOB": b"HTTP/1.1 502 Bad Gateway\r\n"}
    with Node("a", garbage) as bad, Node("b", {"QLEN": b":7\r\n", "ADDJOB": b"+D-1\r\n"}) as good:
        bad.peers = [good]
        assert with_client(lambda client: client.qlen("q"), bad) == 7
        with pytest.raises(ProtocolError, match=f"^{bad.address}: ") as caught:
            with_client(lambda client: client.add_job("q", "x"), bad)
        assert caught.value.sent


def test_a_harmless_command_is_repeated_on_another_node():
    """A QLEN that runs twice does no harm."""
    with Node("a", {"QLEN": HANG_UP}) as bad, Node("b", {"QLEN": b":7\r\n"}) as good:
        bad.peers, good.peers = [good], [bad]
        assert with_client(lambda client: client.qlen("q"), bad) == 7


def test_an_addjob_that_may_have_been_executed_is_not_repeated():
    """The caller gets the error, because the job may or may not exist."""
    with Node(answers={"ADDJOB": HANG_UP}) as node:
        with pytest.raises(ConnectionLostError) as caught:
            with_client(lambda client: client.add_job("q", ""), node)
        assert caught.value.sent
        assert len(node.named("ADDJOB")) == 1


def test_an_addjob_is_repeated_if_the_caller_allows_it():
    """In that case the job may exist twice."""
    answers = {"ADDJOB": in_turn(HANG_UP, f"+{JOB_A}\r\n".encode())}
    with Node(answers=answers) as node:
        assert with_client(lambda client: client.add_job("q", "", retry_unsafe=True), node) == JOB_A
    with Node(answers={"ADDJOB": in_turn(HANG_UP, f"+{JOB_A}\r\n".encode())}) as node:
        assert with_client(lambda client: client.add_job("q", ""), node, retry_unsafe=True) == JOB_A


def test_a_refusal_of_a_leaving_node_moves_the_client_to_another_node():
    """The node refused the command, so nothing happens twice."""
    with Node("a", {"ADDJOB": LEAVING}) as bad, Node("b", {"ADDJOB": f"+{JOB_B}\r\n".encode()}) as good:
        bad.peers = [good]

        async def scenario(client):
            assert await client.add_job("q", "") == JOB_B
            return str(client.node)

        assert with_client(scenario, bad) == good.address


@pytest.mark.parametrize("refusal", [b"-MISCONF Errors writing to the AOF file\r\n", b"-OOM full\r\n"])
def test_a_command_that_a_full_node_refuses_goes_to_another_node(refusal):
    """docs/protocol.md advises clients to do so. GETJOB gets MISCONF if it would deliver a job of RETRY 0."""
    answers = {"ADDJOB": f"+{JOB_B}\r\n".encode(), "GETJOB": jobs_reply(JOB_B)}
    with Node("a", dict.fromkeys(answers, refusal)) as full, Node("b", answers) as good:
        full.peers = [good]

        async def fetch(client):
            return (await client.get_job("q")).id

        assert with_client(lambda client: client.add_job("q", ""), full) == JOB_B
        assert with_client(fetch, full) == JOB_B
        assert with_client(lambda client: client.add_jobs("q", [b"1", b"2"]), full) == [JOB_B] * 2


def test_if_all_nodes_are_full_each_is_asked_once():
    """The state may last for hours, so the client does not wait for its end."""
    with Node("a", {"ADDJOB": b"-OOM full\r\n"}) as node, Node("b", {"ADDJOB": b"-OOM full\r\n"}) as other:

        async def scenario(client):
            for _ in range(2):
                with pytest.raises(OutOfMemoryError):
                    await client.add_job("q", "")
            with pytest.raises(BatchError, match="2 of 2"):
                await client.add_jobs("q", [b"1", b"2"])

        with_client(scenario, node, other)
        assert len(node.named("ADDJOB") + other.named("ADDJOB")) == 2 + 1 + 2


def test_leaving_is_an_error_without_another_node():
    """The error is raised when the patience ends."""
    with Node(answers={"GETJOB": LEAVING}) as node, pytest.raises(LeavingError):
        with_client(lambda client: client.get_job("q"), node, patience=0.05)


def test_a_leaving_node_is_not_chosen_as_home_if_another_works():
    """HELLO reports it before the node refuses a command."""
    with Node("a", priority=100) as bad, Node("b") as good:
        bad.peers = [good]

        async def scenario(client):
            await client.connect()
            return str(client.node)

        assert with_client(scenario, bad) == good.address


def test_a_getjob_continues_on_another_node():
    """The new node waits for the rest of the time."""
    with Node("a", {"GETJOB": HANG_UP}) as bad, Node("b", {"GETJOB": jobs_reply(JOB_B)}) as good:
        bad.peers = [good]
        job = with_client(lambda client: client.get_job("q", timeout_ms=5_000), bad)
        assert job.id == JOB_B
        assert 0 < int(good.named("GETJOB")[0][2]) < 5_000


def test_commands_leave_along_with_a_getjob():
    """They go first, over the same connection."""

    async def scenario(client):
        request = commands.get_jobs("q")
        request.along = lambda connection: connection.submit(commands.ack(JOB_B).payload(), 1, 5)
        return [job.id for job in await client.run(request)]

    with Node(answers={"GETJOB": jobs_reply(JOB_A), "ACKJOB": b":1\r\n"}) as node:
        assert with_client(scenario, node) == [JOB_A]
        assert [words[0] for words in node.commands] == [b"ACKJOB", b"GETJOB"]
        assert node.greetings == 2  # The search for a home used the other connection.


def test_a_fetch_without_a_job_in_time_returns_none():
    """With NOHANG the result is empty too, over the shared connection."""
    with Node(answers={"GETJOB": b"*-1\r\n"}) as node:

        async def scenario(client):
            return await client.get_job("q", timeout_ms=10), await client.get_jobs("q", nohang=True)

        assert with_client(scenario, node) == (None, [])


def test_the_connection_to_a_silent_node_is_closed():
    """A wait without a limit is split into slices, so a silent node differs from an empty queue."""
    with Node(answers={"QLEN": SILENCE}) as node, pytest.raises(ReplyTimeoutError):
        with_client(lambda client: client.qlen("q"), node, timeout=0.05, patience=0)


def test_a_cancelled_getjob_puts_back_jobs_in_flight():
    """Otherwise the job would wait for its RETRY."""
    with Node(answers={"GETJOB": SILENCE, "NACK": b":1\r\n"}) as node:
        node.last_word = jobs_reply(JOB_A)

        async def scenario(client):
            await cancelled(client.get_job("q"), lambda: node.named("GETJOB"))
            await until(lambda: node.named("NACK"))

        with_client(scenario, node)
        assert node.named("NACK") == [[b"NACK", JOB_A.encode(), *AT_ONCE]]


def test_a_cancelled_getjob_without_a_wait_puts_jobs_back_too():
    """Its connection is shared and stays open. The client awaits the answer and puts its jobs back."""
    late = threading.Event()
    with Node(answers={"GETJOB": lambda _: late.wait(60) and jobs_reply(JOB_A), "NACK": b":1\r\n"}) as node:

        async def scenario(client):
            await cancelled(client.get_jobs("q", nohang=True), lambda: node.named("GETJOB"))
            late.set()
            await until(lambda: node.named("NACK"))
            return await client.ping()

        assert with_client(scenario, node) == "PONG"
        assert node.named("NACK") == [[b"NACK", JOB_A.encode(), *AT_ONCE]]
        assert node.greetings == 1


def test_a_cancelled_getjob_with_a_token_puts_nothing_back():
    """Its repetition may have the same jobs already."""
    late = threading.Event()
    with Node(answers={"GETJOB": lambda _: late.wait(60) and jobs_reply(JOB_A), "NACK": b":1\r\n"}) as node:

        async def scenario(client):
            await cancelled(client.get_jobs("q", nohang=True, token="t"), lambda: node.named("GETJOB"))
            late.set()
            return await client.ping()

        assert with_client(scenario, node) == "PONG"
        assert node.named("NACK") == []


def test_a_cancelled_pipeline_puts_back_the_jobs_of_its_getjobs():
    """Jobs of earlier answers and jobs in flight are put back, and no connection stays open."""
    with Node(answers={"GETJOB": in_turn(jobs_reply(JOB_A), SILENCE), "NACK": b":1\r\n"}) as node:
        node.last_word = jobs_reply(JOB_B)

        async def scenario(client):
            pipe = client.pipeline()
            pipe.get_jobs("q", timeout_ms=60_000)
            pipe.get_jobs("q")
            await cancelled(pipe.execute(), lambda: len(node.named("GETJOB")) == 2)
            await until(lambda: node.named("NACK"))

        with_client(scenario, node)
        assert node.named("NACK") == [[b"NACK", JOB_A.encode(), JOB_B.encode(), *AT_ONCE]]


def test_a_cancelled_pipeline_leaves_no_connection_behind():
    """Otherwise the node would wait on it forever."""
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
    """The ids are in the order of the bodies."""
    with Node(answers={"ADDJOB": lambda words: bulk(b"D-" + words[2])}) as node:

        async def scenario(client):
            return await client.add_jobs("q", (b"%d" % number for number in range(2_000)), replicate=1)

        assert with_client(scenario, node) == [f"D-{number}" for number in range(2_000)]
        assert node.greetings == 2


def test_a_broken_pipeline_reports_the_outcome_of_each_command():
    """The first command was answered, and the second may have been executed."""
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
    """All commands use one connection, so one node executes them in order."""
    with Node(answers={"QLEN": b":3\r\n", "ADDJOB": f"+{JOB_A}\r\n".encode()}) as node:

        async def scenario(client):
            async with client.pipeline() as pipe:
                first, second = pipe.add_job("q", ""), pipe.qlen("q")
            return first.value, second.value

        assert with_client(scenario, node) == (JOB_A, 3)


def test_a_restarted_node_is_found_again():
    """Idle connections that died are replaced without an error."""
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


def test_moving_to_the_feeding_node_can_be_turned_off():
    """The option is `follow=False`."""
    with Node("a", {"GETJOB": jobs_reply(*[JOB_B] * WINDOW_JOBS)}) as here, Node("b") as there:
        here.peers = [there]

        async def scenario(client):
            await client.get_jobs("q")
            return str(client.consumer_node)

        assert with_client(scenario, here, follow=False) == here.address


def test_jobs_come_as_an_iterator():
    """The iterator ends when no job has come for a while."""
    with Node(answers={"GETJOB": in_turn(jobs_reply(JOB_A, JOB_A), jobs_reply(JOB_B), b"*-1\r\n")}) as node:

        async def scenario(client):
            return [job.id async for job in client.jobs("q", count=2, idle_ms=5)]

        assert with_client(scenario, node) == [JOB_A, JOB_A, JOB_B]


def test_a_closed_client_raises_client_closed_error():
    """This applies before and during a wait."""
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


def test_a_client_says_that_it_belongs_to_another_event_loop():
    """For example, a client of a module that calls `asyncio.run` twice. No command leaves."""
    with Node(answers={"ADDJOB": b"+D-1\r\n"}) as node:
        client = AsyncDisque(node.address)

        async def add():
            await client.add_job("q", "")

        with asyncio.Runner() as runner:
            runner.run(add())
            other = asyncio.new_event_loop()
            with pytest.raises(RuntimeError, match="another event loop"):
                other.run_until_complete(add())
            runner.run(client.close())
            with pytest.raises(ClientClosedError):
                other.run_until_complete(add())
            other.close()
        assert len(node.named("ADDJOB")) == 1


def test_a_url_makes_a_client():
    """Keyword arguments override the URL."""
    with Node(answers={"AUTH": b"+OK\r\n"}) as node:

        async def scenario():
            async with AsyncDisque.from_url(f"disque://:pw@{node.address}/?timeout=2", name=None) as client:
                return client.options.timeout, await client.ping()

        assert asyncio.run(scenario()) == (2.0, "PONG")
        wait_until(lambda: [b"AUTH", b"pw"] in node.commands)


MISSING = b"-NOREPL Not enough reachable nodes for the requested replication level\r\n"
ADDED = f"+{JOB_A}\r\n".encode()


def test_an_addjob_without_replicate_waits_for_missing_nodes():
    """A crash of one of three nodes delays a producer briefly. With REPLICATE the refusal is raised immediately."""
    with Node(answers={"ADDJOB": in_turn(MISSING, MISSING, ADDED, MISSING)}) as node:

        async def scenario(client):
            assert await client.add_job("q", "") == JOB_A
            with pytest.raises(NoReplError):
                await client.add_job("q", "", replicate=3)

            assert client.pool.cluster.is_good(client.node)

        with_client(scenario, node)
        assert len(node.named("ADDJOB")) == 4


def test_waiting_for_missing_nodes_ends_with_the_patience():
    """Then the node's refusal is raised. If the job may exist already, it is raised immediately."""
    late = b"-NOREPL Timeout reached before replicating to the requested number of nodes\r\n"
    with Node(answers={"ADDJOB": MISSING}) as node, pytest.raises(NoReplError):
        with_client(lambda client: client.add_job("q", ""), node, patience=0.1)
    with Node(answers={"ADDJOB": in_turn(late, ADDED)}) as node, pytest.raises(NoReplError):
        with_client(lambda client: client.add_job("q", ""), node)


def test_add_jobs_waits_for_missing_nodes_too():
    """The client sends the refused commands again."""
    with Node(answers={"ADDJOB": in_turn(MISSING, ADDED)}) as node:

        async def scenario(client):
            assert await client.add_jobs("q", [b"1", b"2"]) == [JOB_A, JOB_A]
            assert client.pool.cluster.is_good(client.node)

        with_client(scenario, node)


def test_an_iterator_that_ends_early_puts_the_remaining_jobs_back():
    """This happens when its loop is left and before the client is closed."""
    with Node(answers={"GETJOB": jobs_reply(JOB_A, JOB_B), "NACK": b":1\r\n"}) as node:

        async def scenario(client):
            async for job in client.jobs("q", count=2):
                assert job.id == JOB_A
                break

        with_client(scenario, node)
        assert node.named("NACK") == [[b"NACK", JOB_B.encode(), *AT_ONCE]]


def test_closing_the_client_puts_back_the_jobs_of_a_kept_iterator():
    """Closing the iterator itself puts them back too, and ends it."""
    with Node(answers={"GETJOB": jobs_reply(JOB_A, JOB_B), "NACK": b":1\r\n"}) as node:

        async def scenario(client):
            stream, kept = client.jobs("q", count=2), client.jobs("q", count=2)
            assert [(await anext(stream)).id, (await anext(kept)).id] == [JOB_A, JOB_A]
            await stream.aclose()
            assert [job async for job in stream] == []
            return kept

        with_client(scenario, node)
        assert node.named("NACK") == [[b"NACK", JOB_B.encode(), *AT_ONCE]] * 2


def test_cancelling_the_task_of_an_iterator_puts_the_remaining_jobs_back():
    """The job that is being handled stays with its handler."""
    with Node(answers={"GETJOB": jobs_reply(JOB_A, JOB_B), "NACK": b":1\r\n"}) as node:

        async def scenario(client):
            handled = []

            async def consume():
                async for job in client.jobs("q", count=2):
                    handled.append(job.id)
                    await asyncio.sleep(60)

            await cancelled(consume(), lambda: handled)

        with_client(scenario, node)
        assert node.named("NACK") == [[b"NACK", JOB_B.encode(), *AT_ONCE]]


def test_a_silent_node_does_not_delay_the_close():
    """A cancelled GETJOB may still be answered. A near node does so within a tenth of a second or never."""
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


def page(cursor, *items):
    """Return a reply of QSCAN or JSCAN."""
    return b"*2\r\n" + bulk(str(cursor)) + b"*%d\r\n" % len(items) + b"".join(items)


def collect(node, scan):
    """Return all items of an iterator of a client."""

    async def scenario(client):
        return [item async for item in scan(client)]

    return with_client(scenario, node, patience=0.1)


def test_a_scan_follows_cursors_to_the_end():
    """The cursor of each page leads to the next. Only cursor 0 ends the scan, and an empty page does not."""
    with Node(answers={"QSCAN": in_turn(page(7, bulk("a")), page(3), page(0, bulk("b")))}) as node:
        assert collect(node, lambda client: client.qscan(minlen=1)) == ["a", "b"]
        assert [words[1] for words in node.named("QSCAN")] == [b"0", b"7", b"3"]
        assert node.named("QSCAN")[1][2:] == [b"MINLEN", b"1"]


def test_jobs_are_scanned_by_state_and_queue():
    """Ids are simple strings on the wire."""
    with Node(answers={"JSCAN": page(0, f"+{JOB_A}\r\n".encode(), f"+{JOB_B}\r\n".encode())}) as node:
        assert collect(node, lambda client: client.jscan(queue="q", states=["queued"])) == [JOB_A, JOB_B]
        assert node.named("JSCAN") == [[b"JSCAN", b"0", b"QUEUE", b"q", b"STATE", b"queued"]]


def test_a_scan_can_return_whole_jobs():
    """Each job has the fields of SHOW."""
    entry = b"*4\r\n" + bulk("id") + bulk(JOB_A) + bulk("state") + bulk("active")
    with Node(answers={"JSCAN": page(0, entry)}) as node:
        (info,) = collect(node, lambda client: client.jscan_info())
        assert (info.id, info.state) == (JOB_A, "active")


def test_a_lost_node_ends_the_scan():
    """Its cursor means nothing to another node."""
    with Node("a", {"QSCAN": in_turn(page(7, bulk("a")), HANG_UP)}) as node, Node("b") as other:
        node.peers = [other]
        with pytest.raises(ConnectionLostError):
            collect(node, lambda client: client.qscan())
        assert other.named("QSCAN") == []


def test_a_node_that_knows_plain_nacks_only_gets_these():
    """The node refuses the options once. The jobs are put back anyway."""

    def nack(words):
        return b":1\r\n" if len(words) == 2 else b"-BADID Invalid Job ID format.\r\n"

    with Node(answers={"GETJOB": jobs_reply(JOB_A), "NACK": nack}) as node:

        async def scenario(client):
            for _ in range(2):
                await client.put_back(await client.get_jobs("q"))

        with_client(scenario, node)
        assert [words[1:] for words in node.named("NACK")] == [[JOB_A.encode(), *AT_ONCE], *[[JOB_A.encode()]] * 2]
