"""The table of errors: the answer of each interface when an operation is refused.

The first word of the broker's error is the code. A row names codes with the same meaning, the HTTP status and the gRPC
status. Codes in OWN_CODES come from the gateway. An unknown code of a newer broker is treated as ERR.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from disque_py.client.errors import (
    ClientClosedError,
    ConnectionLostError,
    DisqueError,
    NotConnectedError,
    ReplyError,
)
from disque_py.client.retry import NO_VOTERS

# The start of the `type` of a problem, which is a page for people.
TYPE_PREFIX: Final = "https://disque-py.readthedocs.io/gateway#"
RETRY_AFTER_S: Final = 1


@dataclass(frozen=True, slots=True)
class Row:
    """Codes that mean the same to a caller.

    codes         first words of errors
    http          HTTP status
    grpc          name of the gRPC status
    meaning       the meaning for the caller, in a few words
    retry_after   whether the answer asks the caller to retry after a second
    """

    codes: tuple[str, ...]
    http: int
    grpc: str
    meaning: str
    retry_after: bool = False


TABLE: Final = (
    Row(("BADID", "ERR"), 400, "INVALID_ARGUMENT", "the request is wrong"),
    Row(("NOAUTH", "WRONGPASS"), 401, "UNAUTHENTICATED", "no login, or a wrong one"),
    Row(("NOPERM",), 403, "PERMISSION_DENIED", "the login has no permission for this"),
    Row(("NOJOB", "NOTFOUND"), 404, "NOT_FOUND", "there is no such job, queue, operation or path"),
    Row(("METHOD",), 405, "UNIMPLEMENTED", "the path does not support this method"),
    Row(
        (
            "PAUSED",
            "NOKEY",
            "CLOSED",
            "NOROUTE",
            "CANCELED",
            "TOOLATE",
            "LOCKDONE",
            "LOCKSPENT",
            "CONFIRM",
            "TRIMMED",
            "NOLOG",
        ),
        409,
        "FAILED_PRECONDITION",
        "the state of the queue or job forbids it",
    ),
    Row(("STALE", "FENCED"), 409, "ABORTED", "a later delivery or owner is known"),
    Row(("TOOBIG",), 413, "RESOURCE_EXHAUSTED", "the head, the body or the batch is too long"),
    Row(("HOST",), 421, "INVALID_ARGUMENT", "the Host header does not name this gateway"),
    Row(("MAXLEN",), 429, "RESOURCE_EXHAUSTED", "the queue is full", retry_after=True),
    Row(("LIMIT",), 429, "RESOURCE_EXHAUSTED", "a rate or a number is above its limit", retry_after=True),
    Row(("FAULT",), 500, "INTERNAL", "an error of the gateway, which is in its log"),
    Row(("UNSUPPORTED",), 501, "UNIMPLEMENTED", "the nodes do not support this command"),
    Row(("UNKNOWN",), 502, "UNKNOWN", "the answer was lost: the command may have been executed"),
    Row(
        ("NOREPL", "NOQUORUM", "UNREACHABLE", "NONODE", "LOADING", "LEAVING"),
        503,
        "UNAVAILABLE",
        "nodes are missing",
        retry_after=True,
    ),
    Row(("ISSUER",), 503, "UNAVAILABLE", "the issuer of tokens does not answer", retry_after=True),
    Row(("ENDING",), 503, "UNAVAILABLE", "this gateway ends: send the request again", retry_after=True),
    Row(("OOM", "MISCONF"), 507, "RESOURCE_EXHAUSTED", "the node's memory or disk is full"),
)

BY_CODE: Final = {code: row for row in TABLE for code in row.codes}
# Codes that only the gateway uses.
OWN_CODES: Final = frozenset(
    ("NOTFOUND", "METHOD", "CONFIRM", "HOST", "FAULT", "UNSUPPORTED", "UNKNOWN", "NONODE", "ISSUER", "ENDING")
)


class RefusedError(Exception):
    """An operation was refused. `code` is one of the table, `text` is for people."""

    def __init__(self, code: str, text: str, **more: Any) -> None:
        super().__init__(text)
        self.code = code if code in BY_CODE else "ERR"
        self.text = text
        self.more = more

    @property
    def row(self) -> Row:
        """The row of the table."""
        return BY_CODE[self.code]

    @property
    def title(self) -> str:
        """The meaning for the caller, in a few words."""
        return self.row.meaning

    @property
    def retry_after(self) -> bool:
        """Whether the answer asks the caller to retry after a second."""
        return self.row.retry_after

    def problem(self) -> dict[str, Any]:
        """Return the problem document of RFC 9457: `type`, `title`, `status`, `detail`; and the `code`."""
        row = self.row
        return {
            "type": TYPE_PREFIX + "errors",
            "title": self.title,
            "status": row.http,
            "detail": self.text,
            "code": self.code,
            **self.more,
        }


class NoVotersError(RefusedError):
    """The cluster has no voters, so it grants no claims and no locks. This does not pass by itself."""

    title = "the cluster has no voters"
    retry_after = False

    def __init__(self) -> None:
        super().__init__(
            "NOQUORUM",
            "no voters configured: claims and locks need voters, which an operator chooses once with "
            "CLUSTER VOTERS INIT and the ids of the nodes",
        )


def refusal_of(error: Exception) -> RefusedError:
    """Return the refusal for an error of the client library, or for a wrong argument."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, ReplyError):
        return _of_reply(error)
    if isinstance(error, ConnectionLostError) and error.sent:
        return RefusedError("UNKNOWN", f"the answer was lost: {error}", unknown=True)
    if isinstance(error, NotConnectedError | ClientClosedError | ConnectionLostError):
        return RefusedError("NONODE", f"no node answers: {error}")
    if isinstance(error, ValueError | TypeError | DisqueError):
        return RefusedError("ERR", str(error))
    return RefusedError("FAULT", "an error of the gateway; its log has the details")


def _of_reply(error: ReplyError) -> RefusedError:
    text = error.text
    if text == NO_VOTERS:
        return NoVotersError()
    if error.code == "ERR":
        if text.startswith("ERR unknown command"):
            return RefusedError("UNSUPPORTED", text.partition(" ")[2])
        if text.startswith(("ERR invalid password", "ERR Client sent AUTH")):
            return RefusedError("WRONGPASS", "wrong user or password")
    if error.code in BY_CODE and error.code not in OWN_CODES:
        return RefusedError(error.code, text.partition(" ")[2] or text)
    return RefusedError("ERR", text)
