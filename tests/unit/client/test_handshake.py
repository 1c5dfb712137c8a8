"""The beginning and the end of a connection."""

from __future__ import annotations

import errno
import os
import socket
import ssl

import pytest

from disque_py.client.address import parse_address
from disque_py.client.errors import (
    AuthError,
    ClientClosedError,
    ConnectionLostError,
    NoPermissionError,
    ProtocolError,
    ReplyTimeoutError,
    from_reply,
)
from disque_py.client.handshake import failure, handshake, read_handshake, reason_of
from disque_py.client.options import make_options

HERE = parse_address("127.0.0.1:6379")


def test_hello_alone_is_enough():
    """A connection without password and name sends only HELLO."""
    assert handshake(make_options((), {})) == [b"*1\r\n$5\r\nHELLO\r\n"]


def test_password_and_name_come_first():
    """HELLO is refused before AUTH."""
    commands = handshake(make_options((), {"password": "pw", "name": "me"}))
    assert [command.split(b"\r\n")[2] for command in commands] == [b"AUTH", b"CLIENT", b"HELLO"]


def test_a_user_name_makes_auth_longer():
    """Without a user name, AUTH has one argument, because the original accepts only one."""
    (auth, _) = handshake(make_options((), {"password": "pw", "username": "ann"}))
    assert auth == b"*3\r\n$4\r\nAUTH\r\n$3\r\nann\r\n$2\r\npw\r\n"


def test_the_first_refusal_of_a_handshake_is_raised():
    """The NOAUTH reply to the HELLO that follows would be less helpful."""
    with pytest.raises(AuthError, match="invalid password"):
        read_handshake([from_reply("ERR invalid password"), from_reply("NOAUTH Authentication required.")], HERE)


def test_a_user_that_may_not_name_its_connection_has_one_without_a_name():
    refused = from_reply("NOPERM this user has no permissions to run the 'client|setname' command")
    assert read_handshake([b"OK", refused, [1, b"me", [b"me", b"h", b"1", b"1"]]], HERE).id == "me"
    with pytest.raises(NoPermissionError, match="'hello'"):
        read_handshake(
            [b"OK", refused, from_reply("NOPERM this user has no permissions to run the 'hello' command")], HERE
        )


def test_hello_is_read():
    """It is the last reply."""
    assert read_handshake([b"OK", [1, b"me", [b"me", b"h", b"1", b"1"]]], HERE).id == "me"


def test_a_node_without_client_gives_connections_without_a_name():
    """Its operator has renamed the command."""
    unknown = from_reply("ERR unknown command 'CLIENT'")
    assert read_handshake([unknown, [1, b"me", [b"me", b"h", b"1", b"1"]]], HERE).id == "me"


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ([b"server", b"redis", b"version", b"7.0.0", b"proto", 2], "a redis server"),
        (b"OK", "another server"),
        (None, "another server"),
        ([], "another server"),
        ([1, b"me", [b"me", b"h", b"no port", b"1"]], "another server"),
    ],
)
def test_a_server_of_another_kind_is_no_node(reply, kind):
    """Its port was taken for that of a node. The client goes on to its other nodes."""
    with pytest.raises(ProtocolError, match=rf"^127.0.0.1:6379: {kind} answers here, and no Disque node$"):
        read_handshake([reply], HERE)


def test_every_caller_gets_an_error_of_its_own():
    """The error has the same type as the connection's. It says whether this caller's command was sent."""
    timeout = ReplyTimeoutError("silent", sent=True)
    mine = failure(timeout, sent=False)
    assert mine is not timeout
    assert isinstance(mine, ReplyTimeoutError)
    assert not mine.sent
    assert type(failure(ProtocolError("x"), sent=True)) is ProtocolError
    assert type(failure(ClientClosedError("x"), sent=True)) is ConnectionLostError


def test_a_program_that_names_its_place_asks_for_the_places_of_nodes():
    """Spec ZN9. Other programs send plain HELLO, so the original's servers answer them."""
    assert b"EXTENDED" in handshake(make_options((), {"zone": "a"}))[-1]
    assert b"EXTENDED" not in handshake(make_options((), {}))[-1]
    assert make_options((), {"datacenter": "eu"}).place == ("eu", "")


def test_a_port_with_tls_closes_a_plain_connection_without_a_word():
    lost = ConnectionLostError("h:1: closed by the node", sent=True)
    assert reason_of(lost, is_tls=False) == "h:1: closed by the node (if it speaks TLS, use disques:// or tls=)"
    assert reason_of(lost, is_tls=True) == "h:1: closed by the node"
    assert reason_of(ReplyTimeoutError("h:1: no answer", sent=True), is_tls=False) == "h:1: no answer"


def test_a_port_without_tls_sends_no_tls():
    error = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
    error.reason = "WRONG_VERSION_NUMBER"
    assert reason_of(error, is_tls=True).endswith("wrong version number (the port may not speak TLS)")


def test_a_refused_connection_has_the_words_of_the_system():
    """asyncio writes `Connect call failed ('127.0.0.1', 7711)`."""
    refused = os.strerror(errno.ECONNREFUSED)
    assert reason_of(OSError(errno.ECONNREFUSED, "Connect call failed ('h', 1)"), is_tls=False) == refused
    unknown = socket.gaierror(-2, "Name or service not known")
    assert reason_of(unknown, is_tls=True) == "[Errno -2] Name or service not known"
