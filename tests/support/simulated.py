"""Small worlds for the tests of the simulator."""

from __future__ import annotations

from typing import Any

from disque_py.simulator.checks.cluster_invariants import Losses
from disque_py.simulator.clients.connection import Connection, words
from disque_py.simulator.faults.weather import Weather
from disque_py.simulator.oracle import Oracle
from disque_py.simulator.plan import Fault, Keep, Plan, draw
from disque_py.simulator.world.world import World


class Asker(Connection):
    """A connection that keeps its replies, and the replies that it never got."""

    __slots__ = ("is_lost", "replies", "unread")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.replies: list[Any] = []
        self.unread: list[Any] = []
        self.is_lost = False

    def on_reply(self, reply: Any) -> None:
        self.replies.append(reply)

    def on_unseen(self, reply: Any) -> None:
        self.unread.append(reply)

    def on_lost(self) -> None:
        self.is_lost = True


def joined(names: str, **options: Any) -> World:
    """Return a world whose nodes have met."""
    world = World(names, **options)
    world.join()
    return world


def journaling_pair() -> World:
    """Return a world with two nodes, a and b, that have met and keep journals."""
    world = World("")
    for name in "ab":
        world.add(name, journal="always")
    world.join()
    world.run(200)
    return world


def asker(world: World, name: str) -> Asker:
    """Return a connection to a node."""
    connection = Asker(world)
    world.connect(world.machines[name], connection)
    return connection


def ask(world: World, name: str, *command: str | bytes | int, within_ms: int = 3_000) -> Any:
    """Send a command on a new connection, and return its reply."""
    connection = asker(world, name)
    connection.send([words(*command)])
    world.until(lambda: bool(connection.replies), within_ms)
    connection.hang_up()
    return connection.replies[0]


def small_plan(seed: int = 1, *, weather: str = "fair", duration_ms: int = 500, **keep: Any) -> Plan:
    """Return the plan of half a second of a seed."""
    return draw(seed, duration_ms, weather=weather).kept(Keep(**keep))


def weathered(names: str = "abcd") -> Weather:
    """Return a cluster with journals, and its weather."""
    world = World("", cluster_node_timeout=1_000)
    for name in names:
        world.add(name, journal="always")
    world.join()
    oracle = Oracle()
    return Weather(world, small_plan(1), oracle, Losses(oracle))


def strike(weather: Weather, kind: str, span_ms: int = 200, picks: tuple[int, ...] = (4, 8, 12, 16)) -> None:
    """Let a fault strike now."""
    weather.strike(Fault(len(weather.done), 0, kind, span_ms, picks))
