"""The nodes of a cluster, as the data sources need them: which there are, and a connection to a certain one.

The client library chooses nodes by itself; event logs and tokens belong to one node, so here the
caller chooses. HELLO of any node that answers names the others, by id: an id stays while addresses
change. A node that can't be reached is left alone for a while, so that one dead node does not make
every micro-batch wait for its timeout.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from disque_py.client import Address, AuthError, DisqueConnectionError, NotConnectedError, ReplyError
from disque_py.client.options import ClientOptions
from disque_py.client.protocol import Reply, Word, encode, word
from disque_py.client.results import hello
from disque_py.client.socket_connection import SocketConnection, dial
from disque_py.spark.options import ClusterOptions

# Commands in one write.
CHUNK_COMMANDS: Final = 64
REST_S: Final = 5.0  # How long a node that could not be reached is not tried again.


class ClusterError(RuntimeError):
    """A node can't be reached or refuses us; the text names it and says what to do."""


@dataclass(frozen=True, slots=True)
class NodePlace:
    """A node and where it listens."""

    id: str
    address: Address


class AwayNodes:
    """The nodes that can't be reached. Each is told on stderr when it goes away, and when it is back.

    format        the source that asks
    consequence   what it means, for the end of the line
    """

    def __init__(self, format_name: str, consequence: str) -> None:
        self._format = format_name
        self._consequence = consequence
        self._told: set[str] = set()

    def tell(self, reasons: Mapping[str, str]) -> None:
        """Say what has changed; `reasons` by node, for all nodes that are away now."""
        # No Python warning: the same one is shown once per process, and a node may go away again.
        for node in sorted(reasons.keys() - self._told):
            print(
                f"{self._format}: warning: node {node} can't be reached ({reasons[node]}); {self._consequence}",
                file=sys.stderr,
                flush=True,
            )
        for node in sorted(self._told - reasons.keys()):
            print(f"{self._format}: node {node} is no longer away", file=sys.stderr, flush=True)
        self._told = set(reasons)


class Nodes:
    """The cluster as one process sees it; connections are kept, and used by one thread at a time.

    places   what HELLO said last, by id
    """

    def __init__(self, options: ClusterOptions) -> None:
        self.places: dict[str, NodePlace] = {}
        self._options = options
        self._client: ClientOptions | None = None
        self._connections: dict[Address, SocketConnection] = {}
        self._resting: dict[Address, tuple[float, str]] = {}

    def discover(self) -> dict[str, NodePlace]:
        """All nodes of the cluster, by id, asked of the first that answers. Raises ClusterError when none does."""
        # Nodes that were found come too: a list of bootstrap servers may be years old.
        known = [place.address for place in self.places.values()]
        reasons = []
        for address in dict.fromkeys([*self._options.nodes, *known]):
            try:
                answer = hello(self.ask(address, b"HELLO"))
            except DisqueConnectionError as error:
                reasons.append(str(error))
                continue
            found = {node.id: NodePlace(node.id, Address(host=node.host, port=node.port)) for node in answer.nodes}
            # A node may not know how others reach it; the address that worked is better.
            found[answer.id] = NodePlace(answer.id, address)
            self.places = found
            return found
        self._resting.clear()
        raise ClusterError(
            f"{self._options.format}: no node of bootstrapServers can be reached ({'; '.join(reasons)}); "
            "check the option and whether the nodes run"
        )

    def id_at(self, address: Address) -> str:
        """The node that listens there: HELLO may name an address that by now is another's. Raises as `ask`."""
        return hello(self.ask(address, b"HELLO")).id

    def ask(self, address: Address, *words: Word) -> Reply:
        """One command to one node → its reply.

        Raises NotConnectedError when the node can't be reached, ConnectionLostError when it broke off
        twice, ReplyError when it refuses the command, ClusterError when it refuses the password.
        Only for commands that may be sent twice.
        """
        return self.ask_all(address, [words])[0]

    def ask_all(self, address: Address, commands: Sequence[Sequence[Word]]) -> list[Reply]:
        """Several commands to one node, in one go → their replies. Raises as `ask`, for the first that is refused."""
        payloads = [encode([word(value) for value in words]) for words in commands]
        chunks = [
            (b"".join(payloads[at : at + CHUNK_COMMANDS]), len(payloads[at : at + CHUNK_COMMANDS]))
            for at in range(0, len(payloads), CHUNK_COMMANDS)
        ]
        was_kept = address in self._connections
        connection = self.connect(address)
        replies: list[Reply] = []
        try:
            connection.exchange(iter(chunks), self._options.timeout_s, replies)
        except DisqueConnectionError:
            self.drop(address)
            if not was_kept:
                raise
            # What was kept since the last batch may have been closed meanwhile: once more, on a new one.
            return self.ask_all(address, commands)
        for reply in replies:
            if isinstance(reply, ReplyError):
                raise reply
        return replies

    def connect(self, address: Address) -> SocketConnection:
        """The connection to this address. Raises NotConnectedError, ClusterError for a wrong password."""
        kept = self._connections.get(address)
        if kept is not None:
            if not kept.is_stale():
                return kept
            self.drop(address)
        until, reason = self._resting.get(address, (0.0, ""))
        if time.monotonic() < until:
            raise NotConnectedError(reason)
        if self._client is None:
            self._client = self._options.client_options()
        try:
            connection = dial(address, self._client, self._client.tls_context())
        except AuthError as error:
            raise ClusterError(
                f"{self._options.format}: node {address} refuses us ({error}); set the option disque.password"
            ) from None
        except (NotConnectedError, ReplyError) as error:
            reason = str(error) if isinstance(error, NotConnectedError) else f"{address}: {error}"
            self._resting[address] = (time.monotonic() + REST_S, reason)
            raise NotConnectedError(reason) from None
        self._resting.pop(address, None)
        self._connections[address] = connection
        return connection

    def drop(self, address: Address) -> None:
        """Forget a connection that broke; the next command opens another."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Hang up everywhere."""
        for address in list(self._connections):
            self.drop(address)
