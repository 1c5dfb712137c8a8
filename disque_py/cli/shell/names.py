"""Names that a node knows, for completion: its queues and its directives.

Each question opens its own connection, because the shell's connection may be busy. Completion must not hang or print
errors: a node that refuses, is slow or can't be reached gives no names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from disque_py.cli.address import Target
from disque_py.cli.connection import ConnectError, Connection, ConnectionLostError
from disque_py.cli.shell.candidates import DIRECTIVES
from disque_py.cli.shell.scanning import RefusedError, queue_names

# Completion waits at most this long for each step of a connection, and for the walk over queues.
PATIENCE_S: Final = 0.5


class NodeNames:
    """A function from a kind of names to the names. It asks the node that `target` returns at that moment."""

    def __init__(self, target: Callable[[], Target]) -> None:
        self._target = target

    def __call__(self, kind: str) -> list[bytes]:
        """Return the names of this kind; as many as were found in time."""
        target = replace(self._target(), connect_timeout_s=PATIENCE_S, read_timeout_s=PATIENCE_S)
        found: list[bytes] = []
        try:
            connection = Connection.open(target)
            try:
                for names in _directives(connection) if kind == DIRECTIVES else _queues(connection):
                    found += names
            finally:
                connection.close()
        except (ConnectError, ConnectionLostError, RefusedError):
            return found
        return found


def _queues(connection: Connection) -> Iterator[list[bytes]]:
    deadline = time.monotonic() + PATIENCE_S
    for names in queue_names(connection, "*", 0.0):
        yield names
        if time.monotonic() >= deadline:
            return


def _directives(connection: Connection) -> Iterator[list[bytes]]:
    reply = connection.call("CONFIG", "GET", "*")
    if not reply.is_error:
        yield list(reply.pairs())
