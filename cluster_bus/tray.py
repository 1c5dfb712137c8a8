"""Tray: all that membership wants done outside in a turn. The driver empties it at the end of the turn.

Membership and its parts (links.py, admission.py) put things here; none of them calls a socket, a file or a log.
"""

from __future__ import annotations

from cluster_bus.node import Node


class Tray:
    """The outside work of one turn.

    Hang-ups come before dials, new runs before link events. Hang-ups and dials are ordered sets, for a node may change
    its address many times in a turn:

    hang_ups          drop our outgoing link or attempt, no report; if FORGOTTEN, its incoming links too
    dials             connect to these; report link_up or link_down
    new_runs          these nodes have another process than the one we knew
    link_events       (node, True: its link came up, False: went down), oldest first
    forgotten         these left the table
    address_changed   these have another host, port or bus port
    must_write        write the nodes file before any message of this turn leaves: a kill must not undo told changes
    must_save         write and sync the nodes file soon
    notices           (message, fields), for the log
    """

    def __init__(self) -> None:
        self.hang_ups: dict[Node, None] = {}
        self.dials: dict[Node, None] = {}
        self.new_runs: list[Node] = []
        self.link_events: list[tuple[Node, bool]] = []
        self.forgotten: list[Node] = []
        self.address_changed: list[Node] = []
        self.must_write = False
        self.must_save = False
        self.notices: list[tuple[str, dict[str, str | int]]] = []

    def note(self, message: str, node: Node, reason: str = "") -> None:
        """Add a message about this node, for the log."""
        fields: dict[str, str | int] = {
            "node": node.name.decode(),
            "address": f"{node.host}:{node.port}",
            "bus_port": node.bus_port,
        }
        if reason:
            fields["reason"] = reason
        self.notices.append((message, fields))
