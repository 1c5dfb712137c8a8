"""The nodes file as text: CLUSTER NODES lines by which a node finds its cluster after a restart.

    version 1
    <id> <host>:<port> <flags> <ping-sent> <pong-received> <link> bus-port=17711
    ...
    checksum 89abcdef

The six fields are the original's (spec N6). `key=value` fields may follow. Unknown ones are ignored, so a newer version
may say more. Those known are `bus-port`, `tls-port`, `place` (data centre and zone), `meet`, `asked` and `incarnation`.
Files of the original are read, too: they have neither version, checksum nor further fields. Exactly one line is
`myself`. Handshakes are not saved. Empty lines are ignored. A reader that does not know lines starting with `vars`
ignores those as well (`Notes`):

    vars meet <host> <port> <bus-port>       an operator asked for it, and it was not reached yet
    vars forgotten <id> <incarnation>        an operator made us forget the node (spec N5); -1: its number is not known
    vars forgot <id> <ms left> <wall ms>     the same, written by older releases, with a time limit
    vars alone                               its table is empty because an operator wanted that

The checksum (crc32, hex) covers everything above it and must be there when a version is. A file that was damaged or cut
off is refused as a whole (spec Q36). nodes_store.py writes the file.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from cluster_bus.handshake import INCARNATION_MAX
from cluster_bus.node import FLAG_WORDS, HANDSHAKE, ID_BYTES, MYSELF, Node

FILE_VERSION: Final = 1
_BUS_PORT_OFFSET: Final = 10_000  # The offset of the original's bus port; only its files lack the field.
_FIELDS: Final = 6
_FLAGS: Final = {word: bit for bit, word in FLAG_WORDS} | {"noflags": 0}


class NodesFileError(Exception):
    """The text is not a nodes file; `line` counts from 1, 0 is the file as a whole."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}" if line else reason)
        self.line = line
        self.reason = reason


class NodeLine(NamedTuple):
    """One node as the file has it; times are Unix milliseconds of the process that wrote it, 0: none."""

    id: bytes
    host: str
    port: int
    bus_port: int
    flags: int
    ping_sent_ms: int
    pong_received_ms: int
    tls_port: int = 0
    must_meet: bool = False  # It has not said yet that it knows us.
    place: tuple[str, str] | None = None  # Data centre and zone; None: it has not said.
    incarnation: int = 0
    is_asked: bool = False  # An operator asked for the MEET.


class Notes(NamedTuple):
    """The `vars` lines of a nodes file.

    meetings    host, port and bus port of nodes that an operator asked to meet
    forgotten   (id, incarnation) of nodes that an operator made us forget; -1: the incarnation is not known
    is_alone    an operator made the node forget all other nodes
    """

    meetings: list[tuple[str, int, int]]
    forgotten: list[tuple[bytes, int]]
    is_alone: bool


NO_NOTES: Final = Notes([], [], False)


def six_fields(node: Node) -> str:
    """Return a node's line in CLUSTER NODES, without the line end (spec N6)."""
    link = "connected" if node.is_linked or node.flags & MYSELF else "disconnected"
    return (
        f"{node.name.decode()} {node.host}:{node.port} {node.flag_text()} "
        f"{node.ping_sent_wall_ms} {node.pong_received_wall_ms} {link}"
    )


def dump(nodes: Iterable[Node], notes: Notes = NO_NOTES) -> str:
    """Return the file's text for these nodes. Newcomers are left out: they will say MEET again."""
    lines = [f"version {FILE_VERSION}"]
    lines += [_line(node) for node in nodes if not node.flags & HANDSHAKE and not node.is_newcomer]
    lines += [f"vars meet {host} {port} {bus_port}" for host, port, bus_port in notes.meetings]
    lines += [f"vars forgotten {node_id.hex()} {incarnation}" for node_id, incarnation in notes.forgotten]
    if notes.is_alone:
        lines.append("vars alone")
    body = "\n".join(lines) + "\n"
    return f"{body}checksum {zlib.crc32(body.encode()):08x}\n"


def _line(node: Node) -> str:
    line = f"{six_fields(node)} bus-port={node.bus_port}"
    if node.tls_port:
        line += f" tls-port={node.tls_port}"
    if node.is_placed:
        line += f" place={quote(node.datacenter, safe='')}/{quote(node.zone, safe='')}"
    if node.incarnation:
        line += f" incarnation={node.incarnation}"
    if node.must_meet:
        line += " meet=1 asked=1" if node.is_asked else " meet=1"
    return line


def parse(text: str) -> list[NodeLine]:
    """Return all nodes of the file, `myself` first; NodesFileError."""
    nodes: dict[bytes, NodeLine] = {}
    lines = text.split("\n")
    is_versioned = _check_frame(text, lines)
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0] == "vars" or (is_versioned and words[0] in ("version", "checksum")):
            continue
        node = _parse_line(number, words)
        if node.id in nodes:
            raise NodesFileError(number, "this node id is in an earlier line already")
        nodes[node.id] = node
    mine = [node for node in nodes.values() if node.flags & MYSELF]
    if len(mine) != 1:
        raise NodesFileError(0, f"{len(mine)} nodes are flagged `myself`, but exactly one must be")
    return mine + [node for node in nodes.values() if not node.flags & MYSELF]


