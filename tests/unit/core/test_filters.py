"""core/filters.py: jobs by metadata, and the clients that wait for them."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from brokers import add_node, ask, ask_parsed, error_of, make_broker, make_client, pass_time
from cluster_bus.messages import FILTER_HINT
from copies import advance, sent_of
from disque_py.core import filter_interest, incremental, timers
from disque_py.core.client import RUNNING, WAITS_FOR_JOBS
from disque_py.core.filters import GROUPS_PER_PART, INDEX_IDLE_MS, INDEXES_MAX, LOOKED_PER_PART, Filter
from disque_py.core.queue_fields import QueueSettings
from disque_py.node import dispatch


def start():
    broker = make_broker()
    return broker, make_client(broker)


def add(broker, client, *meta, queue="q", body="body", priority=None, retry=None):
    words = ["ADDJOB", queue, body, 0, "REPLICATE", 1]
    for at in range(0, len(meta), 2):
        words += ["META", meta[at], meta[at + 1]]
    if priority is not None:
        words += ["PRIORITY", priority]
    if retry is not None:
        words += ["RETRY", retry]
    return ask_parsed(broker, client, *words)


def get(broker, client, *where, queue="q", more=()):
    words = [word for at in range(0, len(where), 2) for word in ("WHERE", *where[at : at + 2])]
    jobs = ask_parsed(broker, client, "GETJOB", "NOHANG", *more, *words, "FROM", queue)
    return [job[1] for job in jobs] if jobs else []


def delivered_to(broker, client):
    dispatch.settle(broker)
    return b"".join(client.out)


def test_a_job_goes_to_a_client_if_it_carries_all_pairs():
    """Spec W1."""
    broker, client = start()
    add(broker, client, "tenant", "a")
    both = add(broker, client, "kind", "mail", "tenant", "a")
    add(broker, client, "kind", "mail", "tenant", "b")
    assert get(broker, client, "tenant", "a", "kind", "mail") == [both]
    assert get(broker, client, "tenant", "a", "kind", "mail") == []


def test_of_the_jobs_that_match_the_one_with_the_lowest_priority_comes_first():
    broker, client = start()
    late = add(broker, client, "t", "a", priority=9)
    soon = add(broker, client, "t", "a", priority=3)
    add(broker, client, "t", "b", priority=1)
    assert get(broker, client, "t", "a", more=("COUNT", 5)) == [soon, late]


def test_a_plain_client_takes_filtered_jobs_from_their_index():
    broker, client = start()
    first = add(broker, client, "t", "a")
    second = add(broker, client, "t", "a")
    assert get(broker, client, "t", "zzz") == []
    assert get(broker, client) == [first]
    assert get(broker, client, "t", "a") == [second]
    assert get(broker, client) == []


def test_a_waiting_client_gets_the_first_job_that_matches():
    broker, client = start()
    waiting = make_client(broker)
    assert ask(broker, waiting, "GETJOB", "WHERE", "t", "a", "FROM", "q") == b""
    assert waiting.waiting == WAITS_FOR_JOBS
    add(broker, client, "t", "b")
    assert delivered_to(broker, waiting) == b""
    job = add(broker, client, "t", "a")
    assert job in delivered_to(broker, waiting)


@pytest.mark.parametrize("is_plain_first", [True, False])
def test_plain_and_filtered_clients_are_served_first_come_first_served(is_plain_first):
    """Spec W3."""
    broker, client = start()
    plain, filtered = make_client(broker), make_client(broker)
    asks = [(plain, ("GETJOB", "FROM", "q")), (filtered, ("GETJOB", "WHERE", "t", "a", "FROM", "q"))]
    for each, words in asks if is_plain_first else asks[::-1]:
        ask(broker, each, *words)
    job = add(broker, client, "t", "a")
    assert (job in delivered_to(broker, plain)) is is_plain_first
    assert (job in delivered_to(broker, filtered)) is not is_plain_first


def test_a_client_that_skips_at_most_once_jobs_leaves_them_to_the_next_in_line():
    broker, client = start()
    picky, other = make_client(broker), make_client(broker)
    ask(broker, picky, "GETJOB", "LEASE", 5, "WHERE", "t", "a", "FROM", "q")
    ask(broker, other, "GETJOB", "WHERE", "t", "a", "FROM", "q")
    job = add(broker, client, "t", "a", retry=0)
    assert job in delivered_to(broker, other)
    assert picky.waiting == WAITS_FOR_JOBS


def test_a_client_that_leaves_takes_no_job():
    broker, client = start()
    waiting = make_client(broker)
    ask(broker, waiting, "GETJOB", "TIMEOUT", 100, "WHERE", "t", "a", "FROM", "q")
    pass_time(broker, 5_000)
    timers.tick(broker)
    assert waiting.waiting == RUNNING
    job = add(broker, client, "t", "a")
    assert get(broker, client, "t", "a") == [job]


def test_a_job_that_was_given_back_matches_again():
    broker, client = start()
    job = add(broker, client, "t", "a")
    assert get(broker, client, "t", "a") == [job]
    ask(broker, client, "NACK", job)
    assert ask_parsed(broker, client, "QLEN", "q", "WHERE", "t", "a") == 1
    assert get(broker, client, "t", "a") == [job]


def test_clients_of_a_paused_queue_are_served_when_the_pause_ends():
    broker, client = start()
    waiting = make_client(broker)
    ask(broker, client, "PAUSE", "q", "out")
    ask(broker, waiting, "GETJOB", "WHERE", "t", "a", "FROM", "q")
    job = add(broker, client, "t", "a")
    assert delivered_to(broker, waiting) == b""
    ask(broker, client, "PAUSE", "q", "none")
    assert job in delivered_to(broker, waiting)


def test_a_long_queue_is_indexed_in_parts_while_other_clients_go_on():
    broker, client = start()
    for number in range(3 * LOOKED_PER_PART):
        add(broker, client, "n", str(number))
    filtered = make_client(broker)
    assert ask(broker, filtered, "GETJOB", "NOHANG", "WHERE", "n", "5", "FROM", "q") == b""
    late = add(broker, client, "n", "late")
    assert len(get(broker, client, more=("COUNT", 10))) == 10
    while filtered.waiting != RUNNING:
        incremental.step(broker)
    assert ask_parsed(broker, client, "QLEN", "q", "WHERE", "n", "late") == 1
    assert get(broker, client, "n", "late") == [late]
    assert ask_parsed(broker, client, "QLEN", "q", "WHERE", "n", "7") == 0


def entries_of(broker):
    filters = [queue.filters for queue in broker.queues.values() if queue.filters is not None]
    return sum(each.indexes[b"t",].entries for each in filters)


def test_indexes_of_many_short_queues_are_built_in_parts():
    """No turn looks at more than about LOOKED_PER_PART jobs for one command."""
    broker, client = start()
    names = [f"q{number}" for number in range(60)]
    for name in names:
        for _ in range(LOOKED_PER_PART // 20):
            add(broker, client, "t", "z", queue=name)
    job = add(broker, client, "t", "a", queue=names[-1])
    filtered = make_client(broker)
    assert ask(broker, filtered, "GETJOB", "NOHANG", "WHERE", "t", "a", "FROM", *names) == b""
    entries = [0, entries_of(broker)]
    while filtered.waiting != RUNNING:
        incremental.step(broker)
        entries.append(entries_of(broker))
    assert max(after - before for before, after in pairwise(entries)) <= LOOKED_PER_PART + LOOKED_PER_PART // 20
    assert job in b"".join(filtered.out)


def test_indexes_for_other_nodes_are_built_by_walks_that_share_a_budget():
    broker, client = start()
    b = add_node(broker, 2)
    for number in range(8):
        for _ in range(300):
            add(broker, client, "t", "a", queue=f"q{number}")
    sent_of(broker, FILTER_HINT)
    filter_interest.on_interest(broker, b, [(b"q%d" % number, (b"t", b"a"), 1, 1) for number in range(8)])
    built = []
    for _ in range(5):
        advance(broker, 1)
        built.append(entries_of(broker))
    assert built == [600, 1_200, 1_800, 2_400, 2_400]
    dispatch.settle(broker)
    assert len(sent_of(broker, FILTER_HINT)) == 8


def test_a_new_queue_learns_of_very_many_filters_in_parts():
    broker, client = start()
    b = add_node(broker, 2)
    count = 3 * GROUPS_PER_PART
    filter_interest.on_interest(broker, b, [(b"q", (b"t", b"%d" % number), 1, 1) for number in range(count)])
    for value in (0, count - 1):
        add(broker, client, "t", str(value))
    groups = broker.queues[b"q"].filters.indexes[b"t",].groups
    assert len(groups) < count
    advance(broker, 10)
    assert len(groups) == count
    dispatch.settle(broker)
    assert {item[1][1] for _, item in sent_of(broker, FILTER_HINT)} == {b"0", b"%d" % (count - 1)}


def test_memory_of_very_many_groups_is_freed_in_parts_after_flushall():
    broker, client = start()
    count = 3 * GROUPS_PER_PART
    for number in range(count):
        add(broker, client, "t", str(number))
    ask(broker, client, "QLEN", "q", "WHERE", "t", "none")
    while client.waiting:
        incremental.step(broker)
    groups = broker.queues[b"q"].filters.indexes[b"t",].groups
    ask(broker, client, "DEBUG", "FLUSHALL")
    assert broker.used_memory == 0
    assert len(groups) == count
    advance(broker, 1)
    assert 0 < len(groups) < count
    advance(broker, count)
    assert not groups


def test_clients_that_a_pause_kept_from_their_jobs_are_known_without_a_walk():
    broker, client = start()
    ask(broker, client, "PAUSE", "q", "out")
    waiting = [make_client(broker) for _ in range(3)]
    for number, each in enumerate(waiting):
        ask(broker, each, "GETJOB", "WHERE", "t", str(number), "FROM", "q")
    add(broker, client, "t", "1")
    add(broker, client, "t", "7")
    held = broker.queues[b"q"].filters.held
    assert [group.values for group in held] == [(b"1",)]
    ask(broker, client, "PAUSE", "q", "none")
    assert b"D-" in delivered_to(broker, waiting[1])
    assert not held


def test_an_index_agrees_with_a_scan_whatever_happens_to_the_jobs():
    """Spec W2."""
    rng = Random(8)
    broker, client = start()
    leased = []
    wheres = [{b"a": b"1"}, {b"a": b"1", b"b": b"2"}, {b"b": b"0"}]
    for step in range(4_000):
        kind = rng.random()
        if kind < 0.5:
            meta = [word for name in "ab" if rng.random() < 0.7 for word in (name, str(rng.randrange(3)))]
            add(broker, client, *meta, priority=rng.randrange(50), retry=rng.choice([0, 60]))
        elif kind < 0.7:
            leased += get(broker, client)
        elif kind < 0.85:
            pairs = rng.choice(wheres)
            words = [word for pair in pairs.items() for word in pair]
            leased += get(broker, client, *words)
        elif leased:
            ask(broker, client, rng.choice(["NACK", "ACKJOB", "ENQUEUE", "DEQUEUE"]), rng.choice(leased))
        if step % 400 == 0:
            check(broker, client, wheres)
    check(broker, client, wheres)


def check(broker, client, wheres):
    queue = broker.queues[b"q"]
    ready = list(queue.oldest())
    for pairs in wheres:
        wanted = Filter(pairs)
        words = [word for pair in pairs.items() for word in (b"WHERE", *pair)]
        expected = [job.id for job in ready if wanted.takes(job)]
        assert ask_parsed(broker, client, "QLEN", "q", *words) == len(expected)
        assert [job[1] for job in ask_parsed(broker, client, "QPEEK", "q", 10_000, *words)] == expected
        assert [job[1] for job in ask_parsed(broker, client, "QPEEK", "q", -3, *words)] == expected[::-1][:3]


def test_memory_of_an_idle_index_is_given_back():
    broker, client = start()
    for number in range(20):
        add(broker, client, "n", str(number))
    before = broker.used_memory
    assert get(broker, client, "n", "none") == []
    assert broker.used_memory > before
    for _ in range(3):
        pass_time(broker, INDEX_IDLE_MS)
        timers.tick(broker)
        timers.tick(broker)
    assert broker.used_memory == before
    assert broker.queues[b"q"].filters is None


def test_flushall_answers_clients_that_wait_with_a_filter():
    broker, client = start()
    waiting = make_client(broker)
    add(broker, client, "t", "b")
    ask(broker, waiting, "GETJOB", "WHERE", "t", "a", "FROM", "q")
    ask(broker, client, "DEBUG", "FLUSHALL")
    job = add(broker, client, "t", "a")
    assert get(broker, client, "t", "a") == [job]


def test_qdepth_counts_ready_jobs_by_value_largest_first():
    """Spec W4."""
    broker, client = start()
    for value in ("x", "y", "y", "z", "z", "z"):
        add(broker, client, "t", value)
    add(broker, client)
    assert ask_parsed(broker, client, "QDEPTH", "q", "BY", "t") == [b"z", 3, b"y", 2, b"x", 1, None, 1]
    assert ask_parsed(broker, client, "QDEPTH", "q", "BY", "t", "COUNT", 1) == [b"z", 3]
    assert ask_parsed(broker, client, "QDEPTH", "none", "BY", "t") == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("WHERE", "a"), "ERR syntax error: WHERE needs a name and a value"),
        (("WHERE", "a", "1", "WHERE", "a", "2"), "ERR WHERE has the same name twice"),
        (tuple(w for n in range(9) for w in ("WHERE", f"n{n}", "v")), "ERR at most 8 WHERE"),
        (("WHERE", "traceparent", "x"), "ERR WHERE can't use the names traceparent and tracestate"),
    ],
)
def test_a_wrong_where_is_refused_before_anything_is_done(words, text):
    """Spec W1."""
    broker, client = start()
    assert error_of(broker, client, "QLEN", "q", *words) == text
    assert error_of(broker, client, "QPEEK", "q", 1, *words) == text
    if words != ("WHERE", "a"):
        assert error_of(broker, client, "GETJOB", *words, "FROM", "q") == text
    assert not broker.queues


def test_a_dropped_queue_gives_the_memory_of_its_indexes_back():
    broker, client = start()
    before = broker.used_memory
    job = add(broker, client, "t", "a")
    assert get(broker, client, "t", "b") == []
    ask(broker, client, "DELJOB", job)
    queue = broker.queues[b"q"]
    queue.filters.group_of((b"t", b"c"))
    broker.drop_queue(queue)  # Within a minute of the last use, as when memory is short.
    assert broker.used_memory == before


def test_a_dead_letter_that_a_filtered_client_gave_up_is_in_its_new_queue():
    """Its dead entry in the old queue does not count again."""
    broker, client = start()
    broker.queue_settings.in_force[b"q"] = rules = QueueSettings()
    rules.dead_letter = b"d"
    job, other = add(broker, client, "t", "a"), add(broker, client, "t", "b")
    assert get(broker, client, "t", "a") == [job]
    ask(broker, client, "NACK", job, "FINAL")
    assert (broker.queues[b"d"].length, broker.queues[b"d"].dead, broker.queues[b"q"].dead) == (1, 0, 0)
    assert get(broker, client) == [other]
    assert get(broker, client, queue="d") == [job]


def test_a_queue_has_a_bounded_number_of_indexes():
    broker, client = start()
    add(broker, client, "t", "a")
    for number in range(INDEXES_MAX + 10):
        assert ask_parsed(broker, client, "QLEN", "q", "WHERE", f"n{number}", "x") == 0
    assert len(broker.queues[b"q"].filters.indexes) == INDEXES_MAX


def test_a_name_in_the_settings_is_indexed_from_the_first_job_on():
    """Spec W2. Its index stays when no client uses it."""
    broker, client = start()
    ask(broker, client, "QUEUE", "SET", "q", "index", "t,u")
    dispatch.settle(broker)
    add(broker, client, "t", "a")
    advance(broker, 3 * INDEX_IDLE_MS)
    indexes = broker.queues[b"q"].filters.indexes
    assert {names: (index.entries, index.build) for names, index in indexes.items()} == {
        (b"t",): (1, None),
        (b"u",): (0, None),
    }


def test_a_queue_with_jobs_is_indexed_in_parts_when_its_settings_say_so():
    """Spec W2. When they say so no more, the index goes as any other."""
    broker, client = start()
    for _ in range(LOOKED_PER_PART + 10):
        add(broker, client, "t", "a")
    ask(broker, client, "QUEUE", "SET", "q", "index", "t")
    assert broker.queues[b"q"].filters.indexes[b"t",].build is not None
    advance(broker, 1_000)
    assert broker.queues[b"q"].filters.indexes[b"t",].entries == LOOKED_PER_PART + 10
    ask(broker, client, "QUEUE", "SET", "q", "index", "")
    advance(broker, 2 * INDEX_IDLE_MS)
    assert broker.queues[b"q"].filters is None


def test_indexes_of_the_settings_make_no_room_for_others():
    broker, client = start()
    ask(broker, client, "QUEUE", "SET", "q", "index", "t")
    add(broker, client, "t", "a")
    filters = broker.queues[b"q"].filters
    for number in range(INDEXES_MAX + 5):
        get(broker, client, f"n{number}", "x")
    assert (b"t",) in filters.indexes
    assert len(filters.indexes) == INDEXES_MAX


def test_indexes_that_clients_wait_with_are_not_replaced():
    broker, client = start()
    add(broker, client, "t", "a")
    for number in range(INDEXES_MAX):
        ask(broker, make_client(broker), "GETJOB", "WHERE", f"n{number}", "x", "FROM", "q")
    text = error_of(broker, client, "QLEN", "q", "WHERE", "more", "x")
    assert text == f"ERR too many combinations of names in WHERE, at most {INDEXES_MAX} per queue"
