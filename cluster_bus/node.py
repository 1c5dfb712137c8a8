"""Node: our view of one member of the cluster, ourselves included.

A Node object is an identity: for each id there is exactly one object per process. So sets of nodes are sets of these
objects and compare by identity. The node table alone creates them (`NodeTable.intern`), and only the membership changes
the fields of its part. The core only reads, apart from the fields under "the core's own".

`id` is 20 random bytes; clients see it as 40 lower-case hex characters (`name`).
"""

from __future__ import annotations

from typing import Any, Final

# Flags, with the words that CLUSTER NODES prints for them (spec N6).
MYSELF: Final = 1
PFAIL: Final = 2  # Suspected by this node only; printed `fail?`.
FAIL: Final = 4  # Agreed on by a majority.
HANDSHAKE: Final = 8  # Address known, id not yet: the id is a random placeholder.
NOADDR: Final = 16
LEAVING: Final = 32
FORGOTTEN: Final = 64  # Kept only because jobs may still name it.
UNKNOWN: Final = 128  # Named as a holder by another node, but never met.

FLAG_WORDS: Final = (
    (MYSELF, "myself"),
    (PFAIL, "fail?"),
    (FAIL, "fail"),
    (HANDSHAKE, "handshake"),
    (NOADDR, "noaddr"),
    (LEAVING, "leaving"),
)

ID_BYTES: Final = 20


class Node:
    """One node. See the module for the owner of each field.

    id, name         20 bytes; the same as 40 hex characters (bytes, as RESP wants it)
    host, port       where clients and the bus reach it ("" and 0: unknown)
    tls_port         where clients reach it over TLS (0: unknown, or the node has no such port)
    bus_port         port of its bus (client port + 10000 unless announced otherwise)
    flags            bits above
    run              8 random bytes of its current process, b"" until a link told us
    is_linked        our outgoing link to it is up: a message arrives or the link breaks
    protocol         bus protocol version agreed on that link (0: no link)
    spoken           bus protocol version agreed on our last link to it (0: there was none yet)
    memory_level     0, 1 (> 75 %), 2 (> 95 %): gossiped in its heartbeats
    is_disk_failing  its journal can't be written, so it takes no copies: gossiped as well
    datacenter, zone   where it says that it is, in its heartbeats ("": it names none)
    is_placed        it has said so, to us or to a former process of ours
    version          software version it reported
    ping_sent_ms     0 when none is outstanding; monotonic
    pong_received_ms, pong_received_wall_ms   when it last answered; monotonic and wall
    fail_at_ms       when FAIL was set; monotonic
    reports          reporter -> when it last said this node fails; monotonic
    is_newcomer      it introduced itself and was not reached yet (node_table.py)
    is_missed        it has had no link of ours for MISSED_MS, since `unlinked_ms` (links.py); monotonic
    known_since_ms, link_since_ms   when it entered the table, when our link came up; monotonic

    Of our outgoing link, membership's own:

    is_dialing       an attempt to connect is in flight
    dial_at_ms       the earliest moment of the next attempt; monotonic
    dial_gap_ms      the pause after the next failed attempt
    redial_at_ms     the earliest moment at which another link may replace this one; monotonic
    dial_error       the reason why the last attempt to make a link failed, for people, or ""; set by the Bus
    must_redial      MEET was repeated before that moment, so another attempt replaces this one then
    link_run         run of the process our link reached, b"" without a link
    must_meet        our heartbeats are MEETs until it has answered, for it may not know us; of a handshake: an operator
                     or `cluster-seeds` asked for it
    owes_pong        it asked while we had no link to answer on, so a PONG is due
    pinged_ms        when a PING last left, repeated ones included; monotonic

    Of forgetting (spec N5, N10), membership's own:

    incarnation      the node's own number; an operator's MEET raises it (0: no operator said MEET yet)
    is_asked         our MEETs to it say that an operator asked for them; of a handshake: the nodes file keeps it
    asked_at         its incarnation in its last MEET that said so (-1: there was none)
    heeded_at        its incarnation in the last such MEET for which we raised our own number
    """

    __slots__ = (
        "asked_at",
        "bus_port",
        "core",
        "datacenter",
        "dial_at_ms",
        "dial_error",
        "dial_gap_ms",
        "fail_at_ms",
        "flags",
        "heeded_at",
        "host",
        "id",
        "incarnation",
        "is_asked",
        "is_dialing",
        "is_disk_failing",
        "is_linked",
        "is_missed",
        "is_newcomer",
        "is_placed",
        "known_since_ms",
        "link_run",
        "link_since_ms",
        "memory_level",
        "must_meet",
        "must_redial",
        "name",
        "owes_pong",
        "ping_sent_ms",
        "ping_sent_wall_ms",
        "pinged_ms",
        "pong_received_ms",
        "pong_received_wall_ms",
        "port",
        "protocol",
        "redial_at_ms",
        "reports",
        "run",
        "spoken",
        "tls_port",
        "unlinked_ms",
        "version",
        "zone",
    )

    def __init__(self, node_id: bytes, host: str = "", port: int = 0, bus_port: int = 0, flags: int = 0) -> None:
        self.id = node_id
        self.name = node_id.hex().encode()
        self.host = host
        self.port = port
        self.tls_port = 0
        self.bus_port = bus_port
        self.flags = flags
        self.run = b""
        self.is_linked = False
        self.is_newcomer = False
        self.is_missed = False
        self.unlinked_ms = 0
        self.protocol = 0
        self.spoken = 0
        self.memory_level = 0
        self.is_disk_failing = False
        self.version = ""
        self.datacenter = ""
        self.zone = ""
        self.is_placed = False
        self.known_since_ms = 0
        self.link_since_ms = 0
        self.ping_sent_ms = 0
        self.ping_sent_wall_ms = 0
        self.pong_received_ms = 0
        self.pong_received_wall_ms = 0
        self.fail_at_ms = 0
        self.reports: dict[Node, int] = {}
        self.is_dialing = False
        self.dial_at_ms = 0
        self.dial_gap_ms = 0
        self.dial_error = ""
        self.redial_at_ms = 0
        self.must_redial = False
        self.link_run = b""
        self.must_meet = False
        self.owes_pong = False
        self.pinged_ms = 0
        self.incarnation = 0
        self.is_asked = False
        self.asked_at = self.heeded_at = -1
        # The core's own: hand-over numbering and interest of this node (core/handover.py).
        self.core: Any = None

    def __repr__(self) -> str:
        return f"<Node {self.name[:8].decode()} {self.host}:{self.port} {self.flag_text()}>"

    @property
    def has_room(self) -> bool:
        """Whether it takes copies of new jobs, by its last heartbeat. Spec C1, M2, P5."""
        return self.memory_level < 2 and not self.is_disk_failing

    def flag_text(self) -> str:
        """Return the flags as CLUSTER NODES and nodes.conf show them: words, or `noflags`."""
        words = [word for bit, word in FLAG_WORDS if self.flags & bit]
        return ",".join(words) if words else "noflags"
