"""Fixtures of the integration tests: real nodes that end with the test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # The folder of modules that several tests share.

from servers import Cluster, Server


@pytest.fixture
def make_server(tmp_path):
    """Make nodes that are not started yet: make_server(*options, config=[lines])."""
    made = []

    def make(*options, config=(), port=None):
        server = Server(tmp_path / f"server-{len(made) + 1}", port, options, config)
        made.append(server)
        return server

    yield make
    for server in made:
        server.close()


@pytest.fixture
def server(make_server):
    """One running node."""
    return make_server().start()


@pytest.fixture
def make_cluster(tmp_path):
    """Make clusters of started and joined nodes: make_cluster(count, *options)."""
    made = []

    def make(count=3, *options):
        cluster = Cluster(tmp_path / f"cluster-{len(made) + 1}", count, options)
        made.append(cluster)
        return cluster.start()

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def cluster(make_cluster):
    """Three nodes that know each other."""
    return make_cluster(3)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    """Three shared nodes without faults. Each test uses its own queues."""
    with Cluster(tmp_path_factory.mktemp("healthy"), 3) as cluster:
        yield cluster
