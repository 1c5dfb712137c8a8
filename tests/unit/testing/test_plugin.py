"""plugin.py is loaded in projects that never use it, so it costs nothing there."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

HEAVY = "[name for name in sys.modules if name.startswith(('disque_py.server', 'disque_py.client', 'asyncio'))]"


def test_the_plugin_imports_neither_server_nor_client_nor_asyncio():
    """pytest itself may import anything, so the modules before the import don't count."""
    code = f"import sys, pytest; before = set({HEAVY}); import disque_py.testing.plugin; print(set({HEAVY}) - before)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_the_entry_point_names_the_plugin():
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module = import_module(project["entry-points"]["pytest11"]["disque"])
    assert {"disque_node", "disque_cluster", "disque_client", "disque_directives"} <= set(vars(module))
