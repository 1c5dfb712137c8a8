"""One connection to one node, for programs that need the answer of this particular node.

A client looks for a node that works and repeats commands there. A tool that asks each node for its own view must do
neither. It shows the node's answer, or the reason why there is none. It takes the same requests (commands.py), the same
options and the same errors as a client. It logs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TypeVar

from disque_py.client.address import Address
from disque_py.client.bulk import CHUNK_COMMANDS
from disque_py.client.options import ClientOptions
from disque_py.client.pipeline import read_all
from disque_py.client.protocol import Reply
from disque_py.client.request import Request
from disque_py.client.results import Hello
from disque_py.client.socket_connection import dial

T = TypeVar("T")


class OneNode:
    """A connection that is up. Use it as a context, by one thread at a time.

    address   the node's address
    options   login, TLS, `connect_timeout` and `timeout`; its nodes and its patience are ignored

    Raises NotConnectedError, and AuthError or another ReplyError if the node refuses the client.
    """

    def __init__(self, address: Address, options: ClientOptions) -> None:
        self.address = address
        self._options = options
        self._connection = dial(address, options, options.tls_context())

    @property
    def hello(self) -> Hello:
        """The node's answer to HELLO when the connection was made."""
        assert self._connection.hello is not None
        return self._connection.hello

    def run(self, request: Request[T]) -> T:
        """Execute a command once. Raises its ReplyError, ConnectionLostError or ProtocolError."""
        reply = self._connection.ask(request.payload(), request.limit_s(self._options.timeout))
        return request.value(reply, self.address, self._options.decode)

    def run_many(self, requests: Sequence[Request[Any]]) -> list[Any]:
        """Execute commands that don't wait, all in flight together → for each command its value or its ReplyError.

        Raises ConnectionLostError or ProtocolError.
        """
        replies: list[Reply] = []
        payloads = [request.payload() for request in requests]
        parts = [payloads[at : at + CHUNK_COMMANDS] for at in range(0, len(payloads), CHUNK_COMMANDS)]
        chunks = ((b"".join(part), len(part)) for part in parts)
        self._connection.exchange(chunks, self._options.timeout, replies)
        return read_all(requests, replies, self.address, self._options.decode)

    def close(self) -> None:
        """Close the connection. Closing it again has no effect."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
