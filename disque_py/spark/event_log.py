"""A node's event log, asked over RESP: EVENTS INFO, READ, SEEK (docs/protocol.md).

A log has an id and gap-free sequence numbers; what is below `first` was trimmed, what is at or
above `next` can't be read yet (it is not durable). Lines come as one bulk string of whole NDJSON
lines, and stay bytes here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from disque_py.client import Address, ReplyError
from disque_py.client.protocol import text
from disque_py.spark.event_blocks import MARK, end_of
from disque_py.spark.nodes import ClusterError, Nodes


class NoLogError(ClusterError):
    """The node has no event log: events are off, or the last log could not be written and the next has not begun."""


class DataLossError(RuntimeError):
    """Events that should be read are gone; the text names node, log and positions."""


@dataclass(frozen=True, slots=True)
class LogState:
    """What EVENTS INFO says: sequence numbers from `first` up to, without, `next` can be read; `bytes` on disk."""

    log: str
    first: int
    next: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Slice:
    """What one EVENTS READ gave.

    data           whole lines; blocks if these were asked for and the node knows them (event_blocks.py)
    end            behind the last event
    trimmed_to     the first number that can be read, when the wanted one is gone
    is_log_known   False: the node has no log of this id (any more)
    """

    data: bytes
    end: int
    trimmed_to: int | None = None
    is_log_known: bool = True


_NO_LOG: Final = (
    "disque-events: node {} has no event log; set `events yes` in its configuration, and if it is set see the node's"
    " log for why it can't be written"
)


def log_state(nodes: Nodes, address: Address) -> LogState:
    """EVENTS INFO. Raises DisqueConnectionError; NoLogError when the node has no log."""
    try:
        reply = nodes.ask(address, b"EVENTS", b"INFO")
    except ReplyError as error:
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
    """EVENTS READ of at most `count` events from `seq` on. Raises DisqueConnectionError, ReplyError, ValueError.

    Packed ones may begin before `seq`; what they have behind `count` is left out of `end`.
    """
    words: list[bytes | str | int] = ["EVENTS", "READ", log, seq, "COUNT", count, "MAXBYTES", max_bytes]
    if reader:
        words += ("READER", reader)
    try:
        try:
            data = bytes(nodes.ask(address, *words, *((b"FORMAT", b"PACKED") if is_packed else ())) or b"")
        except ReplyError as error:
            # A node of an older version gives lines to whoever asks for blocks.
            if not is_packed or error.code != "ERR":
                raise
            data = bytes(nodes.ask(address, *words) or b"")
    except ReplyError as error:
        if error.code == "TRIMMED":
            return Slice(b"", seq, trimmed_to=int(error.text.split()[1]))
        if error.code == "NOLOG":
            return Slice(b"", seq, is_log_known=False)
        raise
    end = min(end_of(data), seq + count) if data.startswith(MARK) else seq + data.count(b"\n")
    return Slice(data, end)


def seek(nodes: Nodes, address: Address, ms: int) -> int:
    """EVENTS SEEK: the first number at or after a moment in Unix milliseconds. Raises as `read_slice`."""
    return int(nodes.ask(address, b"EVENTS", b"SEEK", ms))
