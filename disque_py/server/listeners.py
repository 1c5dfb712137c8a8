"""Listeners: the sockets that clients connect to. TCP on each address of `bind`, TLS, a unix socket.

They open in two steps, because a node whose port is taken must not change anything. `bind` takes all addresses or
raises StartError. `serve` lets clients in, when all other parts are ready. `--test-config` takes nothing, and asks with
`look_at_port`, `look_at_socket` and `look_at_bus` whether `bind` and the bus could take their addresses.

Keep-alive is a property of the listening sockets, and accepted sockets inherit it. So a CONFIG SET applies to clients
that connect afterwards, and accepting a client costs no extra call.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import stat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cluster_bus.bus import bind_addresses
from cluster_bus.listening import TlsListener, bound, listen
from disque_py.server import probes, tls
from disque_py.server.log import log
from disque_py.server.start_error import BUS_PORT, CLIENT_PORT, UNIX_SOCKET, StartError

if TYPE_CHECKING:
    from collections.abc import Callable

    from disque_py.config.settings import Settings

ALL_ADDRESSES: Final = ("0.0.0.0", "::")
_EVERY: Final[dict[int, str]] = {socket.AF_INET: "0.0.0.0", socket.AF_INET6: "::"}
TLS_HANDSHAKE_SECONDS: Final = 10.0
# The file with the kernel's own limit of the backlog.
SOMAXCONN_FILE: Final = "/proc/sys/net/core/somaxconn"
# Errors of a machine without IPv6 or without IPv4. The node starts as long as one of the two works.
NO_SUCH_FAMILY: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
# The first probe comes after n seconds of silence, the next ones every n/3. The third unanswered one ends the link.
PROBES: Final = 3


class _Bound(NamedTuple):
    sock: socket.socket
    name: str
    tls: ssl.SSLContext | None


class Listeners:
    """The listening sockets of a node."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._bound: list[_Bound] = []
        self._servers: list[asyncio.Server | TlsListener] = []
        self._unix_path = ""
        self._unix_inode = 0

    @property
    def names(self) -> list[str]:
        """The addresses for people: host:port, or a path."""
        return [each.name for each in self._bound]

    def bind(self) -> None:
        """Take all addresses. StartError if one can't be taken; then none is."""
        settings = self._settings
        refuse_repeated(settings)
        try:
            if settings.port:
                self._bind_port(settings.port, None)
            if settings.tls_port:
                self._bind_port(settings.tls_port, tls.clients_context(settings))
            if settings.unixsocket:
                self._bind_unix(os.path.abspath(settings.unixsocket))
        except StartError:
            self.close()
            raise
        self.set_keepalive(settings.tcp_keepalive)

    async def serve(self, accept: Callable[[], asyncio.Protocol]) -> None:
        """Let clients in. `accept` makes the protocol of each one. StartError."""
        loop = asyncio.get_running_loop()
        backlog = max(1, self._settings.tcp_backlog)
        for each in self._bound:
            server: asyncio.Server | TlsListener
            try:
                if each.sock.family == socket.AF_UNIX:
                    server = await loop.create_unix_server(accept, sock=each.sock, backlog=backlog)
                else:
                    server = await listen(each.sock, backlog, each.tls, accept, TLS_HANDSHAKE_SECONDS, log)
            except OSError as error:
                raise CLIENT_PORT.refused(each.name, error) from None
            self._servers.append(server)

    def set_keepalive(self, seconds: int) -> None:
        """Probe clients that connect from now on, after this many seconds of silence; 0: never."""
        for each in self._bound:
            if each.sock.family == socket.AF_UNIX:
                continue
            each.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, bool(seconds))
            if seconds and hasattr(socket, "TCP_KEEPIDLE"):
                each.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
                each.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, seconds // PROBES))
                each.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)

    def close(self) -> None:
        """Accept no more clients; connections stay. The unix socket's file is removed."""
        for server in self._servers:
            server.close()
        for each in self._bound:
            each.sock.close()
        self._servers.clear()
        self._bound.clear()
        if self._unix_path:
            self._remove_unix_socket()

    # -- binding -----------------------------------------------------------------------------------

    def _bind_port(self, port: int, context: ssl.SSLContext | None) -> None:
        def take(family: int, address: tuple[Any, ...], name: str) -> None:
            self._bound.append(_Bound(bound(family, address), name, context))

        _each_address(self._settings, port, take)

    def _bind_unix(self, path: str) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if _is_socket_there(path):
                _remove_leftover(path)
            sock.bind(path)
            self._unix_path, self._unix_inode = path, os.stat(path).st_ino
            # No client can connect before `serve` listens, so none connects under the old permissions.
            if self._settings.unixsocketperm:
                os.chmod(path, self._settings.unixsocketperm)
        except OSError as error:
            sock.close()
            raise UNIX_SOCKET.refused(path, error) from None
        self._bound.append(_Bound(sock, path, None))

    def _remove_unix_socket(self) -> None:
        """Remove the socket's file if it is still ours: another node may have put its own there."""
        try:
            if os.stat(self._unix_path).st_ino == self._unix_inode:
                os.unlink(self._unix_path)
        except OSError:
            pass
        self._unix_path = ""


