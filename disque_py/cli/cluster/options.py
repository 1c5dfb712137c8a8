"""Options with which disque-cluster finds nodes: host:port, or the directory of a cluster that `start` made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from disque_py.cli.address import Target, parse_place
from disque_py.cli.cluster import local_nodes
from disque_py.client import Address

Function = TypeVar("Function", bound=Callable[..., Any])


def read_place(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Return host:port[@bus-port] as a Place, several as a tuple. Raises click's usage error for any other text."""
    if value is None:
        return None
    try:
        return parse_place(value) if isinstance(value, str) else tuple(map(parse_place, value))
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def read_address(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Return host:port as an Address, several as a tuple. Raises click's usage error for any other text."""
    found = read_place(context, parameter, value)
    if isinstance(found, tuple):
        return tuple(place.address for place in found)
    return None if found is None else found.address


def directory_option(function: Function) -> Function:
    """Add --dir, the directory of a cluster that `start` created."""
    option = click.option(
        "--dir",
        "directory",
        type=click.Path(file_okay=False, path_type=Path),
        default=local_nodes.default_directory,
        show_default="~/.local/state/disque-cluster",
        help="Directory of a cluster that `start` created.",
    )
    return option(function)


def targets_of(access: Target, node: Address | None, directory: Path) -> list[Target]:
    """Return the nodes to ask first: the named one, else those started in the directory."""
    if node is not None:
        return [access.at(node)]
    nodes = local_nodes.load_nodes(directory)
    if not nodes:
        raise click.ClickException(f"No cluster was started in {directory}; name a node (host:port) or a --dir")
    # Running nodes come first, because the first node also gives the view of HELLO.
    return [access.at(node.address) for node in sorted(nodes, key=lambda node: not node.is_alive)]
