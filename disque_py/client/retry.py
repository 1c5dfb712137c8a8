"""When a command is sent again, and when its caller hears of the trouble instead.

One rule for all shells. After a failure: what was never sent goes to another node; what may have
been executed only if that is harmless or allowed (request.py); what a node refused because it is
leaving or loading goes to another one, for a refused command left nothing behind. All of it as
long as the client is patient. An ADDJOB that left the number of copies to the node, and is refused because nodes
are missing, made nothing either: it waits for them as long. Pure; shells sleep and dial.
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
    NoReplError,
    ProtocolError,
)
from disque_py.client.protocol import Reply
from disque_py.client.request import Repeat

PAUSE_S_MIN: Final = 0.02
PAUSE_S_MAX: Final = 1.0


class Patience:
    """The time a command may spend on failures, and the pauses in it: doubling, with jitter.

    Time that a node spends on the command itself does not count: a GETJOB that waited an hour may
    still change nodes. `rest` tells how much is left; a success makes it new.
    """

    __slots__ = ("_limit_s", "_pause_s", "_rng", "_since")

    def __init__(self, limit_s: float, rng: Random) -> None:
        self._limit_s = limit_s
        self._rng = rng
        self._pause_s = PAUSE_S_MIN
        self._since: float | None = None

    def is_over(self, now: float) -> bool:
        """A failure happened: whether there is no more time for another attempt."""
        if self._since is None:
            self._since = now
        return now - self._since >= self._limit_s

    def pause_s(self) -> float:
        """How long to wait before the next attempt."""
        pause_s = self._pause_s * self._rng.uniform(0.5, 1.0)
        self._pause_s = min(PAUSE_S_MAX, 2 * self._pause_s)
        return pause_s

    def renew(self) -> None:
        """Something worked."""
        self._since = None
        self._pause_s = PAUSE_S_MIN


def may_repeat(error: DisqueConnectionError, repeat: Repeat, *, retry_unsafe: bool) -> bool:
    """Whether a command that met this failure may be sent again."""
    if isinstance(error, (ClientClosedError, ProtocolError)):
        return False
    if isinstance(error, ConnectionLostError) and error.sent:
        return repeat is Repeat.SAFE or (repeat is Repeat.ASK and retry_unsafe)
    return True


def means_elsewhere(reply: Reply) -> bool:
    """Whether a reply asks for another node: nothing was done, and another may do it."""
    return isinstance(reply, (LeavingError, LoadingError))


# What a node says before it has made anything; a NOREPL after the time-out may have left a job behind.
NODES_ARE_MISSING: Final = "NOREPL Not enough reachable nodes"


def lacks_nodes(reply: Reply) -> bool:
    """Whether a reply refuses a job because nodes are missing: nothing was done, and they may come back."""
    return isinstance(reply, NoReplError) and reply.text.startswith(NODES_ARE_MISSING)


def is_refused_for_now(reply: Reply, *, awaits_nodes: bool) -> bool:
    """Whether a reply says that nothing was done, and that another attempt elsewhere or later may succeed."""
    return means_elsewhere(reply) or (awaits_nodes and lacks_nodes(reply))


def is_hopeless(error: Exception) -> bool:
    """Whether trying other nodes is pointless: they share the password."""
    return isinstance(error, AuthError)
