"""A node's event log, read over RESP: EVENTS INFO, READ, SEEK (docs/protocol.md).

A log has an id and gap-free sequence numbers. Events below `first` were trimmed. Events from `next` on can't be
read yet, because they are not durable. A reply is one bulk string of whole NDJSON lines, or of blocks. This module
keeps it as bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from disque_py.client import Address, NotConnectedError, ReplyError
from disque_py.client.protocol import text
from disque_py.event_format import PACKED_MARK
from disque_py.spark.event_blocks import end_of
from disque_py.spark.nodes import ClusterError, Nodes


class NoLogError(ClusterError):
    """The node has no event log: events are off, or the last log failed on disk and the next has not begun."""


class DataLossError(RuntimeError):
    """Events that should be read are gone. The text names node, log and positions."""


@dataclass(frozen=True, slots=True)
class LogState:
    """The reply of EVENTS INFO: events from `first` to `next` - 1 can be read; `bytes` is the log's size on disk."""

    log: str
    first: int
    next: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Slice:
    """The reply of one EVENTS READ.

    data           whole lines; blocks if these were requested and the node knows them (event_blocks.py)
    end            the number after the last event
    trimmed_to     the first number that can still be read, if the requested one is gone
    is_log_known   False: the node has no log of this id, or no longer has it
    """

    data: bytes
    end: int
    trimmed_to: int | None = None
    is_log_known: bool = True


# The refusal of a number that the log has not reached.
BEHIND: Final = "behind the end of the log"
# Between the id of a log and how often the log was cut, in the names of logs.
CUT_MARK: Final = "."

_NO_LOG: Final = (
    "disque-events: node {} has no event log; set `events yes` in its configuration; if it is set, the node's log"
    " file says why events can't be written"
)


def refused(address: Address, why: str) -> ClusterError:
    """Return the error for a user that may not read the log, or not all of it."""
    return ClusterError(
        f"disque-events: node {address} refuses its event log to this user ({why}); give the user the right to EVENTS "
        "and to all names, or set disque.username"
    )


def log_id(name: str) -> str:
    """Return the id by which the node knows a log, from the log's name in offsets and rows."""
    return name.partition(CUT_MARK)[0]


def name_after_cut(name: str) -> str:
    """Return the name of a log that was cut: `abc` becomes `abc.1`, then `abc.2`.

    The events after a cut have numbers that earlier events had. So they are read as those of another log.
    """
    known, _, cuts = name.partition(CUT_MARK)
    return f"{known}{CUT_MARK}{int(cuts or 0) + 1}"


def log_state(nodes: Nodes, address: Address) -> LogState:
    """Send EVENTS INFO. Raises DisqueConnectionError, NoLogError when the node has no log, and ClusterError."""
    try:
        reply = nodes.ask(address, b"EVENTS", b"INFO")
    except ReplyError as error:
        if error.code == "NOPERM":
            raise refused(address, error.text) from None
        raise NoLogError(f"{_NO_LOG.format(address)} ({error})") from None
    if len(reply) == 4 and isinstance(reply[1], int):
        return LogState(text(reply[0]), reply[1], reply[2], int(reply[3]))
    pairs = {text(name): value for name, value in zip(reply[::2], reply[1::2], strict=True)}
    log = pairs["log-id"]
    if not log:
        raise NoLogError(_NO_LOG.format(address))
    return LogState(text(log), int(pairs["first-seq"]), int(pairs["next-seq"]), int(pairs["bytes"]))


def read_slice(
    nodes: Nodes,
    address: Address,
    log: str,
    seq: int,
    count: int,
    max_bytes: int,
    reader: str = "",
    *,
    is_packed: bool = False,
) -> Slice:
    """Send EVENTS READ for at most `count` events from `seq` on.

    There are none beyond the end of a log that was cut (docs/events.md).

    Raises DisqueConnectionError, ReplyError, ValueError, and ClusterError for a user that may not read all events.
    Packed events may begin before `seq`. `end` does not count those beyond `count`.
    """
    words: list[bytes | str | int] = ["EVENTS", "READ", log_id(log), seq, "COUNT", count, "MAXBYTES", max_bytes]
    if reader:
        words += ("READER", reader)
    try:
        try:
            data = bytes(nodes.ask(address, *words, *((b"FORMAT", b"PACKED") if is_packed else ())) or b"")
        except ReplyError as error:
            if error.code == "NOPERM":
                raise refused(address, error.text) from None
            # A node of an older version refuses FORMAT PACKED. Ask it for lines.
            if not is_packed or error.code != "ERR" or BEHIND in error.text:
                raise
            data = bytes(nodes.ask(address, *words) or b"")
    except ReplyError as error:
        if error.code == "TRIMMED":
            return Slice(b"", seq, trimmed_to=int(error.text.split()[1]))
        if error.code == "NOLOG":
            return Slice(b"", seq, is_log_known=False)
        if error.code == "ERR" and BEHIND in error.text:
            return Slice(b"", seq)
        raise
    end = min(end_of(data), seq + count) if data.startswith(PACKED_MARK) else seq + data.count(b"\n")
    return Slice(data, end)


def check_owner(nodes: Nodes, address: Address, node: str) -> None:
    """Check that this node answers at the address. Raises NotConnectedError if another one does, as if it were away.

    An address may pass to another node, which does not know the log (NOLOG). This is no loss: the node that has the
    log may be at another address. Raises as `Nodes.ask`.
    """
    answering = nodes.id_at(address)
    if answering != node:
        raise NotConnectedError(f"{address} is the address of node {answering} now")


def seek(nodes: Nodes, address: Address, ms: int) -> int:
    """Send EVENTS SEEK: return the first number at or after a moment in Unix milliseconds. Raises as `read_slice`."""
    return int(nodes.ask(address, b"EVENTS", b"SEEK", ms))
