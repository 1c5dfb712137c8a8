"""zones.py: zones of a cluster on the command line."""

from __future__ import annotations

import click
import pytest

from disque_py.cli.cluster.display import print_table
from disque_py.cli.cluster.view import ClusterView, NodeView
from disque_py.cli.cluster.zones import option_words, read_zones, zone_of
from disque_py.client import Address


def read(text):
    return read_zones(None, None, text)


def test_zones_are_names_with_or_without_a_data_centre():
    assert read("a,eu/b, c") == [("", "a"), ("eu", "b"), ("", "c")]
    assert read(None) == []
    with pytest.raises(click.BadParameter, match="empty name"):
        read("a,,b")


def test_a_zone_becomes_options_of_the_server():
    assert option_words(("", "a")) == ["--zone", "a"]
    assert option_words(("eu", "b")) == ["--datacenter", "eu", "--zone", "b"]


def test_status_shows_zones_if_a_node_names_one(capsys):
    plain = NodeView(Address("10.0.0.1", 7711))
    placed = NodeView(Address("10.0.0.2", 7711), cluster_info={"cluster_datacenter": "eu", "cluster_zone": "b"})
    assert (zone_of(plain), zone_of(placed)) == ("", "eu/b")
    print_table(ClusterView([plain]))
    assert "zone" not in capsys.readouterr().out
    print_table(ClusterView([plain, placed]))
    assert capsys.readouterr().out.splitlines()[2].split()[-1] == "eu/b"
