"""Our outgoing links and the addresses they lead to: when to dial, when to hang up, and what changed.

We dial one link per node of the table, and read nothing from it. A broken link is dialed again after a pause that
doubles. If the node connects to us first, we dial immediately, because it is evidently running. A node announces its
address; the address that its connections come from is only a guess.

Membership calls this part. It knows addresses, runs and moments, and no message. All work for the outside goes into the
tray (tray.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster_bus.handshake import RUN_BYTES, Hello
from cluster_bus.node import NOADDR, Node

if TYPE_CHECKING:
    from random import Random

    from cluster_bus.node_table import NodeTable
    from cluster_bus.tray import Tray

# An address that refuses is tried again soon, for a restarting node, then once a second. A link that lasted shows
# that the address is good; a link that was closed at once (the node forgot us) does not.
DIAL_GAP_MS_MIN: Final = 100
DIAL_GAP_MS_MAX: Final = 1_000
PROVEN_LINK_MS: Final = 5_000
# After this time without a link a node is out of sight. A tick every 100 ms detects it, so within a second.
MISSED_MS: Final = 900
# Changes that others cause are written at most this often; each write costs two syncs of the disk.
SAVE_GAP_MS: Final = 100


class Links:
    """The links to the nodes of `table`, and the nodes file's state.

    announced_host    `cluster-announce-ip`, "" if other nodes should take our address from the socket
    is_unsaved        changes wait for a later save

    Results are in `tray`. The table has the time.
    """

    def __init__(self, table: NodeTable, tray: Tray, rng: Random, announced_host: str) -> None:
        self.announced_host = announced_host
        self.is_unsaved = False
        self._table = table
        self._tray = tray
        self._rng = rng
        self._saved_ms = -SAVE_GAP_MS
        me = table.me
        if announced_host:
            me.host = announced_host
        if not me.run:
            me.run = rng.randbytes(RUN_BYTES)

    # -- dialing ---------------------------------------------------------------------------------------

    def dial(self, node: Node) -> None:
        """Dial a node, if its address is known."""
        if node.host and node.bus_port and not node.flags & NOADDR:
            node.is_dialing = True
            self._tray.dials[node] = None

    def redial(self, node: Node) -> None:
        """Replace the link immediately; with a pause between attempts if the node keeps changing its address."""
        was_linked = node.is_linked
        self.hang_up(node)
        if self._table.now_ms >= node.redial_at_ms:
            node.redial_at_ms = self._table.now_ms + DIAL_GAP_MS_MIN
            self.dial(node)
        else:
            node.dial_at_ms = node.redial_at_ms
        if was_linked:
            self._table.refresh()

    def dial_anew(self, node: Node) -> None:
        """Replace an attempt to connect, which may hang although the network works again; at most once a second."""
        node.must_redial = node.is_dialing and self._table.now_ms < node.redial_at_ms
        if node.is_dialing and not node.must_redial:
            self.hang_up(node)
            self.dial(node)
            node.redial_at_ms = self._table.now_ms + DIAL_GAP_MS_MAX

    def hang_up(self, node: Node) -> None:
        """Drop our link or attempt; the caller refreshes."""
        self._tray.hang_ups[node] = None
        self.mark_down(node)

    def mark_up(self, node: Node, hello: Hello, protocol: int) -> None:
        """Register that the link to `node` is up."""
        self.learn_run(node, hello.run)
        node.is_dialing = False
        node.is_linked = True
        node.is_missed = False
        node.link_since_ms = self._table.now_ms
        node.link_run = hello.run
        node.protocol = node.spoken = protocol
        node.version = hello.software
        if self._table.end_newcomer(node) is not None:
            self.write_first()
        self._tray.link_events.append((node, True))
        self._table.refresh()

    def mark_down(self, node: Node) -> None:
        """Do the book-keeping for a link or attempt that is closed; the caller refreshes."""
        if node.is_dialing:
            node.is_dialing = False
            self._tray.dials.pop(node, None)
        if node.is_linked:
            node.is_linked = False
            node.unlinked_ms = self._table.now_ms
            node.link_run = b""
            node.protocol = 0
            self._tray.link_events.append((node, False))

    def back_off(self, node: Node) -> None:
        """Set the moment of the next attempt after a broken link or failed attempt. The caller refreshes."""
        if node.is_linked and self._table.now_ms - node.link_since_ms >= PROVEN_LINK_MS:
            node.dial_gap_ms = 0
        self.mark_down(node)
        gap_ms = max(node.dial_gap_ms, DIAL_GAP_MS_MIN)
        node.dial_at_ms = self._table.now_ms + gap_ms + int(self._rng.random() * gap_ms / 2)
        node.dial_gap_ms = min(2 * gap_ms, DIAL_GAP_MS_MAX)

    def miss(self, node: Node) -> bool:
        """Return whether a node without a link is out of sight from now on; the caller refreshes."""
        if node.is_linked or node.is_missed or self._table.now_ms - node.unlinked_ms < MISSED_MS:
            return False
        node.is_missed = True
        return True

    def await_pong(self, node: Node) -> None:
        """Expect an answer from now on. If one was due already, the older moment counts."""
        if not node.ping_sent_ms:
            node.ping_sent_ms, node.ping_sent_wall_ms = max(self._table.now_ms, 1), self._table.wall_ms

    # -- the nodes file --------------------------------------------------------------------------------

    def write_first(self) -> None:
        """Write the changed members to the file before others may be told; the file is synced soon."""
        self._tray.must_write = True
        self.save_soon()

    def save_soon(self) -> None:
        """Save the news from other nodes: now, or with a later tick if we have just saved."""
        if self._table.now_ms - self._saved_ms >= SAVE_GAP_MS:
            self._saved_ms = self._table.now_ms
            self._tray.must_save = True
            self.is_unsaved = False
        elif not self._tray.must_save:
            self.is_unsaved = True

    # -- addresses -------------------------------------------------------------------------------------

    def learn_own_host(self, local_host: str, *, is_met: bool) -> None:
        """Learn our own address from a connection: from a MEET always, from others only while we know none."""
        if self.announced_host or not local_host or local_host == self._table.me.host:
            return
        if is_met or not self._table.me.host:
            self._table.me.host = local_host
            self.save_soon()

    def learn_run(self, node: Node, run: bytes) -> None:
        """Note which process of the node runs; another one than before is news for the core."""
        if node.run and node.run != run:
            self._tray.new_runs.append(node)
        node.run = run

    def learn_address_heard(self, node: Node, host: str, port: int, bus_port: int, peer_host: str, run: bytes) -> None:
        """Learn the address that a node named on a link from `peer_host`; `host` only if it announces one.

        An announced address counts. The address that its connection comes from is a guess (NAT, several interfaces):
        the guess does not replace an address at which we reach that very process.
        """
        is_reached = node.is_linked and node.link_run == run
        if not host:
            host = node.host if is_reached else peer_host or node.host
        if self.learn_address(node, host, port, bus_port) and not is_reached:
            self.redial(node)

    def learn_address(self, node: Node, host: str, port: int, bus_port: int) -> bool:
        """Take over an address, ports only if given; False if it is the one we know."""
        port, bus_port = port or node.port, bus_port or node.bus_port
        if (host, port, bus_port) == (node.host, node.port, node.bus_port):
            return False
        node.host, node.port, node.bus_port = host, port, bus_port
        node.flags &= ~NOADDR
        self._tray.address_changed.append(node)
        self.save_soon()
        return True

    def lose_address(self, node: Node) -> None:
        """Drop the address, because another node answers there. The node itself, or gossip, will name the new one."""
        self._tray.note("address-taken", node)
        node.flags |= NOADDR
        node.host, node.port, node.bus_port = "", 0, 0
        self._tray.address_changed.append(node)
        self.save_soon()
        self.mark_down(node)
        self.await_pong(node)
        self._table.refresh()
