"""Defects of the original's jobs and queues that one node can show, and behaviour that must stay.

The name of a test has the number of its defect in the list of defects. Its docstring states the rule of this server.

Tests with several nodes are in tests/scenarios/test_quirks_cluster.py. Tests of server and bus are in test_server.py.
"""

from __future__ import annotations

import pytest

from brokers import add_node, ask, ask_parsed, make_broker, make_client, pass_time
from cluster_bus.messages import GOTACK, NEEDJOBS, REPLJOB, SETACK, YOURJOBS
from disque_py.config.settings import DirectiveError, Settings
from disque_py.core import pulls, timers
from disque_py.core.job import ACKED, ACTIVE, JOB_BYTES, QUEUED
from disque_py.core.job_snapshot import snapshot_of
from disque_py.node import dispatch

DUMMY_ID = b"D-ffffffff-AAAAAAAAAAAAAAAAAAAAAAAA-05a1"
FOREVER_S = 5_000_000


@pytest.fixture
def broker():
    return make_broker()


@pytest.fixture
def client(broker):
    return make_client(broker)


def add(broker, client, *options, queue="q", body="body"):
    """Run ADDJOB. Return the id."""
    reply = ask_parsed(broker, client, "ADDJOB", queue, body, 0, *options)
    assert isinstance(reply, bytes), reply
    return reply


def get(broker, client, *queues):
    """Run GETJOB NOHANG. Return the ids."""
    reply = ask_parsed(broker, client, "GETJOB", "NOHANG", "COUNT", 9, "FROM", *queues)
    return [job_id for _, job_id, _ in reply or ()]


def with_dummy_ack(broker, client):
    """Give the broker a dummy ack, for a job it never held. Return the other node, which does not answer."""
    node = add_node(broker)
    assert ask(broker, client, "ACKJOB", DUMMY_ID) == b":0\r\n"
    assert broker.find(DUMMY_ID).state == ACKED
    return node


def use_memory(broker, share):
    """Set maxmemory so that this share of it is in use."""
    broker.settings.maxmemory = int(broker.used_memory / share)
    broker.apply_maxmemory()


# -- acks ------------------------------------------------------------------------------------------


def test_q02_a_dummy_ack_is_never_queued(broker, client):
    """The node answers YOURJOBS and REPLJOB for this job with the ack, and puts nothing into a queue."""
    node = with_dummy_ack(broker, client)
    other = make_broker(node_id=node.id)
    job_id = add(other, make_client(other))
    job = other.find(job_id)
    snapshot = (DUMMY_ID, *snapshot_of(other, job)[1:])
    dispatch.receive(broker, node, [[YOURJOBS, (1, 0, [snapshot])], [REPLJOB, (snapshot, 0)]])
    assert broker.find(DUMMY_ID).state == ACKED
    assert ask(broker, client, "QLEN", "q") == b":0\r\n"
    assert ask_parsed(broker, client, "JSCAN", "BUSYLOOP", "QUEUE", "other")[1] == []


def test_q02_q23_show_of_a_dummy_ack_has_no_leftovers(broker, client):
    """Unknown fields are nil or empty."""
    with_dummy_ack(broker, client)
    reply = ask_parsed(broker, client, "SHOW", DUMMY_ID)
    fields = dict(zip(reply[::2], reply[1::2], strict=True))
    assert (fields[b"queue"], fields[b"body"], fields[b"nodes-delivered"]) == (None, None, [])
    assert fields[b"state"] == b"acked"


def test_q02_q17_working_is_refused_for_acknowledged_jobs(broker, client):
    """Spec Q17: WORKING returns an error if the job is already acknowledged. A dummy ack counts as acknowledged."""
    with_dummy_ack(broker, client)
    assert ask(broker, client, "WORKING", DUMMY_ID).startswith(b"-NOJOB")
    node = add_node(broker, 3)
    job_id = add(broker, client, "REPLICATE", 1)
    broker.find(job_id).holders = broker.sets.of((broker.me, node))
    ask(broker, client, "ACKJOB", job_id)
    assert broker.find(job_id).state == ACKED
    assert ask(broker, client, "WORKING", job_id).startswith(b"-NOJOB")


def test_q12_a_collection_that_ends_in_its_timer_leaves_no_timer(broker, client):
    """The timer removes the record of an acked job that has no other holder, and does not fire again."""
    node = with_dummy_ack(broker, client)
    broker.membership.forget(node)
    pass_time(broker, 5_000)
    dispatch.tick(broker)
    assert broker.find(DUMMY_ID) is None
    pass_time(broker, 400_000)
    dispatch.tick(broker)
    assert broker.job_count == 0


