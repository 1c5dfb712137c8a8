"""Fixtures for pytest, which finds this module by its entry point `disque`.

    def test_a_mail_is_queued(disque_client):
        send_mail(disque_client, "Dear Ada, ...")
        assert disque_client.qlen("mail") == 1

The report of a failed test has the logs of its nodes as sections. pytest loads this module in every project that has
disque-py installed. So it imports other modules only when a fixture is used.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from disque_py.client import Disque
    from disque_py.testing import Cluster, Node

FIXTURES = ("disque_node", "disque_cluster")


@pytest.fixture
def disque_directives() -> dict[str, Any]:
    """Directives of the nodes of `disque_node` and `disque_cluster`. Override it: `return {"appendonly": True}`."""
    return {}


@pytest.fixture
def disque_node(disque_directives: dict[str, Any]) -> Iterator[Node]:
    """Yield a running node for this test."""
    from disque_py import testing

    with testing.node(**disque_directives) as node:
        yield node


@pytest.fixture
def disque_cluster(disque_directives: dict[str, Any]) -> Iterator[Cluster]:
    """Yield three linked nodes for this test."""
    from disque_py import testing

    with testing.cluster(**disque_directives) as cluster:
        yield cluster


@pytest.fixture
def disque_client(disque_node: Node) -> Iterator[Disque]:
    """Yield a blocking client of `disque_node`."""
    with disque_node.client() as client:
        yield client


# Not `wrapper=True`, which old releases of pytest refuse: this module is loaded in projects that never use it.
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Add the logs of a test's nodes to the report of its failure."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        fixtures = getattr(item, "funcargs", {})
        for name in FIXTURES:
            if name in fixtures:
                found = fixtures[name]
                for node in [found] if name == "disque_node" else found:
                    headline, _, lines = node.log_tail.partition("\n")
                    report.sections.append((headline.removesuffix(":"), lines))
