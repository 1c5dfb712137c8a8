"""One asyncio connection: many callers, replies in order.

A caller submits bytes and the number of replies that it expects, and gets a Batch with one future. So a pipeline of a
thousand commands costs one future, not a thousand tasks. Bytes that are submitted during one pass of the loop leave
in one write. The bytes of a caller that has the connection to itself leave at once. A single timer watches the batch
at the head. Silence for longer than that batch allows means a dead node; then the connection is closed, and all its
batches fail.

The connection chooses no node and repeats nothing; the pool and the client do.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from contextlib import suppress
from ipaddress import ip_address
from typing import cast

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
from disque_py.client.handshake import failure, handshake, read_handshake, reason_of
from disque_py.client.options import ClientOptions
from disque_py.client.protocol import NOTHING, Decoder, Reply
from disque_py.client.results import Hello
from disque_py.client.upload import Upload


class Batch:
    """Commands that were sent together, and the replies that have arrived.

    future    done when all `count` replies are in `replies`, or when the connection broke. In that case `replies` has
              those that arrived before
    limit_s   seconds of silence that mean a dead node; None: no limit
    is_sent   some of its bytes may have left
    """

    __slots__ = ("count", "future", "is_sent", "limit_s", "replies")

    def __init__(self, count: int, limit_s: float | None, future: asyncio.Future[list[Reply]]) -> None:
        self.count = count
        self.limit_s = limit_s
        self.future = future
        self.replies: list[Reply] = []
        self.is_sent = False


class AsyncConnection(asyncio.Protocol):
    """A connection to one node.

    address   where it was dialled
    hello     the node's answer to HELLO; set by `greet`
    pending   number of replies that are owed: the pool's measure of load
    is_blamed its failure was counted against the node. That happens once, however many callers it had
    """

    __slots__ = (
        "_batches",
        "_closed",
        "_decoder",
        "_error",
        "_heard_at",
        "_is_alone",
        "_is_writable",
        "_loop",
        "_out",
        "_timer",
        "_transport",
        "_unsent",
        "_upload",
        "_writable",
        "address",
        "hello",
        "is_blamed",
        "pending",
    )

    def __init__(self, address: Address) -> None:
        self.address = address
        self.hello: Hello | None = None
        self.pending = 0
        self.is_blamed = False
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder()
        self._batches: deque[Batch] = deque()
        self._out: list[bytes] = []
        self._unsent: list[Batch] = []
        self._transport: asyncio.Transport | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._error: DisqueConnectionError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self._upload: tuple[Upload, float] | None = None  # And the moment of its last look.
        self._is_alone = False
        self._is_writable = True
        self._writable: asyncio.Future[None] | None = None

    @property
    def is_closed(self) -> bool:
        """Whether nothing more can be sent."""
        return self._error is not None

    # For callers.

    def submit(self, payload: bytes, count: int, limit_s: float | None) -> Batch:
        """Send commands that have `count` replies. Raises ConnectionLostError(sent=False) on a closed connection."""
        if self._error is not None or self._transport is None:
            raise ConnectionLostError(f"{self.address}: {self._error or 'not connected'}", sent=False)
        batch = Batch(count, limit_s, self._loop.create_future())
        is_head = not self._batches
        self._batches.append(batch)
        self.pending += count
        if is_head and self._is_alone:
            # The last write had one caller, and nothing was under way. So probably no other caller comes in this pass.
            batch.is_sent = True
            self._transport.write(payload)
        else:
            if not self._out:
                self._loop.call_soon(self._flush)
            self._out.append(payload)
            self._unsent.append(batch)
        if is_head:
            self._heard_at = self._loop.time()
            self._watch_head()
        return batch

    async def ask(self, payload: bytes, limit_s: float | None) -> Reply:
        """Send one command, return its reply (also a ReplyError). Raises ConnectionLostError, ProtocolError."""
        return (await self.submit(payload, 1, limit_s).future)[0]

    async def drain(self) -> None:
        """Wait until the system's buffers have room."""
        if not self._is_writable and self._error is None:
            if self._writable is None:
                self._writable = self._loop.create_future()
            await asyncio.shield(self._writable)

    async def greet(self, options: ClientOptions) -> None:
        """Send AUTH, CLIENT SETNAME and HELLO in one write. Raises ReplyError, ConnectionLostError."""
        payloads = handshake(options)
        replies = await self.submit(b"".join(payloads), len(payloads), options.connect_timeout).future
        self.hello = read_handshake(replies, self.address)

    def close(self) -> None:
        """Close immediately. Batches without their replies get ConnectionLostError."""
        self._fail(ConnectionLostError(f"{self.address}: connection closed", sent=True))

    async def hang_up(self, limit_s: float) -> None:
        """Close this side and read the node's last replies, so that no job in flight is lost."""
        if self._transport is not None and self._error is None and self._transport.can_write_eof():
            self._flush()
            self._transport.write_eof()
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._closed), limit_s)
        self.close()

    # For the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: connected."""
        # There is no assertion, because uvloop's transports behave like asyncio.Transport without deriving from it.
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes arrived. Complete replies go to the batches in the order of submission."""
        decoder = self._decoder
        decoder.feed(data)
        batches = self._batches
        self._heard_at = self._loop.time()
        try:
            while (reply := decoder.next()) is not NOTHING:
                if not batches:
                    # The node speaks first only to refuse this client (too many clients, a protocol error).
                    self._fail(_unasked(self.address, reply))
                    return
                batch = batches[0]
                batch.replies.append(reply)
                self.pending -= 1
                if len(batch.replies) == batch.count:
                    batches.popleft()
                    if not batch.future.done():
                        batch.future.set_result(batch.replies)
                if isinstance(reply, ReplyError) and ends_connection(reply):
                    for batch in batches:
                        batch.is_sent = False  # The node has not read it.
                    self._fail(ConnectionLostError(f"{self.address}: closed by the node: {reply.text}", sent=False))
                    return
            if batches:
                self._watch_head()
        except ProtocolError as error:
            self._fail(ProtocolError(f"{self.address}: {error}"))

    def eof_received(self) -> bool:
        """asyncio: the node closed its side."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: gone."""
        self._fail(ConnectionLostError(f"{self.address}: {exc or 'closed by the node'}", sent=True))

    def pause_writing(self) -> None:
        """asyncio: the buffers are full."""
        self._is_writable = False

    def resume_writing(self) -> None:
        """asyncio: the buffers have room again."""
        self._is_writable = True
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    # Inside.

    def _flush(self) -> None:
        if self._error is None and self._out and self._transport is not None:
            for batch in self._unsent:
                batch.is_sent = True
            self._is_alone = len(self._batches) == 1
            self._transport.write(b"".join(self._out) if len(self._out) > 1 else self._out[0])
        self._out.clear()
        self._unsent.clear()

    def _watch_head(self) -> None:
        """Set a timer that ends no later than the limit of the batch at the head.

        No batch behind it can be answered earlier. A timer that ends too early is set again. So under load one timer
        is set per `limit_s`, not one per batch.
        """
        limit_s = self._batches[0].limit_s
        if limit_s is None:
            return
        end = self._heard_at + limit_s
        if self._timer is not None:
            if self._timer.when() <= end:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(end, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._batches:
            return
        limit_s = self._batches[0].limit_s
        if limit_s is not None and self._loop.time() >= self._heard_at + limit_s and not self._goes_on():
            self._fail(ReplyTimeoutError(f"{self.address}: no answer for {limit_s:g} s", sent=True))
        else:
            self._watch_head()

    def _goes_on(self) -> bool:
        """Return whether a long command is still on its way. Then the time of its node's silence begins again."""
        if self._transport is None:
            return False
        if self._upload is None or self._upload[1] != self._heard_at:  # The node has answered since the last look.
            self._upload = Upload(self._transport.get_extra_info("socket")), 0.0
        upload = self._upload[0]
        if not upload.goes_on(self._transport.get_write_buffer_size()):
            return False
        self._heard_at = self._loop.time()
        self._upload = upload, self._heard_at
        return True

    def _fail(self, error: DisqueConnectionError) -> None:
        if self._error is not None:
            return
        self._error = error
        if self._transport is not None:
            self._transport.abort()
        if self._timer is not None:
            self._timer.cancel()
        if not self._closed.done():
            self._closed.set_result(None)
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None
        batches, self._batches = self._batches, deque()
        for batch in batches:
            if not batch.future.done():
                batch.future.set_exception(failure(error, sent=batch.is_sent))
                batch.future.exception()  # Mark it as retrieved: a cancelled caller must not cause a warning.


def _unasked(address: Address, reply: Reply) -> DisqueConnectionError:
    if isinstance(reply, ReplyError):
        return NotConnectedError(f"{address}: {reply.text}")
    return ProtocolError(f"{address}: a reply to no command")


async def dial(address: Address, options: ClientOptions, tls: ssl.SSLContext | None) -> AsyncConnection:
    """Connect and greet. Raises NotConnectedError, or the node's ReplyError if it refuses the client."""
    connection: AsyncConnection | None = None
    try:
        async with asyncio.timeout(options.connect_timeout):
            connection = await _connect(address, options.connect_timeout, tls)
            await connection.greet(options)
    except BaseException as error:  # Also when the caller is cancelled.
        if connection is not None:
            connection.close()
        if isinstance(error, TimeoutError):
            raise NotConnectedError(f"{address}: no connection in {options.connect_timeout:g} s") from error
        # This library's connection errors are OSErrors, too. "a..b" is no name.
        if isinstance(error, (OSError, UnicodeError)):
            reason = reason_of(error, is_tls=tls is not None)
            raise NotConnectedError(reason if isinstance(error, DisqueError) else f"{address}: {reason}") from error
        raise
    return connection


async def _connect(address: Address, limit_s: float, tls: ssl.SSLContext | None) -> AsyncConnection:
    """Connect to a node. Of a name with several addresses, each gets an equal part of the time that is left."""
    loop = asyncio.get_running_loop()
    until = loop.time() + limit_s
    if address.path:
        if not hasattr(socket, "AF_UNIX"):
            raise OSError("this system has no unix sockets")
        return (await loop.create_unix_connection(lambda: AsyncConnection(address), address.path))[1]
    name = address.host if tls is not None else None
    hosts = await _hosts_of(address)
    for count, host in zip(range(len(hosts), 0, -1), hosts, strict=True):
        try:
            async with asyncio.timeout((until - loop.time()) / count):
                _, connection = await loop.create_connection(
                    lambda: AsyncConnection(address), host, address.port, ssl=tls, server_hostname=name
                )
                return connection
        except OSError:
            if count == 1:
                raise
    raise OSError("the name has no address")


async def _hosts_of(address: Address) -> list[str]:
    """Return the IP addresses of a node's host. Raises OSError, UnicodeError."""
    with suppress(ValueError):
        ip_address(address.host.partition("%")[0])
        return [address.host]  # Without a thread, which a name may need.
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))