def test_q31_a_dummy_ack_does_not_wait_for_handshakes(broker, client):
    """A node that is not a member yet can't be asked, so its answer is not needed."""
    node = add_node(broker)
    broker.membership.meet("127.0.0.9", 7711)
    ask(broker, client, "ACKJOB", DUMMY_ID)
    dispatch.receive(broker, node, [[GOTACK, (DUMMY_ID, b"", 0)]])
    assert broker.find(DUMMY_ID) is None


# -- at most once ------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["DEQUEUE", "WORKING"])
def test_q06_administration_does_not_destroy_at_most_once_jobs(broker, client, command):
    """A client can put back an undelivered RETRY 0 job that is out of its queue."""
    job_id = add(broker, client, "RETRY", 0)
    ask(broker, client, command, job_id)
    if broker.find(job_id).state != QUEUED:
        assert ask(broker, client, "ENQUEUE", job_id) == b":1\r\n"
    assert get(broker, client, "q") == [job_id]


def test_q06_a_delivered_one_is_never_queued_again(broker, client):
    """Neither ENQUEUE, NACK nor time puts it back."""
    job_id = add(broker, client, "RETRY", 0)
    assert get(broker, client, "q") == [job_id]
    assert ask(broker, client, "ENQUEUE", job_id) == b":0\r\n"
    assert ask(broker, client, "NACK", job_id) == b":0\r\n"
    pass_time(broker, 3_600_000)
    dispatch.tick(broker)
    assert get(broker, client, "q") == []


# -- memory ------------------------------------------------------------------------------------------


def test_q05_one_attempt_evicts_all_that_is_needed(broker, client):
    """Eviction is not limited to one job per command: 2000 evictable jobs are gone when the next ADDJOB runs."""
    for _ in range(2_000):
        add(broker, client, "RETRY", 0)
    while get(broker, client, "q"):
        pass
    use_memory(broker, 1.2)
    add(broker, client)
    assert broker.used_memory <= broker.settings.maxmemory


def test_q05_jobs_are_refused_at_100_percent_not_at_95(broker, client):
    """OOM means that memory is full."""
    for _ in range(100):
        add(broker, client, body="x" * 1_000)
    use_memory(broker, 0.97)
    add(broker, client, body="x")
    use_memory(broker, 1.01)
    assert ask(broker, client, "ADDJOB", "q", "x", 0).startswith(b"-OOM")


def test_q05_maxmemory_0_means_no_limit(broker, client):
    """It causes neither external replication nor OOM."""
    add(broker, client)
    assert ask(broker, client, "CONFIG", "SET", "maxmemory", 0) == b"+OK\r\n"
    add(broker, client)
    assert broker.memory_level == 0


def test_q05_a_lone_node_accepts_jobs_above_75_percent(broker, client):
    """No other node could store them."""
    add(broker, client, body="x" * 10_000)
    use_memory(broker, 0.8)
    add(broker, client, body="x")


def test_q05_units_that_do_not_exist_are_errors_everywhere(broker, client):
    """`10zb` is an error both in a file and in CONFIG SET."""
    assert ask(broker, client, "CONFIG", "SET", "maxmemory", "10zb").startswith(b"-ERR Invalid argument")
    with pytest.raises(DirectiveError):
        Settings().set_text("maxmemory", ["10zb"], "file")


def test_q05_accounted_bytes_are_the_given_bytes(broker, client):
    """Memory is counted per job and queue, so that percentages of it are meaningful."""
    before = broker.used_memory
    add(broker, client)
    after_queue = broker.used_memory
    add(broker, client, body="x" * 500)
    assert broker.used_memory - after_queue == JOB_BYTES + 500
    ask(broker, client, "DEBUG", "FLUSHALL")
    assert broker.used_memory == before


# -- time --------------------------------------------------------------------------------------------


def test_q09_the_retry_clock_starts_at_delivery(broker, client):
    """A worker that fetches a RETRY 3 job after 2.4 s still has 3 s."""
    job_id = add(broker, client, "RETRY", 3)
    pass_time(broker, 2_400)
    assert get(broker, client, "q") == [job_id]
    pass_time(broker, 2_900)
    dispatch.tick(broker)
    assert broker.find(job_id).state == ACTIVE
    pass_time(broker, 400)
    dispatch.tick(broker)
    assert broker.find(job_id).state == QUEUED


