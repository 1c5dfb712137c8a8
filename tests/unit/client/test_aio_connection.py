"""One asyncio connection: batches, one write per turn, and limits for silence."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from client_node import HANG_UP, SILENCE, Node, bulk, closed_port, name_of
from disque_py.client.address import Address, parse_address
from disque_py.client.aio_connection import dial
from disque_py.client.errors import AuthError, ConnectionLostError, NotConnectedError, ProtocolError, ReplyTimeoutError
from disque_py.client.options import make_options
from disque_py.client.protocol import encode

PING = encode([b"PING"])


def with_connection(node, scenario, **settings):
    """Run a scenario on a connection to the node."""

    async def run():
        connection = await dial(Address("127.0.0.1", node.port), make_options((), settings), None)
        try:
            return await scenario(connection)
        finally:
            connection.close()

    return asyncio.run(run())


def test_a_batch_of_commands_has_one_future():
    """Replies are in order, including errors."""
    with Node(answers={"NO": b"-ERR no\r\n"}) as node:

        async def scenario(connection):
            batch = connection.submit(PING + encode([b"NO"]) + PING, 3, 5)
            assert connection.pending == 3
            first, second, third = await batch.future
            assert (first, str(second), third, connection.pending) == (b"PONG", "ERR no", b"PONG", 0)

        with_connection(node, scenario)


def test_callers_of_one_turn_share_a_write_and_get_their_own_replies():
    """Replies go to callers in the order in which they submitted commands."""
    with Node(answers={"SAY": lambda words: bulk(words[1])}) as node:

        async def scenario(connection):
            asked = [connection.ask(encode([b"SAY", b"%d" % number]), 5) for number in range(100)]
            return await asyncio.gather(*asked)

        assert with_connection(node, scenario) == [b"%d" % number for number in range(100)]


def test_silence_beyond_the_limit_closes_the_connection():
    """All waiting batches fail, because replies come in order: none can be answered before the first."""
    with Node(answers={"WAIT": SILENCE}) as node:

        async def scenario(connection):
            first = connection.submit(encode([b"WAIT"]), 1, 0.05).future
            second = connection.submit(PING, 1, 60).future
            return await asyncio.gather(first, second, return_exceptions=True)

        errors = with_connection(node, scenario)
        assert [type(error) for error in errors] == [ReplyTimeoutError] * 2
        assert errors[0] is not errors[1]


def test_a_wait_for_ever_is_not_silence():
    """ADDJOB with timeout 0 has no time limit."""
    with Node(answers={"WAIT": SILENCE}) as node:

        async def scenario(connection):
            waits = connection.submit(encode([b"WAIT"]), 1, None)
            connection.submit(PING, 1, 0.05)
            await asyncio.sleep(0.15)
            return waits.future.done()

        assert with_connection(node, scenario) is False


def test_a_broken_connection_reports_whether_a_command_was_sent():
    """A command that is submitted in the turn of the break is not sent."""
    with Node(answers={"DIE": HANG_UP}) as node:

        async def scenario(connection):
            sent = connection.submit(encode([b"DIE"]), 1, 5)
            await asyncio.sleep(0.05)
            with pytest.raises(ConnectionLostError) as caught:
                await sent.future
            assert caught.value.sent
            with pytest.raises(ConnectionLostError) as caught:
                connection.submit(PING, 1, 5)
            assert not caught.value.sent

        with_connection(node, scenario)


def test_submitted_but_unwritten_commands_were_not_sent():
    """The connection is closed in the same turn."""
    with Node() as node:

        async def scenario(connection):
            batches = [connection.submit(PING, 1, 5) for _ in range(3)]
            connection.close()
            errors = await asyncio.gather(*(batch.future for batch in batches), return_exceptions=True)
            return [error.sent for error in errors]

        # The first caller had the connection to itself.
        assert with_connection(node, scenario) == [True, False, False]


def test_a_caller_that_is_alone_does_not_wait_for_the_end_of_the_turn():
    """As soon as several callers shared a write, all wait again, so that they share the next one."""
    with Node() as node:

        async def scenario(connection):
            async def are_sent(count):
                batches = [connection.submit(PING, 1, 5) for _ in range(count)]
                sent = [batch.is_sent for batch in batches]
                await asyncio.gather(*(batch.future for batch in batches))
                return sent

            return [await are_sent(count) for count in (1, 2, 2, 1, 1)]

        assert with_connection(node, scenario) == [[True], [True, False], [False, False], [False], [True]]


def test_replies_that_came_before_the_break_are_not_lost():
    """The result of the batch contains these replies."""
    with Node(answers={"DIE": HANG_UP}) as node:

        async def scenario(connection):
            batch = connection.submit(PING + encode([b"DIE"]), 2, 5)
            with pytest.raises(ConnectionLostError):
                await batch.future
            return batch.replies

        assert with_connection(node, scenario) == [b"PONG"]


def test_hanging_up_reads_the_replies_in_flight():
    """A job that was just delivered must not be lost with the connection."""
    with Node(answers={"WAIT": SILENCE}) as node:
        node.last_word = b"+late\r\n"

        async def scenario(connection):
            batch = connection.submit(encode([b"WAIT"]), 1, 5)
            await asyncio.sleep(0.02)
            await connection.hang_up(1.0)
            return batch.replies, connection.is_closed

        assert with_connection(node, scenario) == ([b"late"], True)


def test_garbage_is_a_protocol_error():
    """The error closes the connection."""
    with Node(answers={"X": b"HTTP/1.1 200\r\n"}) as node:

        async def scenario(connection):
            with pytest.raises((ConnectionLostError, ProtocolError)):
                await connection.ask(encode([b"X"]), 5)
            return connection.is_closed

        assert with_connection(node, scenario)


def test_dialling_greets_and_knows_the_node():
    """AUTH, the client's name and HELLO take one round trip."""
    answers = {"AUTH": b"+OK\r\n", "CLIENT": b"+OK\r\n"}
    with Node("c", answers) as node:

        async def scenario(connection):
            await asyncio.sleep(0)
            return connection.hello.id

        assert with_connection(node, scenario, password="pw", name="me") == "c" * 40
        assert node.commands == [[b"AUTH", b"pw"], [b"CLIENT", b"SETNAME", b"me"]]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"-NOAUTH Authentication required.\r\n", AuthError),
        (HANG_UP, NotConnectedError),
        (SILENCE, NotConnectedError),
        (b"HTTP/1.1 200\r\n", NotConnectedError),
    ],
)
def test_a_node_without_a_greeting_is_a_not_connected_error(answer, error):
    """A node that requires a password causes a different error."""
    with Node(answers={"HELLO": answer}) as node, pytest.raises(error):
        with_connection(node, lambda connection: connection.drain(), connect_timeout=0.2)


