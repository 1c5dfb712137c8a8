"""Listening: bound sockets, and the connections that come in by them. The same for clients and for other nodes.

With TLS, few connections may be in a handshake at a time, however many peers connect. The loop's own listener would
keep each of them until the handshake's time-out, without a limit: a client counts for `maxclients` only when its
handshake is over. So a peer that opens connections and sends nothing would use up the descriptors that the journal and
other nodes need. Here at most HANDSHAKES_MAX are in flight. A new one beyond that replaces the oldest: an honest peer
needs only a moment.
"""

# Stays Python: sockets.
from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

HANDSHAKES_MAX: Final = 512
# At most this many connections are accepted before the loop does other work.
ACCEPTED_AT_ONCE: Final = 32
# Without descriptors or memory, accepting is tried again after this pause.
RETRY_SECONDS: Final = 1.0
LOG_GAP_SECONDS: Final = 10.0


def bound(family: int, address: tuple[Any, ...]) -> socket.socket:
    """Return a socket at an address of getaddrinfo, not listening yet; OSError, and none is left open."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:  # Another socket listens on 0.0.0.0.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


async def listen(
    sock: socket.socket,
    backlog: int,
    context: ssl.SSLContext | None,
    accept: Callable[[], asyncio.Protocol],
    handshake_timeout_s: float,
    log: Callable[[str, str], None],
) -> asyncio.Server | TlsListener:
    """Let peers in by a bound socket. The caller keeps the socket; the result has `close`. See TlsListener."""
    if context is not None:
        return TlsListener(sock, backlog, context, accept, handshake_timeout_s, log)
    return await asyncio.get_running_loop().create_server(accept, sock=sock, backlog=backlog)


class TlsListener:
    """A TLS listener on `sock`, which is bound; it listens from now on.

    accept      makes the protocol of each peer
    handshake_timeout_s  how long a handshake may take
    log         takes a level and a text
    """

    def __init__(
        self,
        sock: socket.socket,
        backlog: int,
        context: ssl.SSLContext,
        accept: Callable[[], asyncio.Protocol],
        handshake_timeout_s: float,
        log: Callable[[str, str], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._handshake_timeout_s = handshake_timeout_s
        self._log = log
        self._sock = sock
        self._context = context
        self._accept = accept
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self._retry: asyncio.TimerHandle | None = None
        self._logged_s = -LOG_GAP_SECONDS
        sock.setblocking(False)
        sock.listen(backlog)
        self._watch()

    def close(self) -> None:
        """Stop accepting. The socket is closed by its owner."""
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._sock)
        for task in list(self._handshakes):
            task.cancel()

    def _watch(self) -> None:
        self._retry = None
        self._loop.add_reader(self._sock, self._on_ready)

    def _on_ready(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:
                self._log("warning", f"can't accept a TLS connection: {error.strerror or error}")
                self._loop.remove_reader(self._sock)
                self._retry = self._loop.call_later(RETRY_SECONDS, self._watch)
                break
            connection.setblocking(False)
            task = self._loop.create_task(self._shake_hands(connection))
            self._handshakes[task] = None
            task.add_done_callback(self._over)
        if len(self._handshakes) > HANDSHAKES_MAX:
            self._drop_oldest()

    async def _shake_hands(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._accept, connection, ssl=self._context, ssl_handshake_timeout=self._handshake_timeout_s
            )
        except OSError as error:  # ssl.SSLError is one, and so is the time-out.
            self._log("debug", f"a TLS handshake failed: {str(error) or 'the other end hung up'}")
        except Exception as error:  # It costs this connection, not the node.
            self._log("warning", f"a mistake in the program, the TLS connection is closed: {error!r}")

    def _over(self, task: asyncio.Task[None]) -> None:
        self._handshakes.pop(task, None)

    def _drop_oldest(self) -> None:
        for task in list(self._handshakes)[: len(self._handshakes) - HANDSHAKES_MAX]:
            del self._handshakes[task]
            task.cancel()
        now_s = self._loop.time()
        if now_s - self._logged_s >= LOG_GAP_SECONDS:
            self._logged_s = now_s
            self._log("warning", f"more than {HANDSHAKES_MAX} TLS handshakes at a time: the oldest were dropped")
