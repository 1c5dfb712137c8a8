"""The thread that fetches and settles jobs, against a real node."""

from __future__ import annotations

import gc
import os
import select
import sys
import threading
import time
from contextlib import closing
from datetime import timedelta

import pytest

pytest.importorskip("kombu", reason="the extra celery is not installed")

from client_node import JOB_A, JOB_B, SILENCE, Node, in_turn, jobs_reply
from disque_py import testing
from disque_py.client import Job
from disque_py.client.address import parse_address
from disque_py.client.put_back import REASON
from disque_py.integrations.kombu import courier as courier_module
from disque_py.integrations.kombu.courier import AT_ONCE, GREEN_THREADS, REJECTED, Courier, Feed, new_loop
from disque_py.integrations.kombu.urls import read_options
from waits import eventually


@pytest.fixture
def client(shared_node):
    with shared_node.client() as made:
        yield made


@pytest.fixture
def courier(shared_node):
    made = Courier(read_options([shared_node.url], {"visibility_timeout": 2}))
    yield made
    made.close()


def next_of(courier, seconds=60):
    until = time.monotonic() + seconds
    while not courier.inbox:
        left = until - time.monotonic()
        assert left > 0, "no job came"
        select.select([courier.wake_fd], [], [], left)
        courier.drain_wake()
    return courier.inbox.popleft()


def test_a_feed_fetches_no_more_than_its_limit(client, courier):
    client.add_jobs("limit", ["a", "b", "c"])
    courier.consume(1, ["limit"], 2)
    first = next_of(courier)
    next_of(courier)
    assert client.qlen("limit") == 1
    courier.ack(1, first.tag)
    assert next_of(courier).job.body == b"c"


def test_a_full_feed_does_not_stop_another(client, courier):
    client.add_jobs("full", ["a", "b"])
    courier.consume(1, ["full"], 1)
    next_of(courier)
    client.add_job("other", "x")
    courier.consume(2, ["other"], 1)
    assert next_of(courier).feed == 2


def test_a_lease_lasts_as_long_as_the_job_is_held(client, courier):
    client.add_job("held", "x")
    courier.consume(1, ["held"], 1)
    next_of(courier)
    assert client.get_job("held", timeout_ms=3500) is None


def test_a_lease_outlives_the_node_that_made_the_job_and_gave_it():
    """Another node that has a copy extends the lease."""
    with testing.cluster() as cluster:
        made = Courier(read_options([node.url for node in cluster], {"visibility_timeout": 6}))
        with cluster.client() as client:
            client.add_job("outlives", "x", replicate=3)
        made.consume(1, ["outlives"], 1)
        job = next_of(made).job
        cluster.kill(next(at for at, node in enumerate(cluster) if node.port == job.node.port))
        with cluster.client() as client:
            assert client.get_job("outlives", timeout_ms=15_000) is None
        made.close()


def test_a_job_that_is_given_back_comes_after_its_delay(client, courier):
    client.add_job("back", "x")
    courier.consume(1, ["back"], 1)
    courier.nack(1, next_of(courier).tag, timedelta(seconds=1))
    began = time.monotonic()
    assert next_of(courier).job.nacks == 1
    assert time.monotonic() - began > 0.8


def test_a_closed_courier_gives_back_what_was_not_taken(client, courier):
    """The jobs are queued again without a delay, because the back-off is for failed tasks."""
    client.set_queue("closed", backoff="fixed:60000:60000")
    client.add_jobs("closed", ["a", "b"])
    courier.consume(1, ["closed"], 0)
    eventually(lambda: len(courier.inbox) == 2)
    courier.close()
    assert client.qlen("closed") == 2


def test_an_unknown_tag_is_ignored(courier, client):
    courier.ack(1, "none")
    courier.nack(1, "none")
    client.add_job("after", "x")
    courier.consume(1, ["after"], 1)
    assert next_of(courier).job.body == b"x"


