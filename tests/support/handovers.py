"""Hand-overs for tests: jobs that go from a broker to another node, and back."""

from __future__ import annotations

from brokers import add_node, make_broker
from cluster_bus.messages import (
    NEEDJOBS,
    TOOK,
    YOURJOBS,
)
from copies import hold_queued, say, sent_of
from disque_py.core.handover import TAKEN

TOOK_IT = bytes([TAKEN])


def make_pair():
    broker = make_broker()
    return broker, add_node(broker)


def fill(broker, count, **fields):
    return [hold_queued(broker, number=number, **fields) for number in range(count)]


def pull(broker, node, count=100, *, flags=0):
    """Let the node ask for jobs of `q`. Return the ids of the jobs that go, and the number of their hand-over."""
    say(broker, node, NEEDJOBS, (b"q", count, flags))
    found = sent_of(broker, YOURJOBS)
    if not found:
        return [], 0
    ((receivers, (number, _, snapshots)),) = found
    assert receivers == (node,)
    return [each[0] for each in snapshots], number


def give_one(*, retry_s=30):
    """Return one of our jobs while it is being handed over to the node."""
    broker, node = make_pair()
    (job,) = fill(broker, 1, retry_s=retry_s)
    ids, number = pull(broker, node)
    assert (ids, number) == ([job.id], 1)
    return broker, node, job


def take(broker, node, job_snapshot, number=1, settled=0):
    """Deliver YOURJOBS with one job, and return our answer."""
    say(broker, node, YOURJOBS, (number, settled, [job_snapshot]))
    ((receivers, (answered, answers)),) = sent_of(broker, TOOK)
    assert (receivers, answered, len(answers)) == ((node,), number, 1)
    return answers[0]
