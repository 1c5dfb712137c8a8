"""The nodes of a cluster, as the data sources need them: a list of nodes, and a connection to a chosen one.

The client library chooses nodes by itself. Event logs and tokens belong to one node, so here the caller chooses.
HELLO at any node names all nodes by id, because ids stay the same when addresses change. A node that can't be reached
is not tried again for a while. So one dead node does not make every micro-batch wait for its timeout.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from disque_py.client import Address, AuthError, DisqueConnectionError, LoadingError, NotConnectedError, ReplyError
from disque_py.client.options import ClientOptions
from disque_py.client.protocol import Reply, Word, encode, word
from disque_py.client.results import hello
from disque_py.client.socket_connection import SocketConnection, dial
from disque_py.spark.options import ClusterOptions

# Commands are written in chunks of this size.
CHUNK_COMMANDS: Final = 64
REST_S: Final = 5.0  # How long a node that could not be reached is not tried again.


class ClusterError(RuntimeError):
    """A node can't be reached or refuses the source. The text names the node and says what to do."""


@dataclass(frozen=True, slots=True)
class NodePlace:
    """A node's id and the address at which it listens."""

    id: str
    address: Address


class AwayNodes:
    """The nodes that can't be reached. A line on stderr reports when one goes away, and when it is back.

    format        the name of the source
    consequence   the effect on the query, for the end of the line
    """

    def __init__(self, format_name: str, consequence: str) -> None:
        self._format = format_name
        self._consequence = consequence
        self._reported: set[str] = set()

    def report(self, reasons: Mapping[str, str]) -> None:
        """Report what has changed. `reasons` names all nodes that are away now, each with its reason."""
        # A Python warning would be shown once per process only, and a node may go away again.
        for node in sorted(reasons.keys() - self._reported):
            print(
                f"{self._format}: warning: node {node} can't be reached ({reasons[node]}); {self._consequence}",
                file=sys.stderr,
                flush=True,
            )
        for node in sorted(self._reported - reasons.keys()):
            print(f"{self._format}: node {node} can be reached again", file=sys.stderr, flush=True)
        self._reported = set(reasons)


class Nodes:
    """One process's view of the cluster. Connections are kept. Only one thread at a time may use an instance.

    places   the nodes that the last HELLO named, by id
    """

    def __init__(self, options: ClusterOptions) -> None:
        self.places: dict[str, NodePlace] = {}
        self._options = options
        self._client: ClientOptions | None = None
        self._connections: dict[Address, SocketConnection] = {}
        self._resting: dict[Address, tuple[float, str]] = {}

    def discover(self) -> dict[str, NodePlace]:
        """Ask the first node that answers for all nodes of the cluster, by id. Raises ClusterError when none does.

        A node that knows no other node may have left the cluster, or lost its directory and not joined again. So if a
        node that doesn't know it answers too, that one's cluster counts.
        """
        # Ask nodes that were found earlier, too: the list of bootstrap servers may be years old.
        known = [place.address for place in self.places.values() if place.address.port]
        reasons = []
        alone: dict[str, NodePlace] = {}
        for address in dict.fromkeys([*self._options.nodes, *known]):
            try:
                answer = hello(self.ask(address, b"HELLO"))
            except DisqueConnectionError as error:
                reasons.append(str(error))
                continue
            found = {node.id: NodePlace(node.id, Address(host=node.host, port=node.port)) for node in answer.nodes}
            # A node may not know the address at which others reach it. The address that worked is better.
            found[answer.id] = NodePlace(answer.id, address)
            if len(found) > 1 and not alone.keys() & found.keys():
                return self._settle(found)
            alone = alone or found
        if alone:
            return self._settle(alone)
        self._resting.clear()
        raise ClusterError(
            f"{self._options.format}: no node of bootstrapServers can be reached ({'; '.join(reasons)}); "
            "check the option and whether the nodes run"
        )

    def _settle(self, found: dict[str, NodePlace]) -> dict[str, NodePlace]:
        """Take these nodes for the cluster, and close connections to addresses that no node has any more.

        Otherwise a query that runs for months keeps one for every address that nodes have had.
        """
        self.places = found
        used = {*self._options.nodes, *(place.address for place in found.values())}
        for address in self._connections.keys() - used:
            self.drop(address)
        for address in self._resting.keys() - used:
            del self._resting[address]
        return found

    def id_at(self, address: Address) -> str:
        """Return the id of the node at this address: an address from HELLO may belong to another node by now.

        Raises as `ask`.
        """
        return hello(self.ask(address, b"HELLO")).id

    def ask(self, address: Address, *words: Word) -> Reply:
        """Send one command to one node and return its reply. The command may be sent twice, so it must be repeatable.

        Raises NotConnectedError when the node can't be reached or loads its journal, and ConnectionLostError when the
        connection broke twice. Raises ReplyError when the node refuses the command, and ClusterError when it refuses
        the password.
        """
        return self.ask_all(address, [words])[0]

    def ask_all(self, address: Address, commands: Sequence[Sequence[Word]]) -> list[Reply]:
        """Send several commands to one node, pipelined, and return their replies.

        Raises as `ask`, for the first command that is refused.
        """
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
            # The node may have closed the connection since the last batch. Try once more on a new one.
            return self.ask_all(address, commands)
        for reply in replies:
            if isinstance(reply, LoadingError):
                self.drop(address)
                raise self._rest(address, f"{address}: {reply}")
            if isinstance(reply, ReplyError):
                raise reply
        return replies

    def connect(self, address: Address) -> SocketConnection:
        """Return the connection to this address. Raises NotConnectedError, and ClusterError for a wrong password."""
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
                f"{self._options.format}: node {address} needs a valid password ({error}); set the option "
                "disque.password"
            ) from None
        except (NotConnectedError, ReplyError) as error:
            reason = str(error) if isinstance(error, NotConnectedError) else f"{address}: {error}"
            raise self._rest(address, reason) from None
        self._resting.pop(address, None)
        self._connections[address] = connection
        return connection

    def _rest(self, address: Address, reason: str) -> NotConnectedError:
        """Leave a node alone for a while, and return the error that says why."""
        self._resting[address] = (time.monotonic() + REST_S, reason)
        return NotConnectedError(reason)

    def drop(self, address: Address) -> None:
        """Close and forget a connection that broke. The next command opens another."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close all connections."""
        for address in list(self._connections):
            self.drop(address)