def test_q20_a_job_does_not_wake_the_node_every_millisecond(broker, client):
    """The node wakes up only when a timer is due. Housekeeping is due ten times a second."""
    add(broker, client)
    dispatch.tick(broker)
    assert timers.next_ms(broker) - broker.now_ms >= 90


def test_q26_many_blocked_clients_time_out_when_they_said(broker):
    """The timeout of 60 clients ends after 100 ms, not after a second."""
    clients = [make_client(broker, f"127.0.0.1:{port}") for port in range(60)]
    for each in clients:
        ask(broker, each, "GETJOB", "TIMEOUT", 100, "FROM", "q")
    pass_time(broker, 99)
    dispatch.tick(broker)
    assert broker.waits.blocked_count == 60
    pass_time(broker, 20)
    dispatch.tick(broker)
    assert [b"".join(each.out) for each in clients] == [b"*-1\r\n"] * 60


def test_q37_a_clock_step_moves_no_timer(broker, client):
    """DELAY, RETRY and TTL use the monotonic clock. Wall time is only shown to people."""
    job_id = add(broker, client, "DELAY", 2, "RETRY", 5)
    broker.wall_ms += 600_000
    broker.cluster.wall_ms = broker.wall_ms
    dispatch.tick(broker)
    assert broker.find(job_id).state == ACTIVE
    broker.wall_ms -= 1_200_000
    pass_time(broker, 2_020)
    dispatch.tick(broker)
    assert broker.find(job_id).state == QUEUED


def test_the_ttl_is_exact_to_the_millisecond(broker, client):
    """A job with TTL 1 lives for a second, not for 0.6."""
    job_id = add(broker, client, "TTL", 1)
    pass_time(broker, 990)
    dispatch.tick(broker)
    assert broker.find(job_id) is not None
    pass_time(broker, 30)
    dispatch.tick(broker)
    assert broker.find(job_id) is None


# -- pause -------------------------------------------------------------------------------------------


def test_q14_nothing_is_queued_into_a_paused_queue(broker, client):
    """ENQUEUE is refused, a NACK takes effect when the pause ends, and a hand-over is refused with the reason."""
    job_id = add(broker, client)
    get(broker, client, "q")
    ask(broker, client, "PAUSE", "q", "in")
    assert ask(broker, client, "ENQUEUE", job_id).startswith(b"-PAUSED")
    assert ask(broker, client, "NACK", job_id) == b":1\r\n"
    assert ask(broker, client, "QLEN", "q") == b":0\r\n"
    ask(broker, client, "PAUSE", "q", "none")
    assert ask(broker, client, "QLEN", "q") == b":1\r\n"


# -- federation --------------------------------------------------------------------------------------


def test_q15_needjobs_of_a_node_without_a_link_takes_no_job_out(broker, client):
    """The jobs could not be sent, so they stay in their queue."""
    node = add_node(broker, is_linked=False)
    job_id = add(broker, client, "REPLICATE", 1)
    dispatch.receive(broker, node, [[NEEDJOBS, (b"q", 5, 0)]])
    assert broker.find(job_id).state == QUEUED


@pytest.mark.parametrize("count", [1_000, 1 << 40, 0, -5])
def test_q16_the_count_of_needjobs_is_not_trusted(broker, client, count):
    """One answer carries between one and a hundred jobs."""
    node = add_node(broker)
    for _ in range(300):
        add(broker, client, "REPLICATE", 1)
    broker.outbox.messages.take()
    dispatch.receive(broker, node, [[NEEDJOBS, (b"q", count, 0)]])
    given = [len(item[2]) for _, kind, items in broker.outbox.messages.take() if kind == YOURJOBS for item in items]
    assert 1 <= sum(given) <= 100


def test_q25_gaps_never_shrink(broker, client):
    """The count of attempts does not wrap. After hours without an answer the gap is still the largest."""
    node = add_node(broker)
    queue = broker.queue(b"q")
    queue.adhoc_attempts = 100
    queue.adhoc_at_ms = broker.now_ms
    queue.sources[node] = broker.now_ms
    pass_time(broker, 1_999)
    broker.outbox.messages.take()
    pulls.ask_sources(broker, queue, is_urgent=False)
    assert broker.outbox.messages.take() == []
    pass_time(broker, 2)
    pulls.ask_sources(broker, queue, is_urgent=False)
    assert len(broker.outbox.messages.take()) == 1


# -- ids and numbers -----------------------------------------------------------------------------------


