"""One blocking connection: a socket, used by one thread at a time.

It sends and receives at the same time. A node stops reading from a client that does not read its replies (spec B1). So
a client that sends a long pipeline before it reads could wait for ever. The connection chooses no node and repeats
nothing; the pool and the client do.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from disque_py.client.address import Address
from disque_py.client.errors import (
    ConnectionLostError,
    DisqueConnectionError,
    DisqueError,
    NotConnectedError,
    ProtocolError,
    ReplyError,
    ReplyTimeoutError,
    ends_connection,
)
from disque_py.client.handshake import handshake, read_handshake, reason_of
from disque_py.client.options import ClientOptions
from disque_py.client.protocol import NOTHING, Decoder, Reply
from disque_py.client.readiness import readiness_of
from disque_py.client.results import Hello
from disque_py.client.upload import Upload

READ_BYTES: Final = 65_536

# Commands in flight at a time. The node always has work, and its replies fit into the system's buffers.
WINDOW_COMMANDS: Final = 1_024

# The socket has no room or no bytes now.
WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class SocketConnection:
    """A connection to one node.

    hello         the node's answer to HELLO
    sent_count    commands of the current exchange of which a byte may have left
    is_counted    it takes one of the pool's places
    is_abandoned  the command that used it was interrupted, and perhaps again before it gave the place back
    is_closed     nothing more can be sent
    shelf         the pool's idle connections to the same node
    """

    __slots__ = (
        "_decoder",
        "_farewell",
        "_is_tls",
        "_readiness",
        "_sock",
        "address",
        "hello",
        "is_abandoned",
        "is_closed",
        "is_counted",
        "sent_count",
        "shelf",
    )

    def __init__(self, address: Address, sock: socket.socket) -> None:
        self.address = address
        self.hello: Hello | None = None
        self.sent_count = 0
        self.is_abandoned = False
        self.is_counted = False
        self.is_closed = False
        self.shelf: list[SocketConnection] = []
        self._sock = sock
        self._is_tls = isinstance(sock, ssl.SSLSocket)
        self._decoder = Decoder()
        self._farewell: ReplyError | None = None  # The reply after which the node closes the connection.
        self._readiness = readiness_of(sock)

    def is_stale(self) -> bool:
        """Return whether an idle connection was closed by its node, or has bytes that answer no command."""
        return self.is_closed or self._readiness.has_bytes()

    def ask(self, payload: bytes, limit_s: float | None) -> Reply:
        """Send one command, return its reply (also a ReplyError). Raises ConnectionLostError, ProtocolError."""
        replies: list[Reply] = []
        self.sent_count = 1
        try:
            try:
                sent = self._sock.send(payload)
            except WOULD_BLOCK:
                sent = 0
            if sent < len(payload):
                self.sent_count = 0
                self._exchange(iter(((payload[sent:], 1),)), limit_s, replies)
            upload: Upload | None = None
            while not replies:
                if self._readiness.wait(limit_s, wants_room=False):
                    self._receive(replies)
                    upload = None
                else:
                    upload = upload or Upload(self._sock)
                    if not upload.goes_on(0):
                        raise self._silence(limit_s)
        except BaseException as error:
            self._break(error, len(replies))
            raise
        if self._farewell is not None:
            self.close()
        return replies[0]

    def exchange(self, chunks: Iterator[tuple[bytes, int]], limit_s: float | None, replies: list[Reply]) -> None:
        """Send chunks (bytes, number of commands in them) and append their replies to `replies` as they arrive.

        `limit_s` is the seconds of silence that mean a dead node. Raises ConnectionLostError, ProtocolError. Then the
        connection is closed, `replies` has the replies that arrived, and `sent_count` says how many may have left.
        """
        self.sent_count = 0
        try:
            self._exchange(chunks, limit_s, replies)
        except BaseException as error:
            self._break(error, len(replies))
            raise

    def _break(self, error: BaseException, reply_count: int) -> None:
        """Close the connection, on which an error or an interrupt leaves half of an exchange behind.

        Raises ConnectionLostError in place of the system's error.
        """
        self.close()
        if isinstance(error, OSError) and not isinstance(error, DisqueError):
            raise ConnectionLostError(f"{self.address}: {error}", sent=self.sent_count > reply_count) from error

    def _exchange(self, chunks: Iterator[tuple[bytes, int]], limit_s: float | None, replies: list[Reply]) -> None:
        out = memoryview(b"")
        more = True
        upload: Upload | None = None
        while True:
            if not out and more and self.sent_count - len(replies) < WINDOW_COMMANDS:
                payload, count = next(chunks, (b"", 0))
                out = memoryview(payload)
                more = count > 0
                self.sent_count += count
            if out:
                out = out[self._send(out) :]
            if not out and more and self.sent_count - len(replies) < WINDOW_COMMANDS:
                continue
            if not out and len(replies) == self.sent_count:
                return
            # Also after a part has left: a node that has half a command sends no answer that would wake this thread.
            if not self._readiness.wait(limit_s, wants_room=len(out) > 0):
                upload = upload or Upload(self._sock)
                if not upload.goes_on(len(out)):
                    raise self._silence(limit_s)
                continue
            upload = None
            self._receive(replies)
            if self._farewell is not None and (len(replies) < self.sent_count or next(chunks, None) is not None):
                self.sent_count = len(replies)  # The node has read no later command.
                text = f"{self.address}: closed by the node: {self._farewell.text}"
                raise ConnectionLostError(text, sent=False)
            if self._farewell is not None:
                self.close()
                return

    def _send(self, out: bytes | memoryview) -> int:
        try:
            return self._sock.send(out)
        except WOULD_BLOCK:
            return 0

    def _silence(self, limit_s: float | None) -> ReplyTimeoutError:
        return ReplyTimeoutError(f"{self.address}: no answer for {limit_s:g} s", sent=True)

    def _receive(self, replies: list[Reply]) -> None:
        decoder = self._decoder
        is_more = True
        while is_more:
            try:
                data = self._sock.recv(READ_BYTES)
            except WOULD_BLOCK:
                return
            if not data:
                raise ConnectionLostError(f"{self.address}: closed by the node", sent=True)
            decoder.feed(data)
            try:
                while (reply := decoder.next()) is not NOTHING:
                    replies.append(reply)
                    if isinstance(reply, ReplyError) and ends_connection(reply):
                        self._farewell = reply
            except ProtocolError as error:
                raise ProtocolError(f"{self.address}: {error}") from None
            if len(replies) > self.sent_count:
                raise ProtocolError(f"{self.address}: a reply to no command")
            # TLS may hold decrypted bytes, which poll does not report.
            is_more = len(data) == READ_BYTES or (self._is_tls and self._has_decrypted())

    def _has_decrypted(self) -> bool:
        return isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() > 0

    def greet(self, options: ClientOptions) -> None:
        """Send AUTH, CLIENT SETNAME and HELLO in one write. Raises ReplyError, ConnectionLostError."""
        payloads = handshake(options)
        replies: list[Reply] = []
        self.exchange(iter(((b"".join(payloads), len(payloads)),)), options.connect_timeout, replies)
        self.hello = read_handshake(replies, self.address)

    def shut_down(self) -> None:
        """Wake the thread that waits on this connection. It gets ConnectionLostError and closes the connection."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection. Closing it again has no effect."""
        if not self.is_closed:
            self.is_closed = True
            self._readiness.close()
            self._sock.close()