def test_a_forked_child_leaves_the_courier_to_its_parent(client, courier):
    client.add_job("forked", "x")
    courier.consume(1, ["forked"], 1)
    held = next_of(courier)
    child = os.fork()
    if not child:
        courier.ack(1, held.tag)
        courier.close()
        os._exit(0 if not courier.is_ours else 1)
    assert os.waitpid(child, 0)[1] == 0
    courier.nack(1, held.tag)
    assert next_of(courier).job.nacks == 1


def test_a_job_that_was_put_aside_is_taken_before_later_ones(client, courier):
    client.add_jobs("aside", ["a", "b"])
    courier.consume(1, ["aside"], 0)
    eventually(lambda: len(courier.inbox) == 2)
    first = courier.take("aside", aside=False)
    courier.hold(2, "tag", first)
    courier.put_aside(2, "tag", first)
    assert courier.take("aside", aside=True).body == b"a"
    assert courier.take("aside", aside=True) is None
    assert courier.take("aside", aside=False).body == b"b"


def test_jobs_that_were_put_aside_go_back_with_their_feed(client, courier):
    client.add_job("aside-back", "a")
    courier.consume(1, ["aside-back"], 0)
    held = next_of(courier)
    courier.consume(1, [], 0)
    courier.put_aside(1, held.tag, held.job)
    courier.nack_all(1)
    assert client.get_job("aside-back", timeout_ms=60_000).id == held.job.id


def test_messages_that_are_given_back_are_not_handed_over_as_well(client, courier):
    client.add_jobs("twice", ["a", "b"])
    courier.consume(1, ["twice"], 0)
    eventually(lambda: len(courier.inbox) == 2)
    courier.nack_all(1)
    assert [next_of(courier).job.nacks for _ in range(2)] == [1, 1]


def feeds():
    """Return the number of feeds in memory."""
    gc.collect()
    return sum(type(each) is Feed for each in gc.get_objects())


def test_a_feed_ends_with_its_queues_and_its_last_message(client, courier):
    """A connection may open and close any number of channels, so feeds must not pile up."""
    client.add_jobs("feeds", ["x"] * 3)
    before = feeds()
    for number in range(1, 4):
        courier.consume(number, ["feeds"], 1)
        held = next_of(courier)
        courier.consume(number, [], 1)
        courier.ack(number, held.tag)
        courier.nack_all(number)
    eventually(lambda: feeds() <= before)
    assert client.qlen("feeds") == client.qlen("feeds", status="running") == 0


def test_a_channel_that_only_publishes_needs_no_thread(courier):
    known = set(threading.enumerate())
    courier.nack_all(1)
    courier.flush()
    assert set(threading.enumerate()) <= known


def test_threads_may_ask_for_consumers_while_others_come_and_go(courier):
    """While a poll for a result asks for consumers, another thread opens one."""

    class Queue(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other):
            courier.consume(2, ["new"], 1)
            return False

    courier.consume(1, [Queue("mine")], 1)
    assert not courier.consumes("other")


def given_back_to(node, delay):
    """Give a job back to a scripted node. Return the words of the NACKs."""
    courier = Courier(read_options([f"disque://{node.address}"]))
    try:
        courier.hold(1, "tag", Job("q", JOB_A, b"", attempt=2, node=parse_address(node.address)))
        courier.nack(1, "tag", delay)
        courier.flush()
    finally:
        courier.close()
    return [words[1:] for words in node.named("NACK")]


@pytest.mark.parametrize("delay", [AT_ONCE, timedelta(seconds=1), None])
def test_a_node_without_options_of_nack_gets_a_plain_one(delay):
    """So the message is queued again before its lease ends."""
    refuse = lambda words: b":1\r\n" if len(words) == 2 else b"-ERR syntax error: 'REASON'\r\n"  # noqa: E731
    with Node(answers={"NACK": refuse}) as node:
        assert given_back_to(node, delay)[-1] == [JOB_A.encode()]


