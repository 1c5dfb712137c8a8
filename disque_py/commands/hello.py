"""HELLO: the nodes of the cluster for clients that choose one, or the protocol version.

Without a number it is Disque's own command (spec R5). Generic clients open a connection with
`HELLO 2|3 [AUTH user password] [SETNAME name]`. All of it is checked before any of it is done. It may come before the
login, so the login is checked here (spec R7).
"""

from __future__ import annotations

from typing import Final

from cluster_bus.node import FAIL, LEAVING, PFAIL, Node
from disque_py import __version__
from disque_py.commands import logins
from disque_py.commands.clients import check_name
from disque_py.commands.options import read_integer
from disque_py.commands.subcommands import text_of
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import NOAUTH, CommandError
from disque_py.resp.replies import EMPTY_ARRAY, array, bulk, bulk_array, integer, pairs

FORMAT_VERSION: Final = 1

# Priorities: clients choose a node with the lowest number.
GOOD: Final = 1
UNLINKED: Final = 5
SUSPECTED: Final = 10
UNFIT: Final = 100

NOT_A_VERSION: Final = "ERR Protocol version is not an integer or out of range"
NO_SUCH_VERSION: Final = "NOPROTO unsupported protocol version"


def hello(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """HELLO | HELLO EXTENDED | HELLO 2|3 [AUTH user password] [SETNAME name]."""
    if len(argv) == 1:
        return _nodes(broker, client, is_extended=False)
    if argv[1].lower() == b"extended":
        if len(argv) > 2:
            raise CommandError("ERR wrong number of arguments for 'hello' command")
        return _nodes(broker, client, is_extended=True)
    return _agree(broker, client, argv)


def _nodes(broker: Broker, client: Client, *, is_extended: bool) -> bytes:
    if logins.is_stranger(broker, client):
        raise CommandError(NOAUTH)
    entries = []
    for node in broker.cluster.nodes.values():
        fields: list[bytes | str] = [node.name, node.host, str(port_for(client, node)), str(priority_of(broker, node))]
        if is_extended:
            fields += [text for pair in extended_fields(broker, node) for text in pair]
        entries.append(bulk_array(fields))
    return array([integer(FORMAT_VERSION), bulk(broker.me.name), *entries])


def port_for(client: Client, node: Node) -> int:
    """Return the node's port of the kind that the client uses: over TLS its tls-port, as far as it is known."""
    return node.tls_port if client.is_tls and node.tls_port else node.port


def priority_of(broker: Broker, node: Node) -> int:
    """Return a node's priority: 1 good, 5 without a link from here, 10 suspected, 100 failed or leaving."""
    if node.flags & (FAIL | LEAVING):
        return UNFIT
    if node.flags & PFAIL:
        return SUSPECTED
    return GOOD if node.is_linked or node is broker.me else UNLINKED


def extended_fields(broker: Broker, node: Node) -> list[tuple[str, str]]:
    """Return the fields that HELLO EXTENDED and CLUSTER NODES EXTENDED append for a node; unknown ones are empty."""
    version = __version__ if node is broker.me else node.version
    return [
        ("bus-port", str(node.bus_port)),
        ("host", node.host),
        ("version", version),
        ("datacenter", node.datacenter),
        ("zone", node.zone),
    ]


def _agree(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    protocol = read_integer(argv[1], NOT_A_VERSION)
    if protocol not in (2, 3):
        raise CommandError(NO_SUCH_VERSION)
    credentials: tuple[bytes, bytes] | None = None
    name: bytes | None = None
    at = 2
    while at < len(argv):
        option = argv[at].lower()
        if option == b"auth" and at + 2 < len(argv):
            credentials = (argv[at + 1], argv[at + 2])
            at += 3
        elif option == b"setname" and at + 1 < len(argv):
            name = check_name(argv[at + 1])
            at += 2
        else:
            raise CommandError(f"ERR Syntax error in HELLO option '{text_of(argv[at])}'")
    if credentials is None:
        if logins.is_stranger(broker, client):
            raise CommandError(f"{NOAUTH} HELLO must be called with the client already authenticated, or with AUTH")
        return _agreed(client, protocol, name)
    user_name, password = credentials

    def log_in() -> bytes:
        user = logins.find(broker, user_name, password)
        if user is None:
            logins.refused(broker, client, user_name)
            raise CommandError(logins.WRONG_PASSWORD)
        logins.enter(broker, client, user)
        return _agreed(client, protocol, name)

    return logins.answer(broker, client, log_in)


def _agreed(client: Client, protocol: int, name: bytes | None) -> bytes:
    client.protocol = protocol
    if name is not None:
        client.name = name
    return pairs(
        (
            ("server", bulk("disque")),
            ("version", bulk(__version__)),
            ("proto", integer(protocol)),
            ("id", integer(client.id)),
            # One kind of node, no slots, no replicas: generic clients take it for a plain server.
            ("mode", bulk("standalone")),
            ("role", bulk("master")),
            ("modules", EMPTY_ARRAY),
        ),
        protocol,
    )
