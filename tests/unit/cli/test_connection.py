"""connection.py: connecting, protocol negotiation, login, and lost connections."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading

import pytest

from disque_py.cli.address import Target, Tls
from disque_py.cli.connection import ConnectError, Connection, ConnectionLostError, reason_of
from disque_py.client import Address


def open_to(node, **manners):
    return contextlib.closing(Connection.open(Target(Address("127.0.0.1", node.port), **manners)))


def test_a_call_is_answered(scripted):
    node = scripted({"PING": b"+PONG\r\n"})
    with open_to(node) as connection:
        assert connection.call("PING").text == b"PONG"
    assert node.requests == [[b"PING"]]


def test_a_password_is_sent_and_a_refusal_is_a_warning(scripted):
    node = scripted({"AUTH": b"-ERR invalid password\r\n", "PING": b"+PONG\r\n"})
    with open_to(node, password="pw") as connection:
        assert connection.warnings == ["AUTH failed: ERR invalid password"]
        assert connection.call("PING").text == b"PONG"
    assert node.requests[0] == [b"AUTH", b"pw"]


def test_a_user_name_logs_in_with_hello(scripted):
    node = scripted({"HELLO": b"*0\r\n"})
    with open_to(node, user="ann", password="pw"):
        pass
    assert node.requests == [[b"HELLO", b"2", b"AUTH", b"ann", b"pw"]]


def test_resp3_is_agreed_on_together_with_the_login(scripted):
    node = scripted({"HELLO": b"%0\r\n"})
    with open_to(node, protocol=3, password="pw") as connection:
        assert connection.protocol == 3
    assert node.requests == [[b"HELLO", b"3", b"AUTH", b"default", b"pw"]]


def test_without_resp3_a_demand_fails_and_a_wish_does_not(scripted):
    node = scripted({"HELLO": b"-ERR wrong number of arguments for 'hello' command\r\n"})
    with pytest.raises(ConnectError, match="HELLO 3 failed"):
        Connection.open(Target(Address("127.0.0.1", node.port), protocol=3))
    with open_to(node, protocol=3, protocol_is_preferred=True) as connection:
        assert connection.protocol == 2


def test_a_wrong_password_is_asked_for_once(scripted):
    node = scripted({"HELLO": b"-WRONGPASS no\r\n"})
    with open_to(node, protocol=3, password="pw") as connection:
        assert connection.warnings == ["AUTH failed: WRONGPASS no"]
    assert len(node.requests) == 1


def test_a_dead_address_is_reported_with_its_name():
    with pytest.raises(ConnectError, match=r"^Could not connect to Disque at 127\.0\.0\.1:1: Connection refused$"):
        Connection.open(Target(Address("127.0.0.1", 1)))


def test_a_port_that_does_not_speak_tls_is_reported_as_such():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            accepted, _ = server.accept()
            with accepted:
                accepted.recv(65536)
                accepted.sendall(b"-ERR Protocol error\r\n")
                with contextlib.suppress(ConnectionResetError):
                    accepted.recv(65536)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ConnectError, match=r"\(the port may not speak TLS\)$"):
            Connection.open(Target(Address("127.0.0.1", server.getsockname()[1]), tls=Tls()))
        thread.join(5)


def test_a_certificate_of_an_unknown_authority_gets_advice():
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.reason, error.verify_code = "CERTIFICATE_VERIFY_FAILED", 18
    assert reason_of(error).endswith("(name the authority of its certificate with --cacert)")
    error.verify_code = 62  # Another name in the certificate.
    assert reason_of(error) == "certificate verify failed"


def test_a_missing_socket_is_reported_with_its_path(tmp_path):
    with pytest.raises(ConnectError, match=r"no\.sock: No such file or directory$"):
        Connection.open(Target(Address(path=str(tmp_path / "no.sock"))))


def test_a_closed_connection_is_lost(scripted):
    node = scripted({"PING": lambda words: None})
    with open_to(node) as connection, pytest.raises(ConnectionLostError, match="Server closed the connection"):
        connection.call("PING")


def test_a_connection_that_is_reset_at_once_is_closed_like_any_other():
    """The node may or may not have read the request. The advice is the same."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        contextlib.closing(Connection.open(Target(Address("127.0.0.1", server.getsockname()[1])))) as connection,
    ):
        accepted, _ = server.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()
        with pytest.raises(ConnectionLostError, match=r"^Server closed the connection \(if it speaks TLS"):
            connection.call("PING")


def test_a_reset_after_an_answer_is_reported_as_a_reset(scripted):
    node = scripted({"PING": b"+PONG\r\n"})
    with open_to(node) as connection:
        connection.call("PING")
        assert (
            str(connection._lost(ConnectionResetError(104, "Connection reset by peer"))) == "Connection reset by peer"
        )


def test_a_peer_that_speaks_another_protocol_is_a_lost_connection(scripted):
    node = scripted({"PING": b"HTTP/1.1 400 Bad Request\r\n"})
    with open_to(node) as connection, pytest.raises(ConnectionLostError, match="does not speak RESP"):
        connection.call("PING")


def test_waiting_ends_at_its_limit(scripted):
    node = scripted({"PING": b""})
    with open_to(node, read_timeout_s=0.05) as connection, pytest.raises(ConnectionLostError, match="timed out"):
        connection.call("PING")


def test_many_calls_travel_together(scripted):
    node = scripted({"QLEN": b":1\r\n"})
    with open_to(node) as connection:
        replies = connection.call_many([[b"QLEN", b"a"], [b"QLEN", b"b"]])
    assert [reply.text for reply in replies] == [b"1", b"1"]
