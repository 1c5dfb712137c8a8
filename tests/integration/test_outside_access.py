"""Access from other machines, and the default behaviour of redis-py, with real nodes and sockets."""

from __future__ import annotations

import socket

import pytest
import redis

from disque_py.loopback_ports import HOST, free_port
from servers import Connection, Server


class Unbound(Server):
    """A node without the directive `bind`."""

    @property
    def words(self):
        words = super().words
        at = words.index("--bind")
        return words[:at] + words[at + 2 :]


def own_address():
    """Return an address of this machine that is no loopback address, or "". Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("203.0.113.1", 9))
        except OSError:
            return ""
        address = sock.getsockname()[0]
    return "" if address.startswith(("127.", "0.")) else address


@pytest.fixture
def foreign():
    """An address of this machine for other machines."""
    return own_address() or pytest.skip("this machine has no other address than loopback")


@pytest.fixture
def client():
    """A function that makes a redis-py client for a node."""
    made = []

    def make(server, host=HOST, **options):
        made.append(redis.Redis(host, server.port, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_without_bind_and_password_other_machines_are_refused(tmp_path, foreign, client):
    with Unbound(tmp_path) as server:
        assert client(server).ping()
        with pytest.raises(redis.ResponseError, match=r"^DENIED .*requirepass.*bind.*protected-mode no"):
            client(server, foreign).ping()
        server.command("CONFIG", "SET", "requirepass", "secret")
        assert client(server, foreign, password="secret").ping()


@pytest.mark.parametrize("options", [("--bind", "0.0.0.0"), ("--protected-mode", "no"), ("--requirepass", "x")])
def test_each_of_the_three_settings_admits_other_machines(tmp_path, foreign, options):
    with Unbound(tmp_path, None, options) as server, socket.create_connection((foreign, server.port)) as sock:
        talk = Connection(sock)
        talk.send("PING")
        assert "DENIED" not in str(talk.read())


def test_a_unix_socket_counts_as_local(tmp_path):
    with Unbound(tmp_path, free_port(), ("--unixsocket", tmp_path / "sock")), socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(tmp_path / "sock"))
        assert Connection(sock).command("PING") == b"PONG"


def test_the_default_pipeline_of_redis_py_adds_nothing(tmp_path, client):
    """It is a transaction, so it must not be half done when it raises an error."""
    with Server(tmp_path) as server:
        pipeline = client(server).pipeline()
        for number in range(3):
            pipeline.execute_command("ADDJOB", "q", f"job {number}", 0)
        with pytest.raises(redis.ResponseError, match="unknown command 'MULTI': there are no transactions"):
            pipeline.execute()
        assert server.command("QLEN", "q") == 0
        pipeline = client(server).pipeline(transaction=False)
        pipeline.execute_command("ADDJOB", "q", "job", 0)
        assert pipeline.execute()[0].startswith(b"D-")


def test_a_half_closed_transaction_is_answered_and_adds_nothing(tmp_path):
    with Server(tmp_path) as server, server.connect() as talk:
        talk.send_raw(b"MULTI\r\nADDJOB q body 0\r\nEXEC\r\n")
        talk.sock.shutdown(socket.SHUT_WR)
        assert [str(talk.read()).split()[0] for _ in range(3)] == ["ERR", "EXECABORT", "EXECABORT"]
        assert talk.is_closed()
        assert server.command("QLEN", "q") == 0
