"""client/__init__.py: the public names, which are loaded on first use."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import disque_py.client


def python(code):
    """Return the words that a new interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_the_library_loads_neither_shell_before_one_is_used():
    loaded = python(
        "import disque_py.client, sys; disque_py.client.Address, disque_py.client.ReplyError; print(*sys.modules)"
    )
    assert "disque_py.client.address" in loaded
    assert not {"asyncio", "ssl", "hiredis", "disque_py.client.aio", "disque_py.client.blocking"} & set(loaded)


def test_the_blocking_client_loads_no_worker():
    loaded = python("import sys; from disque_py.client import Disque; print(*sys.modules)")
    assert "disque_py.client.blocking" in loaded
    assert "disque_py.client.worker" not in loaded


def test_every_public_name_is_there_and_listed():
    imported = python("from disque_py.client import *; print(*(name for name in dir() if not name.startswith('_')))")
    assert imported == sorted(disque_py.client.__all__)
    assert set(imported) <= set(dir(disque_py.client))


def test_a_name_that_is_loaded_later_is_the_same_for_type_checkers():
    tree = ast.parse(Path(disque_py.client.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert seen == {name: f"disque_py.client.{home}" for name, home in disque_py.client._HOMES.items()}
    assert all(getattr(disque_py.client, name).__module__ == home for name, home in seen.items())


def test_a_module_that_was_always_loaded_is_an_attribute_still():
    assert python("import disque_py.client; print(disque_py.client.worker.Worker.__name__)") == ["Worker"]


def test_a_misspelled_name_is_an_error():
    with pytest.raises(AttributeError, match="Dique"):
        disque_py.client.Dique  # noqa: B018
    with pytest.raises(ImportError, match="Dique"):
        from disque_py.client import Dique  # noqa: F401
