"""A node that has only membership and bus, on real loopback sockets, with a driver of a few lines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from random import Random
from typing import Any

from cluster_bus.bus import Bus
from cluster_bus.codec import PROTOCOL_MAX, Run, encode_run, frame
from cluster_bus.handshake import Hello
from cluster_bus.membership import Membership
from cluster_bus.node import Node
from cluster_bus.outgoing import Outgoing


class BusNode:
    """The owner of a Bus. `heard` has (sender, runs) in order of arrival, `lost` nodes whose incoming link ended."""

    def __init__(self, *, node_timeout_ms: int = 2000, **bus_options: Any) -> None:
        self.outgoing = Outgoing()
        self.rng = Random()
        self.membership = Membership(
            Node(self.rng.randbytes(20)), self.outgoing, self.rng, node_timeout_ms=node_timeout_ms
        )
        self.log: list[str] = []
        self.heard: list[tuple[Node, list[Run]]] = []
        self.lost: list[Node] = []
        self.bus = Bus(self, log=lambda level, text: self.log.append(f"{level}: {text}"), **bus_options)
        self._ticker: asyncio.Task[None] | None = None

    async def start(self, host: str = "127.0.0.1") -> BusNode:
        await self.bus.listen([host], 0)
        self.membership.table.me.bus_port = self.bus.port
        self.membership.table.me.port = 1
        self._ticker = asyncio.create_task(self._tick())
        return self

    async def stop(self) -> None:
        assert self._ticker is not None
        self._ticker.cancel()
        await self.bus.close()

    def meet(self, other: BusNode) -> None:
        self._begin().meet("127.0.0.1", other.bus.port - 1, other.bus.port)

    def known(self, other: BusNode) -> Node:
        return self.membership.table.nodes[other.membership.table.me.id]

    async def _tick(self) -> None:
        while True:
            self._begin().tick()
            await asyncio.sleep(0.05)

    def _begin(self) -> Membership:
        self.membership.table.now_ms = time.monotonic_ns() // 1_000_000
        self.membership.table.wall_ms = time.time_ns() // 1_000_000
        asyncio.get_running_loop().call_soon(self._end)
        return self.membership

    def _end(self) -> None:
        membership = self.membership
        hang_ups, dials = membership.tray.hang_ups, membership.tray.dials
        membership.tray.hang_ups, membership.tray.dials = {}, {}
        for node in hang_ups:
            self.bus.hang_up(node)
        for node in dials:
            self.bus.dial(node)
        for nodes, kind, items in self.outgoing.take():
            data = frame(PROTOCOL_MAX, [encode_run(kind, items)])
            for node in nodes:
                self.bus.send(node, data)

    def hello(self) -> Hello:
        return self.membership.hello()

    def on_link_up(self, node: Node, hello: Hello, peer_host: str, local_host: str) -> Node | None:
        return self._begin().link_up(node, hello, peer_host, local_host)

    def on_link_down(self, node: Node) -> None:
        self._begin().link_down(node)

    def on_accept(self, hello: Hello, peer_host: str, local_host: str) -> Node | None:
        return self._begin().accept(hello, peer_host, local_host)

    def on_stranger_gone(self, hello: Hello, peer_host: str) -> None:
        self._begin().stranger_gone(hello, peer_host)

    def on_incoming_lost(self, node: Node) -> None:
        self.lost.append(node)

    def on_membership(
        self, sender: Node | None, hello: Hello, peer_host: str, local_host: str, kind: int, items: list[Any]
    ) -> None:
        self._begin().receive(sender, hello, peer_host, local_host, kind, items)

    def on_runs(self, sender: Node, runs: list[Run]) -> None:
        self.heard.append((sender, runs))


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait until the condition is true, or fail."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not become true in time"
        await asyncio.sleep(0.005)
