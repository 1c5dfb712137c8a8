"""CLUSTER: joining, inspecting and leaving.

Spec N5, R8. Membership does the work. This module reads the arguments, and applies the consequences for jobs in the
right order. The reply to a change comes when the nodes file is on disk.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import Final

from cluster_bus.membership import BUS_PORT_OFFSET
from cluster_bus.node import Node
from cluster_bus.nodes_file import six_fields
from disque_py import event_format
from disque_py.commands import voters
from disque_py.commands.hello import extended_fields
from disque_py.commands.options import read_integer
from disque_py.commands.subcommands import ANY, Form, form_of, text_of
from disque_py.core import deferred_reply, delivery, events, handover, leaving, settings_sync, voting
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import SYNTAX, CommandError
from disque_py.core.reset import flush
from disque_py.log_lines import tell
from disque_py.resp.replies import OK, bulk, simple

WRONG_FORM: Final = "ERR Wrong CLUSTER subcommand or number of arguments"
PORT_MAX: Final = 65_535
PORTS: Final = f"Ports are 1 to {PORT_MAX}. Above port {PORT_MAX - BUS_PORT_OFFSET} a bus port must follow"
HOST: Final = "Give an IP address or a host name"
NODE_NAME_CHARS: Final = 40

# Host names as DNS and container networks have them. A name of digits and dots must be an address.
_HOST_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?")
_HOST_CHARS_MAX: Final = 253


def cluster(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """CLUSTER subcommand [argument ...]."""
    form = form_of(FORMS, argv)
    if form is None:
        raise CommandError(WRONG_FORM)
    return form.handler(broker, client, argv)


def info_fields(broker: Broker) -> list[tuple[str, str | int]]:
    """Return the fields of CLUSTER INFO, which also begin INFO's cluster section."""
    cluster = broker.cluster
    fields: list[tuple[str, str | int]] = [
        ("cluster_state", "ok" if broker.cluster.has_majority else "fail"),
        ("cluster_known_nodes", len(cluster.nodes)),
        ("cluster_reachable_nodes", len(cluster.usable)),
        ("cluster_full_nodes", len(cluster.full)),
        ("cluster_size", cluster.size),
        ("cluster_stats_messages_sent", broker.outbox.messages.sent_count),
        ("cluster_stats_bytes_sent", broker.outbox.messages.sent_bytes),
        ("cluster_stats_messages_received", broker.stats.messages_received),
        ("cluster_memory_level", broker.me.memory_level),
        ("cluster_datacenter", cluster.me.datacenter),
        ("cluster_zone", cluster.me.zone),
        ("cluster_leaving", "yes" if broker.is_leaving else "no"),
    ]
    if broker.is_leaving:
        fields.append(("cluster_leaving_remaining", broker.job_count))
        blocked_by = broker.drain.blocked_by if broker.drain is not None else ""
        if voting.is_voter(broker):
            blocked_by = "this node is a voter: CLUSTER VOTERS REMOVE"
        if blocked_by:
            fields.append(("cluster_leaving_blocked_by", blocked_by))
    return fields