def parse_notes(text: str, wall_ms: int) -> Notes:
    """Read the `vars` lines of a file that `parse` accepts; unknown ones are ignored."""
    meetings, forgotten, is_alone = [], [], False
    for line in text.split("\n"):
        words = line.split()
        if words[:2] == ["vars", "meet"] and len(words) == 5:
            port, bus_port = _number(words[3], 65535), _number(words[4], 65535)
            if port and bus_port:
                meetings.append((words[2], port, bus_port))
        elif words[:2] == ["vars", "forgotten"] and len(words) == 4 and _is_node_id(words[2]):
            incarnation = -1 if words[3] == "-1" else _number(words[3], INCARNATION_MAX)
            if incarnation is not None:
                forgotten.append((bytes.fromhex(words[2]), incarnation))
        elif words[:2] == ["vars", "forgot"] and len(words) == 5 and _is_node_id(words[2]):
            left_ms, then_ms = _number(words[3], 1 << 63), _number(words[4], 1 << 63)
            if left_ms is not None and then_ms is not None and wall_ms - then_ms < left_ms:
                forgotten.append((bytes.fromhex(words[2]), 0))
        elif words == ["vars", "alone"]:
            is_alone = True
    return Notes(meetings, forgotten, is_alone)


def _is_node_id(word: str) -> bool:
    return len(word) == 2 * ID_BYTES and not set(word) - set("0123456789abcdef")


def _check_frame(text: str, lines: list[str]) -> bool:
    """Check version and checksum of a text that has a version line; False for one without."""
    words = lines[0].split()
    if not words or words[0] != "version":
        return False
    if len(words) != 2 or not words[1].isdecimal():
        raise NodesFileError(1, "`version` and a number expected")
    if int(words[1]) > FILE_VERSION:
        raise NodesFileError(1, f"written by a newer version (format {words[1]}, this one reads up to {FILE_VERSION})")
    body, _, last = text.removesuffix("\n").rpartition("\n")
    if not last.startswith("checksum "):
        raise NodesFileError(len(lines), "the checksum line is missing: the file was cut off")
    if last != f"checksum {zlib.crc32((body + chr(10)).encode(errors='surrogateescape')):08x}":
        raise NodesFileError(len(lines), "the checksum does not match: the file is damaged, or was edited")
    return True


def _parse_line(number: int, words: list[str]) -> NodeLine:
    if len(words) < _FIELDS:
        raise NodesFileError(number, f"{_FIELDS} fields expected, found {len(words)}")
    name, address, flag_words, ping_sent, pong_received = words[: _FIELDS - 1]
    try:
        node_id = bytes.fromhex(name)
    except ValueError:
        node_id = b""
    if len(node_id) != ID_BYTES or len(name) != 2 * ID_BYTES:
        raise NodesFileError(number, "the node id is not 40 hexadecimal digits")
    host, colon, port_word = address.rpartition(":")
    port = _number(port_word, 65535)
    if not colon or port is None:
        raise NodesFileError(number, f"`{address}` is not host:port")
    flags = 0
    for word in flag_words.split(","):
        if word not in _FLAGS:
            raise NodesFileError(number, f"unknown flag `{word}`")
        flags |= _FLAGS[word]
    times = [_number(word, 1 << 63) for word in (ping_sent, pong_received)]
    if times[0] is None or times[1] is None:
        raise NodesFileError(number, "ping-sent and pong-received must be milliseconds")
    bus_port, tls_port = _further_ports(number, words[_FIELDS:], port)
    fields = words[_FIELDS:]
    return NodeLine(
        node_id,
        host,
        port,
        bus_port,
        flags & ~HANDSHAKE,
        times[0],
        times[1],
        tls_port,
        "meet=1" in fields,
        _place_in(fields),
        _incarnation_in(number, fields),
        "asked=1" in fields,
    )


def _incarnation_in(number: int, fields: list[str]) -> int:
    """Return the incarnation of a line's further fields; 0 if there is none."""
    for field in fields:
        if field.startswith("incarnation="):
            incarnation = _number(field.removeprefix("incarnation="), INCARNATION_MAX)
            if incarnation is None:
                raise NodesFileError(number, "incarnation is not a number")
            return incarnation
    return 0


def _place_in(fields: list[str]) -> tuple[str, str] | None:
    """Return the data centre and the zone of a line's further fields."""
    for field in fields:
        if field.startswith("place="):
            datacenter, _, zone = field.removeprefix("place=").partition("/")
            return unquote(datacenter), unquote(zone)
    return None


def _further_ports(number: int, fields: list[str], port: int) -> tuple[int, int]:
    """Read the bus port and the TLS port from a line's further fields."""
    bus_port: int | None = port + _BUS_PORT_OFFSET if 0 < port <= 65535 - _BUS_PORT_OFFSET else 0
    tls_port: int | None = 0
    for field in fields:
        key, equals, value = field.partition("=")
        if not equals:
            raise NodesFileError(number, f"`{field}` is not key=value")
        if key == "bus-port":
            bus_port = _number(value, 65535)
        elif key == "tls-port":
            tls_port = _number(value, 65535)
    if bus_port is None:
        raise NodesFileError(number, "bus-port is not a port")
    if tls_port is None:
        raise NodesFileError(number, "tls-port is not a port")
    return bus_port, tls_port


def _number(word: str, highest: int) -> int | None:
    if not (word.isascii() and word.isdecimal()) or len(word) > 20 or int(word) > highest:
        return None
    return int(word)
