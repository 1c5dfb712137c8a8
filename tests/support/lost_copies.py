"""Clusters in which copies of jobs are lost: brokers, and the answers of other members."""

from __future__ import annotations

from brokers import add_node, ask, make_broker, make_client
from cluster_bus.messages import HAVEARE
from copies import advance, hold, say, sent
from disque_py.core.repair_turns import HAS
from disque_py.node import dispatch

SECOND = 1_000


def make_cluster(count=3, **settings):
    """Return a broker and other nodes with higher ids. The broker has already asked these nodes."""
    broker = make_broker(node_id=bytes(20), **settings)
    nodes = [add_node(broker, number) for number in range(2, 2 + count)]
    for node in nodes:
        broker.repairs.runs[node] = node.run
    advance(broker, 11 * SECOND)
    sent(broker)
    return broker, *nodes


def forget(broker, node):
    """Send CLUSTER FORGET, and give the walk time."""
    ask(broker, make_client(broker), "CLUSTER", "FORGET", node.name)
    dispatch.forgotten(broker, node)
    advance(broker, 200)


def answer(broker, node, code=HAS, holders=b"", change=()):
    """Let the node answer the last HAVE, with the same answer for each job."""
    number, _, ids = broker.repairs.questions[broker.repairs.number].item
    known = [holders] * len(ids) if code >= HAS else []
    say(broker, node, HAVEARE, (number, bytes([code] * len(ids)), known, list(change)))
    run_due_turns(broker)


def run_due_turns(broker):
    """Let all turns do their due steps."""
    dispatch.settle(broker)
    while dispatch.tick(broker):
        dispatch.settle(broker)


def make_missing():
    """Return a job that a forgotten node had. Its other member has answered, so a new node is named."""
    broker, second, third, lost = make_cluster()
    job = hold(broker, second, lost, replicate=3)
    forget(broker, lost)
    sent(broker)
    answer(broker, second)
    return broker, second, third, job
