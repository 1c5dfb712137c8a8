"""core/own_addjob.py: an ADDJOB that the node makes itself."""

from __future__ import annotations

from brokers import add_node, make_broker
from cluster_bus.messages import GOTJOB
from copies import say
from disque_py.core import own_addjob

WORDS = [b"ADDJOB", b"q", b"body", b"1000"]


def run(broker, *more):
    """Add a job; the replies, and the client."""
    replies = []
    client = own_addjob.add(broker, [*WORDS, *more], replies.append)
    return replies, client


def test_the_reply_is_handed_over_after_the_call():
    broker = make_broker()
    replies, client = run(broker, b"META", b"x-disque-batch", b"b")
    assert not replies
    client.port.wake()
    (reply,) = replies
    assert broker.find(reply[1:-2]).terms.queue == b"q"
    client.port.wake()
    assert len(replies) == 1
    assert not broker.recurring.is_internal


def test_a_refusal_is_a_reply():
    replies, client = run(make_broker(), b"DELAY", b"x")
    client.port.wake()
    assert replies[0].startswith(b"-ERR")


def test_a_job_that_needs_copies_is_answered_when_it_has_them():
    broker = make_broker()
    b = add_node(broker, 2)
    replies, client = run(broker, b"REPLICATE", b"2")
    client.port.wake()
    assert not replies
    (job,) = client.waiting_jobs
    say(broker, b, GOTJOB, job.id)
    client.port.wake()
    assert replies == [b"+%b\r\n" % job.id]