def test_an_impossible_host_name_is_a_not_connected_error():
    """The client may then try another node. Python itself raises a UnicodeError."""
    with pytest.raises(NotConnectedError, match=r"a\.\.b:1: .*label"):
        asyncio.run(dial(Address("a..b", 1), make_options((), {}), None))


def test_each_address_of_a_name_is_tried(monkeypatch):
    """A silent one does not take all the time."""

    async def run():
        connection = await dial(parse_address(name), make_options((), {"connect_timeout": 0.4}), None)
        assert await connection.ask(PING, 5) == b"PONG"
        connection.close()

    with Node() as node, name_of(node, monkeypatch) as name:
        asyncio.run(run())


def test_an_address_without_a_listener_is_a_not_connected_error():
    """The text of the error contains the address."""
    port = closed_port()
    with pytest.raises(NotConnectedError, match=str(port)):
        asyncio.run(dial(Address("127.0.0.1", port), make_options((), {}), None))


def test_connecting_over_tls_to_a_plain_node_fails():
    """A client with TLS treats such a node as unreachable."""
    with Node() as node, pytest.raises(NotConnectedError):
        asyncio.run(
            dial(
                Address("127.0.0.1", node.port),
                make_options((), {"connect_timeout": 0.3}),
                ssl.create_default_context(),
            )
        )
