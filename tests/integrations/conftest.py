"""Fixtures of the adapters' tests: nodes that several tests share, and names of their own."""

from __future__ import annotations

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
    """A name that no other test has."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def client(shared_node):
    """A client of the shared node."""
    with shared_node.client() as client:
        yield client
