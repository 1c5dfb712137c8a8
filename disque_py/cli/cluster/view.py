"""A cluster as all its nodes describe it: the nodes that each one knows, its jobs, and where nodes disagree.

The search starts at one node and goes on to every address that it knows. Each node is asked, because only its own table
says which nodes *it* sees. A node that doesn't answer is kept with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from disque_py.cli.address import Target
from disque_py.cli.connection import ConnectError, reason_of, reason_to_hang_up, tls_context
from disque_py.cli.counting import counted
from disque_py.client import (
    Address,
    AuthError,
    ClientOptions,
    ConnectionLostError,
    DisqueError,
    NotConnectedError,
    ReplyError,
    commands,
)
from disque_py.client.one_node import OneNode
from disque_py.client.results import ClusterNode, Voters

PATIENCE_S: Final = 3.0
LOOK_EVERY_S: Final = 0.2
# Nodes asked at the same time.
THREADS_MAX: Final = 16

# The distance of a bus port from its port, unless the node says otherwise.
BUS_PORT_DISTANCE: Final = 10_000

# INFO and CLUSTER INFO as the client library reads them.
InfoFields = dict[str, str | int | float]

# A node with one of these flags is not usable (spec N1).
BAD_FLAGS: Final = ("fail", "fail?", "handshake", "noaddr")


class LoginError(ConnectError):
    """The node answers and does not accept the login; the text ends with the next step."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """One line of a node's CLUSTER NODES: a node that it knows, with its flags."""

    id: str
    address: Address | None
    flags: frozenset[str]
    is_linked: bool

    @property
    def is_myself(self) -> bool:
        """Whether this is the line of the node that was asked."""
        return "myself" in self.flags

    @property
    def bad_flags(self) -> list[str]:
        """The flags which say that it is not usable."""
        return [flag for flag in BAD_FLAGS if flag in self.flags]


@dataclass(slots=True)
class NodeView:
    """One node's description of itself and the others; `error` is the reason if it gave none.

    needs_login   the node answers and does not accept the login. It is not dead
    refuses       the node answers, and refuses the commands of this program: its user lacks rights, for example
    """

    address: Address
    id: str = ""
    error: str = ""
    needs_login: bool = False
    refuses: bool = False
    info: InfoFields = field(default_factory=dict)
    cluster_info: InfoFields = field(default_factory=dict)
    table: list[TableRow] = field(default_factory=list)
    priorities: dict[str, str] = field(default_factory=dict)
    is_leaving: bool = False
    voters: Voters | None = None  # None: the node does not support voters.

    @property
    def name(self) -> str:
        """The name in messages: address and the beginning of the id."""
        return f"{self.address} ({self.id[:8]})" if self.id else str(self.address)

    @property
    def answers(self) -> bool:
        """Whether the node is there, even if it refuses the login or a command."""
        return not self.error or self.needs_login or self.refuses

    @property
    def reason(self) -> str:
        """The error as a line that names the node. An error of the connection names it itself."""
        return f"{self.name} refuses a command: {self.error}" if self.refuses else self.error

    @property
    def others(self) -> list[TableRow]:
        """Its table without itself and without handshakes, whose ids are placeholders."""
        return [row for row in self.table if not row.is_myself and "handshake" not in row.flags]


