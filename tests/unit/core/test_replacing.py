"""core/replacing.py: the job whose place another one took is canceled on every node."""

from __future__ import annotations

import pytest

from brokers import add_node, ask_parsed, make_broker, make_client
from cluster_bus.messages import REPLACED, SETACK
from copies import hold, make_id, say, sent_of
from disque_py.core import replacing, windows
from disque_py.core.changing import OUTCOME_REPLACED
from disque_py.core.job import ACKED
from disque_py.node import dispatch


def test_linked_nodes_are_told():
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


def test_a_job_that_is_not_known_stays_so():
    broker = make_broker()
    say(broker, add_node(broker, 2), REPLACED, (make_id(1), make_id(2)))
    assert broker.job_count == 0


def test_a_malformed_replacement_closes_the_link():
    broker = make_broker()
    with pytest.raises(ValueError, match="replacement"):
        replacing.on_replaced(broker, add_node(broker, 2), [(make_id(1), b"x")])
