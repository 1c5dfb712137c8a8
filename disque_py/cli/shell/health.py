"""--health: a check of one node, for container health checks and load balancers.

A healthy node accepts the connection, answers PING with PONG, and reports `cluster_state:ok` in CLUSTER INFO. A node
refuses PING while it loads, if it can't write its journal, and if it requires a login. A leaving node is healthy,
because it must run until it is drained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from disque_py.cli.address import Target
from disque_py.cli.connection import ConnectError, Connection, ConnectionLostError
from disque_py.cli.shell.replies import Reply
from disque_py.client import results

TIMEOUT_S_DEFAULT: Final = 5.0


class UnhealthyError(Exception):
    """A node that is not healthy; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Health:
    """A healthy node."""

    address: str
    is_leaving: bool

    def __str__(self) -> str:
        return f"{self.address} is healthy" + (" (and leaving its cluster)" if self.is_leaving else "")


def check_health(target: Target) -> Health:
    """Return the health of a healthy node. Raises UnhealthyError, with the reason, for any other node.

    No step waits without a limit: a target without a time limit gets TIMEOUT_S_DEFAULT.
    """
    patience_s = target.connect_timeout_s or TIMEOUT_S_DEFAULT
    target = replace(target, connect_timeout_s=patience_s, read_timeout_s=patience_s)
    try:
        connection = Connection.open(target)
        try:
            return _examine(connection)
        finally:
            connection.close()
    except (ConnectError, ConnectionLostError) as error:
        raise UnhealthyError(str(error)) from error


def _examine(connection: Connection) -> Health:
    if connection.warnings:
        raise UnhealthyError(connection.warnings[0])
    pong = _accepted(connection.call("PING"))
    if pong.text != b"PONG":
        raise UnhealthyError(f"the answer to PING is '{pong.text.decode(errors='replace')}'")
    fields = results.info(_accepted(connection.call("CLUSTER", "INFO")).text)
    state = fields.get("cluster_state", "ok")
    if state != "ok":
        raise UnhealthyError(f"cluster_state is {state}")
    is_leaving = _accepted(connection.call("CLUSTER", "LEAVING")).text == b"yes"
    return Health(str(connection.target.address), is_leaving)


def _accepted(reply: Reply) -> Reply:
    if reply.is_error:
        raise UnhealthyError(reply.text.decode(errors="replace"))
    return reply
