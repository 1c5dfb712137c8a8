"""Scenarios share world.py and its kin; `--rewrite` puts what happens now into the transcripts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # Where what several tests share lies.

from world import World


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="regenerate the outputs in tests/scenarios/*.txt")


@pytest.fixture
def make():
    """Makes worlds whose nodes know each other: make("abc", **settings). `sent` has what left the nodes since."""

    def make(names, **settings):
        world = World(names, **settings)
        world.join()
        world.sent = []
        world.on_runs = lambda member, runs: world.sent.extend(
            (member.name, "".join(node.host for node in nodes), kind, item)
            for nodes, kind, items in runs
            for item in items
        )
        return world

    return make
