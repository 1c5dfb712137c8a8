"""options.py: how nodes are named."""

from __future__ import annotations

import click
import pytest

from disque_py.cli.address import Target
from disque_py.cli.cluster.local_nodes import LocalNode, save_nodes
from disque_py.cli.cluster.options import read_address, targets_of
from disque_py.client import Address

CONTEXT = click.Context(click.Command("x"))
PARAMETER = click.Argument(["node"])


def test_addresses_are_read_one_or_many():
    assert read_address(CONTEXT, PARAMETER, None) is None
    assert read_address(CONTEXT, PARAMETER, "h:1") == Address("h", 1)
    assert read_address(CONTEXT, PARAMETER, ("h:1", "[::1]:2")) == (Address("h", 1), Address("::1", 2))


def test_a_text_that_is_not_an_address_is_a_usage_error():
    with pytest.raises(click.BadParameter, match="not a port"):
        read_address(CONTEXT, PARAMETER, "h:x")


def test_a_named_node_wins_over_the_directory(tmp_path):
    assert targets_of(Target(), Address("h", 1), tmp_path) == [Target(Address("h", 1))]


def test_the_nodes_of_a_directory_are_found(tmp_path):
    save_nodes(tmp_path, [LocalNode(7711, 1, "never"), LocalNode(7712, 1, "never")])
    assert [target.address.port for target in targets_of(Target(), None, tmp_path)] == [7711, 7712]


def test_an_empty_directory_is_reported(tmp_path):
    with pytest.raises(click.ClickException, match="No cluster was started"):
        targets_of(Target(), None, tmp_path)