def dial(address: Address, options: ClientOptions, tls: ssl.SSLContext | None) -> SocketConnection:
    """Connect and greet. Raises NotConnectedError, or the node's ReplyError if it refuses the client."""
    began = time.monotonic()
    try:
        sock = _connect(address, options, tls)
    except (OSError, UnicodeError) as error:  # UnicodeError: an impossible host name, such as "a..b".
        raise NotConnectedError(f"{address}: {reason_of(error, is_tls=tls is not None)}") from error
    connection = SocketConnection(address, sock)
    if time.monotonic() - began > options.connect_timeout:
        connection.close()
        raise NotConnectedError(f"{address}: no connection in {options.connect_timeout:g} s")
    try:
        connection.greet(options)
    except BaseException as error:  # An interrupt, too, must leave no socket open.
        connection.close()
        if isinstance(error, DisqueConnectionError):
            raise NotConnectedError(reason_of(error, is_tls=tls is not None)) from error
        raise
    return connection


def _connect(address: Address, options: ClientOptions, tls: ssl.SSLContext | None) -> socket.socket:
    if address.path:
        if not hasattr(socket, "AF_UNIX"):
            raise OSError("this system has no unix sockets")
        sock = _connect_to(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), address.path, options.connect_timeout)
    else:
        until = time.monotonic() + options.connect_timeout
        sock = _connect_name(address, until)
        try:
            sock.settimeout(_left_s(until))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if tls is not None:
                sock = tls.wrap_socket(sock, server_hostname=address.host)
        except BaseException:  # An interrupt, too, must leave no socket open.
            sock.close()
            raise
    sock.setblocking(False)
    return sock


def _connect_name(address: Address, until: float) -> socket.socket:
    """Connect to a node by TCP. Of a name with several addresses, each gets an equal part of the time that is left."""
    trouble: OSError | None = None
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    for count, (family, kind, protocol, _, place) in zip(range(len(found), 0, -1), found, strict=True):
        try:
            limit_s = _left_s(until) / count
            return _connect_to(socket.socket(family, kind, protocol), place, limit_s)
        except OSError as error:
            trouble = error
    raise trouble or OSError("the name has no address")


def _connect_to(sock: socket.socket, place: Any, limit_s: float) -> socket.socket:
    try:
        sock.settimeout(limit_s)
        sock.connect(place)
    except BaseException:  # An interrupt, too, must leave no socket open.
        sock.close()
        raise
    return sock


def _left_s(until: float) -> float:
    """Return the seconds until a moment. Raises TimeoutError if it is over."""
    left_s = until - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s
