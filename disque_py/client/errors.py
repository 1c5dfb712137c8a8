"""What can go wrong, as types to catch.

Two families: a node *answered* with an error (`ReplyError` and the subclasses of its codes: the
command was understood and refused), or the answer never came (`DisqueConnectionError`). For the
second kind the question that matters is whether the command may have been executed: that is
`ConnectionLostError.sent`. Nothing here knows sockets or retries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final


class DisqueError(Exception):
    """Anything this library raises on purpose."""


class DisqueConnectionError(DisqueError, ConnectionError):
    """No answer: also a builtin ConnectionError, so that general network handling catches it."""


class NotConnectedError(DisqueConnectionError):
    """No node could be reached in the time the client is patient; nothing was sent."""


class ClientClosedError(DisqueConnectionError):
    """The client was closed by its owner."""


class ConnectionLostError(DisqueConnectionError):
    """The connection broke before the answer came.

    sent   False: no byte of the command left, it was not executed. True: it may have been.
    """

    def __init__(self, text: str, *, sent: bool) -> None:
        super().__init__(text)
        self.sent = sent


class ReplyTimeoutError(ConnectionLostError, TimeoutError):
    """The node said nothing for too long; the connection was given up. The command may have been executed."""


class ProtocolError(DisqueConnectionError):
    """What came is not RESP; the connection was closed."""


class AttemptsSpentError(DisqueError):
    """A worker got a job that had all its attempts already: the last one ended with its worker, not with an error."""


class BatchError(DisqueError):
    """Some commands of a batch failed.

    results   one entry per command, in order: its value, or the DisqueError that it met
    """

    def __init__(self, results: Sequence[object]) -> None:
        failures = [result for result in results if isinstance(result, DisqueError)]
        super().__init__(f"{len(failures)} of {len(results)} commands failed, the first with: {failures[0]}")
        self.results = list(results)
        self.first = failures[0]


class ReplyError(DisqueError):
    """A node refused the command.

    code   the first word of the reply, `ERR` for most
    text   the whole reply, without the leading dash
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.code = text.partition(" ")[0]


class NoReplError(ReplyError):
    """The job could not be copied to enough nodes in time; it may exist on some and be delivered all the same."""


class PausedError(ReplyError):
    """The queue is paused in input."""


class MaxLenError(ReplyError):
    """The queue is longer than MAXLEN allows."""


class UnreachableError(ReplyError):
    """The job's key may be used on a node that can't be asked now, and the job is to be delivered at most once."""


class LeavingError(ReplyError):
    """The node is leaving the cluster. The client changes nodes by itself; seen only when no other can be reached."""


class BadIdError(ReplyError):
    """Not a job id; nothing was done for any id of the command."""


class NoJobError(ReplyError):
    """This node does not know the job."""


class TooLateError(ReplyError):
    """More than half of the job's TTL is over: its next delivery can't be postponed any more."""


class OutOfMemoryError(ReplyError):
    """The node's memory is full."""


class MisconfError(ReplyError):
    """The node can't write its journal, so it takes no writes."""


class LoadingError(ReplyError):
    """The node is loading its journal."""


class AuthError(ReplyError):
    """No password, or a wrong one."""


class EventsTrimmedError(ReplyError):
    """The event that was asked for is no longer in the node's log of events."""

    @property
    def first(self) -> int:
        """The oldest one that can be read."""
        return int(self.text.split()[1])


class NoEventLogError(ReplyError):
    """The node has no log of events, or not the one that was asked for: it has begun another."""

    @property
    def log(self) -> str | None:
        """The log it has; None without one."""
        found = self.text.split()[1]
        return None if found == "none" else found


BY_CODE: Final[dict[str, type[ReplyError]]] = {
    "NOREPL": NoReplError,
    "PAUSED": PausedError,
    "MAXLEN": MaxLenError,
    "LEAVING": LeavingError,
    "BADID": BadIdError,
    "NOJOB": NoJobError,
    "TOOLATE": TooLateError,
    "OOM": OutOfMemoryError,
    "MISCONF": MisconfError,
    "UNREACHABLE": UnreachableError,
    "LOADING": LoadingError,
    "TRIMMED": EventsTrimmedError,
    "NOLOG": NoEventLogError,
    "NOAUTH": AuthError,
    "WRONGPASS": AuthError,
}

# AUTH itself answers with the general code; only the text tells.
AUTH_TEXTS: Final = ("ERR invalid password", "ERR Client sent AUTH")


def from_reply(text: str) -> ReplyError:
    """The error for a reply line (without the dash), by its code."""
    kind = BY_CODE.get(text.partition(" ")[0])
    if kind is None:
        kind = AuthError if text.startswith(AUTH_TEXTS) else ReplyError
    return kind(text)
