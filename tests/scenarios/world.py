"""The simulator's world (disque_py/simulator) for scenarios, with clients that the test controls.

These worlds are prompt: every input is a separate turn, so that a transcript can be read line by line.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from cluster_bus.outgoing import Outgoing, Run
from disque_py.simulator.clients.connection import Connection, words
from disque_py.simulator.world.machine import Machine
from disque_py.simulator.world.traffic import Filter
from disque_py.simulator.world.watcher import Watcher
from disque_py.simulator.world.world import World as SimulatedWorld


class Talker(Connection):
    """A client connection. `replies` has its replies, in order."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.name = ""
        self.replies: list[Any] = []
        self.wanted: dict[str, Any] = {}  # Values that the test keeps for later.

    def say(self, *command: str | bytes | int) -> None:
        """Send a command. It runs now, or when the client may go on."""
        self.send([words(*command)])

    def on_reply(self, reply: Any) -> None:
        self.replies.append(reply)
        self.world.on_answer(self, reply)


class Telling(Watcher):
    """A watcher that calls the methods of a scenario's world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def outgoing_of(self, machine: Machine) -> Outgoing:
        outgoing = Outgoing()
        outgoing.watch = lambda runs: self._world.on_runs(machine, runs)
        return outgoing

    def on_turn(self, machine: Machine) -> None:
        self._world.on_turn(machine)

    def on_lost(self, sender: str, receiver: str, kind: int, item: Any) -> None:
        self._world.on_lost(sender, receiver, kind, item)


class World(SimulatedWorld):
    """A world whose nodes are named by letters, with one clock by default. A message takes a millisecond.

    drop   a predicate (sender name, receiver name, kind, item) -> lose this message
    """

    def __init__(
        self,
        names: str,
        seed: int = 1,
        *,
        delay_ms: int = 1,
        clock_offsets_ms: dict[str, int] | None = None,
        chance: Callable[[str], Random] = Random,
        **settings: Any,
    ) -> None:
        watcher = Telling(self)
        settings.setdefault("repair_after", 0)  # Otherwise nodes would ask each other after ten seconds.
        super().__init__("", seed, delay_ms=(delay_ms, delay_ms), chance=chance, watcher=watcher, **settings)
        for name in names:
            self.add(name, offset_ms=(clock_offsets_ms or {}).get(name, 0))

    def add(self, name: str, **options: Any) -> Machine:
        """Add a node. Its id is its letter, repeated."""
        return super().add(name, node_id=name.encode() * 20, **options)

    # A scenario may replace any of these methods.

    def on_runs(self, machine: Machine, runs: list[Run]) -> None:
        """A node's messages of a turn are about to leave."""

    def on_turn(self, machine: Machine) -> None:
        """A turn of this node is over."""

    def on_lost(self, sender: str, receiver: str, kind: int, item: Any) -> None:
        """This message is dropped."""

    def on_answer(self, talker: Talker, reply: Any) -> None:
        """A client got a reply."""

    @property
    def members(self) -> dict[str, Machine]:
        """Return all nodes by name."""
        return self.machines

    @property
    def drop(self) -> Filter | None:
        """Return the predicate that chooses lost messages."""
        return self.traffic.filter

    @drop.setter
    def drop(self, taken: Filter | None) -> None:
        self.traffic.filter = taken

    def client(self, name: str) -> Talker:
        """Return a new connection to a node."""
        talker = Talker(self)
        self.connect(self.machines[name], talker)
        return talker

    def ask(self, name: str, *command: str | bytes | int, within_ms: int = 10_000) -> Any:
        """Send a command on a new connection, and return its reply."""
        talker = self.client(name)
        talker.say(*command)
        self.until(lambda: bool(talker.replies), within_ms)
        reply = talker.replies[0]
        talker.hang_up()
        return reply


def joined(names: str = "abc", **options: Any) -> World:
    """Return a world whose nodes have met."""
    world = World(names, **options)
    world.join()
    return world
