"""core/versions.py: words that wait until every node understands them."""

from __future__ import annotations

import pytest

from brokers import add_node, make_broker
from cluster_bus.handshake import Hello
from disque_py.core.errors import CommandError
from disque_py.core.versions import ATTEMPTS, older_node, refuse_older


def test_a_word_is_refused_while_a_known_node_is_older():
    """Spec Y1. Also after its link broke, and until it is forgotten."""
    broker = make_broker()
    add_node(broker, 2)
    refuse_older(broker)
    old = add_node(broker, 3, protocol=1)
    for _ in range(2):
        with pytest.raises(CommandError) as refused:
            refuse_older(broker)
        assert refused.value.text == f"ERR not while node {old.name.decode()} runs an older version"
        broker.membership.links.back_off(old)
        broker.cluster.refresh()
    broker.membership.forget(old)
    refuse_older(broker)


def test_a_node_that_was_upgraded_no_longer_counts_as_older():
    """Spec Y1."""
    broker = make_broker()
    old = add_node(broker, 2, protocol=1)
    assert older_node(broker, ATTEMPTS) is old
    broker.membership.links.back_off(old)
    hello = Hello(old.id, b"run-two-", "", 7711, 17711)
    assert broker.membership.link_up(old, hello, old.host, "127.0.0.1") is old
    assert older_node(broker, ATTEMPTS) is None
