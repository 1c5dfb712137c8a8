"""commands/shares.py: the share of each node in an answer, and the sum of all shares."""

from __future__ import annotations

from random import Random

import pytest

from brokers import ask, ask_parsed, error_of, make_broker, make_client
from cluster_bus.codec import encode_runs
from cluster_bus.decode_limit import has_few_objects
from cluster_bus.messages import ANSWER
from copies import deliver, hold_queued
from disque_py.commands import shares
from disque_py.core import incremental
from disque_py.core.priority_queue import key_of

STATUS_ERROR = "ERR STATUS must be invisible, pending, running, completed, canceled or errored"


def start(count=0):
    broker = make_broker()
    return broker, make_client(broker), [hold_queued(broker, number=number) for number in range(count)]


def whole(share):
    """Run a share to its end, and return its result."""
    while True:
        try:
            next(share)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize(
    "words",
    [("QLEN", "q", "STATUS", "x"), ("QLEN", "q", "STATUS"), ("QPEEK", "q", 1, "STATUS", "acked"),
     ("QDEPTH", "q", "BY", "t", "STATUS", "")],
)  # fmt: skip
def test_a_status_must_be_one_that_users_see(words):
    broker, client, _ = start()
    assert error_of(broker, client, *words) == STATUS_ERROR


@pytest.mark.parametrize(
    "words",
    [
        ("QLEN", "q", "ALL"),
        ("QSTAT", "q", "x"),
        ("QSTAT", "q", "CLUSTER", "CLUSTER"),
        ("QSTAT", "q", "RECENT", "CLUSTER"),
        ("SHOW", "id", "x"),
    ],
)
def test_an_unknown_option_is_refused(words):
    broker, client, _ = start()
    assert error_of(broker, client, *words) == "ERR syntax error"


@pytest.mark.parametrize("status", ["completed", "canceled", "errored"])
def test_a_node_keeps_no_job_that_is_over(status):
    """Spec Z2."""
    broker, client, jobs = start(2)
    ask(broker, client, "ACKJOB", jobs[0].id)
    assert ask(broker, client, "QLEN", "q", "STATUS", status) == b":0\r\n"
    assert ask(broker, client, "QPEEK", "q", 5, "STATUS", status) == b"*0\r\n"
    assert ask(broker, client, "QDEPTH", "q", "BY", "t", "STATUS", status) == b"*0\r\n"


def test_running_jobs_are_shown_in_queue_order():
    broker, client, jobs = start(5)
    for _ in range(3):
        deliver(broker)
    shown = [entry[1] for entry in ask_parsed(broker, client, "QPEEK", "q", 9, "STATUS", "running")]
    assert shown == [job.id for job in jobs[:3]]
    shown = [entry[1] for entry in ask_parsed(broker, client, "QPEEK", "q", -2, "STATUS", "running")]
    assert shown == [jobs[2].id, jobs[1].id]


def test_depths_of_running_jobs_count_each_value():
    broker, client, _ = start()
    for value in ("a", "b", "a", ""):
        ask(broker, client, "ADDJOB", "q", "x", 0, *(("META", "t", value) if value else ()))
    ask(broker, client, "GETJOB", "COUNT", 9, "FROM", "q")
    assert ask_parsed(broker, client, "QDEPTH", "q", "BY", "t", "STATUS", "running") == [b"a", 2, b"b", 1, None, 1]
    assert ask_parsed(broker, client, "QDEPTH", "q", "BY", "t") == []


def test_a_job_that_two_nodes_have_queued_is_shown_once():
    job = shares.Peeked(b"D-1", 1, 1, b"x", [])
    assert whole(shares.best_of([[job], [job]], 5, 1)) == [job]


def test_jobs_of_all_nodes_end_at_the_size_of_a_reply():
    jobs = [shares.Peeked(b"D-%d" % at, at, at, bytes(400_000), []) for at in range(6)]
    assert whole(shares.best_of([jobs[::2], jobs[1::2]], 9, 1)) == jobs[:3]
    assert whole(shares.best_of([jobs[::2], jobs[1::2]], -9, 1)) == jobs[:2:-1]


