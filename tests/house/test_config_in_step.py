"""The table of directives, the class Settings, conf/disque.conf and conf/cluster agree."""

from __future__ import annotations

import typing

import pytest

from disque_py.config import sample
from disque_py.config.conf_file import ConfigReader
from disque_py.config.directives import DIRECTIVES
from disque_py.config.settings import Settings


def test_every_directive_is_a_typed_attribute_and_the_other_way_round():
    hints = typing.get_type_hints(Settings)
    assert set(hints) == {directive.attribute for directive in DIRECTIVES}


@pytest.mark.parametrize("directive", DIRECTIVES, ids=lambda directive: directive.name)
def test_the_default_has_the_declared_type(directive):
    hint = typing.get_type_hints(Settings)[directive.attribute]
    assert type(directive.default) is (typing.get_origin(hint) or hint)


def test_the_sample_file_is_the_one_generated(root):
    """After a change of the table: python -m disque_py.config.sample > conf/disque.conf."""
    assert (root / "conf" / "disque.conf").read_text(encoding="utf-8") == sample.render()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_nodes_of_the_example_cluster_know_each_other(root, number):
    reader = ConfigReader(Settings(), "/", lambda path: "", lambda path: True)
    reader.read_text((root / "conf" / "cluster" / f"node-{number}.conf").read_text(encoding="utf-8"), "node")
    reader.finish()
    ports = {reader.settings.port} | {seed.port for seed in reader.settings.cluster_seeds}
    assert reader.settings.port == 7710 + number
    assert ports == {7711, 7712, 7713}