@dataclass(slots=True)
class ClusterView:
    """All nodes that were found, beginning with the one that was asked first."""

    nodes: list[NodeView]

    def flags_of(self, node: NodeView) -> list[str]:
        """Return the bad flags that other nodes give this one."""
        found = {flag for other in self.nodes for row in other.others if row.id == node.id for flag in row.bad_flags}
        return [flag for flag in BAD_FLAGS if flag in found]

    def state_of(self, node: NodeView) -> str:
        """Return the node's state: ok, leaving, unreachable, and the bad flags that others give it."""
        words = []
        if node.error:
            words.append("no login" if node.needs_login else "refuses" if node.refuses else "unreachable")
        words += ["leaving"] if node.is_leaving else []
        return ",".join([*words, *self.flags_of(node)]) or "ok"

    def priority_of(self, node: NodeView) -> str:
        """Return the node's priority in the HELLO of the first other node that answers."""
        tellers = [*(other for other in self.nodes if other is not node), node]
        return next((teller.priorities[node.id] for teller in tellers if node.id in teller.priorities), "")

    def problems(self) -> list[str]:
        """Return the problems that keep these nodes from being one complete cluster; empty without problems."""
        return [problem for node in self.nodes for problem in self._problems_of(node)]

    def _problems_of(self, node: NodeView) -> list[str]:
        if node.error:
            return [node.reason if node.answers else f"{node.name} does not answer: {node.error}"]
        found = []
        known = {row.id: row for row in node.table}
        for other in self.nodes:
            row = known.get(other.id) if other.id else None
            if other is node or not other.id:
                continue
            if row is None:
                found.append(f"{node.name} does not know {other.name}: {_advice(node, other)}")
                continue
            found += [f"{node.name} has {other.name} as {flag}" for flag in row.bad_flags]
            if not row.is_linked:
                found.append(f"{node.name} has no link to {other.name}")
        found += [
            f"{node.name} lists {row.id} without an address, because another node answers there."
            f" If that node has lost its nodes file, send CLUSTER FORGET {row.id} to every node"
            for row in node.others
            if "noaddr" in row.flags
        ]
        handshakes = sum("handshake" in row.flags for row in node.table)
        if handshakes:
            found.append(f"{node.name} has {counted(handshakes, 'handshake')} under way")
        size = node.cluster_info.get("cluster_size")
        if isinstance(size, int) and size != len(self.nodes):
            found.append(f"{node.name} counts {counted(size, 'node')}, but {len(self.nodes)} were found")
        return found


def _advice(node: NodeView, other: NodeView) -> str:
    """Return the commands that help when `node` does not know `other`."""
    address = f"{other.address.host} {other.address.port}"
    bus_port = other.info.get("bus_port")
    if isinstance(bus_port, int) and bus_port != other.address.port + BUS_PORT_DISTANCE:
        address += f" {bus_port}"
    joins = f"CLUSTER MEET {address} on {node.address} joins them"
    if any(row.id == node.id for row in other.others):
        return f"{joins}, CLUSTER FORGET {node.id} on {other.address} if it was forgotten on purpose"
    return joins


def rows_of_table(nodes: Iterable[ClusterNode]) -> list[TableRow]:
    """Return CLUSTER NODES as rows. The address is None if it is missing, as for a node that doesn't know its own."""
    return [
        TableRow(node.id, Address(node.host, node.port) if node.host and node.port else None, node.flags, node.linked)
        for node in nodes
    ]


def look_at(target: Target) -> NodeView:
    """Ask one node. If it doesn't answer or refuses, nothing is raised, and `error` has the reason."""
    view = NodeView(target.address)
    try:
        with patient(target) as node:
            _ask(node, view)
    except (ConnectError, DisqueError) as error:
        view.error = str(error)
        view.needs_login = isinstance(error, LoginError)
        view.refuses = isinstance(error, ReplyError)
    except ValueError as error:
        view.error = f"CLUSTER NODES can't be read: {error}"
    return view


def patient(target: Target, answer_s: float | None = None) -> OneNode:
    """Return a connection for commands that don't wait, so that none can hang.

    Raises ConnectError, which is a LoginError if the node answers and does not accept the login; ReplyError.

    answer_s   seconds of silence that mean a dead node; by default as for connecting

    A node without a password refuses a login, but serves every client. So a refused login is repeated without one.
    """
    patience_s = target.connect_timeout_s or PATIENCE_S
    options = ClientOptions(
        username=target.user or None,
        password=target.password or None,
        connect_timeout=patience_s,
        timeout=answer_s or patience_s,
        tls=False if target.tls is None else tls_context(target.tls),
    )
    try:
        try:
            return OneNode(target.address, options)
        except AuthError as refusal:
            login_error = _login_error(target, refusal)
            if options.password is None:
                raise login_error from refusal
        try:
            return OneNode(target.address, replace(options, username=None, password=None))
        except AuthError as refusal:
            raise login_error from refusal
    except NotConnectedError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and not isinstance(cause, DisqueError):
            reason = reason_of(cause)
        else:
            reason = str(error).removeprefix(f"{target.address}: ")
            if type(cause) is ConnectionLostError:
                reason += reason_to_hang_up(target.tls)
        raise ConnectError(f"Could not connect to Disque at {target.address}: {reason}") from error


