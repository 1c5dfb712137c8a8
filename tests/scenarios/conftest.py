"""Scenarios share world.py and its kin; `--rewrite` puts what happens now into the transcripts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="regenerate the outputs in tests/scenarios/*.txt")
