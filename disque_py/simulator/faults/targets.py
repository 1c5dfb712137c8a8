"""What every fault needs: whom it may strike, and an operator to say it to.

A fault is a `do_` method of one of the rooms beside this file: it chooses whom it strikes from the fault's numbers and
from who is up, does it, and says what it was and what has to be called when its time is over. What can't be done now
(the only node is not killed twice) is left out: None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from cluster_bus.node import FORGOTTEN, HANDSHAKE
from cluster_bus.nodes_file import parse
from disque_py.simulator.clients.connection import Connection, words
from disque_py.simulator.world.machine import PORT

if TYPE_CHECKING:
    from disque_py.simulator.checks.cluster_invariants import Losses
    from disque_py.simulator.oracle import Oracle
    from disque_py.simulator.plan import Plan
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

LOOK_AGAIN_MS: Final = 20

End = Callable[[], None]
# What was done, for people, and what ends it.
Struck = tuple[str, End] | None


class Operator(Connection):
    """A connection for one command."""

    __slots__ = ("_command",)

    def __init__(self, world: World, command: tuple[str | bytes | int, ...]) -> None:
        super().__init__(world)
        self._command = command

    def on_reply(self, reply: Any) -> None:
        """Enough."""
        self.world.on_answered(self.machine, self._command, reply)
        self.world.later(0, self._leave)

    def _leave(self) -> None:
        if self.is_open:
            self.hang_up()


class Striking:
    """What the rooms of faults share.

    gone     nodes that left for good, and ids that nodes had before they were reset
    called   ids that nodes had when they were reset or died: some are nobody's any more
    torn     pairs of names whose nodes can't find each other by themselves -> why; see `tear`
    flushed  nodes that forgot all pauses, by DEBUG FLUSHALL -> the process that did
    has_losses   frames vanished, which no connection notices
    """

    def __init__(self, world: World, plan: Plan, oracle: Oracle, losses: Losses) -> None:
        self.world = world
        self.plan = plan
        self.oracle = oracle
        self.losses = losses
        self.gone: dict[str, bytes] = {}
        self.called: dict[bytes, None] = {}
        self.torn: dict[tuple[str, str], str] = {}
        self.flushed: dict[str, int] = {}
        self.has_losses = False
        self.is_over = False

    def up(self) -> list[Machine]:
        """Nodes whose process lives."""
        return self.world.running()

    def awake(self) -> list[Machine]:
        """… and is not stopped."""
        return [machine for machine in self.world.running() if not machine.is_stopped]

    def ask(self, machine: Machine, *command: str | bytes | int) -> None:
        """An operator's command; it is run at once, unless the node is stopped."""
        if machine.is_up:
            connection = self.world.connect(machine, Operator(self.world, command))
            self.world.on_asked(machine, command)
            connection.send([words(*command)])

    def ask_all(self, *command: str | bytes | int) -> None:
        """The same on all nodes that are up."""
        for machine in self.up():
            self.ask(machine, *command)

    def meet(self, machine: Machine, other: str) -> None:
        """CLUSTER MEET, as soon as the node has read its journal."""
        if machine.is_up and machine.broker.is_loading:
            self.world.later(LOOK_AGAIN_MS, self.meet, machine, other)
        else:
            self.ask(machine, "CLUSTER", "MEET", other, PORT)

    def tell_gone(self, machine: Machine) -> None:
        """A node that comes back must be told who was forgotten meanwhile, when it has read its journal."""
        if machine.is_up and machine.broker.is_loading:
            self.world.later(LOOK_AGAIN_MS, self.tell_gone, machine)
            return
        for node_id in self.gone.values():
            self.forget_on(machine, node_id)

    def forget_on(self, machine: Machine, node_id: bytes) -> None:
        """CLUSTER FORGET."""
        machine.forgot[node_id] = None
        self.losses.mishap(machine)
        self.ask(machine, "CLUSTER", "FORGET", node_id.hex())

    def find_back(self) -> None:
        """Who was reset, and killed before that was on disk, is who it was: whoever forgot it has to meet it again."""
        present = {machine.membership.me.id: machine for machine in self.up()}
        for name, node_id in list(self.gone.items()):
            back = present.get(node_id)
            if back is not None:
                del self.gone[name]
                for other in self.up():
                    if other is not back:
                        self.tear(other, back.name, "was told to forget it")

    def tear(self, machine: Machine, other: str, why: str) -> None:
        """A node knows another no more, or nobody (`other` empty): an operator has to say MEET, once, at one of them.

        What was torn before counts no longer once the mesh is whole (`note_whole`).
        """
        self.torn[machine.name, other] = why

    def check_file(self, machine: Machine) -> None:
        """A process dies: nodes that are not yet in its file are lost to the next one.

        This excuse goes when the nodes file is written before other nodes hear of what is in it.
        """
        known = {node.id for node in machine.membership.nodes.values() if not node.flags & HANDSHAKE}
        written = parse(machine.nodes_file) if machine.nodes_file else []
        if known != {line.id for line in written}:
            self.tear(machine, "", "its nodes file was behind")

    def note_whole(self) -> None:
        """Nodes that all know each other are torn no more: a later gap has to be explained by what comes later."""
        if self.torn and self.world.is_meshed():
            machines = self.world.machines
            down = [name for name, machine in machines.items() if not machine.is_up]
            self.torn = {pair: why for pair, why in self.torn.items() if pair[0] in down or pair[1] in down}

    def is_whole(self) -> bool:
        """Whether nodes have links to each other where nothing has torn them apart."""
        up = self.up()
        return all(
            machine is other or self._is_torn(machine.name, other.name) or is_linked(machine, other)
            for machine in up
            for other in up
        )

    def _is_torn(self, one: str, other: str) -> bool:
        torn = self.torn
        return (one, "") in torn or (other, "") in torn or (one, other) in torn or (other, one) in torn

    def meet_torn(self) -> None:
        """An operator's MEET where something is torn: one for each pair, one for each node that knows nobody."""
        up = {machine.name: machine for machine in self.up()}
        lost = [name for name in up if (name, "") in self.torn]
        hub = next((name for name in up if name not in lost), next(iter(up)))
        for one, other in [*((name, hub) for name in lost), *(pair for pair in self.torn if pair[1])]:
            if one != other and one in up and other in up:
                self.meet(up[one], other)

    def forget_gone(self) -> None:
        """CLUSTER FORGET of all that is gone, at each node that knows it, or whose jobs name it.

        Nodes don't pass FORGET on (docs/commands.md).
        """
        for machine in self.up():
            known = {node.id for node in machine.membership.known_nodes() if not node.flags & FORGOTTEN}
            for node_id in self.gone.values():
                if node_id in known:
                    self.forget_on(machine, node_id)

    def find_gone(self) -> None:
        """When all who will be there are: an id that none of them has is nobody's, and was perhaps never forgotten."""
        present = [machine.membership.me.id for machine in self.up()]
        known = {*present, *self.gone.values()}
        for node_id in self.called:
            if node_id not in known:
                self.gone[f"nobody {node_id.hex()[:8]}"] = node_id


def is_linked(machine: Machine, other: Machine) -> bool:
    """Whether a node has the link that it dialed to another."""
    node = machine.membership.find(other.membership.me.id)
    return node is not None and node.is_linked


def nothing() -> None:
    """There is nothing to end."""
