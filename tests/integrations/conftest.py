"""Fixtures of the adapters' tests: a node that all tests share, and names that are unique to a test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid

import pytest

from disque_py import testing


@pytest.fixture(scope="session")
def shared_node():
    """One node with a voter, so that locks work."""
    with testing.node() as node:
        with node.client() as client:
            client.cluster_voters_init(client.cluster_myid())
        yield node


@pytest.fixture
def name():
    """A name that no other test uses."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def client(shared_node):
    """A client of the shared node."""
    with shared_node.client() as client:
        yield client


@pytest.fixture
def calls(client):
    """A function that returns how often the shared node has got a command."""

    def calls(command):
        stat = client.info("commandstats").get(f"cmdstat_{command}", "calls=0,")
        return int(stat.removeprefix("calls=").partition(",")[0])

    return calls


@pytest.fixture
def run(tmp_path):
    """A function that starts a Python program in the test's folder. The program is killed at the end of the test."""
    started = []

    def run(url, *words):
        # The test's folder is on the path explicitly, because the suite runs with PYTHONSAFEPATH.
        environment = os.environ | {"DISQUE_URL": url, "PYTHONPATH": str(tmp_path), "PYTHONWARNINGS": "ignore"}
        with open(tmp_path / f"{len(started)}.log", "wb") as log:
            started.append(
                subprocess.Popen(
                    [sys.executable, *words],
                    cwd=tmp_path,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                )
            )
        return started[-1]

    yield run
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
