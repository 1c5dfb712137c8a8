"""Batches on two nodes: one broker, and another node that is a keeper."""

from __future__ import annotations

from brokers import add_node, ask, make_broker, make_client
from cluster_bus.messages import BATCHSUM, SETTING
from copies import make_id, say, sent_of
from disque_py.core.batch_state import KEEPERS, LIVE, MADE
from disque_py.core.id_sets import entry_of, pack_id
from disque_py.core.queue_settings import BATCH, state_key
from disque_py.node import dispatch

KEY = state_key(BATCH, b"b")
ENTRY = entry_of(pack_id(make_id(1)), LIVE, 1)


def start(*, is_keeper=False, number=2):
    """Return a node and another one. The other one, or both, are keepers of batch b. Number 0 has a lower id."""
    broker = make_broker()
    other = add_node(broker, number)
    keepers = other.id + (broker.me.id if is_keeper else b"")
    say(broker, other, SETTING, (KEY, MADE, b"1-x", 1, other.id), (KEY, KEEPERS, keepers, 1, other.id))
    dispatch.settle(broker)
    sent_of(broker, BATCHSUM)
    return broker, make_client(broker), other


def add(broker, client):
    reply = ask(broker, client, "ADDJOB", "q", "x", 0, "REPLICATE", 1, "BATCH", "b")
    dispatch.settle(broker)
    return reply + b"".join(client.out)
