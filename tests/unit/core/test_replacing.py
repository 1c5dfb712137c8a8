"""core/replacing.py: the job whose place another one took is canceled on every node."""

from __future__ import annotations

import msgpack
import pytest

from brokers import add_node, ask_parsed, make_broker, make_client
from cluster_bus.messages import REPLACED, SETACK
from copies import hold, make_id, say, sent_of
from disque_py.core import acks, changing, replacing, windows
from disque_py.core.changing import OUTCOME_REPLACED
from disque_py.core.event_packing import Noted
from disque_py.core.job import ACKED
from disque_py.event_format import CANCELED_EVENT
from disque_py.node import dispatch


def cancellations(broker):
    """The events of canceled jobs that the broker has noted."""
    noted = [event for packed, _ in broker.events.take() for event in msgpack.unpackb(packed)]
    return [event for event in noted if event[0] == CANCELED_EVENT]


def test_linked_nodes_are_told_of_the_replacement():
    """Spec TP6."""
    broker = make_broker()
    client = make_client(broker)
    first = ask_parsed(broker, client, "ADDJOB", "q", "x", 0, "KEY", "k", "DELAY", 9, "REPLACE")
    b = add_node(broker, 2)
    second = make_id(2)
    broker.producers.replaced.append((first, second))
    dispatch.settle(broker)
    assert sent_of(broker, REPLACED) == [((b,), (first, second))]


def test_a_holder_notes_the_error_and_cancels():
    broker = make_broker()
    b, c = add_node(broker, 2), add_node(broker, 3)
    job = hold(broker, b, c)
    say(broker, c, REPLACED, (job.id, make_id(2)))
    assert job.state == ACKED
    assert job.part.error == windows.REPLACED_BY + make_id(2)
    assert all(item[3] == OUTCOME_REPLACED for _, item in sent_of(broker, SETACK))


def test_the_event_says_which_job_took_the_place():
    """Spec TP6: a reader of the log needs no other source."""
    broker = make_broker()
    broker.events = Noted()
    c = add_node(broker, 3)
    job = hold(broker, c)
    changing.fail(broker, job, b"an older failure")
    say(broker, c, REPLACED, (job.id, make_id(2)))
    (canceled,) = cancellations(broker)
    assert canceled[-1]["error"] == f"replaced by {make_id(2).decode()}"


def test_the_event_of_another_cancellation_has_no_error():
    broker = make_broker()
    broker.events = Noted()
    job = hold(broker)
    changing.fail(broker, job, b"an older failure")
    acks.acknowledge(broker, job, is_news=True, is_canceled=True)
    (canceled,) = cancellations(broker)
    assert "error" not in canceled[-1]


def test_a_job_that_is_not_known_stays_so():
    broker = make_broker()
    say(broker, add_node(broker, 2), REPLACED, (make_id(1), make_id(2)))
    assert broker.job_count == 0


def test_a_malformed_replacement_closes_the_link():
    broker = make_broker()
    with pytest.raises(ValueError, match="replacement"):
        replacing.on_replaced(broker, add_node(broker, 2), [(make_id(1), b"x")])