def _login_error(target: Target, refusal: AuthError) -> LoginError:
    reason = str(refusal).rstrip(".")
    if target.password:
        return LoginError(f"{target.address} refused the login: {reason}. Check -a, --user and DISQUECLI_AUTH")
    return LoginError(f"{target.address} requires a login: {reason}. Pass the password with -a, or in DISQUECLI_AUTH")


def _ask(node: OneNode, view: NodeView) -> None:
    known_nodes = node.run(commands.cluster_nodes())
    view.table = rows_of_table(known_nodes)
    view.id = next((row.id for row in view.table if row.is_myself), "")
    view.info = node.run(commands.info())
    view.cluster_info = node.run(commands.cluster_info())
    view.is_leaving = node.run(commands.cluster_leaving())
    with suppress(ReplyError):  # The server does not support voters.
        view.voters = node.run(commands.cluster_voters())
    view.priorities = {known.id: str(known.priority) for known in node.hello.nodes}


def look_around(targets: Sequence[Target]) -> ClusterView:
    """Ask these nodes, then all nodes that they know, and so on. The given targets come first in the result."""
    nodes: list[NodeView] = []
    asked: set[Address] = set()
    ids: set[str] = set()
    waiting = list(dict.fromkeys(targets))
    while waiting:
        asked.update(target.address for target in waiting)
        for node in _look_at_all(waiting):
            if not node.id or node.id not in ids:
                nodes.append(node)
                ids.add(node.id)
        known = {row.id: row for node in nodes for row in node.others if row.id not in ids}
        waiting = []
        for row in known.values():
            if row.address is not None and row.address not in asked:
                waiting.append(targets[0].at(row.address))
    return ClusterView(_named(nodes))


def _look_at_all(targets: Sequence[Target]) -> list[NodeView]:
    with ThreadPoolExecutor(min(len(targets), THREADS_MAX)) as pool:
        return list(pool.map(look_at, targets))


def _named(nodes: list[NodeView]) -> list[NodeView]:
    """Give the nodes that didn't answer the ids under which the others know their addresses."""
    ids = {row.address: row.id for node in nodes for row in node.others}
    for node in nodes:
        node.id = node.id or ids.get(node.address, "")
    taken: set[str] = set()
    kept = []
    for node in sorted(nodes, key=lambda node: bool(node.error)):
        # Leave out the old address of a node that answers elsewhere.
        if not (node.error and node.id and node.id in taken):
            kept.append(node)
            taken.add(node.id)
    order = {id(node): place for place, node in enumerate(nodes)}
    return sorted(kept, key=lambda node: order[id(node)])


def meet(target: Target, other: Address, bus_port: int | None = None) -> None:
    """Tell the node at `target` to join the one at `other`. Raises ConnectError, DisqueError.

    bus_port   bus port of the other node, if it is not 10000 above its port

    The other node is asked first, because a handshake with a dead address would stay in the tables for a while.
    """
    with suppress(ReplyError, LoginError):  # The node answers, and requires another password.
        patient(target.at(other)).close()
    with patient(target) as node:
        node.run(commands.cluster_meet(other.host, other.port, bus_port))


def wait_until_whole(targets: Iterable[Target], timeout_s: float) -> ClusterView:
    """Ask repeatedly until these nodes are one cluster without problems, or the time is over. Return the last look.

    The wait also ends when refused logins are the only problems, because time does not change them.
    """
    wanted = list(targets)
    deadline = time.monotonic() + timeout_s
    while True:
        view = look_around(wanted)
        refusals = [node.error for node in view.nodes if node.needs_login]
        if set(view.problems()) <= set(refusals) or time.monotonic() >= deadline:
            return view
        time.sleep(LOOK_EVERY_S)