def _info(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    return bulk("".join(f"{name}:{value}\r\n" for name, value in info_fields(broker)))


def _nodes(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """NODES [EXTENDED]: six fields per node; extended, pairs name=value follow."""
    is_extended = len(argv) == 3
    if is_extended and argv[2].lower() != b"extended":
        raise CommandError(WRONG_FORM)
    lines = []
    for node in broker.cluster.nodes.values():
        line = six_fields(node)
        if is_extended:
            line += "".join(f" {name}={value.replace(' ', '_')}" for name, value in extended_fields(broker, node))
        lines.append(line + "\n")
    return bulk("".join(lines))


def _myid(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    return bulk(broker.me.name)


def _meet(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """MEET host port [bus-port]: begin a handshake, which continues by itself, also after a crash."""
    host = text_of(argv[2])
    port = read_integer(argv[3], f"ERR Invalid TCP port specified: {text_of(argv[3])}")
    if len(argv) == 5:
        bus_port = read_integer(argv[4], f"ERR Invalid TCP port specified: {text_of(argv[4])}")
    else:
        bus_port = port + BUS_PORT_OFFSET
    is_host = _is_host(host)
    if not (is_host and 0 < port <= PORT_MAX and 0 < bus_port <= PORT_MAX):
        where = f"{host}:{port}" if len(argv) == 4 else f"{host}:{port} {bus_port}"
        advice = PORTS if is_host else HOST
        raise CommandError(f"ERR Invalid node address specified: {where}. {advice}")
    broker.membership.meet(host, port, bus_port)
    return deferred_reply.begin(broker, client, broker.host.save_nodes, _saved)


def _is_host(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        is_name = len(host) <= _HOST_CHARS_MAX and _HOST_NAME.fullmatch(host) is not None
        return is_name and not set(host) <= set("0123456789.")
    return True


def _saveconfig(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    return deferred_reply.begin(broker, client, broker.host.save_nodes, _saved)


def _saved(failure: OSError | None) -> bytes:
    if failure is not None:
        raise CommandError(f"ERR error saving the cluster node config: {failure.strerror or failure}")
    return OK


def _forget(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    if len(argv[2]) != NODE_NAME_CHARS:
        raise CommandError("ERR Invalid node identifier")
    node = _node_named(broker, argv[2])
    if node is None:
        if broker.membership.forget_unknown(argv[2]):
            return deferred_reply.begin(broker, client, broker.host.save_nodes, _saved)
        raise CommandError(f"ERR Unknown node {text_of(argv[2])}")
    if node is broker.me:
        raise CommandError("ERR I tried hard but I can't forget myself...")
    broker.membership.forget(node)
    return deferred_reply.begin(broker, client, broker.host.save_nodes, _saved)


def _node_named(broker: Broker, name: bytes) -> Node | None:
    return next((node for node in broker.cluster.nodes.values() if node.name == name), None)


def _reset(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """RESET [SOFT|HARD]: forget all jobs, queues and other nodes; HARD: take another id, too. LEAVING stays.

    The reply comes when the nodes file is on disk. If the file can't be written, the client gets the error. The node is
    reset nevertheless, and the write is repeated until it works.
    """
    how = argv[2].lower() if len(argv) == 3 else b"soft"
    if how not in (b"soft", b"hard"):
        raise CommandError(SYNTAX)
    count = flush(broker)
    voting.forget_all(broker)
    events.of_node(broker, event_format.FLUSHED, "CLUSTER RESET")
    broker.membership.reset(hard=how == b"hard")
    if how == b"hard":
        broker.ids.rename(broker.me.name)
        broker.sets.forget_all()
        handover.on_renamed(broker)
    tell(broker.host, "cluster-reset", how=text_of(how), client=client.addr, jobs=count)
    return deferred_reply.begin(broker, client, partial(_forget_files, broker), _saved)


def _forget_files(broker: Broker, done: Callable[[OSError | None], None]) -> None:
    """Write the file of queue settings, which are forgotten, and the nodes file."""

    def forgotten(failure: OSError | None) -> None:
        if failure is not None:
            done(failure)
        else:
            broker.host.save_nodes(done)

    settings_sync.forget_all(broker, forgotten)


def _leaving(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """LEAVING [yes|no]: give away all jobs and take no more. Without an argument, reply whether it is on."""
    if len(argv) == 2:
        return simple("yes" if broker.is_leaving else "no")
    word = argv[2].lower()
    was_leaving = broker.is_leaving
    if word == b"yes":
        broker.membership.set_leaving(True)
        leaving.begin(broker)
        delivery.send_away(broker)
    elif word == b"no":
        broker.membership.set_leaving(False)
        leaving.end(broker)
    else:
        raise CommandError("ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'")
    if broker.is_leaving == was_leaving:
        return OK
    return deferred_reply.begin(broker, client, broker.host.save_nodes, _saved)


FORMS: Final = {
    b"meet": Form(_meet, 4, 5),
    b"nodes": Form(_nodes, 2, 3),
    b"myid": Form(_myid, 2, 2),
    b"info": Form(_info, 2, 2),
    b"saveconfig": Form(_saveconfig, 2, 2),
    b"forget": Form(_forget, 3, 3),
    b"reset": Form(_reset, 2, 3),
    b"leaving": Form(_leaving, 2, 3),
    b"voters": Form(voters.voters, 2, ANY),
}
