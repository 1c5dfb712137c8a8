"""The same seed gives the same trace in another process, with another hash seed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SEEDS = "1..6"


def hashes(hash_seed: str) -> list[str]:
    """Lines of `seed hash`."""
    command = [sys.executable, "-m", "disque_py.simulator.main"]
    done = subprocess.run(
        [*command, "--seeds", SEEDS, "--seconds", "1.5", "--trace-hash", "--no-shrink"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.timeout(300)
def test_traces_are_equal_whatever_the_hash_seed():
    """With another hash seed, sets have another order. Nothing may depend on it."""
    assert hashes("1") == hashes("777")
