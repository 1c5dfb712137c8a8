"""The errors of the library, as types to catch.

There are two families. `ReplyError` and its subclasses mean that a node answered with an error: it understood the
command and refused it. `DisqueConnectionError` means that no answer came. Then the command may or may not have been
executed; `ConnectionLostError.sent` is False if it certainly was not. This module knows no sockets and no retries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final


class DisqueError(Exception):
    """The base class of the errors that this library raises on purpose."""


class DisqueConnectionError(DisqueError, ConnectionError):
    """No answer came. Also a builtin ConnectionError, so that general network handling catches it."""


class NotConnectedError(DisqueConnectionError):
    """No node could be reached within the client's `patience`. Nothing was sent."""


class ClientClosedError(DisqueConnectionError):
    """The client was closed by its owner."""


class ConnectionLostError(DisqueConnectionError):
    """The connection broke before the answer came.

    sent   False: no byte of the command left, so it was not executed. True: it may have been executed.
    """

    def __init__(self, text: str, *, sent: bool) -> None:
        super().__init__(text)
        self.sent = sent


class ReplyTimeoutError(ConnectionLostError, TimeoutError):
    """The node was silent for too long, and the connection was closed. The command may have been executed."""


class ProtocolError(ConnectionLostError):
    """The peer sent bytes that are not RESP, and the connection was closed. The command may have been executed."""

    def __init__(self, text: str, *, sent: bool = True) -> None:
        super().__init__(text, sent=sent)


class AttemptsSpentError(DisqueError):
    """A worker received a job without attempts left. The worker of the last attempt stopped, and reported no error."""


class LockHeldError(DisqueError):
    """Another owner has the lock and did not give it back in time."""


class LockLostError(DisqueError):
    """The lock is not held any more: its lease ended, or another owner has it."""


class BatchError(DisqueError):
    """Some commands of a pipeline or of `add_jobs` failed.

    results   one entry per command, in order: its value, or its DisqueError
    """

    def __init__(self, results: Sequence[object]) -> None:
        failures = [result for result in results if isinstance(result, DisqueError)]
        super().__init__(f"{len(failures)} of {len(results)} commands failed, the first with: {failures[0]}")
        self.results = list(results)
        self.first = failures[0]


class EmptyBatchError(DisqueError):
    """A batch has no job: each job that was added was there before under its key, and joined no batch.

    job_ids   the jobs that were there, in the order in which they were added
    """

    def __init__(self, name: str, job_ids: Sequence[str]) -> None:
        super().__init__(
            f"batch {name} has no job, and no callback will run: each of the {len(job_ids)} jobs was there before "
            "under its key. Wait for these jobs instead"
        )
        self.job_ids = list(job_ids)


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
    """The job could not be copied to enough nodes in time. It may exist on some of them, and may be delivered."""


class PausedError(ReplyError):
    """The queue's input is paused, so it takes no new jobs."""


class MaxLenError(ReplyError):
    """The queue has as many jobs as MAXLEN, or its setting `maxlen`, allows."""


class TooBigError(ReplyError):
    """The body is longer than the queue's setting `maxsize`."""


class NoKeyError(ReplyError):
    """The job's metadata lack a name that the queue's setting `require-meta` demands."""


class NoRouteError(ReplyError):
    """No queue that is bound to the topic takes the job, because no filter matches its metadata."""


class BatchClosedError(ReplyError):
    """The batch is closed, so it takes no more jobs."""


class UnreachableError(ReplyError):
    """The command needs a node that can't be reached, as an ADDJOB with RETRY 0 whose key may be in use there."""


class LeavingError(ReplyError):
    """The node is leaving the cluster. The client changes nodes by itself, unless no other node can be reached."""


class BadIdError(ReplyError):
    """An argument is not a job id. Nothing was done for any id of the command."""


class NoJobError(ReplyError):
    """This node does not know the job."""


class TooLateError(ReplyError):
    """More than half of the job's TTL has passed, so its next delivery can't be postponed any more."""


class StaleError(ReplyError):
    """A later delivery of the job is known, so this one is over."""


class JobCanceledError(ReplyError):
    """The job was canceled."""


class OutOfMemoryError(ReplyError):
    """The node's memory is full."""


class MisconfError(ReplyError):
    """The node can't write its journal, so it takes no writes."""


class LoadingError(ReplyError):
    """The node is loading its journal."""


class AuthError(ReplyError):
    """The password is missing or wrong, or the user is unknown or switched off."""


class NoPermissionError(ReplyError):
    """The user may not run the command, or may not use a queue, lock or other name in it."""


class LimitError(ReplyError):
    """The user's limit of connections, queues or commands on this node is reached."""


class EventsTrimmedError(ReplyError):
    """The requested event is no longer in the node's event log."""

    @property
    def first(self) -> int:
        """The number of the oldest event that can be read."""
        return int(self.text.split()[1])


class NoEventLogError(ReplyError):
    """The node has no event log, or its log is not the requested one."""

    @property
    def log(self) -> str | None:
        """The id of the node's log; None if it has none."""
        found = self.text.split()[1]
        return None if found == "none" else found


class NoQuorumError(ReplyError):
    """No majority of the voters answered, the voters are changing, or the cluster has none."""


class LockDoneError(ReplyError):
    """The work under this lock is done, and the cluster still remembers it."""


class LockSpentError(ReplyError):
    """The lock has no attempts left."""


class FencedError(ReplyError):
    """The lock, or the claim of the job, is no longer held under this fence."""


BY_CODE: Final[dict[str, type[ReplyError]]] = {
    "NOREPL": NoReplError,
    "PAUSED": PausedError,
    "MAXLEN": MaxLenError,
    "TOOBIG": TooBigError,
    "NOKEY": NoKeyError,
    "NOROUTE": NoRouteError,
    "CLOSED": BatchClosedError,
    "LEAVING": LeavingError,
    "BADID": BadIdError,
    "NOJOB": NoJobError,
    "TOOLATE": TooLateError,
    "STALE": StaleError,
    "CANCELED": JobCanceledError,
    "OOM": OutOfMemoryError,
    "MISCONF": MisconfError,
    "UNREACHABLE": UnreachableError,
    "NOQUORUM": NoQuorumError,
    "LOCKDONE": LockDoneError,
    "LOCKSPENT": LockSpentError,
    "FENCED": FencedError,
    "LOADING": LoadingError,
    "TRIMMED": EventsTrimmedError,
    "NOLOG": NoEventLogError,
    "NOAUTH": AuthError,
    "WRONGPASS": AuthError,
    "NOPERM": NoPermissionError,
    "LIMIT": LimitError,
}

# AUTH itself replies with the general code ERR, so only the text identifies its errors.
AUTH_TEXTS: Final = ("ERR invalid password", "ERR Client sent AUTH")


# The beginning of the last reply of a connection. The node reads nothing that comes after a malformed command, or after
# one that is longer than it allows (proto-max-bulk-len), and closes the connection.
LAST_WORDS: Final = "ERR Protocol error"


def ends_connection(reply: object) -> bool:
    """Return whether a node closes the connection after this reply, and executes no command that came later."""
    return isinstance(reply, ReplyError) and reply.text.startswith(LAST_WORDS)


def from_reply(text: str) -> ReplyError:
    """Return the error for a reply line without its dash, by its code."""
    kind = BY_CODE.get(text.partition(" ")[0])
    if kind is None:
        kind = AuthError if text.startswith(AUTH_TEXTS) else ReplyError
    error = kind(text)
    if error.code == "NOAUTH":
        error.add_note("Put the password into the URL, or pass password=")
    return error
