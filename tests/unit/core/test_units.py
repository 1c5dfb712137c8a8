"""The units of a command."""

from __future__ import annotations

from disque_py.core.units import Access, Unit


def test_a_command_without_subcommands_has_one_unit():
    unit = Unit("qlen", frozenset({"read"}))
    access = Access("qlen", (unit,))
    assert access.unit([b"QLEN", b"get"]) is unit
    assert access.categories == ["read"]


def test_a_subcommand_is_found_in_any_case():
    unit = Unit("config|get", frozenset({"admin"}))
    access = Access("config", (unit, Unit("config|set", frozenset({"admin"}))))
    assert access.unit([b"config", b"GET"]) is unit
    assert access.unit([b"config", b"none"]) is access.unit([b"config"]) is access.unit([b"c", b"g" * 65]) is None
