"""core/census.py: which jobs count on this node, by status."""

from __future__ import annotations

from typing import Any

from brokers import add_node, ask, ask_parsed, make_broker, make_client, pass_time
from copies import deliver, hold, hold_queued
from disque_py.core import census


def start(count=0):
    broker = make_broker()
    return broker, make_client(broker), [hold_queued(broker, number=number) for number in range(count)]


def taken(broker, name=b"q"):
    walk = census.taken(broker, name)
    while True:
        try:
            next(walk)
        except StopIteration as end:
            return end.value


def qlen(broker, client, status, *words: Any):
    return ask_parsed(broker, client, "QLEN", "q", "STATUS", status, *words)


def test_a_copy_of_another_nodes_job_counts_there():
    """Spec Z2."""
    broker, client, _ = start()
    other = add_node(broker)
    hold(broker, other, number=1)
    assert [qlen(broker, client, status) for status in ("pending", "invisible", "running")] == [0, 0, 0]


def test_a_delivered_job_runs_until_it_is_acknowledged():
    """Spec Z2."""
    broker, client, _ = start(2)
    job = deliver(broker)
    assert [qlen(broker, client, status) for status in ("pending", "invisible", "running")] == [1, 0, 1]
    ask(broker, client, "ACKJOB", job.id)
    assert [qlen(broker, client, status) for status in ("pending", "invisible", "running")] == [1, 0, 0]


def test_an_at_most_once_job_runs_until_its_ack():
    """Spec Z2."""
    broker, client, _ = start()
    job_id = ask_parsed(broker, client, "ADDJOB", "q", "x", 0, "RETRY", 0)
    assert qlen(broker, client, "running") == 0
    ask(broker, client, "GETJOB", "FROM", "q")
    assert qlen(broker, client, "running") == 1
    ask(broker, client, "ACKJOB", job_id)
    assert qlen(broker, client, "running") == 0


def test_the_age_of_the_oldest_job_counts_since_it_became_ready():
    broker, client, _ = start()
    ask(broker, client, "ADDJOB", "q", "x", 0, "PRIORITY", 5)
    pass_time(broker, 500)
    ask(broker, client, "ADDJOB", "q", "y", 0, "PRIORITY", 1)
    pass_time(broker, 500)
    stat = ask_parsed(broker, client, "QSTAT", "q")
    assert dict(zip(stat[::2], stat[1::2], strict=True))[b"oldest-ms"] == 1_000
    job = ask_parsed(broker, client, "GETJOB", "FROM", "q")[0][1]
    ask(broker, client, "ACKJOB", job)
    first = ask_parsed(broker, client, "GETJOB", "FROM", "q")[0][1]
    stat = ask_parsed(broker, client, "QSTAT", "q")
    assert dict(zip(stat[::2], stat[1::2], strict=True))[b"oldest-ms"] is None
    ask(broker, client, "NACK", first)
    pass_time(broker, 70)
    stat = ask_parsed(broker, client, "QSTAT", "q")
    assert dict(zip(stat[::2], stat[1::2], strict=True))[b"oldest-ms"] == 70


def test_a_node_with_many_jobs_uses_one_walk_for_a_second():
    """Spec Z3."""
    broker, _, _ = start(5)
    broker.job_count = census.KEPT_JOBS + 1
    assert taken(broker).running == 0
    first = broker.upkeep.census
    deliver(broker)
    pass_time(broker, census.KEPT_MS - 1)
    assert taken(broker).running == 0
    assert broker.upkeep.census is first
    pass_time(broker, 1)
    assert taken(broker).running == 1


def test_figures_that_may_be_recent_are_of_one_walk_however_few_jobs_there_are():
    """Spec Z3."""
    broker, client, _ = start(5)
    assert ask_parsed(broker, client, "QSTAT", "q", "RECENT") == ask_parsed(broker, client, "QSTAT", "q")
    deliver(broker)
    before = dict(pairs(ask_parsed(broker, client, "QSTAT", "q", "RECENT")))
    assert (before[b"len"], before[b"running"]) == (4, 0)
    assert dict(pairs(ask_parsed(broker, client, "QSTAT", "q")))[b"running"] == 1
    pass_time(broker, census.KEPT_MS)
    assert dict(pairs(ask_parsed(broker, client, "QSTAT", "q", "RECENT")))[b"running"] == 1


def pairs(values):
    """The names and values of QSTAT."""
    return zip(values[::2], values[1::2], strict=True)


def test_clients_share_a_walk_that_is_under_way():
    """Spec Z3."""
    broker, _, _ = start(3)
    broker.job_count = census.KEPT_JOBS + 1
    other = make_broker()
    for number, shard in enumerate(broker.shards):
        for at in range(2 if number % 2 else 0):
            shard[b"%d %d" % (number, at)] = hold_queued(other, number=2 * number + at)
    first, second = census.taken(broker, b"q"), census.taken(broker, b"q")
    next(first)
    assert len(list(second)) == 1
    assert not list(first)


def half_counted(count=3):
    """Return a node with an unfinished walk whose clients are gone."""
    broker, client, _ = start(count)
    broker.job_count = census.KEPT_JOBS + 1
    other = make_broker()
    for number, shard in enumerate(broker.shards):
        shard[b"%d" % number] = hold_queued(other, number=number)
    next(census.taken(broker, b"q"))
    return broker, client


def test_a_walk_that_was_left_half_done_begins_anew_after_a_second():
    """Spec Z3."""
    broker, _ = half_counted()
    first = broker.upkeep.census
    pass_time(broker, census.KEPT_MS)
    taken(broker)
    assert broker.upkeep.census is not first


def test_a_walk_that_was_left_half_done_keeps_no_job_that_was_flushed():
    broker, client = half_counted()
    ask(broker, client, "DEBUG", "FLUSHALL")
    assert broker.upkeep.census is None


def test_few_jobs_are_walked_anew_for_each_client():
    broker, _, _ = start(3)
    taken(broker)
    deliver(broker)
    assert taken(broker).running == 1
    assert broker.upkeep.census is None


def test_an_errored_job_counts_on_the_holder_with_the_lowest_id():
    """Spec Z2."""
    broker, client, _ = start()
    job_id = ask_parsed(broker, client, "ADDJOB", "q", "x", 0, "ATTEMPTS", 1, "RETRY", 30)
    ask(broker, client, "GETJOB", "FROM", "q")
    ask(broker, client, "NACK", job_id)
    assert [qlen(broker, client, status) for status in ("pending", "invisible", "running", "errored")] == [0, 0, 0, 1]
    lower = add_node(broker, 0)
    assert lower.id < broker.me.id
    broker.find(job_id).holders = broker.sets.add(broker.find(job_id).holders, lower)
    assert qlen(broker, client, "errored") == 0


def test_a_job_is_invisible_while_the_delay_of_a_nack_lasts():
    """Spec Z2."""
    broker, client, _ = start()
    job_id = ask_parsed(broker, client, "ADDJOB", "q", "x", 0, "RETRY", 30)
    ask(broker, client, "GETJOB", "FROM", "q")
    ask(broker, client, "NACK", job_id, "DELAY", 20)
    assert [qlen(broker, client, status) for status in ("pending", "invisible", "running", "errored")] == [0, 1, 0, 0]
