"""One blocking connection."""

from __future__ import annotations

import threading
import time

import pytest

from client_node import HANG_UP, SILENCE, Node, bulk, closed_port, name_of, wait_until
from disque_py.client.address import Address, parse_address
from disque_py.client.errors import AuthError, ConnectionLostError, NotConnectedError, ProtocolError, ReplyTimeoutError
from disque_py.client.options import make_options
from disque_py.client.protocol import encode
from disque_py.client.socket_connection import WINDOW_COMMANDS, dial

PING = encode([b"PING"])


def connect(node, **settings):
    return dial(Address("127.0.0.1", node.port), make_options((), settings), None)


def test_a_command_gets_its_reply():
    """An error is a reply too."""
    with Node(answers={"NO": b"-ERR no\r\n"}) as node:
        connection = connect(node)
        assert connection.ask(PING, 5) == b"PONG"
        assert str(connection.ask(encode([b"NO"]), 5)) == "ERR no"
        connection.close()


def test_sending_and_receiving_happen_at_the_same_time():
    """Both the pipeline and its replies are larger than all buffers.

    Replies arrive while the pipeline is still being sent. A node that must first send its replies would wait for the
    client, and the client for the node.
    """
    body = b"x" * 2_000_000
    with Node(answers={"SAY": lambda words: bulk(words[1])}) as node:
        connection = connect(node)
        replies = []
        connection.exchange(iter([(encode([b"SAY", body]), 1)] * 8), 5, replies)
        assert replies == [body] * 8
        connection.close()


def test_a_command_larger_than_all_buffers_leaves_in_parts():
    """The client sends the rest without waiting for a reply: a node that has read only a part does not answer yet."""
    with Node(answers={"SIZE": lambda words: b":%d\r\n" % len(words[1])}) as node:
        connection = connect(node)
        assert connection.ask(encode([b"SIZE", b"x" * 30_000_000]), 5) == 30_000_000
        connection.close()


def test_a_long_pipeline_stays_within_its_window():
    """All replies arrive, in order."""
    count = 5 * WINDOW_COMMANDS
    with Node(answers={"SAY": lambda words: bulk(words[1])}) as node:
        connection = connect(node)
        replies = []
        connection.exchange(((encode([b"SAY", b"%d" % number]), 1) for number in range(count)), 5, replies)
        assert replies == [b"%d" % number for number in range(count)]
        connection.close()


def test_silence_longer_than_allowed_ends_the_connection():
    """The command may have been executed."""
    with Node(answers={"WAIT": SILENCE}) as node:
        connection = connect(node)
        with pytest.raises(ReplyTimeoutError) as caught:
            connection.ask(encode([b"WAIT"]), 0.05)
        assert caught.value.sent
        assert connection.is_closed


def test_replies_before_a_break_are_not_lost():
    """The caller's list has them, and `sent_count` bounds the commands that may have been sent."""
    with Node(answers={"DIE": HANG_UP}) as node:
        connection = connect(node)
        replies = []
        with pytest.raises(ConnectionLostError):
            connection.exchange(iter([(PING, 1), (encode([b"DIE"]), 1)]), 5, replies)
        assert replies == [b"PONG"]
        assert connection.sent_count == 2


def test_garbage_is_a_protocol_error():
    """The error closes the connection."""
    with Node(answers={"X": b"HTTP/1.1 200\r\n"}) as node:
        connection = connect(node)
        with pytest.raises(ProtocolError):
            connection.ask(encode([b"X"]), 5)
        assert connection.is_closed


def test_an_unused_connection_that_was_closed_is_stale():
    """The client notices this before it sends anything, so no command has an unknown outcome."""
    with Node() as node:
        connection = connect(node)
        assert not connection.is_stale()
        node.drop()
        wait_until(connection.is_stale)
        connection.close()
        assert connection.is_stale()


def test_another_thread_can_end_a_wait():
    """Closing a client uses this."""
    with Node(answers={"WAIT": SILENCE}) as node:
        connection = connect(node)
        timer = threading.Timer(0.05, connection.shut_down)
        timer.start()
        began = time.monotonic()
        with pytest.raises(ConnectionLostError):
            connection.ask(encode([b"WAIT"]), None)
        assert time.monotonic() - began < 5
        timer.join()


@pytest.mark.parametrize(
    ("answer", "error"),
    [(b"-NOAUTH Authentication required.\r\n", AuthError), (HANG_UP, NotConnectedError), (SILENCE, NotConnectedError)],
)
def test_a_node_without_a_greeting_is_a_not_connected_error(answer, error):
    """A node that requires a password causes a different error."""
    with Node(answers={"HELLO": answer}) as node, pytest.raises(error):
        connect(node, connect_timeout=0.2)


def test_a_wait_may_be_longer_than_poll_can_count():
    """Examples: a month in milliseconds, and no limit."""
    with Node() as node:
        connection = connect(node)
        assert [connection.ask(PING, limit_s) for limit_s in (2_592_000.0, float("inf"))] == [b"PONG"] * 2
        connection.close()


def test_an_impossible_host_name_is_a_not_connected_error():
    """The client may then try another node. Python itself raises a UnicodeError."""
    with pytest.raises(NotConnectedError, match=r"a\.\.b:1: .*label"):
        dial(Address("a..b", 1), make_options((), {}), None)


def test_each_address_of_a_name_is_tried(monkeypatch):
    """A silent one does not take all the time."""
    with Node() as node, name_of(node, monkeypatch) as name:
        connection = dial(parse_address(name), make_options((), {"connect_timeout": 0.4}), None)
        assert connection.ask(PING, 5) == b"PONG"
        connection.close()


def test_an_address_without_a_listener_is_a_not_connected_error():
    """This applies to a port and to a path."""
    with pytest.raises(NotConnectedError):
        dial(Address("127.0.0.1", closed_port()), make_options((), {}), None)
    with pytest.raises(NotConnectedError):
        dial(Address(path="/nowhere/at/all.sock"), make_options((), {}), None)