def backlog_limit() -> int:
    """Return the limit that the kernel cuts tcp-backlog to; 0 if it is unknown."""
    try:
        with open(SOMAXCONN_FILE, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def refuse_repeated(settings: Settings) -> None:
    """Raise StartError when `bind` has an address twice, or one that another one for the bus includes.

    The system's reason would be "Address already in use", and there is no other process to stop.
    """
    names: dict[tuple[int, Any], str] = {}
    for host in settings.bind:
        for family, address in _resolved_or_none(host):
            if (family, address) in names:
                first = names[family, address]
                ways = "" if first == host else f", as {first} and {host}"
                raise StartError(f"bind has the address {address[0]} twice{ways}: remove one of them")
            names[family, address] = host
    for_bus = bus_hosts(settings)
    for (family, address), host in names.items():
        every = _EVERY[family]
        if address[0] != every and host in for_bus and every in for_bus:
            raise StartError(f"bind has {every}, which includes {host}: remove one of them")


def _resolved_or_none(host: str) -> list[tuple[int, tuple[Any, ...]]]:
    """Return family and address of each address of a host, or none: the step that opens it tells the reason."""
    try:
        return _resolved(host, 0)
    except (OSError, UnicodeError):
        return []


def look_at_port(settings: Settings, port: int) -> None:
    """Raise the StartError of `bind` for a TCP port, except that the port is in use."""
    _each_address(settings, port, lambda family, address, name: probes.bindable(family, address))


def look_at_socket(path: str) -> None:
    """Raise the StartError of `bind` for the unix socket, except that the socket is in use."""
    try:
        _is_socket_there(path)
        probes.bindable_socket_file(path)
    except OSError as error:
        raise UNIX_SOCKET.refused(path, error) from None


def look_at_bus(settings: Settings) -> None:
    """Raise the StartError of opening the bus, except that its port is in use."""
    hosts = bus_hosts(settings)
    is_any_bound = False
    for host in hosts:
        try:
            for family, address in _resolved(host, settings.bus_port):
                probes.bindable(family, address)
            is_any_bound = True
        except (OSError, UnicodeError) as error:
            if isinstance(error, OSError) and is_any_bound and error.errno in NO_SUCH_FAMILY and host in ("::", "::1"):
                continue
            raise bus_refused(settings, error) from None


def bus_hosts(settings: Settings) -> list[str]:
    """Return the addresses on which the bus listens."""
    return bind_addresses(
        settings.bind, has_secret=bool(settings.cluster_secret), protected_mode=settings.protected_mode
    )


def bus_refused(settings: Settings, error: Exception) -> StartError:
    """Return the error of a bus that can't listen."""
    return BUS_PORT.refused(f"port {settings.bus_port} of {', '.join(bus_hosts(settings))}", error)


def _each_address(settings: Settings, port: int, take: Callable[[int, tuple[Any, ...], str], None]) -> None:
    """Call `take` with family, address and name of each address of a port for clients. StartError."""
    is_every = not settings.bind
    missing: OSError | None = None
    is_any_taken = False
    for host in settings.bind or ALL_ADDRESSES:
        name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            for family, address in _resolved(host, port):
                take(family, address, name)
                is_any_taken = True
        except (OSError, UnicodeError) as error:
            if is_every and isinstance(error, OSError) and error.errno in NO_SUCH_FAMILY:
                missing = error
                continue
            raise CLIENT_PORT.refused(name, error) from None
    if not is_any_taken and missing is not None:
        raise CLIENT_PORT.refused(f"port {port}", missing)


def _resolved(host: str, port: int) -> list[tuple[int, tuple[Any, ...]]]:
    """Return family and address of each address of a host. OSError, UnicodeError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return [(family, address) for family, _, _, _, address in dict.fromkeys(found)]  # /etc/hosts may name one twice.


def _is_socket_there(path: str) -> bool:
    """Return whether there is a socket of this name. OSError if there is a file that is none."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.ENOTSOCK, "there is a file of that name which is no socket")
    return True


def _remove_leftover(path: str) -> None:
    """Remove the socket that an earlier run left. OSError if it is in use."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
