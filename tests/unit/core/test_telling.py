"""core/telling.py: progress and the other holders."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, make_broker, make_client
from cluster_bus.messages import PROGRESS
from copies import advance, deliver, hold_queued, say, sent_of
from disque_py.core import telling


def start():
    broker = make_broker()
    other = add_node(broker)
    hold_queued(broker, other)
    return broker, other, deliver(broker)


def test_holders_hear_of_progress_at_once_and_then_once_a_second():
    """Spec RW4."""
    broker, other, job = start()
    sent_of(broker, PROGRESS)
    for percent in (10, 20, 30):
        telling.progress(broker, job, percent, b"", 1)
    assert [(nodes, item[1]) for nodes, item in sent_of(broker, PROGRESS)] == [((other,), 10)]
    advance(broker, 1_100)
    assert [item[1] for _, item in sent_of(broker, PROGRESS)] == [30]
    advance(broker, 5_000)
    assert sent_of(broker, PROGRESS) == []


def test_a_holder_keeps_what_it_hears_of_the_newest_delivery():
    """Spec RW4."""
    broker, other, job = start()
    say(broker, other, PROGRESS, (job.id, 40, b"text", 2, 5), (job.id, 90, b"old", 0, 5))
    assert (broker.progress.get(job).percent, broker.progress.get(job).text) == (40, b"text")
    assert job.version == 5


@pytest.mark.parametrize("item", [(101, b"", 1, 1), (-1, b"", 1, 1), (1, bytes(257), 1, 1), (1, b"", -1, 1)])
def test_a_progress_that_no_node_sends_closes_the_link(item):
    broker, other, job = start()
    with pytest.raises(Exception, match=r"progress|delivery"):
        say(broker, other, PROGRESS, (job.id, *item))


def test_an_ended_job_has_no_progress():
    """Spec RW4."""
    broker, _, job = start()
    telling.progress(broker, job, 10, b"", 1)
    ask(broker, make_client(broker), "DELJOB", job.id)
    assert broker.progress.by_job == {}
