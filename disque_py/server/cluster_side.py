"""What the bus reports, brought to the driver: one turn's input each. And the nodes to meet at start.

The Bus knows sockets and asks who is who; membership decides, inside a turn. Job messages that no node of a known
version would send close the link, and the Bus counts them like any other frame that is not right.

`cluster-seeds` are met at start and then again until each was reached once: nodes of a cluster may be started in any
order. Whether a seed is this node itself, or one that is known already, turns out in the handshake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cluster_bus.codec import FrameError, Run
from cluster_bus.handshake import Hello
from cluster_bus.membership import Membership
from cluster_bus.node import HANDSHAKE, Node
from disque_py import inputs
from disque_py.config.settings import BUS_PORT_DISTANCE, PORT_MAX
from disque_py.server.start_error import StartError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from disque_py.config.kinds import Seed
    from disque_py.server.shell import Shell

SEED_SECONDS: Final = 3.0


class ClusterSide:
    """Owner of the Bus. `seeds` are those not reached yet."""

    def __init__(self, shell: Shell, membership: Membership, seeds: Sequence[Seed]) -> None:
        self.seeds = bus_addresses(seeds)
        self._shell = shell
        self._membership = membership

    def meet_seeds(self) -> None:
        """Meet who was not reached yet, now and every SEED_SECONDS."""
        if not self.seeds or self._shell.is_stopping:
            return
        self._shell.driver.begin()
        for (host, port), bus_port in self.seeds.items():
            self._membership.meet(host, port, bus_port)
        self._shell.loop.call_later(SEED_SECONDS, self.meet_seeds)

    # -- BusOwner ----------------------------------------------------------------------------------

    def hello(self) -> Hello:
        """What we say when a link opens: our id, which the file has before."""
        self._shell.driver.write_first()
        return self._membership.hello()

    def on_link_up(self, node: Node, hello: Hello, peer_host: str, local_host: str) -> Node | None:
        """A link that we dialed is ready: whose it is."""
        self._shell.driver.begin()
        if node.flags & HANDSHAKE:
            self.seeds.pop((node.host, node.port), None)
        return self._membership.link_up(node, hello, peer_host, local_host)

    def on_link_down(self, node: Node) -> None:
        """A link of ours, or the attempt, failed."""
        self._shell.driver.begin()
        self._membership.link_down(node)

    def on_accept(self, hello: Hello, peer_host: str, local_host: str) -> Node | None:
        """Somebody dialed us: who it is."""
        self._shell.driver.begin()
        return self._membership.accept(hello, peer_host, local_host)

    def on_incoming_lost(self, node: Node) -> None:
        """What the node told us on its link, its interest, is gone with the link; it tells everything on the next."""
        driver = self._shell.driver
        driver.begin()
        inputs.incoming_lost(driver.broker, node)

    def on_membership(
        self, sender: Node | None, hello: Hello, peer_host: str, local_host: str, kind: int, items: list[Any]
    ) -> None:
        """Heartbeats and the like; FrameError closes the link."""
        self._shell.driver.begin()
        self._shell.driver.broker.stats.messages_received += len(items)
        self._membership.receive(sender, hello, peer_host, local_host, kind, items)

    def on_runs(self, sender: Node, runs: list[Run]) -> None:
        """Job messages of one frame; FrameError closes the link."""
        try:
            self._shell.driver.receive(sender, runs)
        except inputs.MalformedMessageError as error:
            raise FrameError("malformed message", str(error)) from None


def bus_addresses(seeds: Sequence[Seed]) -> dict[tuple[str, int], int]:
    """The bus port of each seed, by its host and client port; StartError."""
    found = {(seed.host, seed.port): seed.bus_port or seed.port + BUS_PORT_DISTANCE for seed in seeds}
    for (host, port), bus_port in found.items():
        if bus_port > PORT_MAX:
            raise StartError(f"cluster-seeds: {host}:{port} needs a bus port, as in {host}:{port}@10000")
    return found
