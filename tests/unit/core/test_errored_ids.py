"""core/errored_ids.py: a queue with an errored job is not dropped."""

from __future__ import annotations

from collections import OrderedDict

import pytest

from brokers import ask, ask_parsed, make_broker, make_client
from copies import advance
from disque_py.core.errored_ids import LOOKED_PER_QUESTION, ErroredIds
from disque_py.core.timers import QUEUE_IDLE_MS
from journaled import JournaledNode


def errored(broker, queue="q"):
    """Make a job errored; its id."""
    client = make_client(broker)
    job_id = ask(broker, client, "ADDJOB", queue, "body", 0, "REPLICATE", 1, "ATTEMPTS", 1)[1:-2]
    ask(broker, client, "GETJOB", "FROM", queue)
    assert ask_parsed(broker, client, "NACK", job_id) == 1
    return job_id


def pass_idle_time(broker):
    advance(broker, QUEUE_IDLE_MS[0] + 1_000)


def test_an_idle_queue_stays_while_it_has_an_errored_job():
    """An operator finds it in QSCAN and QSTAT. Spec F5."""
    broker = make_broker()
    client = make_client(broker)
    errored(broker)
    pass_idle_time(broker)
    stat = ask_parsed(broker, client, "QSTAT", "q")
    assert stat[stat.index(b"errored") + 1] == 1
    assert ask_parsed(broker, client, "QSCAN", 0) == [b"0", [b"q"]]


@pytest.mark.parametrize(
    "words",
    [("ACKJOB",), ("CANCELJOB",), ("QPURGE", "q", "STATUS", "errored"), ("QMOVE", "q", "r", "STATUS", "errored")],
)
def test_an_idle_queue_is_dropped_when_its_errored_job_is_over_or_elsewhere(words):
    """Spec F5."""
    broker = make_broker()
    job_id = errored(broker)
    ask(broker, make_client(broker), *words, *([job_id] if len(words) == 1 else []))
    pass_idle_time(broker)
    assert b"q" not in broker.queues
    assert (b"r" in broker.queues) is (words[0] == "QMOVE")


def test_a_restart_brings_the_queue_of_an_errored_job_back():
    """Spec F5."""
    node = JournaledNode(appendonly=True, appendfsync="always")
    node.settle()
    job_id = node.answer("ADDJOB", "q", "body", 0, "REPLICATE", 1, "ATTEMPTS", 1)
    node.answer("GETJOB", "FROM", "q")
    node.answer("NACK", job_id)
    node.settle()
    node = node.restart()
    assert list(node.broker.queues) == [b"q"]
    node.recount()


def test_stale_ids_do_not_pile_up():
    errored_ids = ErroredIds(lambda queue, job_id: False)
    for number in range(1000):
        errored_ids.add(b"q", b"%d" % number)
    assert len(errored_ids.by_queue[b"q"]) <= 1


def test_true_ids_stay_however_often_they_are_looked_at():
    errored_ids = ErroredIds(lambda queue, job_id: int(job_id) % 2 == 0)
    for number in range(1000):
        errored_ids.add(b"q", b"%d" % number)
    assert len([job_id for job_id in errored_ids.by_queue[b"q"] if int(job_id) % 2 == 0]) == 500
    assert errored_ids.has(b"q")


def test_a_question_looks_at_a_few_ids_only():
    """With more stale ones the queue stays until a later question."""
    looked = []
    errored_ids = ErroredIds(lambda queue, job_id: bool(looked.append(job_id)))
    errored_ids.by_queue[b"q"] = OrderedDict.fromkeys(b"%d" % number for number in range(LOOKED_PER_QUESTION + 1))
    assert errored_ids.has(b"q")
    assert not errored_ids.has(b"q")
    assert errored_ids.by_queue == {}