@pytest.mark.parametrize(("delay", "reason"), [(AT_ONCE, REASON), (timedelta(seconds=1), REJECTED), (None, REJECTED)])
def test_a_message_goes_back_with_a_reason(delay, reason):
    """An attempt is spent, and the job's history has the reason."""
    with Node(answers={"NACK": b":1\r\n"}) as node:
        [words] = given_back_to(node, delay)
        assert words[words.index(b"REASON") + 1] == reason.encode()
        assert words[words.index(b"ATTEMPT") + 1] == b"2"


@pytest.fixture
def patient(monkeypatch):
    """Let acknowledgements wait for others during the whole test."""
    monkeypatch.setattr(courier_module, "LINGER_S", 3600.0)


def held_by(courier, client, queue, count, prefetch):
    """Let a feed fetch a number of jobs. Return their tags."""
    client.add_jobs(queue, ["x"] * count)
    courier.consume(1, [queue], prefetch)
    return [next_of(courier).tag for _ in range(count)]


def test_acknowledgements_wait_for_each_other_and_leave_in_one_command():
    with Node(answers={"ACKJOB": b":3\r\n"}) as node:
        courier = Courier(read_options([f"disque://{node.address}"]))
        ids = [JOB_A[:-6] + f"{at}{JOB_A[-5:]}" for at in range(3)]
        for job_id in ids:
            courier.hold(1, job_id, Job("q", job_id, b"", node=parse_address(node.address)))
        courier.flush()
        for job_id in ids:
            courier.ack(1, job_id)
        courier.close()
    assert [words[1:] for words in node.named("ACKJOB")] == [[job_id.encode() for job_id in ids]]


def test_a_message_under_a_claim_is_acknowledged_alone_with_its_fence():
    """The fence lets any node that gets the command end the claim (spec EX5, EX6)."""
    with Node(answers={"ACKJOB": b":1\r\n"}) as node:
        courier = Courier(read_options([f"disque://{node.address}"]))
        address = parse_address(node.address)
        for job_id, fence in ((JOB_A, None), (JOB_B, 7)):
            courier.hold(1, job_id, Job("q", job_id, b"", node=address, fence=fence))
            courier.ack(1, job_id)
        courier.close()
    assert [words[1:] for words in node.named("ACKJOB")] == [[JOB_A.encode()], [JOB_B.encode(), b"FENCE", b"7"]]


def test_an_acknowledgement_leaves_soon_without_another_call(client, courier):
    [tag] = held_by(courier, client, "alone", 1, 10)
    courier.ack(1, tag)
    eventually(lambda: not client.qlen("alone", status="running"))
    assert client.qlen("alone") == 0  # The lease has not ended, so the job was acknowledged.


def test_acknowledgements_of_half_the_limit_leave_with_the_next_turn_of_the_loop(patient, client, courier):
    tags = held_by(courier, client, "half", 4, 4)
    courier.ack(1, tags[0])
    courier.turn()
    assert client.qlen("half", status="running") == 4
    courier.ack(1, tags[1])
    courier.turn()
    eventually(lambda: client.qlen("half", status="running") == 2)


def test_acknowledgements_leave_when_the_program_waits(patient, client, courier):
    [tag] = held_by(courier, client, "rest", 1, 10)
    courier.ack(1, tag)
    courier.send_now()
    eventually(lambda: not client.qlen("rest", status="running"))
    assert client.qlen("rest") == 0  # The lease has not ended, so the job was acknowledged.


def test_a_closed_courier_has_sent_all_acknowledgements(patient, client, courier):
    tags = held_by(courier, client, "last", 3, 10)
    for tag in tags:
        courier.ack(1, tag)
    courier.close()
    assert client.qlen("last", status="running") == 0


def test_a_message_that_was_acknowledged_is_not_given_back(patient, client, courier):
    """Calls keep their order, even if the first one waits."""
    [tag] = held_by(courier, client, "order", 1, 10)
    courier.ack(1, tag)
    courier.nack_all(1)
    courier.close()
    assert client.qlen("order") == client.qlen("order", status="running") == 0


