"""Our outgoing links and the addresses they lead to: when to dial, when to hang up, and what changed.

We dial one link per node of the table; nothing but its end is read from it. A broken link is dialed again after a pause
that doubles. If the node itself connects to us first, we dial at once, for it is evidently there. A node says where it
is; the address that its connections come from is only a guess.

This part of Membership knows addresses, runs and moments, and no message. Everything it wants done outside lies in the
tray; see class Links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster_bus.codec import common_version
from cluster_bus.handshake import RUN_BYTES, Hello
from cluster_bus.node import NOADDR, Node
from cluster_bus.node_table import NodeTable

if TYPE_CHECKING:
    from random import Random

# An address that refuses is tried again soon, for a restarting node, then once a second. A link that lasted shows
# that the address is good; a link that was closed at once (the node forgot us) does not.
DIAL_GAP_MS_MIN: Final = 100
DIAL_GAP_MS_MAX: Final = 1_000
PROVEN_LINK_MS: Final = 5_000
# After so long without a link a node is out of sight. A tick of 100 ms finds it, so that is a second at most.
MISSED_MS: Final = 900
# Changes that others cause are written at most this often; each write costs two syncs of the disk.
SAVE_GAP_MS: Final = 100


class Links(NodeTable):
    """The table of nodes with the links to them. Beyond NodeTable:

    now_ms, wall_ms   set by the driver at the start of a turn
    announced_host    `cluster-announce-ip`, "" if others shall take our address from the socket

    The tray is emptied by the driver each turn. Hang-ups come before dials, new runs before link events. Hang-ups and
    dials are ordered sets, for a node may change its address many times in a turn:

    hang_ups          drop our outgoing link or attempt, no report; if FORGOTTEN, its incoming links too
    dials             connect to these; report link_up or link_down
    new_runs          these nodes have another process than the one we knew
    link_events       (node, True: its link came up, False: went down), oldest first
    forgotten         these left the table
    address_changed   these have another host, port or bus port
    must_write        write the nodes file before any message of this turn leaves: a kill can't undo what was told
    must_save         write and sync the nodes file soon
    notices           (message, fields), for the log
    """

    def __init__(self, me: Node, rng: Random, announced_host: str) -> None:
        super().__init__(me)
        self.now_ms = 0
        self.wall_ms = 0
        self.announced_host = announced_host
        self.hang_ups: dict[Node, None] = {}
        self.dials: dict[Node, None] = {}
        self.new_runs: list[Node] = []
        self.link_events: list[tuple[Node, bool]] = []
        self.forgotten: list[Node] = []
        self.address_changed: list[Node] = []
        self.must_write = False
        self.must_save = False
        self.notices: list[tuple[str, dict[str, str | int]]] = []
        self._saved_ms = -SAVE_GAP_MS
        self._is_unsaved = False
        self._rng = rng
        if announced_host:
            me.host = announced_host
        if not me.run:
            me.run = rng.randbytes(RUN_BYTES)

    def note(self, message: str, node: Node, reason: str = "") -> None:
        """Put a message about this node on the tray, for the log."""
        fields: dict[str, str | int] = {
            "node": node.name.decode(),
            "address": f"{node.host}:{node.port}",
            "bus_port": node.bus_port,
        }
        if reason:
            fields["reason"] = reason
        self.notices.append((message, fields))

    # -- dialing ---------------------------------------------------------------------------------------

    def _dial(self, node: Node) -> None:
        if node.host and node.bus_port and not node.flags & NOADDR:
            node.is_dialing = True
            self.dials[node] = None

    def _redial(self, node: Node) -> None:
        """Replace the link: at once, but a node that changes its address all the time waits between attempts."""
        was_linked = node.is_linked
        self._hang_up(node)
        if self.now_ms >= node.redial_at_ms:
            node.redial_at_ms = self.now_ms + DIAL_GAP_MS_MIN
            self._dial(node)
        else:
            node.dial_at_ms = node.redial_at_ms
        if was_linked:
            self.refresh()

    def _hang_up(self, node: Node) -> None:
        self.hang_ups[node] = None
        self._unlink(node)

    def _link(self, node: Node, hello: Hello) -> None:
        """Register that the link to `node` is up."""
        self._learn_run(node, hello.run)
        node.is_dialing = False
        node.is_linked = True
        node.is_missed = False
        node.link_since_ms = self.now_ms
        node.link_run = hello.run
        node.protocol = common_version(hello.versions)
        node.version = hello.software
        if self._no_newcomer(node) is not None:
            self._write_first()
        self.link_events.append((node, True))
        self.refresh()

    def _unlink(self, node: Node) -> None:
        """Do the book-keeping for a link or attempt that is closed; the caller refreshes."""
        if node.is_dialing:
            node.is_dialing = False
            self.dials.pop(node, None)
        if node.is_linked:
            node.is_linked = False
            node.unlinked_ms = self.now_ms
            node.link_run = b""
            node.protocol = 0
            self.link_events.append((node, False))

    def _back_off(self, node: Node) -> None:
        """Set the moment of the next attempt after a broken link or failed attempt. The caller refreshes."""
        if node.is_linked and self.now_ms - node.link_since_ms >= PROVEN_LINK_MS:
            node.dial_gap_ms = 0
        self._unlink(node)
        gap_ms = max(node.dial_gap_ms, DIAL_GAP_MS_MIN)
        node.dial_at_ms = self.now_ms + gap_ms + int(self._rng.random() * gap_ms / 2)
        node.dial_gap_ms = min(2 * gap_ms, DIAL_GAP_MS_MAX)

    def _miss(self, node: Node) -> bool:
        """Whether a node without a link is out of sight from now on; the caller refreshes."""
        if node.is_linked or node.is_missed or self.now_ms - node.unlinked_ms < MISSED_MS:
            return False
        node.is_missed = True
        return True

    def _await_pong(self, node: Node) -> None:
        """Expect an answer from now on. If one was due already, the older moment counts."""
        if not node.ping_sent_ms:
            node.ping_sent_ms, node.ping_sent_wall_ms = max(self.now_ms, 1), self.wall_ms

    # -- the nodes file --------------------------------------------------------------------------------

    def _write_first(self) -> None:
        """Write the changed members to the file before others may be told; the file is synced soon."""
        self.must_write = True
        self._save_soon()

    def _save_soon(self) -> None:
        """Save what others told us: at once, or with a later tick if we have just saved."""
        if self.now_ms - self._saved_ms >= SAVE_GAP_MS:
            self._saved_ms = self.now_ms
            self.must_save = True
            self._is_unsaved = False
        elif not self.must_save:
            self._is_unsaved = True

    # -- addresses -------------------------------------------------------------------------------------

    def _learn_own_host(self, local_host: str, *, is_met: bool) -> None:
        """Learn our own address from a connection: from a MEET always, from others only while we know none."""
        if self.announced_host or not local_host or local_host == self.me.host:
            return
        if is_met or not self.me.host:
            self.me.host = local_host
            self._save_soon()

    def _learn_run(self, node: Node, run: bytes) -> None:
        if node.run and node.run != run:
            self.new_runs.append(node)
        node.run = run

    def _learn_address_heard(self, node: Node, host: str, port: int, bus_port: int, peer_host: str, run: bytes) -> None:
        """Learn the address that a node named on a link from `peer_host`; `host` only if it announces one.

        Its word counts. The address that its connection comes from is a guess (NAT, several interfaces): the guess does
        not replace an address at which we reach that very process.
        """
        is_reached = node.is_linked and node.link_run == run
        if not host:
            host = node.host if is_reached else peer_host or node.host
        if self._learn_address(node, host, port, bus_port) and not is_reached:
            self._redial(node)

    def _learn_address(self, node: Node, host: str, port: int, bus_port: int) -> bool:
        port, bus_port = port or node.port, bus_port or node.bus_port
        if (host, port, bus_port) == (node.host, node.port, node.bus_port):
            return False
        node.host, node.port, node.bus_port = host, port, bus_port
        node.flags &= ~NOADDR
        self.address_changed.append(node)
        self._save_soon()
        return True

    def _lose_address(self, node: Node) -> None:
        """Drop the address, for another node answers there. We wait until the node, or gossip, names the new one."""
        self.note("address-taken", node)
        node.flags |= NOADDR
        node.host, node.port, node.bus_port = "", 0, 0
        self.address_changed.append(node)
        self._save_soon()
        self._unlink(node)
        self._await_pong(node)
        self.refresh()
