"""Faults of links and clocks: cuts of every shape, hiccups, losses, delays, and wall clocks that jump.

The plan of a seed lists faults by name, each with a span and some random numbers, its `picks`. `LinkFaults.kinds` maps
the name to the method that does the fault. The picks choose the nodes, so a fault is the same in every run of a seed.
A method returns a description and the function that ends the fault, or None if it can't be done now (targets.py).

A silent cut holds frames back, and no node notices. A loud cut breaks the connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from cluster_bus.messages import VOTERS
from disque_py.simulator.faults.targets import Effect, End, Targets, nothing

if TYPE_CHECKING:
    from disque_py.simulator.plan import Fault

JUMPS_MS: Final = (-3_600_000, -600_000, -5_000, 5_000, 600_000, 86_400_000)
LOSS_SHARES: Final = (0.01, 0.05, 0.2)
SLOW_MS: Final = (50, 300, 1_000)


class LinkFaults:
    """The faults of connections and clocks, by name in `kinds`."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self.kinds: dict[str, Callable[[Fault], Effect]] = {
            "hiccup": self.do_hiccup,
            "hang-up": self.do_hang_up,
            "one-way": self.do_one_way,
            "pair": self.do_pair,
            "halves": self.do_halves,
            "bridge": self.do_bridge,
            "alone": self.do_alone,
            "ring": self.do_ring,
            "shift": self.do_shift,
            "loss": self.do_loss,
            "delay": self.do_delay,
            "jump": self.do_jump,
            "stale": self.do_stale,
        }
        self._stale: dict[int, str] = {}

    def do_hiccup(self, fault: Fault) -> Effect:
        """Break one connection. A new one may be made immediately."""
        pair = self._pair(fault)
        if pair is None:
            return None
        self._targets.world.network.hiccup(*pair)
        return f"the connection of {pair[0]} to {pair[1]} breaks", nothing

    def do_hang_up(self, fault: Fault) -> Effect:
        """Break a client's connection."""
        connections = list(self._targets.world.connections)
        if not connections:
            return None
        connection = connections[fault.picks[0] % len(connections)]
        connection.hang_up()
        return f"client {connection.client.id} of {connection.machine.name} is cut off", nothing

    def _pair(self, fault: Fault) -> tuple[str, str] | None:
        """Return two nodes; None if the cluster has only one."""
        names = list(self._targets.world.machines)
        if len(names) < 2:
            return None
        one = names[fault.picks[0] % len(names)]
        names.remove(one)
        return one, names[fault.picks[1] % len(names)]

    def do_one_way(self, fault: Fault) -> Effect:
        """Cut one direction between two nodes; the other direction works."""
        pair = self._pair(fault)
        return None if pair is None else self._cut(fault, [pair], "one way")

    def do_pair(self, fault: Fault) -> Effect:
        """Cut both directions between two nodes. All other links work, so others can reach both."""
        pair = self._pair(fault)
        return None if pair is None else self._cut(fault, [pair, pair[::-1]], "no link between two")

    def do_halves(self, fault: Fault) -> Effect:
        """Cut the cluster into two groups."""
        names = self._shuffled(fault)
        half = 1 + fault.picks[2] % max(1, len(names) - 1)
        return self._part(fault, [names[:half], names[half:]], "halves")

    def do_bridge(self, fault: Fault) -> Effect:
        """Cut the cluster into two groups that have one node in common."""
        names = self._shuffled(fault)
        half = 1 + (len(names) - 1) // 2
        return self._part(fault, [names[1:half], names[half:]], f"all meet at {names[0]} only")

    def do_alone(self, fault: Fault) -> Effect:
        """Cut every node off from every other."""
        return self._part(fault, [[name] for name in self._targets.world.machines], "every node alone")

    def do_ring(self, fault: Fault) -> Effect:
        """Cut all links except those between neighbours in a ring."""
        names = self._shuffled(fault)
        size = len(names)
        apart = [
            (one, other)
            for at, one in enumerate(names)
            for there, other in enumerate(names)
            if 1 < abs(at - there) < size - 1
        ]
        return self._cut(fault, apart, f"ring {' '.join(names)}") if apart else None

    def do_shift(self, fault: Fault) -> Effect:
        """Cut the cluster in one of several shapes; the next shape follows soon."""
        kinds = (self.do_halves, self.do_one_way, self.do_ring, self.do_bridge)
        return kinds[fault.picks[3] % len(kinds)](fault)

    def _shuffled(self, fault: Fault) -> list[str]:
        """Return all nodes in an order that the picks choose."""
        names = list(self._targets.world.machines)
        turn = fault.picks[0] % len(names)
        names = names[turn:] + names[:turn]
        return names if fault.picks[1] % 2 else names[::2] + names[1::2]

    def _part(self, fault: Fault, groups: list[list[str]], what: str) -> Effect:
        """Cut all links between nodes of different groups."""
        apart = [
            (one, other) for left in groups for right in groups if left is not right for one in left for other in right
        ]
        return self._cut(fault, apart, what) if apart else None

    def _cut(self, fault: Fault, pairs: list[tuple[str, str]], what: str) -> tuple[str, End]:
        """Cut these links, each in the direction of its pair. `what` begins the description."""
        silently = fault.picks[2] % 2 == 0
        network = self._targets.world.network
        for one, other in pairs:
            network.cut(one, other, silently=silently)
        if silently:
            self._targets.oracle.delays_ms += fault.span_ms

        def mend() -> None:
            for one, other in pairs:
                network.mend(one, other, silently=silently)

        told = ", ".join(f"{one}→{other}" for one, other in pairs[:12])
        return f"{what}{', silently' if silently else ''}: {told}", mend

    def do_loss(self, fault: Fault) -> Effect:
        """Drop a share of all frames."""
        traffic = self._targets.world.traffic
        self._targets.has_losses = True
        traffic.loss = LOSS_SHARES[fault.picks[0] % len(LOSS_SHARES)]
        return f"{traffic.loss:.0%} of frames vanish", self._no_loss

    def _no_loss(self) -> None:
        self._targets.world.traffic.loss = 0.0

    def do_delay(self, fault: Fault) -> Effect:
        """Make the network slow."""
        traffic = self._targets.world.traffic
        low_ms, high_ms = self._targets.plan.delay_ms
        slow_ms = SLOW_MS[fault.picks[0] % len(SLOW_MS)]
        traffic.delay_ms = (low_ms, max(high_ms, slow_ms))
        self._targets.oracle.delays_ms += slow_ms
        return f"frames take up to {traffic.delay_ms[1]} ms", self._no_delay

    def _no_delay(self) -> None:
        self._targets.world.traffic.delay_ms = self._targets.plan.delay_ms

    def do_stale(self, fault: Fault) -> Effect:
        """Lose all lists of voters on their way to one node. It gets all other messages."""
        names = list(self._targets.world.machines)
        name = self._stale[fault.number] = names[fault.picks[0] % len(names)]
        self._targets.world.traffic.filter = self._is_kept_away

        def end() -> None:
            del self._stale[fault.number]
            if not self._stale:
                self._targets.world.traffic.filter = None

        return f"{name} hears no list of voters", end

    def _is_kept_away(self, sender: str, receiver: str, kind: int, item: Any) -> bool:
        return kind == VOTERS and receiver in self._stale.values()

    def do_jump(self, fault: Fault) -> Effect:
        """Set the wall clock of a node forward or back."""
        names = list(self._targets.world.machines)
        machine = self._targets.world.machines[names[fault.picks[0] % len(names)]]
        jump_ms = JUMPS_MS[fault.picks[1] % len(JUMPS_MS)]
        machine.wall_offset_ms += jump_ms
        self._targets.losses.jumped(machine, jump_ms)
        return f"wall clock of {machine.name} is {machine.wall_offset_ms / 1000:+g} s off", nothing
