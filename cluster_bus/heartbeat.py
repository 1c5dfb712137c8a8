"""Heartbeats: the content of PING, PONG and MEET, a header about the sender and gossip about others.

    item   = (header, [entry, ...])
    header = map: host, port, bus_port, flags, memory, version; tls_port and incarnation unless they are 0; datacenter
             and zone if named; of a MEET also asked (1: an operator asked for it)
    entry  = (node id, host, port, bus_port, flags, ms since our unanswered ping, ms since its last answer), -1: none;
             then the node's incarnation unless it is 0

Of a sender's own flags only LEAVING is believed (spec N1). PFAIL and FAIL in an entry are its reporter's opinion.
Ages are spans, so no two clocks are compared. Unknown fields and positions are ignored. Missing ones are an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cluster_bus.codec import FrameError
from cluster_bus.handshake import VERSION_CHARS_MAX, is_host, is_incarnation, is_port
from cluster_bus.node import FAIL, HANDSHAKE, ID_BYTES, LEAVING, MYSELF, NOADDR, PFAIL, Node

if TYPE_CHECKING:
    from random import Random

GOSSIP_FLAGS: Final = PFAIL | FAIL | LEAVING | NOADDR
FAILING: Final = PFAIL | FAIL
MEMORY_LEVEL_MAX: Final = 3
# Bytes of the name of a data centre or a zone. Spec ZN1.
PLACE_BYTES_MAX: Final = 64

# Entries per heartbeat: at least three, a tenth of the table (spec N2). A node that has just been met learns (almost)
# all nodes at once, so that a cluster is complete in milliseconds.
GOSSIP_MIN: Final = 3
GREETING_ENTRIES_MAX: Final = 100


class Header(NamedTuple):
    """The sender's statement about itself; see the module."""

    host: str
    port: int
    bus_port: int
    flags: int
    memory_level: int
    software: str
    tls_port: int = 0
    datacenter: str = ""
    zone: str = ""
    incarnation: int = 0
    is_asked: bool = True
    is_disk_failing: bool = False


class Entry(NamedTuple):
    """The sender's statement about another node; see the module."""

    id: bytes
    host: str
    port: int
    bus_port: int
    flags: int
    incarnation: int = 0


def header_map(me: Node, announced_host: str, *, is_asked: bool | None = None) -> dict[str, Any]:
    """Return the header of a heartbeat of this node. `is_asked` of a MEET: whether an operator asked for it."""
    header: dict[str, Any] = {
        "host": announced_host,
        "port": me.port,
        "bus_port": me.bus_port,
        "flags": me.flags & LEAVING,
        "memory": me.memory_level,
        "version": me.version,
    }
    if me.is_disk_failing:
        header["disk"] = 1
    if me.tls_port:
        header["tls_port"] = me.tls_port
    if me.datacenter:
        header["datacenter"] = me.datacenter
    if me.zone:
        header["zone"] = me.zone
    if me.incarnation:
        header["incarnation"] = me.incarnation
    if is_asked is not None:
        header["asked"] = int(is_asked)
    return header


def entry(node: Node, now_ms: int) -> tuple[Any, ...]:
    """Return a gossip entry about `node`."""
    ping_age_ms = now_ms - node.ping_sent_ms if node.ping_sent_ms else -1
    pong_age_ms = now_ms - node.pong_received_ms if node.pong_received_ms else -1
    said = (node.id, node.host, node.port, node.bus_port, node.flags & GOSSIP_FLAGS, ping_age_ms, pong_age_ms)
    return (*said, node.incarnation) if node.incarnation else said


def choose(nodes: list[Node], receiver: Node, rng: Random, *, is_greeting: bool = False) -> list[Node]:
    """Choose the nodes to gossip about: first suspected and failed ones, then random ones.

    Agreement on a failure waits for this gossip. Ourselves, the receiver, handshakes and nodes without address are
    never chosen. Nodes without a link are chosen only when they fail. (`nodes` is the whole table, ourselves included.)
    """
    known = [node for node in nodes if _may_gossip(node) and node is not receiver]
    count = GREETING_ENTRIES_MAX if is_greeting else min(max(GOSSIP_MIN, len(nodes) // 10), len(nodes) - 2)
    if len(known) <= count:
        return known
    failing = [node for node in known if node.flags & FAILING]
    if len(failing) >= count:
        return rng.sample(failing, count)
    others = [node for node in known if not node.flags & FAILING]
    return failing + rng.sample(others, min(count - len(failing), len(others)))


def _may_gossip(node: Node) -> bool:
    if node.flags & (MYSELF | HANDSHAKE | NOADDR) or not node.host:
        return False
    return node.is_linked or bool(node.flags & FAILING)


def read(item: Any) -> tuple[Header, list[Entry]]:
    """Read a heartbeat's item as received; FrameError if it is not one."""
    if not isinstance(item, list) or len(item) < 2 or not isinstance(item[0], dict) or not isinstance(item[1], list):
        raise FrameError("bad heartbeat", "not a header and a list")
    get: Callable[..., Any] = item[0].get
    host, port, bus_port, flags = get("host"), get("port"), get("bus_port"), get("flags")
    level, software, tls_port = get("memory", 0), get("version", ""), get("tls_port", 0)
    if not (is_host(host) and is_port(port) and is_port(bus_port) and type(flags) is int and type(level) is int):
        raise FrameError("bad heartbeat", "a header field is missing or of the wrong type")
    if not is_port(tls_port):
        tls_port = 0
    if not isinstance(software, str) or not software.isprintable():
        software = ""
    level = min(max(level, 0), MEMORY_LEVEL_MAX)
    datacenter, zone = _place(get("datacenter", "")), _place(get("zone", ""))
    software = software[:VERSION_CHARS_MAX]
    incarnation = get("incarnation", 0)
    header = Header(
        host,
        port,
        bus_port,
        flags & LEAVING,
        level,
        software,
        tls_port,
        datacenter,
        zone,
        incarnation if is_incarnation(incarnation) else 0,
        get("asked") != 0,  # Nodes of older releases do not tell why they say MEET.
        get("disk") == 1,
    )
    return header, [_read_entry(each) for each in item[1]]


def is_place(name: Any) -> bool:
    """Return whether this may be the name of a data centre or a zone."""
    return isinstance(name, str) and name.isprintable() and len(name.encode()) <= PLACE_BYTES_MAX


def _place(name: Any) -> str:
    return str(name) if is_place(name) else ""


def _read_entry(item: Any) -> Entry:
    if not (
        isinstance(item, list)
        and len(item) >= 7
        and isinstance(item[0], bytes)
        and len(item[0]) == ID_BYTES
        and is_host(item[1])
        and is_port(item[2])
        and is_port(item[3])
        and type(item[4]) is int
    ):
        raise FrameError("bad heartbeat", "a gossip entry is malformed")
    incarnation = item[7] if len(item) > 7 and is_incarnation(item[7]) else 0
    return Entry(item[0], item[1], item[2], item[3], item[4], incarnation)