def test_sums_of_figures_keep_the_highest_age_and_the_lowest_idle_time():
    one, other, none = shares.Stat(), shares.Stat(), shares.Stat()
    one.is_known = other.is_known = True
    one.age_s, one.idle_s, one.oldest_ms, one.length, one.paused = 5, 2, -1, 0, 1
    other.age_s, other.idle_s, other.oldest_ms, other.length, other.paused = 3, 1, 70, 4, 2
    none.running = 1
    total = shares.sum_of_stats([none, one, other])
    assert (total.age_s, total.idle_s, total.oldest_ms, total.length, total.paused) == (5, 1, 70, 4, 3)
    assert total.running == 1


@pytest.mark.parametrize("pairs", [0, 4])
def test_a_share_of_many_jobs_has_few_enough_values_for_a_frame(pairs):
    """Spec Z6."""
    broker, client, _ = start()
    meta = [word for number in range(pairs) for word in ("META", f"n{number}", "v")]
    for _ in range(6_000):
        ask(broker, client, "ADDJOB", "q", "", 0, *meta)
    answer = whole(shares.SUBJECTS[shares.SUBJECT_QPEEK](broker, [b"q", [], b"pending", 20_000]))
    (run,) = encode_runs(ANSWER, [(1, 0, answer)])
    assert has_few_objects(run, shares.VALUES_MAX + 100)
    jobs = shares.peeked_of(answer)
    assert len(jobs) == -(-shares.VALUES_MAX // (6 + 2 * pairs))
    assert whole(shares.best_of([jobs, jobs[:5]], 20_000, 1)) == jobs


def test_jobs_of_all_nodes_end_where_the_share_of_one_may_have_ended():
    """Behind that point, the answer would lack jobs of this node among those of the other node."""
    cut = [shares.Peeked(b"D-%d" % at, at, at, b"", []) for at in range(5_000)]
    late = shares.Peeked(b"D-late", 6_000, 6_000, b"", [])
    assert whole(shares.best_of([cut, [late]], 20_000, 1)) == cut


def test_the_largest_of_very_many_values_are_found_part_by_part():
    rng = Random(3)
    numbers = {b"%d" % value: rng.randrange(1_000) for value in range(20_000)}
    items = [(-number, value) for value, number in numbers.items()]
    for count in (1, 100, 10_000, 30_000):
        largest = shares.Largest(count)
        for at in range(0, len(items), 700):
            largest.offer(items[at : at + 700])
        assert largest.taken() == [(-number, value) for number, value in sorted(items)[:count]]


@pytest.mark.parametrize("count", [5, -5, 3_000, -3_000])
def test_the_first_of_very_many_jobs_are_found_part_by_part(count):
    _, _, jobs = start(2_500)
    first = shares.FirstJobs(count)
    for job in Random(3).sample(jobs, len(jobs)):
        first.offer(job)
    assert first.taken() == sorted(jobs, key=key_of, reverse=count < 0)[: abs(count)]


def test_depths_are_counted_in_parts_while_groups_come_and_go():
    """Each value that has jobs all the time is counted once."""
    broker, client, _ = start()
    for number in range(2 * shares.DEPTH_PART):
        ask(broker, client, "ADDJOB", "q", "x", 0, "META", "t", str(number))
    whole(shares.depths(broker, b"q", b"t", b"pending", 10))
    steps = shares.depths(broker, b"q", b"t", b"pending", 10_000)
    next(steps)
    for word in ("0", str(2 * shares.DEPTH_PART - 1)):
        ask(broker, client, "GETJOB", "NOHANG", "WHERE", "t", word, "FROM", "q")
    ask(broker, client, "ADDJOB", "q", "x", 0, "META", "t", "new")
    values = [value for _, value in whole(steps).best]
    stayed = {b"%d" % number for number in range(1, 2 * shares.DEPTH_PART - 1)}
    assert len(values) == len(set(values))
    assert stayed <= set(values)


def test_jobs_are_shown_in_parts():
    broker, client, jobs = start(2 * shares.PEEK_PART + 1)
    assert ask(broker, client, "QPEEK", "q", 5_000) == b""
    acked = jobs[-1]
    ask(broker, make_client(broker), "ACKJOB", acked.id)
    while client.waiting:
        incremental.step(broker)
    reply = b"".join(client.out)
    assert reply.startswith(b"*%d\r\n" % (2 * shares.PEEK_PART))
    assert acked.id not in reply
