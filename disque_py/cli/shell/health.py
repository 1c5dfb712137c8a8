"""--health: is this node fit for work? For container health checks and load balancers.

Healthy means: it accepts the connection and answers PING with PONG (a node that loads, can't write its
journal or wants a login refuses PING), and CLUSTER INFO says `cluster_state:ok`. A leaving node is
healthy: it must be left alive until it is drained.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from disque_py.cli.address import Target
from disque_py.cli.connection import ConnectError, Connection, ConnectionLostError
from disque_py.cli.shell.replies import Reply
from disque_py.cli.shell.stat import info_fields

TIMEOUT_S_DEFAULT: Final = 5.0


class UnhealthyError(Exception):
    """Not fit; the text says why."""


def check_health(target: Target) -> str:
    """A line about a healthy node; UnhealthyError with the reason otherwise.

    Nothing may hang here: without a time limit of its own the target gets TIMEOUT_S_DEFAULT.
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


def _examine(connection: Connection) -> str:
    if connection.warnings:
        raise UnhealthyError(connection.warnings[0])
    pong = _accepted(connection.call("PING"))
    if pong.text != b"PONG":
        raise UnhealthyError(f"PING is answered with '{pong.text.decode(errors='replace')}'")
    fields = info_fields(_accepted(connection.call("CLUSTER", "INFO")).text)
    state = fields.get("cluster_state", "ok")
    if state != "ok":
        raise UnhealthyError(f"cluster_state is {state}")
    leaving = _accepted(connection.call("CLUSTER", "LEAVING")).text == b"yes"
    return f"{connection.target.address} is healthy" + (" (and leaving its cluster)" if leaving else "")


def _accepted(reply: Reply) -> Reply:
    if reply.is_error:
        raise UnhealthyError(reply.text.decode(errors="replace"))
    return reply
