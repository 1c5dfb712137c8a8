"""The nodes of a cluster, as the data sources need them: which there are, and a connection to a certain one.

The client library chooses nodes by itself; event logs and tokens belong to one node, so here the
caller chooses. HELLO of any node that answers names the others, by id: an id stays while addresses
change. A node that can't be reached is left alone for a while, so that one dead node does not make
every micro-batch wait for its timeout.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from disque_py.client import Address, AuthError, DisqueConnectionError, NotConnectedError, ReplyError
from disque_py.client.options import ClientOptions
from disque_py.client.protocol import Reply, Word, encode, word
from disque_py.client.socket_connection import SocketConnection, dial
from disque_py.spark.options import ClusterOptions

REST_S: Final = 10.0  # How long a node that could not be reached is not tried again.


class ClusterError(RuntimeError):
    """A node can't be reached or refuses us; the text names it and says what to do."""


@dataclass(frozen=True, slots=True)
class NodePlace:
    """A node and where it listens."""

    id: str
    address: Address


class Nodes:
    """The cluster as one process sees it; connections are kept and used by one thread at a time.

    unreachable   ids, and why, from the last time somebody tried
    """

    def __init__(self, options: ClusterOptions) -> None:
        self._options = options
        self._client: ClientOptions | None = None
        self._connections: dict[Address, SocketConnection] = {}
        self._resting: dict[Address, tuple[float, str]] = {}
        self.places: dict[str, NodePlace] = {}
        self.unreachable: dict[str, str] = {}

    def discover(self) -> dict[str, NodePlace]:
        """All nodes of the cluster, by id, asked of the first that answers. Raises ClusterError when none does."""
        known = [place.address for place in self.places.values()]
        reasons = []
        # Known nodes first: a list of bootstrap servers may be years old.
        for address in dict.fromkeys([*known, *self._options.nodes]):
            try:
                connection = self._connect(address, patient=address in self._options.nodes)
                hello = connection.hello if connection.is_fresh else None
                if hello is None:
                    hello = connection.greet()
                    connection.hello = hello
                connection.is_fresh = False
            except NotConnectedError as error:
                reasons.append(str(error))
                continue
            except DisqueConnectionError as error:
                self._drop(address)
                reasons.append(str(error))
                continue
            places = {node.id: NodePlace(node.id, Address(host=node.host, port=node.port)) for node in hello.nodes}
            # A node may not know how others reach it; the address that worked does.
            places[hello.id] = NodePlace(hello.id, address)
            self.places = places
            return places
        raise ClusterError(
            f"{self._options.format}: no node of bootstrapServers can be reached ({'; '.join(reasons)}); "
            "check the option and whether the nodes run"
        )

    def ask(self, place: NodePlace, *words: Word) -> Reply:
        """One command to one node → its reply.

        Raises NotConnectedError when the node can't be reached, ConnectionLostError when it broke off
        twice, ReplyError when it refuses the command.
        """
        payload = encode([word(value) for value in words])
        for attempt in (1, 2):
            connection = self._connect(place.address)
            try:
                reply = connection.wire.ask(payload, self._options.timeout_s)
            except DisqueConnectionError:
                # What was kept since the last batch may have been closed meanwhile.
                self._drop(place.address)
                if attempt == 2:
                    raise
                continue
            if isinstance(reply, ReplyError):
                raise reply
            return reply
        raise AssertionError

    def connect(self, address: Address) -> SocketConnection:
        """The connection to this address. Raises NotConnectedError, ClusterError for a wrong password."""
        return self._connect(address, patient=True).wire

    def drop(self, address: Address) -> None:
        """Forget a connection that broke."""
        self._drop(address)

    def close(self) -> None:
        """Hang up everywhere."""
        for address in list(self._connections):
            self._drop(address)

    def _connect(self, address: Address, *, patient: bool = False) -> _Kept:
        kept = self._connections.get(address)
        if kept is not None:
            if not kept.wire.is_stale():
                return kept
            self._drop(address)
        resting = self._resting.get(address)
        if resting is not None and not patient and time.monotonic() < resting[0]:
            raise NotConnectedError(resting[1])
        if self._client is None:
            self._client = self._options.client_options()
        try:
            kept = _Kept(dial(address, self._client, self._client.tls_context()))
        except NotConnectedError as error:
            self._resting[address] = (time.monotonic() + REST_S, str(error))
            raise
        except AuthError as error:
            raise ClusterError(
                f"{self._options.format}: node {address} refuses us ({error}); set the option disque.password"
            ) from None
        except ReplyError as error:
            self._resting[address] = (time.monotonic() + REST_S, f"{address}: {error}")
            raise NotConnectedError(f"{address}: {error}") from None
        self._resting.pop(address, None)
        self._connections[address] = kept
        return kept

    def _drop(self, address: Address) -> None:
        kept = self._connections.pop(address, None)
        if kept is not None:
            kept.wire.close()
