"""Every module is covered by an import contract in pyproject.toml, which names the module or its package."""

from __future__ import annotations

import tomllib

import pytest


@pytest.fixture(scope="module")
def contracts(root):
    """The import contracts."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["tool"]["importlinter"]["contracts"]


def dotted(module):
    """Return the name by which a module is imported."""
    return module.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def named_by(contracts):
    """Return all packages and modules that a layer or a list of sources names."""
    for contract in contracts:
        containers = [f"{container}." for container in contract.get("containers", [])] or [""]
        for layer in contract.get("layers", []):
            yield from (container + name.strip(" ()") for container in containers for name in layer.split("|"))
        yield from contract.get("source_modules", [])


def test_every_module_is_named_by_a_contract(contracts, modules):
    """A module that no contract names may import anything."""
    names = set(named_by(contracts)) | {"disque_py"}
    free = [
        module.name
        for module in modules
        if not any(dotted(module) == name or dotted(module).startswith(f"{name}.") for name in names - {"disque_py"})
        if dotted(module) != "disque_py"
    ]
    assert free == []


def test_every_module_of_a_split_package_stands_on_a_floor(contracts, modules):
    """node/ and storage/ use each other, so the contracts list their modules one by one."""
    floors = next(contract for contract in contracts if contract["name"].startswith("Floors"))
    names = set(named_by([floors]))
    split = [m for m in modules if m.name.startswith(("disque_py/node/", "disque_py/storage/"))]
    assert [dotted(m) for m in split if not m.name.endswith("__init__.py") and dotted(m) not in names] == []


def test_contracts_name_only_what_exists(contracts, modules):
    """An old name that remains after a move would protect nothing."""
    there = {dotted(module) for module in modules}
    assert sorted(set(named_by(contracts)) - there) == []
