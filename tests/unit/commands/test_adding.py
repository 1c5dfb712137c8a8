"""commands/adding.py: the options of ADDJOB, and the order in which they are refused."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, ask_parsed, error_of, make_broker, make_client
from cluster_bus.messages import REPLJOB
from cluster_bus.node import FAIL, LEAVING, PFAIL
from copies import queue_of, sent_of
from disque_py.core.job import ACTIVE, QUEUED
from disque_py.core.job_attributes import unpack
from journaled import JournaledNode


def start(**settings):
    broker = make_broker(**settings)
    return broker, make_client(broker)


def add(broker, client, *words, body="body"):
    return ask_parsed(broker, client, "ADDJOB", "q", body, 0, *words)


def get(broker, client, *words):
    return ask_parsed(broker, client, "GETJOB", "NOHANG", *words, "FROM", "q")


def test_a_lower_priority_is_served_first_whatever_came_first():
    broker, client = start()
    for priority in (5, -(1 << 63), 3, (1 << 63) - 1):
        add(broker, client, "PRIORITY", priority, body=priority)
    add(broker, client, body="plain")
    bodies = [entry[2] for entry in get(broker, client, "COUNT", 9)]
    assert bodies == [b"-9223372036854775808", b"3", b"5", b"plain", b"9223372036854775807"]


def test_without_priority_it_is_the_creation_time_in_milliseconds():
    broker, client = start()
    plain = add(broker, client)
    add(broker, client, "PRIORITY", broker.wall_ms + 1, body="later")
    add(broker, client, "PRIORITY", broker.wall_ms - 1, body="sooner")
    shown = ask_parsed(broker, client, "SHOW", plain)
    assert shown[shown.index(b"priority") + 1] == broker.wall_ms
    assert [entry[2] for entry in get(broker, client, "COUNT", 9)] == [b"sooner", b"body", b"later"]


def test_a_job_that_comes_back_has_its_priority():
    """Spec F2."""
    broker, client = start()
    add(broker, client, "PRIORITY", 9)
    first = add(broker, client, "PRIORITY", 1)
    assert get(broker, client)[0][1] == first
    ask(broker, client, "NACK", first)
    assert get(broker, client)[0][1] == first


def test_pairs_are_shown_and_come_with_the_job_if_wanted():
    broker, client = start()
    job_id = add(broker, client, "META", "colour", "red", "RETRY", 5, "META", "size", "")
    shown = ask_parsed(broker, client, "SHOW", job_id)
    assert shown[shown.index(b"meta") + 1] == [b"colour", b"red", b"size", b""]
    (entry,) = get(broker, client, "WITHMETA", "WITHCOUNTERS")
    assert entry[3:] == [
        b"nacks", 0, b"additional-deliveries", 0, b"meta", [b"colour", b"red", b"size", b""],
    ]  # fmt: skip


def test_jscan_shows_them_too():
    broker, client = start()
    add(broker, client, "META", "a", "b")
    (shown,) = ask_parsed(broker, client, "JSCAN", "REPLY", "all")[1]
    assert shown[34:38] == [b"priority", broker.wall_ms, b"meta", [b"a", b"b"]]


def test_options_may_stand_in_any_order():
    broker, client = start()
    job_id = add(broker, client, "PRIORITY", 4, "RETRY", 7, "KEY", "k", "TTL", 70, "META", "a", "b", "DELAY", 3)
    job = broker.find(job_id)
    assert (job.priority, job.retry_ms, job.meta, job.delay_ms) == (4, 7_000, (b"a", b"b"), 3_000)


def test_a_priority_does_not_shorten_a_delay():
    """An urgent job is not in the queue before it is due. Spec F2."""
    broker, client = start()
    add(broker, client, "DELAY", 5, "PRIORITY", 1, body="urgent")
    add(broker, client, "PRIORITY", 9)
    assert [body for _, _, body in get(broker, client, "COUNT", 2)] == [b"body"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("PRIORITY", "high"), "PRIORITY must be a 64-bit integer"),
        (("PRIORITY", ""), "PRIORITY must be"),
        (("PRIORITY", 1 << 63), "PRIORITY must be"),
        (("PRIORITY",), "syntax error"),
        (("META", "a"), "META needs a name and a value"),
        (("META", "", "b"), "META needs a name that is not empty"),
        (("META", "x" * 1025, "b"), "a name of META must have 1 to 1024 bytes"),
        (("META", "a", "b", "META", "a", "c"), "same name twice"),
        (("META", "a", "x" * 70_000), "META: at most 65536 bytes"),
        (("KEY", ""), "KEY must have 1 to 1024 bytes"),
        (("KEY", "x" * 1025), "KEY must have"),
    ],
)
def test_impossible_options_are_refused_and_nothing_is_done(words, text):
    broker, client = start()
    assert text in str(add(broker, client, *words))
    assert broker.job_count == 0


def test_the_number_of_pairs_is_limited():
    """Spec F3."""
    broker, client = start(job_meta_max_pairs=1)
    assert "at most 1 pairs per job (job-meta-max-pairs)" in str(
        add(broker, client, "META", "a", "b", "META", "c", "d")
    )
    assert add(broker, client, "META", "a", "b").startswith(b"D-")


def test_trace_context_counts_against_no_limit_but_its_own():
    """Spec F9."""
    broker, client = start(job_meta_max_pairs=1)
    trace = ("META", "traceparent", "p" * 55, "META", "tracestate", "s" * 900)
    job_id = add(broker, client, *trace, "META", "a", "b" * 65_535)
    assert job_id.startswith(b"D-")
    job = broker.find(job_id)
    assert unpack(job.attributes.pack())[0].meta == job.meta
    refused = add(broker, client, "META", "traceparent", "p" * 55, "META", "tracestate", "s" * 1_000)
    assert str(refused) == "ERR META: traceparent and tracestate may have 1024 bytes together"


def test_memory_is_accounted_for_and_given_back():
    broker, client = start()
    add(broker, client, "META", "a", "x" * 1000, "PRIORITY", 3, "RETRY", 0)
    assert broker.used_memory > 1_500
    (entry,) = get(broker, client)
    ask(broker, client, "ACKJOB", entry[1])
    broker.drop_queue(broker.queues[b"q"])
    assert broker.used_memory == 0


def test_priority_and_pairs_survive_a_crash():
    node = JournaledNode()
    node.settle()
    for priority in (9, 1, 5):
        node.ask("ADDJOB", "q", "body", 0, "PRIORITY", priority, "META", "p", priority)
        node.settle()
    node = node.restart()
    node.ask("GETJOB", "COUNT", 9, "WITHMETA", "FROM", "q")
    node.settle()
    (entries,) = node.taken()
    assert [entry[4] for entry in entries] == [[b"p", b"1"], [b"p", b"5"], [b"p", b"9"]]
    assert all(used >= 0 for used in node.broker.journal.live_bytes.values())


# -- options that end in fields of the job --------------------------------------------------------------------


def added(broker, client, *words):
    """Send an ADDJOB that is answered immediately. Return its job."""
    reply = ask(broker, client, "ADDJOB", "q", "body", 0, *words)
    assert reply.startswith(b"+D-"), reply
    return broker.find(reply[1:-2])


def test_a_job_is_queued_and_answered_with_its_id_as_a_simple_string():
    broker, client = start()
    job = added(broker, client)
    assert (job.state, job.queue, job.body, queue_of(broker)) == (QUEUED, b"q", b"body", [job.id])


def test_a_job_without_options_has_the_defaults():
    """The default TTL is a day. RETRY is a tenth of the TTL, but at most five minutes. There is no DELAY."""
    broker, client = start()
    job = added(broker, client)
    assert (job.expire_at_ms - broker.now_ms, job.retry_ms, job.delay_ms, job.replicate) == (86_400_000, 300_000, 0, 1)


@pytest.mark.parametrize(("ttl_s", "retry_s"), [(1, 1), (9, 1), (19, 1), (20, 2), (3000, 300), (100_000, 300)])
def test_the_default_retry_is_a_tenth_of_the_ttl_between_one_and_300_seconds(ttl_s, retry_s):
    broker, client = start()
    assert added(broker, client, "TTL", ttl_s).retry_ms == retry_s * 1000


def test_options_in_any_order_and_case_and_the_last_of_each_counts():
    broker, client = start()
    job = added(broker, client, "retry", 7, "ASYNC", "tTl", 50, "DELAY", 1, "Replicate", 1, "RETRY", 8, "MAXLEN", 5)
    assert (job.retry_ms, job.expire_at_ms - broker.now_ms, job.delay_ms) == (8000, 50_000, 1000)


def test_a_delayed_job_is_not_queued_yet():
    broker, client = start()
    job = added(broker, client, "DELAY", 5)
    assert (job.state, queue_of(broker)) == (ACTIVE, [])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("REPLICATE", 0), "ERR REPLICATE must be between 1 and 65535"),
        (("REPLICATE", 65_536), "ERR REPLICATE must be between 1 and 65535"),
        (("REPLICATE", "x"), "ERR REPLICATE must be between 1 and 65535"),
        (("TTL", 0), "ERR TTL must be a number > 0"),
        (("TTL", "x"), "ERR TTL must be a number > 0"),
        (("TTL", 2**63 - 1), "ERR TTL must be a number > 0"),
        (("RETRY", -1), "ERR RETRY time must be a non negative number"),
        (("DELAY", -1), "ERR DELAY time must be a non negative number"),
        (("MAXLEN", 0), "ERR MAXLEN must be a positive number"),
        (("MAXLEN", "x"), "ERR MAXLEN must be a positive number"),
        (("NOSUCH", 1), "ERR syntax error"),
        (("NOSUCH",), "ERR syntax error"),
        (("TTL",), "ERR syntax error"),
        (("ASYNC", "TTL"), "ERR syntax error"),
        (("RETRY", 0, "REPLICATE", 2),
         "ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)"),
        (("TTL", 5, "DELAY", 5),
         "ERR The specified DELAY is greater than TTL. Job refused since would never be delivered"),
        (("REPLICATE", 2), "NOREPL Not enough reachable nodes for the requested replication level"),
        (("REPLICATE", 2, "ASYNC"), "NOREPL Not enough reachable nodes for the requested replication level"),
    ],
)  # fmt: skip
def test_an_addjob_with_wrong_words_is_refused_and_changes_nothing(words, text):
    broker, client = start()
    assert error_of(broker, client, "ADDJOB", "q", "body", 0, *words) == text
    assert (broker.job_count, broker.queues) == (0, {})


@pytest.mark.parametrize(
    ("timeout", "text"),
    [("x", "ERR timeout is not an integer or out of range"), (-1, "ERR timeout is negative")],
)
def test_a_wrong_time_out_is_refused(timeout, text):
    broker, client = start()
    assert error_of(broker, client, "ADDJOB", "q", "body", timeout) == text


@pytest.mark.parametrize(
    ("timeout", "words", "text"),
    [
        (-1, ("RETRY", 0, "REPLICATE", 2, "TTL", 5, "DELAY", 9, "MAXLEN", 1, "TTL", 0), "ERR TTL must"),
        (-1, ("RETRY", 0, "REPLICATE", 2, "TTL", 5, "DELAY", 9, "MAXLEN", 1), "ERR timeout is"),
        (0, ("RETRY", 0, "REPLICATE", 2, "TTL", 5, "DELAY", 9, "MAXLEN", 1), "ERR With RETRY"),
        (0, ("RETRY", 1, "REPLICATE", 2, "TTL", 5, "DELAY", 9, "MAXLEN", 1), "ERR The specified DELAY"),
        (0, ("RETRY", 1, "REPLICATE", 2, "TTL", 5, "MAXLEN", 1), "NOREPL"),
        (0, ("RETRY", 1, "REPLICATE", 1, "TTL", 5, "MAXLEN", 1), "MAXLEN"),
        (0, ("RETRY", 1, "REPLICATE", 1, "TTL", 5), "PAUSED"),
    ],
)
def test_the_first_failure_wins_in_the_originals_order(timeout, words, text):
    broker, client = start()
    added(broker, client)
    ask(broker, client, "PAUSE", "q", "in")
    assert error_of(broker, client, "ADDJOB", "q", "body", timeout, *words).startswith(text)


def test_a_queue_at_its_maxlen_takes_no_more():
    broker, client = start()
    added(broker, client, "MAXLEN", 1)
    assert error_of(broker, client, "ADDJOB", "q", "body", 0, "MAXLEN", 1).startswith("MAXLEN Queue is already longer")
    assert ask(broker, client, "ADDJOB", "q", "body", 0, "MAXLEN", 2).startswith(b"+")


def test_at_most_once_is_one_copy_whatever_the_cluster():
    """The original required an explicit REPLICATE 1 in a cluster."""
    broker, client = start()
    add_node(broker)
    job = added(broker, client, "RETRY", 0)
    assert (job.replicate, job.holders) == (1, {broker.me})
    assert job.id.endswith(b"-05a0")


@pytest.mark.parametrize(("nodes", "copies"), [(0, 1), (1, 2), (2, 3), (5, 3)])
def test_the_default_of_copies_is_three_or_as_many_nodes_as_there_are(nodes, copies):
    broker, client = start()
    for number in range(nodes):
        add_node(broker, 2 + number)
    ask(broker, client, "ADDJOB", "q", "body", 0)
    (job,) = [job for shard in broker.shards for job in shard.values()]
    assert job.replicate == copies


def test_failed_and_leaving_nodes_are_not_counted():
    """Otherwise producers would be refused while one node is drained (spec Q13)."""
    broker, client = start()
    add_node(broker, 2).flags |= FAIL
    add_node(broker, 3).flags |= LEAVING
    broker.cluster.refresh()
    assert added(broker, client).replicate == 1


def test_a_minority_refuses_a_job_rather_than_make_fewer_copies():
    """Two of three nodes don't answer, and the default is still three copies. Spec C1."""
    broker, client = start()
    add_node(broker, 2).flags |= PFAIL
    add_node(broker, 3).flags |= PFAIL
    broker.cluster.refresh()
    assert error_of(broker, client, "ADDJOB", "q", "body", 0).startswith("NOREPL")


