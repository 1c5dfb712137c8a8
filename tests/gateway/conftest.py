"""Fixtures: three real nodes, and gateways in front of them. Without the gateway's extra, no test is collected."""

from __future__ import annotations

import importlib.util
import itertools

import pytest

PACKAGES = ("uvicorn", "msgspec", "prometheus_client", "jinja2", "grpc", "grpc_health", "grpc_reflection")
IS_INSTALLED = all(importlib.util.find_spec(name) is not None for name in PACKAGES)
collect_ignore_glob = [] if IS_INSTALLED else ["test_*.py"]

_names = itertools.count(1)


@pytest.fixture(scope="session")
def nodes():
    """Three linked nodes, which no test stops or breaks."""
    from disque_py import testing

    with testing.cluster(3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def gateway(nodes):
    """A gateway without logins."""
    from gateways import RunningGateway

    running = RunningGateway(nodes.url)
    yield running
    running.close()


@pytest.fixture
def make_gateway(nodes):
    """A function that makes gateways: make_gateway(setting=value, …)."""
    from gateways import RunningGateway

    made = []

    def make(url=None, **settings):
        made.append(RunningGateway(url or nodes.url, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def queue():
    """The name of a queue that no other test uses."""
    return f"q{next(_names)}"
