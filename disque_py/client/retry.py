"""The rule for repeating a command after a failure. All shells follow it.

A command that was never sent goes to another node. A command that may have been executed goes to another node only if
that is harmless or allowed (request.py). A command that a node refused because it is leaving or loading goes to another
node, because a refused command has no effect.

An ADDJOB may leave the number of copies to the node. If it is refused because nodes are missing, it has no effect
either, and the client repeats it until the nodes are back. A claim that no majority of the voters answered is repeated
at other nodes, which may reach more of them. All of this goes on for the client's `patience`; then the caller gets the
error. An ADDJOB or GETJOB that a node refuses because its memory or disk is full is tried once at every other node,
because the state may last for hours. Pure; shells sleep and dial.
"""

from __future__ import annotations

from random import Random
from typing import Final

from disque_py.client.errors import (
    AuthError,
    ClientClosedError,
    ConnectionLostError,
    DisqueConnectionError,
    LeavingError,
    LoadingError,
    MisconfError,
    NoQuorumError,
    NoReplError,
    OutOfMemoryError,
)
from disque_py.client.protocol import Reply
from disque_py.client.request import Repeat

PAUSE_S_MIN: Final = 0.02
PAUSE_S_MAX: Final = 1.0


class Patience:
    """The time that a command may spend on failures, and the pauses in it, which double and have jitter.

    The time that a node spends on the command itself does not count, so a GETJOB that waited for an hour may still
    change nodes. A success renews the patience.
    """

    __slots__ = ("_limit_s", "_pause_s", "_rng", "_since")

    def __init__(self, limit_s: float, rng: Random) -> None:
        self._limit_s = limit_s
        self._rng = rng
        self._pause_s = PAUSE_S_MIN
        self._since: float | None = None

    def is_over(self, now: float) -> bool:
        """Note a failure. Return whether there is no time for another attempt."""
        if self._since is None:
            self._since = now
        return now - self._since >= self._limit_s

    def pause_s(self) -> float:
        """Return the seconds to wait before the next attempt."""
        pause_s = self._pause_s * self._rng.uniform(0.5, 1.0)
        self._pause_s = min(PAUSE_S_MAX, 2 * self._pause_s)
        return pause_s

    def renew(self) -> None:
        """Note a success: the whole time is available again."""
        self._since = None
        self._pause_s = PAUSE_S_MIN


def may_repeat(error: DisqueConnectionError, repeat: Repeat, *, retry_unsafe: bool) -> bool:
    """Return whether a command that met this failure may be sent again."""
    if isinstance(error, ClientClosedError):
        return False
    if isinstance(error, ConnectionLostError) and error.sent:
        return repeat is Repeat.SAFE or (repeat is Repeat.ASK and retry_unsafe)
    return True


def means_elsewhere(reply: Reply) -> bool:
    """Return whether a reply means that the command had no effect here, and that another node may execute it."""
    return isinstance(reply, (LeavingError, LoadingError))


def is_full(reply: Reply) -> bool:
    """Return whether a node refused a command because its memory is full, or because its disk can't be written.

    The command had no effect, and another node may execute it.
    """
    return isinstance(reply, (OutOfMemoryError, MisconfError))


# This text means that no job was made. A NOREPL after the time-out may have left a job behind.
NODES_ARE_MISSING: Final = "NOREPL Not enough reachable nodes"


def lacks_nodes(reply: Reply) -> bool:
    """Return whether a job was refused because nodes are missing. No job was made, and the nodes may come back."""
    return isinstance(reply, NoReplError) and reply.text.startswith(NODES_ARE_MISSING)


# The only NOQUORUM that does not pass by itself: an operator has to act.
NO_VOTERS: Final = "NOQUORUM no voters configured"


def lacks_voters(reply: Reply) -> bool:
    """Return whether a reply refuses a claim because voters are out of reach. A repeated claim does no harm."""
    return isinstance(reply, NoQuorumError) and reply.text != NO_VOTERS


def is_refused_for_now(reply: Reply, *, awaits_nodes: bool, awaits_voters: bool = False) -> bool:
    """Return whether another attempt does no harm, and may succeed elsewhere or later."""
    if not isinstance(reply, Exception):  # Nearly all replies.
        return False
    return (
        means_elsewhere(reply)
        or needs_login(reply)
        or (awaits_nodes and lacks_nodes(reply))
        or (awaits_voters and lacks_voters(reply))
    )


def needs_login(reply: Reply) -> bool:
    """Return whether a node refused a command because the connection has to log in: a password is required since then.

    The command had no effect. A new connection shows whether the node accepts the login.
    """
    return isinstance(reply, AuthError) and reply.code == "NOAUTH"


def pinned_failure(error: DisqueConnectionError) -> DisqueConnectionError | AuthError:
    """Return the error of a command whose only node can't be used: the node's own words, if it refuses the login."""
    cause = error.__cause__
    return cause if isinstance(cause, AuthError) else error


def refuses_login(error: Exception) -> bool:
    """Return whether a node refused the login of a new connection.

    Another node may accept it, for example while an operator changes a password node by node.
    """
    return isinstance(error, AuthError)