def test_refusals_for_lack_of_nodes_and_zones_are_counted():
    """INFO counts them apart from timeouts, because no producer waited in these cases."""
    broker, client = start()
    add_node(broker, 2)
    broker.cluster.refresh()
    error_of(broker, client, "ADDJOB", "q", "body", 0, "REPLICATE", 3)
    error_of(broker, client, "ADDJOB", "q", "body", 0, "REPLICATE", 2, "ZONES", 2)
    told = ask_parsed(broker, client, "INFO", "jobs").decode()
    assert "total_replication_short_of_nodes:1\r\n" in told
    assert "total_replication_short_of_zones:1\r\n" in told


def test_a_majority_does_not_count_suspected_nodes():
    broker, client = start()
    add_node(broker, 2).flags |= PFAIL
    add_node(broker, 3)
    broker.cluster.refresh()
    ask(broker, client, "ADDJOB", "q", "body", 0)
    assert [job.replicate for job in broker.copies.waiting_repl] == [2]
    assert error_of(broker, make_client(broker), "ADDJOB", "q", "body", 0, "REPLICATE", 3).startswith("NOREPL")


def test_replicate_default_overrides_it():
    broker = make_broker(replicate_default=2)
    client = make_client(broker)
    assert error_of(broker, client, "ADDJOB", "q", "body", 0).startswith("NOREPL")
    add_node(broker)
    add_node(broker, 3)
    ask(broker, client, "ADDJOB", "q", "body", 0)
    assert len(sent_of(broker, REPLJOB)[0][0]) == 1


