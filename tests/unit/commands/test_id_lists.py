"""commands/id_lists.py: commands that treat each job of a list in the same way."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, ask_parsed, error_of, make_broker, make_client
from copies import hold, hold_queued, make_id
from disque_py.core import acks
from disque_py.core.job import ACKED, ACTIVE, QUEUED

ID_COMMANDS = ("ACKJOB", "FASTACK", "DELJOB", "NACK", "ENQUEUE", "DEQUEUE")


def start():
    broker = make_broker()
    return broker, make_client(broker)


@pytest.mark.parametrize("command", ID_COMMANDS)
def test_without_ids_nothing_is_done(command):
    broker, client = start()
    assert ask(broker, client, command) == b":0\r\n"


@pytest.mark.parametrize("command", ID_COMMANDS)
@pytest.mark.parametrize("position", [0, 1])
def test_one_bad_id_and_nothing_is_done(command, position):
    """Spec R11."""
    broker, client = start()
    job = hold(broker)
    ids = [job.id, "nonsense"] if position else ["nonsense", job.id]
    assert error_of(broker, client, command, *ids) == "BADID Invalid Job ID format."
    assert job.state == ACTIVE


@pytest.mark.parametrize("command", ["ACKJOB", "SHOW", "WORKING"])
def test_a_single_bad_id_is_refused(command):
    broker, client = start()
    assert error_of(broker, client, command, "x" * 40) == "BADID Invalid Job ID format."


@pytest.mark.parametrize(
    ("command", "state", "count"),
    [("ACKJOB", ACTIVE, 1), ("ACKJOB", QUEUED, 1), ("ACKJOB", ACKED, 0), ("FASTACK", ACTIVE, 1), ("FASTACK", ACKED, 1),
     ("DELJOB", QUEUED, 1), ("DELJOB", ACKED, 1), ("NACK", ACTIVE, 1), ("NACK", QUEUED, 0), ("NACK", ACKED, 0),
     ("ENQUEUE", ACTIVE, 1), ("ENQUEUE", QUEUED, 0), ("ENQUEUE", ACKED, 0), ("DEQUEUE", QUEUED, 1),
     ("DEQUEUE", ACTIVE, 0), ("DEQUEUE", ACKED, 0)],
)  # fmt: skip
def test_each_counts_the_jobs_it_changed(command, state, count):
    broker, client = start()
    node = add_node(broker)
    job = hold_queued(broker, node) if state == QUEUED else hold(broker, node)
    if state == ACKED:
        acks.acknowledge(broker, job)
    assert ask_parsed(broker, client, command, job.id, make_id(9, retry_s=0)) == count


@pytest.mark.parametrize("command", ID_COMMANDS)
def test_an_id_named_twice_counts_once(command):
    broker, client = start()
    job = hold_queued(broker) if command == "DEQUEUE" else hold(broker)
    assert ask_parsed(broker, client, command, job.id, job.id) == 1