def acknowledged_by(node):
    """Fetch a job from a scripted node with a prefetch of one, and acknowledge it. Return the courier."""
    courier = Courier(read_options([f"disque://{node.address}"]))
    courier.consume(1, ["q"], 1)
    courier.ack(1, next_of(courier).tag)
    courier.turn()
    return courier


def test_an_acknowledgement_that_makes_room_leaves_before_the_next_getjob():
    with Node(answers={"GETJOB": in_turn(jobs_reply(JOB_A), jobs_reply(JOB_B)), "ACKJOB": b":1\r\n"}) as node:
        courier = acknowledged_by(node)
        next_of(courier)
        courier.close()
    names = [words[0] for words in node.commands if words[0] != b"PING"]
    assert names[:3] == [b"GETJOB", b"ACKJOB", b"GETJOB"]
    assert [words[1:] for words in node.named("ACKJOB")] == [[JOB_A.encode()]]


@pytest.mark.parametrize("refusal", [b"-LOADING\r\n", b"-ERR odd\r\n"])
def test_a_refused_acknowledgement_is_sent_again(refusal):
    with Node(answers={"GETJOB": in_turn(jobs_reply(JOB_A), SILENCE), "ACKJOB": in_turn(refusal, b":1\r\n")}) as node:
        courier = acknowledged_by(node)
        eventually(lambda: len(node.named("ACKJOB")) == 2)
        courier.close()
    assert [words[1:] for words in node.named("ACKJOB")] == [[JOB_A.encode()]] * 2


def test_an_acknowledgement_of_a_broken_connection_is_sent_again():
    with Node(answers={"GETJOB": in_turn(jobs_reply(JOB_A), SILENCE), "ACKJOB": in_turn(SILENCE, b":1\r\n")}) as node:
        courier = acknowledged_by(node)
        eventually(lambda: node.named("ACKJOB"))
        node.drop()
        eventually(lambda: len(node.named("ACKJOB")) == 2)
        courier.close()


def test_an_acknowledgement_of_a_consumer_that_was_canceled_is_sent(patient, client, courier):
    [tag] = held_by(courier, client, "canceled", 1, 1)
    courier.ack(1, tag)
    courier.consume(1, [], 1)
    eventually(lambda: not client.qlen("canceled", status="running"))
    assert client.qlen("canceled") == 0  # The lease has not ended, so the job was acknowledged.


def test_an_acknowledgement_after_the_end_of_its_consumer_is_sent(client, courier):
    """A full feed sends acknowledgements with its next GETJOB. After the end of the consumer there is none."""
    [tag] = held_by(courier, client, "ended", 1, 1)
    client.add_job("ended", "left")
    courier.consume(1, [], 1)
    courier.nack(1, "none")
    courier.flush()
    courier.ack(1, tag)
    eventually(lambda: not client.qlen("ended", status="running"))
    assert client.qlen("ended") == 1


def settled_by(node, settle):
    """Hold two messages of a scripted node, and let `settle` end each of them. Return the courier."""
    courier = Courier(read_options([f"disque://{node.address}"]))
    for job_id in (JOB_A, JOB_B):
        courier.hold(1, job_id, Job("q", job_id, b"", node=parse_address(node.address)))
        settle(courier, job_id)
    return courier


def refuse_a(words):
    return b"-BADID odd\r\n" if JOB_A.encode() in words else b":1\r\n"


@pytest.mark.parametrize(
    ("name", "settle"),
    [
        ("ACKJOB", lambda courier, job_id: courier.ack(1, job_id)),
        ("NACK", lambda courier, job_id: courier.nack(1, job_id, AT_ONCE)),
    ],
)
def test_a_refused_message_does_not_stop_the_others_of_its_command(name, settle, caplog):
    """The others are settled, and do not come again after their leases. The refused one is not sent for ever."""
    with Node(answers={name: refuse_a}) as node:
        settled_by(node, settle).close()
    alone = [words for words in node.named(name) if not {JOB_A.encode(), JOB_B.encode()} <= set(words)]
    assert [words[1] for words in alone if JOB_B.encode() in words] == [JOB_B.encode()]
    assert [each.args[0] for each in caplog.records if "can't be settled" in each.message] == [JOB_A]