@pytest.mark.parametrize(("replicate", "is_explained"), [(2, True), (3, False)])
def test_one_node_short_says_why_no_copy_can_be_kept_here(replicate, is_explained):
    broker, client = start()
    add_node(broker)
    broker.membership.set_leaving(True)
    text = error_of(broker, client, "ADDJOB", "q", "body", 0, "REPLICATE", replicate)
    assert text == "NOREPL Not enough reachable nodes for the requested replication level" + is_explained * (
        ", since I'm unable to hold a copy of the message for the following reason: I'm leaving the cluster"
    )


@pytest.mark.parametrize("words", [("MAXLEN", 1), ("REPLICATE", 2), ()])
def test_a_key_that_is_used_is_answered_with_its_job_whatever_a_new_one_would_be_refused_for(words):
    """A repeated ADDJOB whose reply was lost must not be refused for a full queue, perhaps full of that very job."""
    broker = make_broker()
    client = make_client(broker)
    first = ask(broker, client, "ADDJOB", "q", "body", 0, "KEY", "k", "MAXLEN", 1)
    if not words:
        ask(broker, client, "PAUSE", "q", "in")
    assert ask(broker, client, "ADDJOB", "q", "body", 0, "KEY", "k", *words) == first
    assert ask(broker, client, "ADDJOB", "q", "body", 0, "KEY", "another", *words).startswith(b"-")
    assert broker.job_count == 1
