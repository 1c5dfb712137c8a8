"""The network between the nodes of a world: how connections begin and end, and what faults do to them.

A node's second connection to another node replaces the first. When a node forgets another one, the connections in both
directions are closed, as in cluster_bus/bus.py. Nodes with a `cluster-secret` prove to each other that they know it,
with the bus's own handshake.

A *cut* breaks connections immediately. Both ends see it, and no new connection can be made. A *silent* cut swallows
frames: TCP keeps them until the cut heals, or until one end gives the connection up. A process that dies closes its
connections. A machine without power does not, and does not answer. When a connection is given up, frames in transit
are lost or arrive. When the next connection is made, the last frames of the old one may come once more, as from a proxy
that repeats unconfirmed data. A *lossy* network drops single frames, which TCP never does, so it is worse than a real
one. Traffic on connections is in traffic.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster_bus.node import FORGOTTEN, Node
from disque_py.simulator.world.bus_handshake import prove
from disque_py.simulator.world.cuts import Cuts
from disque_py.simulator.world.traffic import Pipe, Traffic

if TYPE_CHECKING:
    from random import Random

    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

# The longest time for an attempt to connect, or for a handshake (cluster_bus/bus.py and link.py).
CONNECT_MS: Final = 5_000
NEVER_MS: Final = 1 << 60


class Network:
    """The rules by which connections begin and end. The connections themselves belong to the traffic."""

    def __init__(self, world: World, rng: Random, cuts: Cuts, traffic: Traffic) -> None:
        self._world = world
        self._rng = rng
        self._cuts = cuts
        self._traffic = traffic

    # -- connecting --------------------------------------------------------------------------------

    def dial(self, dialer: Machine, node: Node) -> None:
        """Try to connect to the machine at this node's address."""
        self.close(dialer, node)
        token = dialer.attempts[node] = object()
        self._world.later(self._traffic.delay(), self._connect, dialer, node, token)

    def _connect(self, dialer: Machine, node: Node, token: object) -> None:
        if not dialer.is_up or dialer.attempts.get(node) is not token:
            return
        target = self._world.machines.get(node.host)
        if target is None or self._cuts.are_loud(dialer.name, target.name):
            self._fail(dialer, node, token)
        elif not target.has_power or self._cuts.are_silent(dialer.name, target.name):
            self._world.later(CONNECT_MS, self._fail, dialer, node, token)
        elif not target.is_up:
            self._fail(dialer, node, token)
        elif target.is_stopped or dialer.is_stopped:
            asleep = target if target.is_stopped else dialer
            asleep.held.append((self._connect, (dialer, node, token)))
            self._world.later(CONNECT_MS, self._fail, dialer, node, token)
        else:
            self._establish(dialer, node, target)

    def _fail(self, dialer: Machine, node: Node, token: object) -> None:
        if not dialer.is_up or dialer.attempts.get(node) is not token:
            return
        if dialer.is_stopped:
            dialer.held.append((self._fail, (dialer, node, token)))
            return
        del dialer.attempts[node]
        dialer.open()
        dialer.membership.link_down(node)
        dialer.close()

    def _establish(self, dialer: Machine, node: Node, target: Machine) -> None:
        if not prove(dialer, target, self._rng):
            self._fail(dialer, node, dialer.attempts[node])
            return
        del dialer.attempts[node]
        pipe = Pipe(dialer, target, dialer.membership.hello())
        dialer.open()
        owner = dialer.membership.link_up(node, target.membership.hello(), target.name, dialer.name)
        if owner is not None:
            if owner is not node:
                self.close(dialer, owner)
            pipe.node = owner
            dialer.pipes[owner] = pipe
            self._leave_unread(dialer, owner)
            self._traffic.repeat(pipe)
        dialer.close()
        self._accept(pipe, target)
        if owner is None:
            self._traffic.notice(pipe, self._traffic.ended)
        else:
            self._traffic.pipes[pipe] = None

    def _leave_unread(self, machine: Machine, node: Node) -> None:
        """Ignore unread messages of the node's former process, as Bus._outgoing_ready does."""
        older = machine.incoming.get(node.id)
        if older is not None and older.hello.run != node.run:
            del machine.incoming[node.id]
            self._traffic.drop(older)
            machine.lose_incoming(node)

    def _accept(self, pipe: Pipe, target: Machine) -> None:
        target.open()
        older = target.incoming.pop(pipe.hello.id, None)
        if older is not None:  # The older connection's frames must not be read after those of the new one.
            self._traffic.drop(older)
            if older.sender is not None:
                target.lose_incoming(older.sender)
        target.incoming[pipe.hello.id] = pipe
        pipe.sender = target.membership.accept(pipe.hello, pipe.dialer.name, target.name)
        target.close()

    # -- ends --------------------------------------------------------------------------------------

    def hang_up(self, dialer: Machine, node: Node) -> None:
        """Close the connection to a node, as membership requests; for a forgotten node also the one that it dialed."""
        self.close(dialer, node)
        if node.flags & FORGOTTEN:
            pipe = dialer.incoming.pop(node.id, None)
            if pipe is not None:
                self._traffic.drop(pipe)

    def close(self, dialer: Machine, node: Node) -> None:
        """Let the dialer give up its connection or attempt. Frames in transit arrive or are lost."""
        dialer.attempts.pop(node, None)
        pipe = dialer.pipes.pop(node, None)
        if pipe is not None:
            self._traffic.give_up(pipe)
            self._traffic.notice(pipe, self._traffic.ended)

    def whole_since_ms(self, one: Machine, other: Machine) -> int:
        """Return since when all messages between two nodes arrived in time; NEVER_MS if that is not certain."""
        since_ms = 0
        for dialer, target in ((one, other), (other, one)):
            pipes = [pipe for pipe in dialer.pipes.values() if pipe.target is target and pipe.target_run == target.runs]
            if (
                not pipes
                or not target.is_up
                or any(
                    pipe.was_harmed or not pipe.is_open or target.incoming.get(pipe.hello.id) is not pipe
                    for pipe in pipes
                )
            ):
                return NEVER_MS
            since_ms = max(since_ms, *(pipe.made_ms for pipe in pipes))
        return since_ms

    # -- weather -----------------------------------------------------------------------------------

    def cut(self, one: str, other: str, *, silently: bool = False) -> None:
        """Stop all bytes from `one` to `other`. Each cut of a direction needs its own `mend`."""
        self._cuts.add(one, other, silently=silently)
        for pipe in self._between(one, other):
            if silently:
                pipe.is_stuck = pipe.was_harmed = True
            else:
                self._traffic.break_off(pipe)

    def mend(self, one: str, other: str, *, silently: bool = False) -> None:
        """Mend one cut."""
        if self._cuts.remove(one, other, silently=silently) and silently:
            self._unstick(one, other)

    def heal(self) -> None:
        """Mend all cuts."""
        for one, other in self._cuts.clear():
            self._unstick(one, other)
        self._traffic.tell_held()

    def _unstick(self, one: str, other: str) -> None:
        """Let stuck frames arrive sooner or later, because TCP sends them again."""
        traffic = self._traffic
        for pipe in self._between(one, other):
            pipe.is_stuck = False
            self._world.later(traffic.delay(), traffic.read_stuck, pipe)
        traffic.tell_held()

    def hiccup(self, one: str, other: str) -> None:
        """Break the connection of one node to the other. A new one may be made immediately."""
        for pipe in self._between(one, other):
            self._traffic.break_off(pipe)

    def _between(self, one: str, other: str) -> list[Pipe]:
        return [pipe for pipe in self._traffic.pipes if pipe.dialer.name == one and pipe.target.name == other]

    def died(self, machine: Machine) -> None:
        """Close the ends of a process that is gone, unless its machine has no power to do so."""
        for pipe in list(self._traffic.pipes):
            if pipe.dialer is machine:
                if machine.has_power:
                    self._traffic.notice(pipe, self._traffic.ended)
            elif pipe.target is machine and machine.has_power:
                self._traffic.notice(pipe, self._traffic.lost)

    def power_is_back(self, machine: Machine) -> None:
        """Tell the nodes that still use a machine's former connections that it knows nothing of them."""
        for pipe in list(self._traffic.pipes):
            if pipe.target is machine and pipe.target_run == machine.runs:
                self._traffic.notice(pipe, self._traffic.lost)