def test_an_outage_after_a_refusal_keeps_the_acknowledgements():
    answers = in_turn(b"-BADID odd\r\n", b"-LOADING\r\n", b"-BADID odd\r\n", b":1\r\n")
    with Node(answers={"ACKJOB": answers}) as node:
        courier = settled_by(node, lambda courier, job_id: courier.ack(1, job_id))
        courier.send_now()
        eventually(lambda: [b"ACKJOB", JOB_B.encode()] in node.commands)
        courier.close()


def test_threads_that_need_the_courier_at_the_same_moment_start_one_loop(monkeypatch, courier):
    """A second loop would fetch jobs that nothing hands over, and would never end."""
    made = []

    def slow_loop():
        time.sleep(0.1)
        made.append(new_loop())
        return made[-1]

    monkeypatch.setattr(courier_module, "new_loop", slow_loop)
    calls = (courier.consume, 1, ["start"], 1), (courier.ack, 1, "tag")
    threads = [threading.Thread(target=call, args=words) for call, *words in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_a_courier_that_is_closed_while_it_starts_leaves_no_thread(monkeypatch, courier):
    def close_meanwhile():
        closing.start()
        time.sleep(0.1)
        return new_loop()

    known = set(threading.enumerate())
    closing = threading.Thread(target=courier.close)
    monkeypatch.setattr(courier_module, "new_loop", close_meanwhile)
    courier.consume(1, ["start"], 1)
    closing.join()
    assert set(threading.enumerate()) <= known


def test_a_call_that_meets_the_end_of_the_courier_does_nothing(monkeypatch, courier):
    """Another thread may close the courier between the start of its loop and the call in the loop."""
    start = courier._start

    def start_and_close():
        loop = start()
        courier.close()
        return loop

    monkeypatch.setattr(courier, "_start", start_and_close)
    courier.consume(1, ["start"], 1)
    assert not courier.is_ours


@pytest.mark.parametrize("library", sorted(GREEN_THREADS))
def test_green_threads_get_the_event_loop_that_they_can_switch(monkeypatch, library):
    with closing(new_loop()) as loop:
        assert type(loop).__module__.startswith("uvloop")
    monkeypatch.setitem(sys.modules, library, sys)
    with closing(new_loop()) as loop:
        assert type(loop).__module__.startswith("asyncio")


def test_an_acknowledgement_under_a_claim_names_it(client, courier, monkeypatch):
    """Each claim has its own fence. So such acknowledgements don't leave in one command along with a GETJOB."""
    client.set_queue("claimed", assign="quorum")
    client.add_jobs("claimed", ["a", "b", "c"])
    along = []
    ack = courier_module.commands.ack
    monkeypatch.setattr(courier_module.commands, "ack", lambda *jobs: along.append(jobs) or ack(*jobs))
    courier.consume(1, ["claimed"], 3)
    for delivery in [next_of(courier) for _ in range(3)]:
        assert delivery.job.fence
        courier.ack(1, delivery.tag)
    eventually(lambda: client.qstat("claimed").running == 0)
    assert along == []


def test_a_courier_that_a_garbage_collection_closes_in_its_own_thread_ends(client, courier):
    client.add_job("forgotten", "a")
    courier.consume(1, ["forgotten"], 1)
    courier.ack(1, next_of(courier).tag)
    thread, began = courier._thread, time.monotonic()
    courier._loop.call_soon_threadsafe(courier.close)
    thread.join(60)
    assert time.monotonic() - began < 3
    assert client.qstat("forgotten", cluster=True).running == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(courier.wake_fd)
