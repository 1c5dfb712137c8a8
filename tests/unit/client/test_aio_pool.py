"""The connections of an asyncio client."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from client_node import SILENCE, Node, closed_port
from disque_py.client import commands
from disque_py.client.address import parse_address
from disque_py.client.aio_pool import LANE_BUSY, AsyncPool
from disque_py.client.errors import ClientClosedError, ConnectionLostError, NotConnectedError
from disque_py.client.options import make_options
from disque_py.client.retry import Patience

ADD, GET, PING = commands.add_job("q", ""), commands.get_jobs("q"), commands.ping()
WAIT = commands.wait_jobs("D-1")


def with_pool(node, scenario, **settings):
    """Run a scenario on a pool of the node's cluster. `take` gets a connection for a request."""

    async def run():
        pool = AsyncPool(make_options((node.address,), settings), Random(1))
        try:
            await scenario(pool, lambda request: pool.connection(request, Patience(0.0, Random(1))))
        finally:
            pool.close()

    asyncio.run(run())


def test_one_plain_connection_serves_all_callers():
    """This includes callers that ask for it at the same moment."""
    with Node() as node:

        async def scenario(pool, take):
            first, *others = await asyncio.gather(*(take(PING) for _ in range(10)))
            assert all(other is first for other in others)
            assert pool.ready(PING) is first

        with_pool(node, scenario)
        assert node.greetings == 1


def test_a_connection_that_waited_is_taken_again():
    """This takes no search for a node. A closed connection is not taken."""
    with Node() as node:

        async def scenario(pool, take):
            assert pool.take_idle(GET) is None
            first = await take(GET)
            pool.give_back(first)
            assert pool.take_idle(PING) is None
            assert pool.take_idle(GET) is first
            pool.give_back(first)
            first.close()
            assert pool.take_idle(GET) is None

        with_pool(node, scenario)


def test_adds_open_another_connection_only_when_all_are_busy():
    """There are at most pool_size connections."""
    with Node(answers={"ADDJOB": SILENCE}) as node:

        async def scenario(pool, take):
            used = []
            for _ in range(3 * LANE_BUSY):
                connection = pool.ready(ADD) or await take(ADD)
                connection.submit(ADD.payload(), 1, 5)
                used.append(connection)
            assert used[:LANE_BUSY] == [used[0]] * LANE_BUSY
            assert len(set(used)) == 2

        with_pool(node, scenario, pool_size=2)


def test_a_getjob_leaves_its_connection_to_the_next():
    """Two GETJOBs at the same time need two connections."""
    with Node() as node:

        async def scenario(pool, take):
            first, second = await take(GET), await take(GET)
            assert first is not second
            assert not pool.has_idle(GET)
            pool.give_back(first)
            assert pool.has_idle(GET)
            assert await take(GET) is first

        with_pool(node, scenario)


def test_connections_that_their_node_closed_meanwhile_are_forgotten():
    """A node with a `timeout` closes idle connections one by one."""
    with Node() as node:

        async def scenario(pool, take):
            for _ in range(3):
                connection = await take(GET)
                pool.give_back(connection)
                connection.close()
            assert connection.is_closed
            assert len(pool._own) == 1

        with_pool(node, scenario)


def test_moving_consumers_leaves_no_idle_connections_behind():
    """The next GETJOB dials the new node. Other commands stay at the home node."""
    with Node("a") as here, Node("b") as there:
        here.peers, there.peers = [there], [here]

        async def scenario(pool, take):
            old = await take(GET)
            pool.give_back(old)
            pool.move_consumers(pool.cluster.node_with_prefix("bbbbbbbb", 0))
            assert old.is_closed
            assert (await take(GET)).address.port == there.port
            assert (await take(PING)).address.port == here.port

        with_pool(here, scenario)


def test_a_wait_at_home_keeps_its_connection_when_consumers_have_moved():
    """A wait for the end of a job does not follow them."""
    with Node("a") as here, Node("b") as there:
        here.peers, there.peers = [there], [here]

        async def scenario(pool, take):
            waiting = await take(WAIT)
            pool.move_consumers(parse_address(there.address))
            pool.give_back(waiting)
            assert await take(WAIT) is waiting
            assert await take(GET) is not waiting

        with_pool(here, scenario)


def test_consumers_return_home_if_their_node_cannot_be_reached():
    """The next GETJOB goes to the home node."""
    with Node("a") as here, Node("b") as there:
        here.peers = [there]
        there.close()

        async def scenario(pool, take):
            await take(PING)
            pool.move_consumers(pool.cluster.node_with_prefix("bbbbbbbb", 0))
            assert (await take(GET)).address.port == here.port
            assert pool.cluster.feeder is None

        with_pool(here, scenario)


def test_a_broken_connection_counts_once_against_its_node():
    """The number of waiting commands does not matter, and a break before any command was sent does not count."""
    with Node() as node:

        async def scenario(pool, take):
            connection = await take(PING)
            pool.note_broken(connection, ConnectionLostError("idle", sent=False))
            assert pool.cluster.home is not None
            for _ in range(50):
                pool.note_broken(connection, ConnectionLostError("gone", sent=True))
            assert pool.cluster.home is None
            assert pool.cluster.is_due(connection.address, asyncio.get_running_loop().time() + 0.1)

        with_pool(node, scenario)


def test_the_unused_connections_to_a_node_that_failed_are_closed():
    """If its machine is gone, the next command on each of them would wait for a time-out, too."""
    with Node(answers={"PING": SILENCE}) as node:

        async def scenario(pool, take):
            plain, adds, other, busy = [await take(request) for request in (PING, ADD, GET, GET)]
            pool.give_back(other)
            waiting = busy.submit(PING.payload(), 1, None)
            pool.note_broken(adds, ConnectionLostError("silent", sent=True))
            assert [each.is_closed for each in (plain, adds, other, busy)] == [True, True, True, False]
            busy.close()
            with pytest.raises(ConnectionLostError):
                await waiting.future

        with_pool(node, scenario)


def test_a_pinned_request_goes_nowhere_else():
    """A cursor means nothing on another node."""
    with Node() as node:

        async def scenario(pool, take):
            request = commands.execute("QSCAN", 5, node=pool.cluster.choices(0)[0])
            assert (await take(request)).address == request.node
            request.node = type(request.node)("127.0.0.1", closed_port())
            with pytest.raises(NotConnectedError):
                await take(request)

        with_pool(node, scenario)


def test_a_closed_pool_dials_no_more():
    """The error gives the reason."""
    with Node() as node:

        async def scenario(pool, take):
            pool.close()
            with pytest.raises(ClientClosedError):
                await take(PING)

        with_pool(node, scenario)


def test_a_node_that_cannot_be_reached_is_a_warning(caplog):
    """The log gives its address and the reason, once."""

    async def run():
        pool = AsyncPool(make_options((f"127.0.0.1:{closed_port()}",), {}), Random(1))
        for _ in range(2):
            with pytest.raises(NotConnectedError):
                await pool.connection(commands.ping(), Patience(0.0, Random(1)))

    asyncio.run(run())
    assert len(caplog.messages) == 1
    assert "can't be reached" in caplog.messages[0]
