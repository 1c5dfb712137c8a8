"""server/listeners.py: the sockets that clients connect to."""

from __future__ import annotations

import asyncio
import errno
import os
import socket

import pytest

from disque_py.config.settings import Settings
from disque_py.server import listeners, trial
from disque_py.server.listeners import Listeners, backlog_limit, refuse_repeated
from disque_py.server.start_error import StartError


class Greeter(asyncio.Protocol):
    """Sends whether keep-alive is on, then closes the connection."""

    def connection_made(self, transport):
        sock = transport.get_extra_info("socket")
        transport.write(b"%d" % sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        transport.close()


@pytest.fixture
def settings():
    """Settings of a node that listens on a free port of the IPv4 loopback address."""
    settings = Settings()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        settings.port = probe.getsockname()[1]
    settings.bind = ("127.0.0.1",)
    return settings


@pytest.fixture
def opened(settings):
    """Listeners that are closed after the test."""
    made = Listeners(settings)
    yield made
    made.close()


def greeting(address):
    """Return the first bytes that a client gets."""
    with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as sock:
        sock.settimeout(5)
        sock.connect(address)
        return sock.recv(10)


def serve(opened, *addresses, between=lambda: None):
    """Serve, and return the greeting of each address."""

    async def main():
        await opened.serve(Greeter)
        between()
        heard = [await asyncio.to_thread(greeting, address) for address in addresses]
        opened.close()
        return heard

    return asyncio.run(main())


def test_clients_are_accepted_once_the_listeners_serve(opened, settings):
    opened.bind()
    assert opened.names == [f"127.0.0.1:{settings.port}"]
    with pytest.raises(ConnectionRefusedError):
        greeting(("127.0.0.1", settings.port))
    assert serve(opened, ("127.0.0.1", settings.port)) == [b"0"]


def test_keepalive_is_inherited_by_clients_that_connect_afterwards(opened, settings):
    settings.tcp_keepalive = 60
    opened.bind()
    assert serve(opened, ("127.0.0.1", settings.port)) == [b"1"]


def test_keepalive_can_be_changed_while_the_node_runs(opened, settings):
    opened.bind()
    assert serve(opened, ("127.0.0.1", settings.port), between=lambda: opened.set_keepalive(30)) == [b"1"]


def test_a_name_stands_for_all_its_addresses(opened, settings):
    settings.bind = ("localhost",)
    opened.bind()
    assert set(opened.names) == {f"localhost:{settings.port}"}


def test_without_bind_the_node_listens_on_every_address(opened, settings):
    settings.bind = ()
    opened.bind()
    assert f"0.0.0.0:{settings.port}" in opened.names
    assert serve(opened, ("127.0.0.1", settings.port)) == [b"0"]


def test_a_node_starts_without_ipv6_or_without_ipv4(opened, settings, monkeypatch):
    """Example: a machine without IPv6.

    This applies only without `bind`: an address that `bind` names must be available.
    """
    settings.bind = ()
    monkeypatch.setattr(listeners, "ALL_ADDRESSES", ("0.0.0.0", "198.51.100.1"))
    opened.bind()
    assert opened.names == [f"0.0.0.0:{settings.port}"]
    monkeypatch.setattr(listeners, "ALL_ADDRESSES", ("198.51.100.1", "198.51.100.2"))
    with pytest.raises(StartError, match=f"port {settings.port}: {os.strerror(errno.EADDRNOTAVAIL)}"):
        Listeners(settings).bind()


@pytest.mark.parametrize(
    ("bind", "secret", "reason"),
    [
        (("127.0.0.1", "127.0.0.1"), "", "bind has the address 127.0.0.1 twice: remove one of them"),
        (("::1", "0:0::1"), "", "bind has the address ::1 twice, as ::1 and 0:0::1: remove one of them"),
        (("127.0.0.1", "0.0.0.0"), "s" * 20, "bind has 0.0.0.0, which includes 127.0.0.1: remove one of them"),
    ],
)
def test_an_address_that_bind_has_twice_is_named(settings, bind, secret, reason):
    settings.bind, settings.cluster_secret = bind, secret
    with pytest.raises(StartError) as refused:
        Listeners(settings).bind()
    assert str(refused.value) == reason
    assert reason in trial.look(settings).problems


@pytest.mark.parametrize("bind", [("0.0.0.0", "127.0.0.1"), ("0.0.0.0", "::"), ("127.0.0.1", "no.such.name.invalid")])
def test_addresses_that_may_be_taken_together_are_not_repeated(settings, bind):
    """Without a secret the bus listens on 127.0.0.1 only, and clients on both."""
    settings.bind = bind
    refuse_repeated(settings)


def test_after_a_taken_port_all_other_addresses_are_released(opened, settings, tmp_path):
    settings.unixsocket = str(tmp_path / "sock")
    opened.bind()
    serve_twice = Listeners(settings)
    opened.close()
    with socket.create_server(("127.0.0.1", settings.port)):
        taken = os.strerror(errno.EADDRINUSE)
        with pytest.raises(StartError, match=f"can't accept clients on 127.0.0.1:{settings.port}: {taken}"):
            serve_twice.bind()
        assert serve_twice.names == []
    assert not (tmp_path / "sock").exists()


def test_two_nodes_that_bound_at_once_cannot_both_serve(opened, settings):
    """Both can bind the port while neither listens."""
    opened.bind()
    other = Listeners(settings)
    other.bind()

    async def main():
        await opened.serve(Greeter)
        with pytest.raises(StartError, match=os.strerror(errno.EADDRINUSE)):
            await other.serve(Greeter)
        opened.close()
        other.close()

    asyncio.run(main())


def test_a_unix_socket_has_its_permissions_and_goes_with_the_node(opened, settings, tmp_path):
    settings.port = 0
    settings.unixsocket = str(tmp_path / "sock")
    settings.unixsocketperm = 0o700
    opened.bind()
    assert opened.names == [str(tmp_path / "sock")]
    assert os.stat(tmp_path / "sock").st_mode & 0o777 == 0o700
    opened.close()
    assert not (tmp_path / "sock").exists()


def test_a_unix_socket_of_another_node_is_left_alone_at_the_end(opened, settings, tmp_path):
    path = tmp_path / "sock"
    settings.port = 0
    settings.unixsocket = str(path)
    opened.bind()
    path.rename(tmp_path / "aside")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        opened.close()
        assert path.exists()


def test_a_leftover_socket_is_removed_but_a_regular_file_is_not(opened, settings, tmp_path):
    path = tmp_path / "sock"
    with socket.socket(socket.AF_UNIX) as leftover:
        leftover.bind(str(path))
    settings.port = 0
    settings.unixsocket = str(path)
    opened.bind()
    opened.close()
    path.write_text("precious")
    with pytest.raises(StartError, match="which is no socket"):
        Listeners(settings).bind()
    assert path.read_text() == "precious"


def test_a_path_that_is_too_long_is_refused(settings, tmp_path):
    settings.unixsocket = str(tmp_path / ("x" * 200))
    with pytest.raises(StartError, match="path too long"):
        Listeners(settings).bind()


def test_the_backlog_limit_of_the_kernel_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(listeners, "SOMAXCONN_FILE", str(tmp_path / "somaxconn"))
    assert backlog_limit() == 0
    (tmp_path / "somaxconn").write_text("128\n")
    assert backlog_limit() == 128
