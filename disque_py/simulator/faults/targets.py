"""The nodes that faults may strike, and an operator that speaks to them.

A fault is a `do_` method of a class in this package. It chooses a node by the fault's numbers among the nodes that are
up. It acts, and returns a description and a function that ends the fault. If the fault can't be done now, it returns
None: for example, a node that is down can't be killed.

All kinds of faults share one `Targets`. The liveness phase uses it, too, because it knows which nodes are gone and
which are torn apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from cluster_bus.node import FORGOTTEN
from disque_py.simulator.clients.connection import Connection, words
from disque_py.simulator.world.machine import PORT

if TYPE_CHECKING:
    from disque_py.simulator.checks.cluster_invariants import Losses
    from disque_py.simulator.oracle import Oracle
    from disque_py.simulator.plan import Plan
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

LOOK_AGAIN_MS: Final = 20
# Commands by which a node forgets all jobs.
FLUSHES: Final = (("DEBUG", "FLUSHALL"), ("CLUSTER", "RESET"))

End = Callable[[], object]
# A description for people, and the function that ends the fault; None: the fault could not be done.
Effect = tuple[str, End] | None


class Operator(Connection):
    """An operator's connection for one command.

    A node that reads its journal keeps most commands until it is ready. So a flush or a reset is noted when the node
    runs it, after all earlier commands.
    """

    __slots__ = ("_command", "_is_noted", "_losses")

    def __init__(self, world: World, command: tuple[str | bytes | int, ...], losses: Losses) -> None:
        super().__init__(world)
        self._command = command
        self._losses = losses
        self._is_noted = False

    def _run(self) -> None:
        machine = self.machine
        is_read = self._requests and self.is_open and not (machine.is_stopped or machine.is_deaf or machine.is_ending)
        if is_read and not self._is_noted and not self._is_early():
            self._is_noted = True
            self.world.watcher.on_asked(machine, self._command)
            if self._command[:2] in FLUSHES:
                self._losses.flushing(machine)
        super()._run()

    def _is_early(self) -> bool:
        broker = self.broker
        return broker.is_loading and not broker.commands[self._requests[0][0].lower()].is_for_loading

    def on_reply(self, reply: Any) -> None:
        """Note the reply and hang up."""
        self.world.watcher.on_answered(self.machine, self._command, reply)
        self.world.later(0, self._leave)

    def _leave(self) -> None:
        if self.is_open:
            self.hang_up()


class Paused:
    """A queue that an operator paused, on one node or everywhere. The same operator ends the pause.

    operator    sent the command; None: its node was not up
    run         the run of the node that got the command
    is_ended    the operator has ended the pause
    is_lost     the node was flushed or reset since, so it may not know the pause any more
    """

    __slots__ = ("is_ended", "is_lost", "machine", "operator", "queue", "run", "where")

    def __init__(self, machine: Machine, queue: bytes, where: tuple[str, ...]) -> None:
        self.machine = machine
        self.queue = queue
        self.where = where
        self.operator: Operator | None = None
        self.run = machine.runs
        self.is_ended = False
        self.is_lost = False

    @property
    def is_waiting(self) -> bool:
        """Whether the command has no answer yet. A command that ends the pause could be executed before it."""
        return self.operator is not None and self.operator.is_open

    def may_last(self) -> bool:
        """Return whether the pause may last although it was ended: its node was restarted, or forgot it."""
        return self.is_lost or self.machine.runs != self.run


class Targets:
    """The nodes of a world as faults see them.

    gone       nodes that left for good, and ids that nodes had before they were reset
    called     ids that nodes had when they were reset or died; some belong to no node any more
    torn       pairs of names whose nodes can't find each other by themselves -> the reason; see `tear`
    met        pairs of names for which an operator sent MEET after the weather
    paused     the queues that operators paused
    flushed    nodes that forgot all pauses, by DEBUG FLUSHALL -> their run at that time
    has_losses whether frames vanished without a broken connection
    is_over    whether the weather has ended
    """

    def __init__(self, world: World, plan: Plan, oracle: Oracle, losses: Losses) -> None:
        self.world = world
        self.plan = plan
        self.oracle = oracle
        self.losses = losses
        self.gone: dict[str, bytes] = {}
        self.called: dict[bytes, None] = {}
        self.torn: dict[tuple[str, str], str] = {}
        self.met: dict[tuple[str, str], None] = {}
        self.paused: list[Paused] = []
        self.flushed: dict[str, int] = {}
        self.has_losses = False
        self.is_over = False

    def up(self) -> list[Machine]:
        """Return the nodes whose process lives."""
        return self.world.running()

    def awake(self) -> list[Machine]:
        """Return the nodes whose process lives and is not stopped."""
        return [machine for machine in self.world.running() if not machine.is_stopped]

    # -- processes ---------------------------------------------------------------------------------

    def rise(self, machine: Machine) -> None:
        """Start a process that is down, unless its node is gone for good."""
        machine.fuse = 0
        if not machine.is_up and machine.name not in self.gone:
            machine.start()
            self.tell_gone(machine)

    def go(self, machine: Machine) -> None:
        """Shut a node down and forget it everywhere."""
        if machine.is_up:
            machine.die()
        self.gone[machine.name] = machine.membership.table.me.id
        for other in self.up():
            self.forget_on(other, machine.membership.table.me.id)

    # -- an operator -------------------------------------------------------------------------------

    def ask(self, machine: Machine, *command: str | bytes | int) -> Operator | None:
        """Send an operator's command. The node runs it immediately, unless it is stopped or reads its journal."""
        if not machine.is_up:
            return None
        operator = Operator(self.world, command, self.losses)
        self.world.connect(machine, operator).send([words(*command)])
        return operator

    def ask_all(self, *command: str | bytes | int) -> None:
        """Send the command to all nodes that are up."""
        for machine in self.up():
            self.ask(machine, *command)

    def meet(self, machine: Machine, other: str) -> None:
        """Send CLUSTER MEET as soon as both nodes are up and the first has read its journal."""
        if machine.name in self.gone or other in self.gone:
            return
        if not machine.is_up or machine.broker.is_loading or not self.world.machines[other].is_up:
            self.world.later(LOOK_AGAIN_MS, self.meet, machine, other)
            return
        if self.is_over:
            self.met[machine.name, other] = None
        self.ask(machine, "CLUSTER", "MEET", other, PORT)

    def pause(self, machine: Machine, queue: bytes, how: str, where: tuple[str, ...]) -> Paused:
        """Send PAUSE."""
        paused = Paused(machine, queue, where)
        self.paused.append(paused)
        paused.operator = self.ask(machine, "PAUSE", queue, how, *where)
        return paused

    def end_pause(self, paused: Paused) -> None:
        """End a pause with PAUSE none, at the same node as soon as it is up.

        If that node is gone or has forgotten all pauses, another node gets the command for a pause on all nodes.
        An operator ends only pauses that the same operator began.
        """
        machine = self._end_at(paused)
        if machine is None:
            paused.is_ended = True
        elif not machine.is_up or machine.is_stopped or machine.broker.is_loading or paused.is_waiting:
            self.world.later(LOOK_AGAIN_MS, self.end_pause, paused)
        else:
            self.ask(machine, "PAUSE", paused.queue, "none", *paused.where)
            paused.is_ended = True

    def _end_at(self, paused: Paused) -> Machine | None:
        machine = paused.machine
        is_gone = machine.name in self.gone
        if not is_gone and self.flushed.get(machine.name) != machine.runs:
            return machine
        if not paused.where:
            return None if is_gone else machine
        paused.is_lost = True
        others = [other for other in self.awake() if self.flushed.get(other.name) != other.runs]
        return others[0] if others else next(iter(self.up()), machine)

    def lose_pauses(self, machine: Machine) -> None:
        """Note that a node has forgotten all pauses."""
        for paused in self.paused:
            paused.is_lost |= paused.machine is machine

    def tell_gone(self, machine: Machine) -> None:
        """Let a node that came back forget the nodes that were forgotten meanwhile, after it has read its journal."""
        if machine.is_up and machine.broker.is_loading:
            self.world.later(LOOK_AGAIN_MS, self.tell_gone, machine)
            return
        for node_id in self.gone.values():
            self.forget_on(machine, node_id)

    def forget_on(self, machine: Machine, node_id: bytes) -> None:
        """Send CLUSTER FORGET."""
        machine.forgot[node_id] = self.world.now_ms
        self.losses.forgetting(machine, node_id)
        self.ask(machine, "CLUSTER", "FORGET", node_id.hex())

    def find_back(self) -> None:
        """Note the nodes that have their former id again.

        Such a node was reset, and then killed before the reset was on disk. Nodes that forgot it must meet it again.
        """
        present = {machine.membership.table.me.id: machine for machine in self.up()}
        for name, node_id in list(self.gone.items()):
            back = present.get(node_id)
            if back is not None:
                del self.gone[name]
                for other in self.up():
                    if other is not back:
                        self.tear(other, back.name, "was told to forget it")

    def tear(self, machine: Machine, other: str, why: str) -> None:
        """Note that a node no longer knows another one, or knows no other node at all (`other` is empty).

        An operator must send MEET to one of the two. An entry counts until the mesh is whole (`note_whole`).
        """
        self.torn[machine.name, other] = why
        for pair in [pair for pair in self.met if machine.name in pair]:
            del self.met[pair]

    def note_whole(self) -> None:
        """Drop the entries of `torn` once all nodes are linked: a later gap needs a new reason.

        A node that is down may not be part of the others' mesh. A node that knew no other node keeps its entry until
        all nodes are up, because a node that is down knows it by a former id, or not at all.
        """
        if self.torn and self.world.is_meshed():
            machines = self.world.machines
            down = [name for name, machine in machines.items() if not machine.is_up and name not in self.gone]
            self.torn = {
                pair: why
                for pair, why in self.torn.items()
                if pair[0] in down or pair[1] in down or (down and not pair[1])
            }

    def is_whole(self) -> bool:
        """Return whether all pairs of nodes have links, except those that are torn apart."""
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
        """Send MEET once for each torn pair that has no link, and for each node that knows no other.

        The operator who tore a pair apart has sent MEET before. But a node was dead or cut off then, and a MEET is
        given up after the node timeout. A MEET that is sent after the weather must be enough.
        """
        up = {machine.name: machine for machine in self.up()}
        lost = [name for name in up if (name, "") in self.torn]
        hub = next((name for name in up if name not in lost), next(iter(up)))
        for one, other in [*((name, hub) for name in lost), *(pair for pair in self.torn if pair[1])]:
            if one != other and one in up and other in up and not self._is_met(up[one], up[other]):
                self.meet(up[one], other)

    def _is_met(self, one: Machine, other: Machine) -> bool:
        pairs = (one.name, other.name), (other.name, one.name)
        return any(pair in self.met for pair in pairs) or (is_linked(one, other) and is_linked(other, one))

    def forget_gone(self) -> None:
        """Send CLUSTER FORGET for all gone nodes, to each node that knows them or whose jobs name them.

        Nodes don't pass FORGET on (docs/commands.md).
        """
        for machine in self.up():
            known = {node.id for node in machine.membership.table.known_nodes() if not node.flags & FORGOTTEN}
            for node_id in self.gone.values():
                if node_id in known:
                    self.forget_on(machine, node_id)

    def find_gone(self) -> None:
        """Add the ids that no node has any more to `gone`, once all remaining nodes are up.

        Some node may never have forgotten such an id.
        """
        present = [machine.membership.table.me.id for machine in self.up()]
        known = {*present, *self.gone.values()}
        for node_id in self.called:
            if node_id not in known:
                self.gone[f"former {node_id.hex()[:8]}"] = node_id


def is_linked(machine: Machine, other: Machine) -> bool:
    """Return whether a node has the link that it dialed to another."""
    node = machine.membership.table.find(other.membership.table.me.id)
    return node is not None and node.is_linked


def nothing() -> None:
    """End nothing."""
