"""Bus adapter: brings the reports of the bus to the driver, and meets the seeds at start.

The Bus knows sockets and asks which node is at the other end. Membership decides that inside a turn. A job message that
no node of a known version sends closes the link, and the Bus counts it like any other malformed frame.

`cluster-seeds` are met at start, and again until each was reached once, because nodes of a cluster may be started in
any order. A seed may be this node itself, or a known node. The handshake finds that out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cluster_bus.codec import FrameError, Run
from cluster_bus.handshake import Hello
from cluster_bus.membership import Membership
from cluster_bus.node import HANDSHAKE, Node
from disque_py.config.settings import BUS_PORT_DISTANCE, PORT_MAX
from disque_py.node import dispatch
from disque_py.server.start_error import StartError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from disque_py.config.kinds import Seed
    from disque_py.server.turn_loop import TurnLoop

SEED_SECONDS: Final = 3.0


class BusAdapter:
    """The owner of the Bus. `seeds` are the nodes not reached yet."""

    def __init__(self, turns: TurnLoop, membership: Membership, seeds: Sequence[Seed]) -> None:
        self.seeds = bus_addresses(seeds)
        self._turns = turns
        self._membership = membership

    def meet_seeds(self) -> None:
        """Meet the seeds that were not reached yet, now and every SEED_SECONDS."""
        if not self.seeds or self._turns.is_stopping:
            return
        self._turns.driver.begin()
        for (host, port), bus_port in self.seeds.items():
            self._membership.meet_seed(host, port, bus_port)
        self._turns.loop.call_later(SEED_SECONDS, self.meet_seeds)

    # -- BusOwner ----------------------------------------------------------------------------------

    def hello(self) -> Hello:
        """Return our greeting on a new link. It has our id, so the nodes file has it before."""
        self._turns.driver.write_first()
        return self._membership.hello()

    def on_link_up(self, node: Node, hello: Hello, peer_host: str, local_host: str) -> Node | None:
        """Return the node at the end of a link that we dialed; the link is ready."""
        self._turns.driver.begin()
        if node.flags & HANDSHAKE:
            self.seeds.pop((node.host, node.port), None)
        return self._membership.link_up(node, hello, peer_host, local_host)

    def on_link_down(self, node: Node) -> None:
        """Report a link of ours that broke or could not be opened."""
        self._turns.driver.begin()
        self._membership.link_down(node)

    def on_accept(self, hello: Hello, peer_host: str, local_host: str) -> Node | None:
        """Return the node that dialed us."""
        self._turns.driver.begin()
        return self._membership.accept(hello, peer_host, local_host)

    def on_stranger_gone(self, hello: Hello, peer_host: str) -> None:
        """Report a node that dialed another one at our address."""
        self._turns.driver.begin()
        self._membership.stranger_gone(hello, peer_host)

    def on_incoming_lost(self, node: Node) -> None:
        """End the node's interest with its link to us. The node announces it again on its next link."""
        driver = self._turns.driver
        driver.begin()
        dispatch.incoming_lost(driver.broker, node)

    def on_membership(
        self, sender: Node | None, hello: Hello, peer_host: str, local_host: str, kind: int, items: list[Any]
    ) -> None:
        """Handle membership's messages, such as heartbeats. FrameError closes the link."""
        self._turns.driver.begin()
        self._turns.driver.broker.stats.messages_received += len(items)
        self._membership.receive(sender, hello, peer_host, local_host, kind, items)

    def on_runs(self, sender: Node, runs: list[Run]) -> None:
        """Handle the job messages of one frame. FrameError closes the link."""
        try:
            self._turns.driver.receive(sender, runs)
        except dispatch.MalformedMessageError as error:
            raise FrameError("malformed message", str(error)) from None


def bus_addresses(seeds: Sequence[Seed]) -> dict[tuple[str, int], int]:
    """Return the bus port of each seed, by its host and client port. StartError."""
    found = {(seed.host, seed.port): seed.bus_port or seed.port + BUS_PORT_DISTANCE for seed in seeds}
    for (host, port), bus_port in found.items():
        if bus_port > PORT_MAX:
            raise StartError(f"cluster-seeds: {host}:{port} needs a bus port, as in {host}:{port}@10000")
    return found
