"""Fixtures of the adapters' tests: real nodes and real workers, which end with the test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # The folder of modules that several tests share.

from disque_py.testing import node


@pytest.fixture(scope="module")
def shared_node():
    """One node for the tests of a module."""
    with node() as made:
        yield made
