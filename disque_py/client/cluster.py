"""Which node to talk to (spec X4).

A client begins at a random seed; HELLO tells it the others and how well each is. It stays with
one node, its *home*, until that fails or leaves; its consumers may have another one, the node
that feeds them (feed.py). A node that failed is tried again after a pause that doubles, with
jitter, so that a thousand clients of a dead node don't return in step.

Seeds come before nodes that only HELLO named: an announced address may not be reachable from
here (NAT, containers), a seed was given by someone who knows. Addresses that turn out to be one
node (its id says so) are kept once.

Pure: the shells pass the time in seconds and dial; nothing here waits. Callers with threads hold
their own lock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from disque_py.client.address import Address
from disque_py.client.request import Request
from disque_py.client.results import Hello

# HELLO's numbers (spec X4).
GOOD: Final = 1
SUSPECTED: Final = 10
LEAVING: Final = 100

# The first pause is shorter than a restart takes, the last long enough to cost a dead node nothing.
PAUSE_S_MIN: Final = 0.1
PAUSE_S_MAX: Final = 3.0

PREFIX_LENGTH: Final = 8


@dataclass(slots=True)
class Place:
    """A node as this client sees it: `retry_at` is a moment of the shell's clock, 0 when nothing is wrong."""

    address: Address
    is_seed: bool
    node_id: str = ""
    priority: int = GOOD
    failures: int = 0
    retry_at: float = 0.0


class Cluster:
    """The nodes a client knows, and which it uses.

    home       where commands go; None before the first connection and after a failure
    feeder     where consumers go if not home; None: home
    """

    def __init__(self, seeds: Iterable[Address], rng: Random, *, discover: bool = True) -> None:
        self.home: Address | None = None
        self.feeder: Address | None = None
        self._rng = rng
        self._discover = discover
        self._places = {address: Place(address, True) for address in seeds}

    def choices(self, now: float) -> list[Address]:
        """Nodes to try now, the best first, random among equals. Empty: all are in their pause."""
        due = [place for place in self._places.values() if place.retry_at <= now]
        self._rng.shuffle(due)
        due.sort(key=lambda place: (place.priority >= SUSPECTED, not place.is_seed, place.priority))
        return [place.address for place in due]

    def next_choice(self, tried: Collection[Address], now: float) -> Address | None:
        """The best node that was not tried yet; nodes that were heard of meanwhile count."""
        return next((address for address in self.choices(now) if address not in tried), None)

    def is_due(self, address: Address, now: float) -> bool:
        """Whether a node is known and not in its pause."""
        place = self._places.get(address)
        return place is not None and place.retry_at <= now

    @property
    def consumer_home(self) -> Address | None:
        """Where this client consumes."""
        return self.feeder or self.home

    def wanted(self, request: Request[Any], now: float) -> Address | None:
        """The node that a command belongs to; None: the home. One in its pause is asked only if no other will do."""
        if request.node is not None and (request.is_pinned or self.is_due(request.node, now)):
            return request.node
        return self.feeder if request.is_consumers else None

    def move_consumers(self, address: Address) -> None:
        """Consume at this node from now on."""
        self.feeder = None if address == self.home else address

    def greeted(self, address: Address, hello: Hello) -> None:
        """A node answered HELLO, just now."""
        place = self._places.setdefault(address, Place(address, False))
        place.node_id = hello.id
        place.failures = 0
        place.retry_at = 0.0
        place.priority = GOOD
        self._drop_aliases(place)
        by_id = {other.node_id: other for other in self._places.values() if other.node_id}
        for node in hello.nodes:
            known = by_id.get(node.id)
            named = Address(host=node.host, port=node.port)
            if known is not None and (known.is_seed or known is place or known.address == named):
                known.priority = node.priority
            elif self._discover and node.host and node.port:
                if known is not None:  # The node has another address now, or this one is known over TLS only now.
                    self._places.pop(known.address, None)
                self._add(named, node.id, node.priority)
            elif known is not None:
                known.priority = node.priority
        self._forget_strangers({node.id for node in hello.nodes} | {hello.id})

    def is_good(self, address: Address) -> bool:
        """Whether a node is one to stay with: neither leaving nor failed, as far as the last HELLO told."""
        place = self._places.get(address)
        return place is not None and place.priority < LEAVING

    def _add(self, address: Address, node_id: str, priority: int) -> None:
        place = self._places.setdefault(address, Place(address, False))
        place.node_id = node_id
        place.priority = priority

    def _drop_aliases(self, place: Place) -> None:
        # Only announced addresses go: a seed stays, whatever name it has, or a client could lose all it was given.
        for other in list(self._places.values()):
            if other is not place and other.node_id == place.node_id and not other.is_seed:
                del self._places[other.address]

    def _forget_strangers(self, ids: set[str]) -> None:
        for place in list(self._places.values()):
            if not place.is_seed and place.node_id not in ids:
                del self._places[place.address]

    def failed(self, address: Address, now: float) -> bool:
        """A node could not be reached, or its connection broke while it owed an answer → whether that is news."""
        place = self._places.get(address)
        is_news = place is not None and place.failures == 0
        if place is not None:
            pause_s = min(PAUSE_S_MAX, PAUSE_S_MIN * 2.0 ** min(place.failures, 16))
            place.failures += 1
            place.retry_at = now + pause_s * self._rng.uniform(0.5, 1.0)
        self._abandon(address)
        return is_news

    def left(self, address: Address) -> None:
        """A node said that it is leaving (or loading): others come first, but it stays the last resort."""
        place = self._places.get(address)
        if place is not None:
            place.priority = LEAVING
        self._abandon(address)

    def _abandon(self, address: Address) -> None:
        if self.home == address:
            self.home = None
        if self.feeder == address:
            self.feeder = None

    def node_with_prefix(self, prefix: str, now: float) -> Address | None:
        """A node in good state whose id begins so (the middle of a job id says who made the job)."""
        for place in self._places.values():
            if prefix and place.node_id.startswith(prefix) and place.priority < SUSPECTED and place.retry_at <= now:
                return place.address
        return None

    def prefix_of(self, address: Address) -> str:
        """The first digits of a node's id as job ids carry them; empty while unknown."""
        place = self._places.get(address)
        return place.node_id[:PREFIX_LENGTH] if place is not None else ""
