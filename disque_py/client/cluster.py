"""The choice of a node (spec X4).

A client begins at a random seed. HELLO tells it the other nodes and the state of each. The client stays with one node,
its *home*, until that node fails or leaves. Its consumers may use another one, the node that feeds them (feed.py). A
node that failed is tried again after a pause. The pause doubles and has jitter, so that a thousand clients of a dead
node don't return in step. For a while after the pause, nodes that did not fail come first.

Seeds come before nodes that only HELLO named. An announced address may not be reachable from here (NAT, containers),
but the user has chosen the seeds. If the program names its zone, near nodes come before seeds (spec ZN9). HELLO then
tells the zone of each node, and a client that has reached a far node goes on to a nearer one. Addresses with the same
node id are one node and are kept once.

Pure: the shells pass the time in seconds and dial; nothing here waits. Callers with threads hold their own lock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from disque_py.client.address import Address
from disque_py.client.protocol import Reply
from disque_py.client.request import Request
from disque_py.client.results import Hello, NodeInfo
from disque_py.client.retry import means_elsewhere

# HELLO's numbers (spec X4).
GOOD: Final = 1
SUSPECTED: Final = 10
LEAVING: Final = 100

# How far a node is: in the program's zone, in its data centre, elsewhere. A node that is not known yet may be near.
NEAR: Final = 0
SAME_DATACENTER: Final = 1
REMOTE: Final = 2

# The first pause is shorter than a restart. The last is so long that attempts to reach a dead node cost next to
# nothing.
PAUSE_S_MIN: Final = 0.1
PAUSE_S_MAX: Final = 3.0

# For this time after its pause, a node that failed comes after its equals. A node that is frozen, or whose host is off,
# costs the time-out of a connection.
FAILED_S: Final = 30.0
# A node whose memory or disk is full is asked again after this time, or if all others are full, too.
FULL_S: Final = 5.0

PREFIX_LENGTH: Final = 8


@dataclass(slots=True)
class Place:
    """A client's view of a node.

    retry_at        the moment when the pause after its last failure ends; 0: it did not fail
    full_until      the moment until which it counts as full; 0: it was not full
    refuses_login   whether it refused the login in the last attempt to connect
    """

    address: Address
    is_seed: bool
    node_id: str = ""
    priority: int = GOOD
    failures: int = 0
    retry_at: float = 0.0
    full_until: float = 0.0
    distance: int = NEAR
    refuses_login: bool = False


class Cluster:
    """The nodes that a client knows, and those that it uses.

    home       the node for commands; None before the first connection and after a failure
    feeder     the node for consumers; None: home
    has_login  whether a node has accepted the login
    """

    def __init__(
        self,
        seeds: Iterable[Address],
        rng: Random,
        *,
        discover: bool = True,
        place: tuple[str, str] | None = None,
    ) -> None:
        self.home: Address | None = None
        self.feeder: Address | None = None
        self.has_login = False
        self._rng = rng
        self._refusing: Address | None = None
        self._discover = discover
        self._here = place
        self._places = {address: Place(address, True) for address in seeds}

    def choices(self, now: float) -> list[Address]:
        """Return the nodes to try now: the best first, equals in random order. Empty: all are in their pause."""
        due = [place for place in self._places.values() if place.retry_at <= now]
        self._rng.shuffle(due)
        due.sort(key=lambda place: self._rank(place, now))
        return [place.address for place in due]

    def _rank(self, place: Place, now: float) -> tuple[bool, bool, int, bool, bool, int]:
        is_refusing = place.address == self._refusing or now < place.full_until
        has_failed = place.failures > 0 and now < place.retry_at + FAILED_S
        return place.priority >= SUSPECTED, is_refusing, place.distance, has_failed, not place.is_seed, place.priority

    def next_choice(self, tried: Collection[Address], now: float) -> Address | None:
        """Return the best node that was not tried yet. Nodes that became known meanwhile count."""
        return next((address for address in self.choices(now) if address not in tried), None)

    def is_best(self, address: Address, tried: Collection[Address], now: float) -> bool:
        """Return whether a node that answered is healthy, and no nearer node is left to be tried."""
        if not self.is_good(address):
            return False
        left = [place for place in self._places.values() if place.retry_at <= now and place.address not in tried]
        return all(self._places[address].distance <= place.distance for place in left if place.priority < SUSPECTED)

    def is_better(self, address: Address, than: Address | None) -> bool:
        """Return whether to prefer `address` to `than`; both nodes have answered."""
        if than is None or not self.is_good(than):
            return True
        is_nearer = self._places[address].distance < self._places[than].distance if address in self._places else False
        return self.is_good(address) and is_nearer

    def is_due(self, address: Address, now: float) -> bool:
        """Return whether a node is known and not in its pause."""
        place = self._places.get(address)
        return place is not None and place.retry_at <= now

    @property
    def consumer_home(self) -> Address | None:
        """The node that this client's consumers use."""
        return self.feeder or self.home

    def node_for(self, request: Request[Any], now: float) -> Address | None:
        """Return the node that a command belongs to; None: the home.

        A node in its pause is returned only if the command must go there.
        """
        if request.node is not None and (request.is_pinned or self.is_due(request.node, now)):
            return request.node
        return self.feeder if request.is_consumers else None

    def move_consumers(self, address: Address) -> None:
        """Consume at this node from now on."""
        self.feeder = None if address == self.home else address

    def note_hello(self, address: Address, hello: Hello) -> None:
        """Take in a node's answer to HELLO."""
        place = self._places.setdefault(address, Place(address, False))
        place.node_id = hello.id
        place.failures = 0
        place.retry_at = 0.0
        place.refuses_login = False
        self.has_login = True
        place.priority = GOOD
        if self._refusing == address:
            self._refusing = None
        self._drop_aliases(place)
        by_id = {other.node_id: other for other in self._places.values() if other.node_id}
        for node in hello.nodes:
            if node.id == hello.id:
                place.distance = self._distance(node)
            known = by_id.get(node.id)
            named = Address(host=node.host, port=node.port)
            if known is not None and (known.is_seed or known is place or known.address == named):
                known.priority = node.priority
            elif self._discover and node.host and node.port:
                if known is not None:  # The node has a new address, or the client has just learned its TLS address.
                    self._places.pop(known.address, None)
                self._add(named, node.id, node.priority)
                self._places[named].distance = self._distance(node)
                continue
            elif known is not None:
                known.priority = node.priority
            if known is not None:
                known.distance = self._distance(node)
        self._forget_strangers({node.id for node in hello.nodes} | {hello.id})

    def _distance(self, node: NodeInfo) -> int:
        if self._here is None or node.more.get("datacenter", "") != self._here[0]:
            return NEAR if self._here is None else REMOTE
        return NEAR if node.more.get("zone", "") == self._here[1] else SAME_DATACENTER

    def is_good(self, address: Address) -> bool:
        """Return whether a node was neither leaving nor failed in the last HELLO."""
        place = self._places.get(address)
        return place is not None and place.priority < LEAVING

    def _add(self, address: Address, node_id: str, priority: int) -> None:
        place = self._places.setdefault(address, Place(address, False))
        place.node_id = node_id
        place.priority = priority

    def _drop_aliases(self, place: Place) -> None:
        # Only announced addresses are dropped. Without its seeds a client could lose all its nodes.
        for other in list(self._places.values()):
            if other is not place and other.node_id == place.node_id and not other.is_seed:
                del self._places[other.address]

    def _forget_strangers(self, ids: set[str]) -> None:
        for place in list(self._places.values()):
            if not place.is_seed and place.node_id not in ids:
                del self._places[place.address]

    def note_failure(self, address: Address, now: float) -> bool:
        """Note that a node could not be reached, or that its connection broke while it owed an answer.

        Return whether this is its first failure in a row.
        """
        place = self._places.get(address)
        is_news = place is not None and place.failures == 0
        if place is not None:
            pause_s = min(PAUSE_S_MAX, PAUSE_S_MIN * 2.0 ** min(place.failures, 16))
            place.failures += 1
            place.refuses_login = False
            place.retry_at = now + pause_s * self._rng.uniform(0.5, 1.0)
        self._abandon(address)
        return is_news

    def note_login_refusal(self, address: Address, now: float) -> bool:
        """Note that a node refuses the login. Return whether its last attempt ended in another way."""
        place = self._places.get(address)
        is_news = place is not None and not place.refuses_login
        self.note_failure(address, now)
        if place is not None:
            place.refuses_login = True
        return is_news

    @property
    def all_refuse_login(self) -> bool:
        """Whether all known nodes refused the login in the last attempt."""
        return all(place.refuses_login for place in self._places.values())

    @property
    def is_login_wrong(self) -> bool:
        """Whether it is pointless to look for a node that accepts the login.

        All known nodes refuse it; or some do, the others can't be reached, and none has ever accepted it.
        """
        if self.has_login:
            return self.all_refuse_login
        return any(place.refuses_login for place in self._places.values())

    def note_refusal(self, address: Address, reply: Reply) -> None:
        """Note that a node refused a command without any effect, and that another node may execute it.

        A node that is leaving or loading is used only if no other one can be reached. A node that refused because other
        nodes are missing is healthy. Its equals come first until the next refusal or greeting, and nothing else
        changes.
        """
        place = self._places.get(address)
        if place is not None and means_elsewhere(reply):
            place.priority = LEAVING
        self._refusing = address
        self._abandon(address)

    def note_full(self, address: Address, now: float) -> bool:
        """Note that the memory or the disk of a node is full. Return whether another node is left to be asked."""
        place = self._places.get(address)
        if place is not None:
            place.full_until = now + FULL_S
        return any(
            now >= max(other.full_until, other.retry_at) and other.priority < LEAVING
            for other in self._places.values()
            if other is not place
        )

    def _abandon(self, address: Address) -> None:
        if self.home == address:
            self.home = None
        if self.feeder == address:
            self.feeder = None

    def node_with_prefix(self, prefix: str, now: float) -> Address | None:
        """Return a healthy node whose id has this prefix. A job id carries the prefix of the node that made the job.

        A node that is farther away than the home is left out.
        """
        home = None if self.home is None else self._places.get(self.home)
        for place in self._places.values():
            if home is not None and place.distance > home.distance:
                continue
            if prefix and place.node_id.startswith(prefix) and place.priority < SUSPECTED and place.retry_at <= now:
                return place.address
        return None

    def prefix_of(self, address: Address) -> str:
        """Return the prefix of a node's id that job ids carry; empty while the id is unknown."""
        place = self._places.get(address)
        return place.node_id[:PREFIX_LENGTH] if place is not None else ""
