"""Types of arguments that several families of commands take, and their encoding. Pure.

Spans of time are whole numbers or a `timedelta` (spans.py): seconds where Disque takes seconds, milliseconds where an
argument ends in `_ms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from disque_py.client.backoff import Backoff
from disque_py.client.protocol import Reply, Word, text, word
from disque_py.client.results import Job, Task

Body: TypeAlias = "bytes | bytearray | memoryview | str"
JobRef: TypeAlias = "Job | str | bytes"
Meta: TypeAlias = Mapping[str, str | bytes]
Where: TypeAlias = "Mapping[str, str | bytes] | Mapping[bytes, str | bytes]"
TaskRef: TypeAlias = "Task | str | bytes"
PauseState: TypeAlias = Literal["in", "out", "all", "none"]
# A setting's default.
Default: TypeAlias = Literal[""]
JobState: TypeAlias = Literal["wait-repl", "active", "queued", "acked"]
# A policy as text, as `exponential:1000:60000:20`, or as an object.
BackoffPolicy: TypeAlias = "str | Backoff"

# The default time for the copies of a job. In Disque's protocol it is mandatory; here it has a default.
ADD_TIMEOUT_MS: Final = 5_000
# The most bytes of a NACK's reason.
REASON_BYTES_MAX: Final = 1024
# The time that a change of queue settings waits for other nodes, in addition to the node's own disk.
QUEUE_SET_MS: Final = 1_000
# A claim that the voters have not decided within this time has failed (spec CL8).
CLAIM_MS: Final = 1_000


def where_words(where: Where | None) -> tuple[bytes, ...]:
    """Return the words of a filter."""
    found: list[bytes] = []
    if where is not None:
        for name, value in where.items():
            found += (b"WHERE", word(name), word(value))
    return tuple(found)


def of_status(argv: tuple[bytes, ...], status: str | None, *, cluster: bool) -> tuple[bytes, ...]:
    """Return a command's words, with STATUS and CLUSTER where they are wanted."""
    if status is not None:
        argv = (*argv, b"STATUS", word(status))
    return (*argv, b"CLUSTER") if cluster else argv


def short_reason(reason: str | bytes) -> bytes:
    """Return a reason as NACK takes it: UTF-8, and at most REASON_BYTES_MAX bytes."""
    whole_reason = reason.encode("utf-8", "replace") if isinstance(reason, str) else reason
    if len(whole_reason) <= REASON_BYTES_MAX:
        return whole_reason
    return whole_reason[:REASON_BYTES_MAX].decode("utf-8", "ignore").encode()


def names(reply: Reply) -> list[str]:
    """Return an answer that is a list of names as text."""
    return [text(name) for name in reply]


def add_pair(argv: list[bytes], name: bytes, value: Word | None) -> None:
    """Append an option and its value, unless the value is None."""
    if value is not None:
        argv += (name, word(value))
