"""The source files of the checkout, parsed once for all house tests."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cluster_bus", "persistence", "disque_py")

# Packages and modules that use the outside world. All others are pure: tests/house/test_purity.py checks a new module
# until it is added to this list.
OUTSIDE = (
    "cluster_bus/link.py",
    "cluster_bus/bus.py",
    "cluster_bus/nodes_store.py",
    "cluster_bus/listening.py",
    "disque_py/cli/",
    "disque_py/client/",
    "disque_py/gateway/",
    "disque_py/integrations/",
    "disque_py/server/",
    "disque_py/spark/",
    "disque_py/simulator/main.py",
    "disque_py/tasks/",
    "disque_py/loopback_ports.py",
    "disque_py/output_errors.py",
    "disque_py/program_commands.py",
    "disque_py/shell_scripts.py",
    "disque_py/testing/",
    "persistence/descriptors.py",
    "persistence/file_disk.py",
    "persistence/files.py",
    "persistence/install.py",
    "persistence/lanes.py",
    "persistence/window.py",
)


@dataclass(frozen=True)
class Module:
    """One source file of the packages. `name` is its path below the checkout, with slashes."""

    name: str
    text: str
    tree: ast.Module

    @property
    def is_pure(self) -> bool:
        """Return whether the module must be deterministic."""
        return not self.name.startswith(OUTSIDE)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def modules() -> list[Module]:
    """All modules of the packages, sorted by name."""
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    found = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        found.append(Module(path.relative_to(ROOT).as_posix(), text, ast.parse(text)))
    assert found
    return found
