"""one_node.py: one connection to one node, and each command is sent once."""

from __future__ import annotations

import pytest

from disque_py.client import Address, AuthError, ClientOptions, ConnectionLostError, NotConnectedError, commands
from disque_py.client.one_node import OneNode

OPTIONS = ClientOptions(connect_timeout=5, timeout=5)


@pytest.fixture
def hello(bulk_reply):
    """Return a reply to HELLO of a node that knows no other nodes."""
    return b"*2\r\n:1\r\n" + bulk_reply("a" * 40)


def test_a_node_answers_the_requests_of_the_library(scripted, hello):
    node = scripted({"HELLO": hello, "QLEN": b":3\r\n"})
    with OneNode(Address("127.0.0.1", node.port), OPTIONS) as connection:
        assert connection.run(commands.qlen("q")) == 3
        assert connection.hello.id == "a" * 40


def test_a_command_that_gets_no_answer_is_not_repeated(scripted, hello):
    node = scripted({"HELLO": hello, "PING": lambda words: None})
    with OneNode(Address("127.0.0.1", node.port), OPTIONS) as connection, pytest.raises(ConnectionLostError):
        connection.run(commands.ping())
    assert [request[0] for request in node.requests] == [b"HELLO", b"PING"]


def test_a_node_that_is_gone_or_refuses_the_login_is_an_error_at_once(scripted):
    with pytest.raises(NotConnectedError, match="refused"):
        OneNode(Address("127.0.0.1", 1), OPTIONS)
    node = scripted({"HELLO": b"-NOAUTH Authentication required.\r\n"})
    with pytest.raises(AuthError, match="NOAUTH"):
        OneNode(Address("127.0.0.1", node.port), OPTIONS)
