"""The network between the nodes of a world: how connections begin and end, and what faults do to them.

A second connection of a node replaces its first. A forgotten node is hung up on in both directions, as in
cluster_bus/bus.py. Nodes with a `cluster-secret` prove to each other that they know it, with the bus's own handshake.

A *cut* breaks connections at once. Both ends see it, and no new connection can be made. A *silent* cut swallows frames:
TCP keeps them until the cut heals, or until one end gives the connection up. A process that dies closes its
connections. A machine without power does not, and does not answer. When a connection is given up, the frames on their
way are lost or arrive. When the next connection is made, the last frames of the old one may come once more, as from a
proxy that repeats unconfirmed data. A *lossy* network drops single frames, which TCP never does: that is harder than
life. Traffic on connections is in traffic.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from cluster_bus.node import FORGOTTEN, Node
from disque_py.simulator.world.bus_handshake import prove
from disque_py.simulator.world.traffic import Pipe, Traffic

if TYPE_CHECKING:
    from disque_py.simulator.world.machine import Machine

# cluster_bus/bus.py and link.py: how long an attempt to connect, or a handshake, may take.
CONNECT_MS: Final = 5_000
REPEATED_FRAMES_MAX: Final = 3
NEVER_MS: Final = 1 << 60


@mypyc_attr(allow_interpreted_subclasses=True)  # The benchmarks deliver by hand.
class Network(Traffic):
    """All connections; see the module and Traffic."""

    # -- connecting --------------------------------------------------------------------------------

    def dial(self, dialer: Machine, node: Node) -> None:
        """Try to connect to the machine at this node's address."""
        self.close(dialer, node)
        token = dialer.attempts[node] = object()
        self.world.later(self._delay(), self._connect, dialer, node, token)

    def _connect(self, dialer: Machine, node: Node, token: object) -> None:
        if not dialer.is_up or dialer.attempts.get(node) is not token:
            return
        target = self.world.machines.get(node.host)
        if target is None or not self._passes(self.cuts, dialer, target):
            self._fail(dialer, node, token)
        elif not target.has_power or not self._passes(self.silent, dialer, target):
            self.world.later(CONNECT_MS, self._fail, dialer, node, token)
        elif not target.is_up:
            self._fail(dialer, node, token)
        elif target.is_stopped or dialer.is_stopped:
            asleep = target if target.is_stopped else dialer
            asleep.held.append((self._connect, (dialer, node, token)))
            self.world.later(CONNECT_MS, self._fail, dialer, node, token)
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
        if not prove(dialer, target, self.rng):
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
            self._repeat(pipe)
        dialer.close()
        self._accept(pipe, target)
        if owner is None:
            self._notice(pipe, self._ended)
        else:
            self.pipes[pipe] = None

    def _leave_unread(self, machine: Machine, node: Node) -> None:
        """Bus._outgoing_ready: messages of the node's former process count no more."""
        older = machine.incoming.get(node.id)
        if older is not None and older.hello.run != node.run:
            del machine.incoming[node.id]
            self._drop(older)
            machine.lose_incoming(node)

    def _accept(self, pipe: Pipe, target: Machine) -> None:
        target.open()
        older = target.incoming.pop(pipe.hello.id, None)
        if older is not None:  # Its frames must not be read after those of this one.
            self._drop(older)
            if older.sender is not None:
                target.lose_incoming(older.sender)
        target.incoming[pipe.hello.id] = pipe
        pipe.sender = target.membership.accept(pipe.hello, pipe.dialer.name, target.name)
        target.close()

    # -- ends --------------------------------------------------------------------------------------

    def hang_up(self, dialer: Machine, node: Node) -> None:
        """Membership's word: drop our connection; of a forgotten node also the one it dialed."""
        self.close(dialer, node)
        if node.flags & FORGOTTEN:
            pipe = dialer.incoming.pop(node.id, None)
            if pipe is not None:
                self._drop(pipe)

    def close(self, dialer: Machine, node: Node) -> None:
        """The dialer gives its connection or attempt up; what is on its way arrives, or not."""
        dialer.attempts.pop(node, None)
        pipe = dialer.pipes.pop(node, None)
        if pipe is not None:
            self._given_up(pipe)
            self._notice(pipe, self._ended)

    def _given_up(self, pipe: Pipe) -> None:
        """Nothing more will be sent on it."""
        if self.is_rough and pipe.frames and self.rng.random() < 0.5:
            latest = list(pipe.frames)[-REPEATED_FRAMES_MAX:]
            self._repeated[pipe.dialer.name, pipe.target.name] = (pipe.ends, latest)
        if pipe.is_stuck or (self.is_rough and self.rng.random() < 0.5):
            pipe.is_open = False
            pipe.frames.clear()

    def whole_since_ms(self, one: Machine, other: Machine) -> int:
        """Since when all that two nodes say has reached each other in time; NEVER_MS if that is not sure."""
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
        """No bytes from `one` to `other`; as often as it was cut it has to be mended."""
        cuts = self.silent if silently else self.cuts
        cuts[one, other] = cuts.get((one, other), 0) + 1
        for pipe in self._between(one, other):
            if silently:
                pipe.is_stuck = pipe.was_harmed = True
            else:
                self._break(pipe)

    def mend(self, one: str, other: str, *, silently: bool = False) -> None:
        """One cut less."""
        cuts = self.silent if silently else self.cuts
        left = cuts.get((one, other), 0) - 1
        if left > 0:
            cuts[one, other] = left
        elif left == 0:
            del cuts[one, other]
            if silently:
                self._unstick(one, other)

    def heal(self) -> None:
        """No cuts at all."""
        self.cuts.clear()
        silent, self.silent = self.silent, {}
        for one, other in silent:
            self._unstick(one, other)
        self._tell_held()

    def _unstick(self, one: str, other: str) -> None:
        """TCP sends again what got stuck, sooner or later."""
        for pipe in self._between(one, other):
            pipe.is_stuck = False
            self.world.later(self._delay(), self._read_stuck, pipe)
        self._tell_held()

    def _read_stuck(self, pipe: Pipe) -> None:
        target = pipe.target
        if pipe.landed and pipe.is_open and not pipe.is_stuck and target.is_up and pipe.target_run == target.runs:
            if not target.is_stopped:
                self._read(pipe)

    def _tell_held(self) -> None:
        held, self._held = self._held, []
        for call, pipe in held:
            self._notice(pipe, call)

    def hiccup(self, one: str, other: str) -> None:
        """The connection of one to the other breaks; the next may be made at once."""
        for pipe in self._between(one, other):
            self._break(pipe)

    def _break(self, pipe: Pipe) -> None:
        """Both ends see it at once; what was on its way is lost."""
        self._given_up(pipe)
        pipe.is_open = False
        pipe.frames.clear()
        self._lost(pipe)
        self._ended(pipe)

    def _between(self, one: str, other: str) -> list[Pipe]:
        return [pipe for pipe in self.pipes if pipe.dialer.name == one and pipe.target.name == other]

    def died(self, machine: Machine) -> None:
        """Close the ends of a process that is gone, unless its machine has no power to do so."""
        for pipe in list(self.pipes):
            if pipe.dialer is machine:
                if machine.has_power:
                    self._notice(pipe, self._ended)
            elif pipe.target is machine and machine.has_power:
                self._notice(pipe, self._lost)

    def power_is_back(self, machine: Machine) -> None:
        """Tell the nodes that still use a machine's former connections that it knows nothing of them."""
        for pipe in list(self.pipes):
            if pipe.target is machine and pipe.target_run == machine.runs:
                self._notice(pipe, self._lost)
