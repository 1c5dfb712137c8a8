"""Zones of a cluster: their names on the command line, and the commands that give them to the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import click

from disque_py.cli.address import Target
from disque_py.cli.cluster.view import NodeView, patient
from disque_py.client import ReplyError, commands

# Data centre and zone.
Zone = tuple[str, str]


def read_zones(context: click.Context, parameter: click.Parameter, value: str | None) -> list[Zone]:
    """Return the zones of `[datacenter/]zone,…`, in order. Raises click's usage error for an empty name."""
    if value is None:
        return []
    found: list[Zone] = []
    for name in value.split(","):
        datacenter, _, zone = name.strip().rpartition("/")
        if not zone:
            raise click.BadParameter(f"'{value}' has an empty name", context, parameter)
        found.append((datacenter, zone))
    return found


def option_words(zone: Zone) -> list[str]:
    """Return the server's options for a zone."""
    datacenter, name = zone
    return [*(["--datacenter", datacenter] if datacenter else []), "--zone", name]


def set_zones(targets: Sequence[Target], zones: Sequence[Zone]) -> None:
    """Give the nodes their zones, in rotation, and let them save these in their files."""
    for place, target in enumerate(targets if zones else ()):
        datacenter, name = zones[place % len(zones)]
        with patient(target) as node:
            node.run(commands.execute("CONFIG", "SET", "datacenter", datacenter))
            node.run(commands.execute("CONFIG", "SET", "zone", name))
            with suppress(ReplyError):  # The node has no file, so its next start needs --zone.
                node.run(commands.execute("CONFIG", "REWRITE"))


def zone_of(node: NodeView) -> str:
    """Return the zone that a node names, as `datacenter/zone`; empty if it names none."""
    datacenter = str(node.cluster_info.get("cluster_datacenter", ""))
    zone = str(node.cluster_info.get("cluster_zone", ""))
    return f"{datacenter}/{zone}" if datacenter else zone
