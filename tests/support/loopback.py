"""The inside of a server on a free loopback port: real sockets, connections, shell, driver and core; no other nodes.

`serve(story)` runs a coroutine with a Loopback and cleans up behind it; `Talk` is a client, byte by byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import hiredis

from brokers import NotedHost
from cluster_bus.handshake import Hello
from cluster_bus.membership import Membership
from cluster_bus.node import Node
from cluster_bus.nodes_file import NodeLine
from cluster_bus.outgoing import Outgoing
from disque_py.config.settings import Settings
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.node import dispatch
from disque_py.node.turn import Driver
from disque_py.server.clock import SystemClock, stopwatch_ns
from disque_py.server.connection import ClientConnection
from disque_py.server.file_writer import FileWriter
from disque_py.server.turn_loop import TurnLoop

PATIENCE_S = 10.0


class NoWire:
    """A bus without other nodes."""

    def dial(self, node: Node) -> None:
        """Do nothing: there is no other node."""

    def hang_up(self, node: Node) -> None:
        """Do nothing: there was no other node."""

    def send(self, node: Node, frame: bytes) -> None:
        """Do nothing: there is no other node."""


class Talk:
    """A client's connection. Commands are sent immediately, and replies are read on request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._parser = hiredis.Reader()

    def send(self, *commands: str) -> None:
        """Send commands, as arrays, in one write."""
        self.write(b"".join(encode(*command.split()) for command in commands))

    def write(self, data: bytes) -> None:
        """Send any bytes."""
        self.writer.write(data)

    async def reply(self) -> Any:
        """Return the next reply as Python values; an error is a hiredis.ReplyError."""
        while (reply := self._parser.gets()) is False:
            data = await asyncio.wait_for(self.reader.read(1 << 20), PATIENCE_S)
            assert data, "the server closed the connection"
            self._parser.feed(data)
        return reply

    async def replies(self, count: int) -> list[Any]:
        """Return the next `count` replies."""
        return [await self.reply() for _ in range(count)]

    async def rest(self) -> bytes:
        """Return all bytes until the server closes the connection."""
        return await asyncio.wait_for(self.reader.read(), PATIENCE_S)

    def hang_up(self) -> None:
        """Close the connection immediately."""
        self.writer.transport.abort()


class Loopback:
    """A node for tests: `broker`, `driver`, `turns`, and `connect` for clients."""

    def __init__(self, **settings: Any) -> None:
        values = Settings()
        for name, value in settings.items():
            setattr(values, name, value)
        outgoing = Outgoing()
        me = Node(b"\x01" * 20, "127.0.0.1", 7711, 17711)
        membership = Membership(me, outgoing, Random(1))
        self.broker = Broker(membership, outgoing, values, Random(2), NotedHost())
        dispatch.install(self.broker)
        self.turns = TurnLoop(asyncio.get_running_loop(), FileWriter())
        self.driver = self.turns.driver = Driver(
            self.broker,
            membership,
            outgoing,
            NoWire(),
            SystemClock(),
            self.turns.on_turn,
            lambda: None,
            lambda line: None,
        )
        self.broker.stopwatch_ns = stopwatch_ns
        self._servers: list[asyncio.Server] = []
        self._talks: list[Talk] = []
        self.port = 0

    async def open(self) -> None:
        """Listen on a free port, and keep time."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: ClientConnection(self.turns), "127.0.0.1", 0)
        self._servers.append(server)
        self.port = server.sockets[0].getsockname()[1]
        self.turns.start()

    async def open_unix(self, path: str) -> None:
        """Listen on a unix socket, too."""
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_unix_server(lambda: ClientConnection(self.turns), path))

    async def close(self) -> None:
        """Close everything."""
        for server in self._servers:
            server.close()
        for talk in self._talks:
            talk.hang_up()
        for connection in list(self.turns.connections.values()):
            connection.close(after_replies=False)
        self.turns.stop()
        await asyncio.sleep(0.01)

    async def connect(self, path: str = "") -> Talk:
        """Return a new client."""
        streams = asyncio.open_unix_connection(path) if path else asyncio.open_connection("127.0.0.1", self.port)
        talk = Talk(*await streams)
        self._talks.append(talk)
        return talk

    async def connect_known(self) -> tuple[Talk, Client]:
        """Return a new client, and the broker's object for it."""
        talk = await self.connect()
        talk.send("CLIENT ID")
        return talk, self.broker.clients[await talk.reply()]

    def link(self, number: int = 2) -> Node:
        """Add another node. Messages to it are lost."""
        node_id = bytes([number]) * 20
        self.driver.begin()
        self.driver.membership.load([NodeLine(node_id, f"127.0.0.{number}", 7711, 17711, 0, 0, 0)])
        node = self.driver.membership.table.intern(node_id)
        hello = Hello(node_id, bytes([number]) * 8, "", 7711, 17711, "0.1.0")
        self.driver.membership.link_up(node, hello, node.host, "127.0.0.1")
        return node

    def hear(self, node: Node, kind: int, *items: Any) -> None:
        """Deliver a message of that node."""
        self.driver.receive(node, [[kind, *items]])


Story = Callable[[Loopback], Awaitable[None]]


def serve(
    story: Story, *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None, **settings: Any
) -> None:
    """Run a story against a server with these settings."""

    async def run() -> None:
        server = Loopback(**settings)
        await server.open()
        try:
            await story(server)
        finally:
            await server.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())


def encode(*words: str | bytes) -> bytes:
    """Return a command as clients send it."""
    plain = [word if isinstance(word, bytes) else word.encode() for word in words]
    return b"*%d\r\n" % len(plain) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in plain)


async def until(condition: Callable[[], object]) -> None:
    """Let the server work until the condition is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


async def fill(server: Loopback, body_bytes: int, count: int = 1) -> None:
    """Add jobs with large bodies to queue `big`."""
    talk = await server.connect()
    for _ in range(count):
        talk.write(encode("ADDJOB", "big", b"x" * body_bytes, "0"))
    await talk.replies(count)
