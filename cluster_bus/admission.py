"""Admission: the ways into the node table and out of it.

Handshakes, newcomers and forgotten nodes live here, and the limits on how many of them there may be.

Two ways lead into the table:

* We dial an address, because an operator or gossip named it. A placeholder stands for the node meanwhile.
* A stranger says MEET. It is a newcomer until we have reached it.

Both cost connections, lines of the log and saves of the nodes file. Without a secret, any host that reaches the bus
may ask for as many as it likes, under any number of ids. So there is a limit to how many may be in flight, and a rate
limit per host (rate_limiter.py). A refused node is counted in `ignored` and loses nothing: gossip is repeated, and
so is MEET (membership.py). A request of an operator is never refused.

A forgotten node stays out until an operator names it again, however long that takes (spec N5). Some nodes may not have
got the FORGET. They gossip about the node, and the node may hear of us from them and say MEET. So a FORGET is kept with
the *incarnation* of the node, a number that only an operator's MEET raises (spec N10). A message about this incarnation
or an earlier one does not bring the node back. A message about a later one does. This rule needs no clock, and works
even if some nodes never hear of the MEET.

Membership calls this part, which sends no message. Its results are in the tray (tray.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster_bus import failure
from cluster_bus.node import FORGOTTEN, HANDSHAKE, ID_BYTES, NOADDR, Node
from cluster_bus.rate_limiter import RateLimiter

if TYPE_CHECKING:
    from collections import Counter
    from random import Random

    from cluster_bus.handshake import Hello
    from cluster_bus.heartbeat import Entry, Header
    from cluster_bus.links import Links
    from cluster_bus.node_table import NodeTable
    from cluster_bus.tray import Tray

# A handshake may last for the node time-out, and at least for this time. Spec N4.
HANDSHAKE_MS_MIN: Final = 1_000
# Beyond this number, the node that was forgotten first may come back. The nodes file has a line for each of them.
FORGOTTEN_MAX: Final = 1_000
# Recorded for a node that was forgotten before we knew its incarnation. The first one that we hear of counts as
# forgotten.
UNHEARD: Final = -1
# The handshakes that other nodes may have made us start at a time: a false node can't make us dial without limit. It is
# twice the entries of a greeting.
HANDSHAKES_MAX: Final = 256
NEWCOMERS_MAX: Final = 256
# The newcomers of one host: at once, and then per second. As many nodes may reasonably run on one machine.
NEWCOMERS_BURST: Final = 128
NEWCOMERS_PER_S: Final = 20
# Strangers that the log has named. Beyond this number, the oldest may be named again.
STRANGERS_MAX: Final = 64
# Beyond this size only an operator of this node adds nodes: with a full mesh no cluster comes near it.
MEMBERS_MAX: Final = 2_000


class Admission:
    """The ways into `table` and out of it.

    is_alone    an operator made us forget all other nodes

    `ignored` is membership's count of ignored messages and requests, by reason.
    """

    def __init__(self, table: NodeTable, links: Links, tray: Tray, rng: Random, ignored: Counter[str]) -> None:
        self.is_alone = False
        self._table = table
        self._links = links
        self._tray = tray
        self._rng = rng
        self._ignored = ignored
        self._strangers: dict[bytes, None] = {}  # Ids that the log has named, oldest first.
        self._forgotten: dict[bytes, int] = {}  # id -> incarnation that an operator made us forget, oldest first
        self._newcomer_limiter = RateLimiter(NEWCOMERS_BURST, NEWCOMERS_PER_S)
        self._gossip_limiter = RateLimiter(NEWCOMERS_BURST, NEWCOMERS_PER_S)

    def shake_hands(self, host: str, port: int, bus_port: int) -> Node:
        """Dial an address whose node is not known yet; return the placeholder."""
        node = Node(self._rng.randbytes(ID_BYTES), host, port, bus_port, HANDSHAKE)
        node.known_since_ms = self._table.now_ms
        self._table.enter(node)
        self._links.dial(node)
        return node

    def try_address(self, entry: Entry, peer_host: str) -> None:
        """Dial an address that gossip from `peer_host` names, unless too many handshakes are in flight."""
        if entry.flags & NOADDR or not entry.host or not entry.bus_port:
            return
        if self._table.find_handshake(entry.host, entry.port) is not None:
            return
        if self._table.handshake_count >= HANDSHAKES_MAX or self._table.size >= MEMBERS_MAX:
            self._ignored["too many handshakes"] += 1
        elif not self._gossip_limiter.spend(peer_host, self._table.now_ms):
            self._ignored["too many addresses from one host"] += 1
        else:
            self.shake_hands(entry.host, entry.port, entry.bus_port)

    def welcome(self, hello: Hello, header: Header, peer_host: str) -> Node | None:
        """Make a stranger that said MEET a newcomer, and dial it; None if there are too many. Its id is proved.

        A refused node says MEET again, so it comes in later.
        """
        if hello.id in self._table.nodes:  # The placeholder of a handshake, which CLUSTER NODES shows.
            self._ignored["stranger"] += 1
            return None
        if len(self._table.newcomers) >= NEWCOMERS_MAX or self._table.size >= MEMBERS_MAX:
            self._ignored["too many newcomers"] += 1
            return None
        if not self._newcomer_limiter.spend(peer_host, self._table.now_ms):
            self._ignored["too many newcomers from one host"] += 1
            return None
        node = self._table.begin_newcomer(hello.id)
        node.host, node.port, node.bus_port = header.host or peer_host, header.port, header.bus_port
        self._links.learn_run(node, hello.run)  # We may have known the node once, and have answered its former process.
        self.admit(node)
        self._links.dial(node)
        return node

    def may_rejoin(self, hello: Hello) -> bool:
        """Return whether a stranger may bring us back into its cluster: we have lost our table (a power cut, a backup).

        It dialed us by our id, so we have been members. We believe it if our table is empty and no operator emptied it.
        """
        known = self._table.known(hello.id)
        was_forgotten = known is not None and bool(known.flags & FORGOTTEN)
        if self._table.size > 1 or self.is_alone or was_forgotten:
            return False
        return not self.is_forgotten(hello.id, hello.incarnation)

    def note_stranger(self, hello: Hello, host: str, notice: str = "unknown-member") -> None:
        """Tell an operator, once per id, about a node that takes us for a member."""
        if hello.id in self._strangers:
            return
        if len(self._strangers) >= STRANGERS_MAX:
            del self._strangers[next(iter(self._strangers))]
        self._strangers[hello.id] = None
        fields: dict[str, str | int] = {
            "node": hello.id.hex(),
            "host": host,
            "port": hello.port,
            "bus_port": hello.bus_port,
            "me": self._table.me.name.decode(),
        }
        self._tray.notices.append((notice, fields))

    def admit(self, node: Node) -> None:
        """Put a node into the table as a node we know, with a clean record."""
        self._table.enter(node)
        node.known_since_ms = node.unlinked_ms = self._table.now_ms
        node.is_missed = False
        node.dial_at_ms = node.dial_gap_ms = 0
        self._strangers.pop(node.id, None)
        if not node.is_newcomer:  # A newcomer may be given up again, and changes nothing until then.
            self.is_alone = False
            self.take_back(node)
            self._links.write_first()
        self._tray.note("node-joined", node)

    def is_over(self, node: Node, node_timeout_ms: int) -> bool:
        """Return whether the time in which a node must be reached is over (spec N4: handshake lifetime)."""
        return self._table.now_ms - node.known_since_ms > max(node_timeout_ms, HANDSHAKE_MS_MIN)

    def expel(self, node: Node) -> None:
        """Remove a node from the table, close its links and void its reports about others."""
        self._links.hang_up(node)
        was_asked_for = node.is_asked
        is_known = not node.flags & HANDSHAKE
        counts = is_known and not node.is_newcomer
        self._table.remove(node)
        node.ping_sent_ms = node.ping_sent_wall_ms = node.fail_at_ms = 0
        node.owes_pong = node.must_meet = node.is_asked = False
        node.asked_at = node.heeded_at = -1
        node.reports.clear()
        if counts:
            for other in self._table.nodes.values():
                failure.withdraw(other, node)
            self._tray.note("node-forgotten", node)
        if counts or (is_known and node.core is not None):  # The core mostly knows nothing of a newcomer.
            self._tray.forgotten.append(node)
        if is_known:
            self._links.write_first()
        elif was_asked_for:
            self._links.write_first()  # Else the file on disk could still name this meeting.

    def keep_out(self, node_id: bytes, incarnation: int) -> None:
        """Keep this incarnation of a node, and earlier ones, out until an operator names the node. Spec N5."""
        self._forgotten.pop(node_id, None)
        self._forgotten[node_id] = incarnation
        if len(self._forgotten) > FORGOTTEN_MAX:
            del self._forgotten[next(iter(self._forgotten))]

    def take_back(self, node: Node) -> None:
        """Note that a node is a member again: it was never forgotten."""
        self._forgotten.pop(node.id, None)

    def forgotten(self) -> list[tuple[bytes, int]]:
        """Return (id, incarnation) of the nodes that an operator made us forget, oldest first."""
        return list(self._forgotten.items())

    def is_forgotten(self, node_id: bytes, incarnation: int) -> bool:
        """Return whether an operator made this node forget this incarnation of a node, or a later one.

        An incarnation of -1 is that of an older release.
        """
        last = self._forgotten.get(node_id)
        if last == UNHEARD:
            self._forgotten[node_id] = last = max(incarnation, 0)
            self._links.save_soon()
        return last is not None and incarnation <= last
