"""A Shell with a real driver and broker on the running loop. Only the wire is a stand-in, which records the calls."""

from __future__ import annotations

import asyncio
from typing import Any

from brokers import make_broker
from cluster_bus.node import Node
from disque_py.node.turn import Driver
from disque_py.server.clock import SystemClock
from disque_py.server.file_writer import FileWriter
from disque_py.server.turn_loop import TurnLoop


class NotedWire:
    """The ports.Wire of tests. It records the nodes to dial and to hang up, and the frames for each node."""

    def __init__(self) -> None:
        self.dialed: list[Node] = []
        self.hung_up: list[Node] = []
        self.frames: list[tuple[Node, bytes]] = []

    def dial(self, node: Node) -> None:
        self.dialed.append(node)

    def hang_up(self, node: Node) -> None:
        self.hung_up.append(node)

    def send(self, node: Node, frame: bytes) -> None:
        self.frames.append((node, frame))


def make_shell(**settings: Any) -> TurnLoop:
    """Return the Shell of a single node, before Shell.start."""
    broker = make_broker(**settings)
    turns = TurnLoop(asyncio.get_running_loop(), FileWriter())
    turns.driver = Driver(
        broker,
        broker.membership,
        broker.outbox.messages,
        NotedWire(),
        SystemClock(),
        turns.on_turn,
        lambda: None,
        lambda line: None,
    )
    return turns


def wire_of(turns: TurnLoop) -> NotedWire:
    """Return the record of the driver's calls on the bus."""
    assert isinstance(turns.driver.wire, NotedWire)
    return turns.driver.wire
