"""Scenarios share world.py and transcript.py. `--rewrite` replaces the transcripts by the current behaviour."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # For the modules that several tests share.

from world import World


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="regenerate the outputs in tests/scenarios/*.txt")


@pytest.fixture
def make():
    """Make worlds whose nodes know each other: make("abc", **settings). `sent` has the later messages of the nodes."""

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
