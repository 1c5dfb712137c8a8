"""health.py: reports that a node is fit for work, or why not."""

from __future__ import annotations

import pytest

from disque_py.cli.address import Target
from disque_py.cli.shell.health import UnhealthyError, check_health
from disque_py.client import Address

GOOD = {"PING": b"+PONG\r\n", "CLUSTER INFO": b"$16\r\ncluster_state:ok\r\n", "CLUSTER LEAVING": b"+no\r\n"}


def health(node):
    return check_health(Target(Address("127.0.0.1", node.port), connect_timeout_s=0.5))


def test_a_node_that_answers_is_healthy(scripted):
    assert str(health(scripted(GOOD))).endswith("is healthy")


def test_a_leaving_node_is_healthy_and_reported_as_leaving(scripted):
    assert str(health(scripted({**GOOD, "CLUSTER LEAVING": b"+yes\r\n"}))).endswith("(and leaving its cluster)")


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"PING": b"-LOADING Disque is loading\r\n"}, "LOADING"),
        ({"PING": b"-MISCONF disk full\r\n"}, "MISCONF disk full"),
        ({"PING": b"+hello\r\n"}, "the answer to PING is 'hello'"),
        ({"PING": lambda words: None}, "Server closed the connection"),
        ({"PING": b""}, "timed out"),
        ({"CLUSTER INFO": b"$18\r\ncluster_state:fail\r\n"}, "cluster_state is fail"),
    ],
)
def test_everything_else_is_unhealthy_with_its_reason(scripted, answers, reason):
    with pytest.raises(UnhealthyError, match=reason):
        health(scripted({**GOOD, **answers}))


def test_a_dead_address_is_unhealthy():
    with pytest.raises(UnhealthyError, match="Connection refused"):
        check_health(Target(Address("127.0.0.1", 1)))