def test_q18_no_character_of_an_id_is_determined_by_another(broker, client):
    """The original repeats bits of the next group. Here ids of one draw share only three characters."""
    ids = [add(broker, client)[14:35] for _ in range(3_000)]
    assert len(set(ids)) == 3_000
    for at in range(20):
        pairs = {job_id[at : at + 2] for job_id in ids}
        assert len(pairs) > 1_900  # 2118 of 4096 are expected. A shared bit would halve that.


@pytest.mark.parametrize("option", ["TTL", "RETRY", "DELAY"])
def test_q19_long_spans_are_kept_whole(broker, client, option):
    """Five million seconds are not truncated to 32 bits."""
    options = {"TTL": 2 * FOREVER_S} | {option: FOREVER_S}
    job_id = add(broker, client, *[word for pair in options.items() for word in pair])
    reply = ask_parsed(broker, client, "SHOW", job_id)
    fields = dict(zip(reply[::2], reply[1::2], strict=True))
    assert fields[option.lower().encode()] == FOREVER_S


def test_q19_spans_beyond_64_bits_of_microseconds_are_refused(broker, client):
    """TTL 99999999999 is accepted. A value that would overflow is an error, so no value wraps."""
    add(broker, client, "TTL", 99_999_999_999)
    assert ask(broker, client, "ADDJOB", "q", "b", 0, "TTL", 1 << 62).startswith(b"-ERR")


def test_q19_counters_stop_at_their_end(broker, client):
    """The 65,536th NACK does not reset the counter."""
    job_id = add(broker, client)
    get(broker, client, "q")
    broker.find(job_id).nacks = 65_535
    ask(broker, client, "NACK", job_id)
    assert broker.find(job_id).nacks == 65_535


# -- what clients see ------------------------------------------------------------------------------------


def test_count_is_honoured_for_as_many_as_there_are(broker, client):
    """GETJOB COUNT 5 returns three jobs immediately if there are three."""
    for _ in range(3):
        add(broker, client)
    assert len(get(broker, client, "q")) == 3


def test_keep_ids_are_simple_strings_in_addjob_and_jscan(broker, client):
    """All other replies with ids use bulk strings."""
    reply = ask(broker, client, "ADDJOB", "q", "body", 0)
    assert reply.startswith(b"+D-")
    assert reply in ask(broker, client, "JSCAN", "BUSYLOOP")


def test_keep_replies_about_missing_jobs_and_queues(broker, client):
    """SHOW of an unknown job is a nil bulk string. QSTAT of an unknown queue is a nil array."""
    assert ask(broker, client, "SHOW", DUMMY_ID) == b"$-1\r\n"
    assert ask(broker, client, "QSTAT", "nothing") == b"*-1\r\n"


def test_keep_count_interleaves_queues(broker, client):
    """Each pass takes one job per queue, from left to right."""
    first = [add(broker, client, queue="q") for _ in range(2)]
    second = [add(broker, client, queue="r") for _ in range(2)]
    assert get(broker, client, "q", "r") == [first[0], second[0], first[1], second[1]]


def test_keep_pause_replaces_the_state(broker, client):
    """PAUSE `in` after `out` gives `in`, not `all`."""
    assert ask(broker, client, "PAUSE", "q", "out") == b"+out\r\n"
    assert ask(broker, client, "PAUSE", "q", "in") == b"+in\r\n"


def test_keep_the_double_blank_in_the_text_about_retry_0(broker, client):
    """Clients match on this text."""
    add_node(broker)
    assert ask(broker, client, "ADDJOB", "q", "b", 0, "RETRY", 0, "REPLICATE", 2) == (
        b"-ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)\r\n"
    )


def test_keep_hello_has_ports_and_priorities_as_bulk(broker, client):
    """Both are numbers, but HELLO sends them as bulk strings."""
    node = ask_parsed(broker, client, "HELLO")[2]
    assert [type(field) for field in node] == [bytes] * 4


def test_keep_empty_and_nul_numbers(broker, client):
    """The empty string is 0, and characters after a NUL are ignored."""
    assert ask(broker, client, "ADDJOB", "q", "b", "").startswith(b"+D-")
    assert ask(broker, client, "ADDJOB", "q", "b", b"10\0rest").startswith(b"+D-")


def test_setack_of_an_unknown_job_is_answered_and_costs_nothing(broker):
    """A node that has no copy, and is not named as a holder, says so and keeps no record."""
    node = add_node(broker)
    dispatch.receive(broker, node, [[SETACK, (DUMMY_ID, node.id)]])
    assert broker.job_count == 0
