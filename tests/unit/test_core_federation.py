"""core/federation.py: jobs travel to consumers, and none is lost or delivered twice on the way."""

from __future__ import annotations

from itertools import pairwise

import pytest

from brokers import add_node, ask, ask_parsed, make_broker, make_client, pass_time
from cluster_bus.messages import (
    HINT,
    NEEDJOBS,
    REFUSED_BUSY,
    REFUSED_DONE,
    REFUSED_LEAVING,
    SETACK,
    SETTLED,
    TOOK,
    YOURJOBS,
)
from cluster_bus.node import FORGOTTEN
from copies import advance, deliver, hold, hold_queued, image, make_id, make_job, pack, queue_of, say, sent, sent_of
from disque_py import inputs
from disque_py.core import acks, federation
from disque_py.core.federation import REFUSED_MS, REST_MS, TAKEN, exchange
from disque_py.core.image import image_of
from disque_py.core.job import ACKED, ACTIVE, GONE, QUEUED, Handover
from world import World

TOOK_IT = bytes([TAKEN])


def make_pair():
    broker = make_broker()
    return broker, add_node(broker)


def fill(broker, count, **fields):
    return [hold_queued(broker, number=number, **fields) for number in range(count)]


def pull(broker, node, count=100, *, flags=0):
    """The node asks for jobs of `q`; ids that go, and the number of their hand-over."""
    say(broker, node, NEEDJOBS, (b"q", count, flags))
    found = sent_of(broker, YOURJOBS)
    if not found:
        return [], 0
    ((receivers, (number, _, images)),) = found
    assert receivers == (node,)
    return [each[0] for each in images], number


def give_one(*, retry_s=30):
    """A job of ours is being handed over to the node."""
    broker, node = make_pair()
    (job,) = fill(broker, 1, retry_s=retry_s)
    ids, number = pull(broker, node)
    assert (ids, number) == ([job.id], 1)
    return broker, node, job


# -- giving -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "asked", "given"), [(1, 5, 1), (2, 5, 1), (3, 5, 1), (9, 5, 4), (10, 5, 5), (300, 1000, 100), (8, 0, 1)]
)
def test_a_pull_gets_what_it_asks_for_but_at_most_half_the_queue(length, asked, given):
    """And never more than a hundred at once: a larger count crashed the original (quirks Q16)."""
    broker, node = make_pair()
    jobs = fill(broker, length)
    ids, _ = pull(broker, node, asked)
    assert ids == [job.id for job in jobs[:given]]
    assert broker.queues[b"q"].length == length - given


def test_a_batch_is_bounded_in_bytes():
    broker, node = make_pair()
    fill(broker, 20, body=b"x" * 100_000)
    assert len(pull(broker, node, 10)[0]) == 3


def test_nothing_of_a_queue_is_offered_for_a_second_to_who_refused_it():
    broker, node = make_pair()
    broker.interest[b"q"] = {node: 5}
    fill(broker, 5)
    inputs.settle(broker)
    pull(broker, node, 1, flags=federation.ANSWERS_HINT)
    say(broker, node, TOOK, (1, bytes([REFUSED_LEAVING])))
    sent(broker)
    advance(broker, REFUSED_MS - 10)
    assert sent_of(broker, HINT) == []
    advance(broker, 30)
    assert {nodes for nodes, _ in sent_of(broker, HINT)} == {(node,)}


@pytest.mark.parametrize("reason", ["paused", "empty", "unknown", "unlinked", "imports"])
def test_a_pull_may_get_nothing(reason):
    broker, node = make_pair()
    if reason != "unknown":
        fill(broker, 0 if reason == "empty" else 5)
    if reason == "paused":
        ask(broker, make_client(broker), "PAUSE", "q", "out")
    elif reason == "unlinked":
        node.is_linked = False
    elif reason == "imports":
        federation.imported(broker, broker.queues[b"q"], node)
    assert pull(broker, node) == ([], 0)


def test_a_pull_that_answers_a_hint_is_served_whatever_the_import_rate():
    broker, node = make_pair()
    fill(broker, 5)
    federation.imported(broker, broker.queues[b"q"], node)
    assert len(pull(broker, node, 2, flags=federation.ANSWERS_HINT)[0]) == 2


def test_a_job_just_imported_is_not_passed_on():
    """Two hungry nodes must not throw it to and fro."""
    broker, node = make_pair()
    other = add_node(broker, 3)
    say(broker, node, YOURJOBS, (1, 0, [image(broker, node)]))
    assert pull(broker, other, flags=federation.ANSWERS_HINT) == ([], 0)
    assert queue_of(broker) == [make_id()]
    pass_time(broker, REST_MS)
    assert pull(broker, other, flags=federation.ANSWERS_HINT)[0] == [make_id()]


def test_a_job_that_came_of_age_is_hinted_at():
    broker, node = make_pair()
    other = add_node(broker, 3)
    broker.interest[b"q"] = {other: 1}
    say(broker, node, YOURJOBS, (1, 0, [image(broker, node)]))
    pull(broker, other, flags=federation.ANSWERS_HINT)
    inputs.settle(broker)
    sent(broker)
    advance(broker, REST_MS + 20)
    assert (other,) in [nodes for nodes, _ in sent_of(broker, HINT)]


def test_a_retried_job_stays_as_a_copy_whose_other_holder_the_taker_is():
    broker, node, job = give_one()
    assert (job.state, job.holders) == (ACTIVE, {broker.me, node})
    assert isinstance(job.work, Handover)
    say(broker, node, TOOK, (1, TOOK_IT))
    assert (job.state, job.work) == (ACTIVE, None)
    assert abs(job.requeue_at_ms - broker.now_ms - 30_000) <= 250
    assert broker.stats.jobs_exported == 1


def test_an_at_most_once_job_is_kept_until_it_is_taken_and_then_forgotten():
    broker, node, job = give_one(retry_s=0)
    assert broker.find(job.id) is job
    say(broker, node, TOOK, (1, TOOK_IT))
    assert broker.find(job.id) is None


def test_a_given_at_most_once_job_names_nobody_but_its_taker():
    broker, node = make_pair()
    fill(broker, 1, retry_s=0)
    say(broker, node, NEEDJOBS, (b"q", 1, 0))
    ((_, (_, _, (job_image,))),) = sent_of(broker, YOURJOBS)
    assert job_image[4] == pack(node)


@pytest.mark.parametrize("retry_s", [0, 30])
def test_a_refused_job_is_in_its_queue_again_as_if_it_had_never_left(retry_s):
    broker, node, job = give_one(retry_s=retry_s)
    say(broker, node, TOOK, (1, bytes([REFUSED_LEAVING])))
    assert queue_of(broker) == [job.id]
    assert (job.work, broker.queues[b"q"].jobs_in) == (None, 1)


def test_a_refused_job_is_owed_to_others_that_wait():
    """A hint is owed while there are jobs that a linked node has clients for (semantics.md, section 9)."""
    broker, node, _ = give_one()
    other = add_node(broker, 3)
    broker.interest[b"q"] = broker.queues[b"q"].interested = {other: 1}
    advance(broker, 50)
    sent(broker)
    say(broker, node, TOOK, (1, bytes([REFUSED_LEAVING])))
    advance(broker, REFUSED_MS + 20)
    assert (other,) in [nodes for nodes, _ in sent_of(broker, HINT)]


def test_a_job_that_the_taker_knows_as_done_waits_for_the_ack_that_follows():
    broker, node, job = give_one()
    say(broker, node, TOOK, (1, bytes([REFUSED_DONE])))
    assert (job.state, queue_of(broker)) == (ACTIVE, [])
    say(broker, node, SETACK, (job.id, pack(broker.me, node)))
    assert job.state == ACKED


def test_answers_are_per_job():
    broker, node = make_pair()
    one, two, *_ = fill(broker, 4)
    pull(broker, node, 2)
    say(broker, node, TOOK, (1, bytes([REFUSED_BUSY, TAKEN])))
    assert one.id in queue_of(broker)
    assert two.state == ACTIVE


def test_what_is_not_answered_is_sent_again_each_second_under_its_number():
    broker, node, job = give_one()
    for _ in range(3):
        advance(broker, 1010)
        ((_, (number, _, images)),) = sent_of(broker, YOURJOBS)
        assert (number, images[0][0]) == (1, job.id)
    say(broker, node, TOOK, (1, TOOK_IT))
    advance(broker, 3000)
    assert sent_of(broker, YOURJOBS) == []


def test_a_new_link_of_the_same_process_is_asked_at_once():
    broker, node, job = give_one()
    inputs.link_up(broker, node)
    advance(broker, 5)
    ((receivers, (number, _, images)),) = sent_of(broker, YOURJOBS)
    assert (receivers, number, images[0][0]) == ((node,), 1, job.id)


def test_a_job_done_meanwhile_is_no_longer_offered():
    broker, node, job = give_one()
    say(broker, node, SETACK, (job.id, pack(broker.me, node)))
    sent(broker)
    advance(broker, 1010)
    ((_, (_, _, images)),) = sent_of(broker, YOURJOBS)
    assert images == [None]
    say(broker, node, TOOK, (1, bytes([REFUSED_DONE])))
    assert job.state == ACKED


def test_an_answer_to_a_hand_over_that_is_over_is_ignored():
    broker, node, job = give_one()
    say(broker, node, TOOK, (1, TOOK_IT), (1, bytes([REFUSED_BUSY])), (77, TOOK_IT))
    assert job.state == ACTIVE
    assert broker.stats.reject_reasons == {"answer to a hand-over that is over": 2}


def test_the_taker_hears_what_is_settled_with_the_next_hand_over_or_after_a_second():
    broker, node = make_pair()
    fill(broker, 8)
    pull(broker, node, 1)
    say(broker, node, TOOK, (1, TOOK_IT))
    say(broker, node, NEEDJOBS, (b"q", 1, 0))
    ((_, (number, settled, _)),) = sent_of(broker, YOURJOBS)
    assert (number, settled) == (2, 1)
    say(broker, node, TOOK, (2, TOOK_IT))
    advance(broker, 1100)
    assert sent_of(broker, SETTLED) == [((node,), 2)]
    advance(broker, 5000)
    assert sent_of(broker, SETTLED) == []


def test_a_retried_job_is_requeued_by_its_retry_whatever_the_hand_overs_state():
    broker, node = make_pair()
    (job,) = fill(broker, 1, retry_s=5)
    pull(broker, node)
    advance(broker, 6000)
    assert job.state == QUEUED
    say(broker, node, TOOK, (1, TOOK_IT))
    assert queue_of(broker) == [job.id]


@pytest.mark.parametrize("event", [inputs.new_run, inputs.forgotten])
def test_when_the_taker_is_another_process_or_forgotten_the_hand_over_is_over(event):
    """At most once prefers loss; retried jobs wait for their retry."""
    broker, node = make_pair()
    once, retried = hold_queued(broker, number=1, retry_s=0), hold_queued(broker, number=2, retry_s=5)
    for _ in range(2):
        pull(broker, node, 1)
    assert len(exchange(node).pending) == 2
    event(broker, node)
    assert (once.state, retried.state, retried.work) == (GONE, ACTIVE, None)
    assert broker.stats.once_lost_in_handover == 1
    assert exchange(node).pending == {}
    say(broker, node, TOOK, (1, bytes([REFUSED_BUSY])))
    advance(broker, 6000)
    assert queue_of(broker) == [retried.id]


@pytest.mark.parametrize("event", [inputs.new_run, inputs.forgotten])
def test_a_number_is_never_used_again(event):
    """Whatever happens to the node: it may remember its answer to the old one."""
    broker, node = make_pair()
    fill(broker, 8)
    assert [pull(broker, node, 1)[1] for _ in range(2)] == [1, 2]
    event(broker, node)
    assert pull(broker, node, 1)[1] == 3


def test_answers_to_another_process_are_forgotten_and_to_a_forgotten_node_are_not():
    """Numbers hold for the giver's run; after FORGET and MEET the same process may ask again."""
    broker, node = make_pair()
    job_image = image(broker, node, retry_s=0)
    take(broker, node, job_image)
    inputs.forgotten(broker, node)
    deliver(broker)
    assert take(broker, node, job_image) == TAKEN
    assert queue_of(broker) == []
    node.run = b"another!"
    inputs.new_run(broker, node)
    assert exchange(node).answers == {}
    assert take(broker, node, image(broker, node, number=7)) == TAKEN


# -- taking -----------------------------------------------------------------------------------------------


def take(broker, node, job_image, number=1, settled=0):
    """YOURJOBS with one job; our answer."""
    say(broker, node, YOURJOBS, (number, settled, [job_image]))
    ((receivers, (answered, answers)),) = sent_of(broker, TOOK)
    assert (receivers, answered, len(answers)) == ((node,), number, 1)
    return answers[0]


def test_a_job_is_taken_queued_and_we_join_its_holders():
    """The original's receiver did not, so an ack stayed local (quirks Q1)."""
    broker, node = make_pair()
    assert take(broker, node, image(broker, node)) == TAKEN
    job = broker.find(make_id())
    assert (job.state, job.holders) == (QUEUED, {broker.me, node})
    assert (broker.stats.jobs_imported, list(broker.queues[b"q"].sources)) == (1, [node])


def test_the_same_number_is_answered_the_same_and_nothing_is_done_again():
    broker, node = make_pair()
    job_image = image(broker, node, retry_s=0)
    assert take(broker, node, job_image) == TAKEN
    deliver(broker)
    assert take(broker, node, job_image) == TAKEN
    assert queue_of(broker) == []


def test_an_answer_is_remembered_until_its_number_is_settled():
    broker, node = make_pair()
    for number in range(1, 4):
        take(broker, node, image(broker, node, number=number), number)
    assert list(exchange(node).answers) == [1, 2, 3]
    say(broker, node, SETTLED, 2)
    assert list(exchange(node).answers) == [3]
    take(broker, node, image(broker, node, number=4), 4, settled=3)
    assert list(exchange(node).answers) == [4]


def test_a_settled_number_that_comes_late_is_not_taken_again():
    broker, node = make_pair()
    job_image = image(broker, node, retry_s=0)
    take(broker, node, job_image)
    deliver(broker)
    ask(broker, make_client(broker), "DELJOB", make_id(retry_s=0))
    say(broker, node, SETTLED, 1)
    say(broker, node, YOURJOBS, (1, 0, [job_image]))
    assert (sent(broker), broker.job_count) == ([], 0)


@pytest.mark.parametrize("is_known_as_done", [True, False])
def test_a_job_that_is_done_is_refused_and_its_ack_follows(is_known_as_done):
    broker, node = make_pair()
    if is_known_as_done:
        broker.done.add(make_id(), broker.now_ms)
    else:
        acks.acknowledge(broker, hold(broker, node))
    say(broker, node, YOURJOBS, (1, 0, [image(broker, node)]))
    messages = {kind: item for _, kind, item in sent(broker)}
    assert messages[TOOK] == (1, bytes([REFUSED_DONE]))
    assert messages[SETACK][0] == make_id()
    assert broker.find(make_id()).state == ACKED


def test_a_job_whose_producer_still_waits_here_is_refused():
    """Queueing it would answer nobody (quirks Q7)."""
    broker, node = make_pair()
    ask(broker, make_client(broker), "ADDJOB", "q", "body", 0, "REPLICATE", 2)
    (job,) = broker.waiting_repl
    sent(broker)
    assert take(broker, node, image_of(broker, job)) == REFUSED_BUSY


def test_a_leaving_node_takes_nothing():
    broker, node = make_pair()
    broker.cluster.set_leaving(True)
    assert take(broker, node, image(broker, node)) == REFUSED_LEAVING
    assert broker.job_count == 0


def test_a_copy_we_hold_is_queued_when_it_is_given_to_us():
    broker, node = make_pair()
    job = hold(broker, node)
    assert take(broker, node, image_of(broker, job)) == TAKEN
    assert queue_of(broker) == [job.id]


def test_a_job_already_queued_here_stays_queued_once():
    broker, node = make_pair()
    job = hold_queued(broker, node)
    assert take(broker, node, image_of(broker, job)) == TAKEN
    assert queue_of(broker) == [job.id]


def test_a_job_with_a_consumer_of_ours_is_taken_and_not_queued():
    """The giver had not heard of the delivery."""
    broker, node = make_pair()
    hold_queued(broker, node)
    job = deliver(broker)
    assert take(broker, node, image_of(broker, job)) == TAKEN
    assert (job.state, job.is_leased_here, queue_of(broker)) == (ACTIVE, True, [])


def test_an_at_most_once_job_that_we_delivered_is_never_queued_again():
    broker, node = make_pair()
    hold_queued(broker, retry_s=0)
    job = deliver(broker)
    assert take(broker, node, image(broker, node, retry_s=0)) == TAKEN
    assert (job.state, queue_of(broker)) == (ACTIVE, [])


def test_a_job_that_comes_back_from_where_we_gave_it_was_taken():
    """That hand-over is over, and the job is taken anew (semantics.md, section 4)."""
    broker, node, job = give_one(retry_s=0)
    assert take(broker, node, image_of(broker, job)) == TAKEN
    assert queue_of(broker) == [job.id]
    say(broker, node, TOOK, (1, TOOK_IT))
    assert queue_of(broker) == [job.id]


def test_a_producer_is_answered_when_its_job_comes_back():
    """It had been taken there: that is what the producer waits to hear. The answer itself was lost with a link."""
    broker, node, producer, job = start_once()
    broker.cluster.set_leaving(False)
    say(broker, node, YOURJOBS, (1, 0, [image_of(broker, job)]))
    assert producer.out == [b"+%b\r\n" % job.id]


def test_a_delayed_job_is_queued_by_its_taker_after_the_delay():
    broker, node = make_pair()
    job_image = (*image(broker, node, retry_s=0, delay_s=5), 3000)
    assert take(broker, node, job_image) == TAKEN
    job = broker.find(make_id(retry_s=0))
    assert (job.state, job.requeue_at_ms - broker.now_ms) == (ACTIVE, 3000)
    advance(broker, 3050)
    assert job.state == QUEUED


def test_the_first_queueing_of_a_delayed_job_is_no_additional_delivery():
    broker, node = make_pair()
    take(broker, node, (*image(broker, node, retry_s=0, delay_s=5), 3000))
    advance(broker, 3050)
    assert broker.find(make_id(retry_s=0)).deliveries == 0


def test_a_job_deleted_here_may_come_back_while_its_old_entry_lies_in_the_queue():
    """DELJOB here, a copy elsewhere, and a consumer here again: the entries have the same age and id."""
    broker, node = make_pair()
    job, later = fill(broker, 2)
    copy = image_of(broker, job)
    client = make_client(broker)
    ask(broker, client, "DELJOB", job.id)
    assert take(broker, node, copy) == TAKEN
    assert [entry[1] for entry in ask_parsed(broker, client, "QPEEK", "q", 10)] == [job.id, later.id]


# -- the import rate ----------------------------------------------------------------------------------------


def test_one_first_job_reads_as_twenty_per_second():
    broker, node = make_pair()
    queue = broker.queue(b"q")
    assert federation.import_rate(broker, queue) == 0
    federation.imported(broker, queue, node)
    assert federation.import_rate(broker, queue) == 20


def test_the_rate_is_that_of_the_last_two_buckets():
    broker, node = make_pair()
    queue = broker.queue(b"q")
    for _ in range(30):
        federation.imported(broker, queue, node)
        pass_time(broker, 100)
    assert 9 <= federation.import_rate(broker, queue) <= 11


def test_after_five_seconds_of_silence_the_rate_is_zero():
    broker, node = make_pair()
    queue = broker.queue(b"q")
    federation.imported(broker, queue, node)
    pass_time(broker, federation.RATE_WINDOW_MS)
    assert federation.import_rate(broker, queue) > 0
    pass_time(broker, 1)
    assert federation.import_rate(broker, queue) == 0


# -- asking -------------------------------------------------------------------------------------------------


def wait(broker):
    client = make_client(broker)
    assert ask(broker, client, "GETJOB", "FROM", "q") == b""
    return client


def test_nodes_that_lately_had_jobs_are_asked_first_with_growing_gaps():
    broker, node = make_pair()
    queue = broker.queue(b"q")
    federation.imported(broker, queue, node)
    queue.broadcast_at_ms = broker.now_ms
    moments = []
    for _ in range(1000):
        federation.ask_sources(broker, queue, is_urgent=False)
        if sent_of(broker, NEEDJOBS):
            moments.append(broker.now_ms)
        pass_time(broker, 1)
    gaps = [after - before for before, after in pairwise(moments)]
    assert gaps == [50, 100, 200, 400]


def test_an_imported_job_makes_the_gap_short_again():
    broker, node = make_pair()
    queue = broker.queue(b"q")
    queue.adhoc_attempts = 6
    federation.imported(broker, queue, node)
    assert queue.adhoc_attempts == 0


def test_a_source_that_had_nothing_for_five_seconds_is_none():
    broker, node = make_pair()
    queue = broker.queue(b"q")
    federation.imported(broker, queue, node)
    pass_time(broker, federation.RESPONDER_MS + 1)
    federation.ask_sources(broker, queue, is_urgent=True)
    assert sent_of(broker, NEEDJOBS) == []
    assert queue.sources == {}


def test_a_queue_that_ran_dry_under_load_asks_at_once():
    broker, node = make_pair()
    take(broker, node, image(broker, node))
    sent(broker)
    ask(broker, make_client(broker), "GETJOB", "FROM", "q")
    assert sent_of(broker, NEEDJOBS) == []  # One job is no stream.
    queue = broker.queue(b"q")
    for _ in range(federation.IMPORTS_MIN):
        federation.imported(broker, queue, node)
    pass_time(broker, 10)
    take(broker, node, image(broker, node, number=1))
    sent(broker)
    ask(broker, make_client(broker), "GETJOB", "FROM", "q")
    assert sent_of(broker, NEEDJOBS)[0][1] == (b"q", 100, 0)


def test_how_much_is_asked_for_is_the_share_of_the_rate_between_5_and_100():
    broker, node = make_pair()
    queue = broker.queue(b"q")
    assert federation.ask_count(broker, queue) == 5
    for _ in range(100):
        federation.imported(broker, queue, node)
    pass_time(broker, 1000)
    assert federation.ask_count(broker, queue) == 100
    federation.imported(broker, queue, add_node(broker, 3))
    assert 45 <= federation.ask_count(broker, queue) <= 55


@pytest.mark.parametrize("reason", ["leaving", "paused"])
def test_who_would_not_take_jobs_asks_for_none(reason):
    broker, node = make_pair()
    queue = broker.queue(b"q")
    federation.imported(broker, queue, node)
    if reason == "leaving":
        broker.cluster.set_leaving(True)
    else:
        queue.paused = 1
    queue.waiting[make_client(broker)] = None
    federation.ask_sources(broker, queue, is_urgent=True)
    federation.ask_everybody(broker, queue)
    assert sent_of(broker, NEEDJOBS) == []


def test_everybody_is_asked_when_the_first_client_waits():
    broker, node = make_pair()
    wait(broker)
    assert sent_of(broker, NEEDJOBS) == [((node,), (b"q", 1, 0))]
    wait(broker)
    assert sent_of(broker, NEEDJOBS) == []


# -- at-most-once jobs of which we keep no copy ---------------------------------------------------------------


def start_once(*, count=1, timeout_ms=0, delay_s=0):
    """We leave; a producer adds an at-most-once job."""
    broker = make_broker()
    nodes = [add_node(broker, number) for number in range(2, 2 + count)]
    broker.cluster.set_leaving(True)
    producer = make_client(broker)
    words = ("ADDJOB", "q", "body", timeout_ms, "RETRY", 0, "DELAY", delay_s)
    assert ask(broker, producer, *words) == b""
    (job,) = [job for shard in broker.shards for job in shard.values()]
    return broker, nodes[0], producer, job


def test_it_is_answered_when_it_has_been_taken():
    """The original answered, and the job was never delivered (quirks Q3, Q39)."""
    broker, node, producer, job = start_once(delay_s=2)
    ((_, (number, _, (job_image,))),) = sent_of(broker, YOURJOBS)
    assert job_image[4:] == (pack(node), 2000)
    assert producer.out == []
    say(broker, node, TOOK, (number, TOOK_IT))
    assert producer.out == [b"+%b\r\n" % job.id]
    assert (broker.job_count, broker.blocked_count, broker.stats.jobs_added) == (0, 0, 1)


def test_refused_by_one_it_goes_to_another_and_at_last_back_to_the_producer():
    broker, _, producer, job = start_once(count=2)
    asked = []
    for _ in range(2):
        (((node,), (number, *_)),) = sent_of(broker, YOURJOBS)
        asked.append(node)
        assert producer.out == []
        say(broker, node, TOOK, (number, bytes([REFUSED_LEAVING])))
    assert len(set(asked)) == 2
    assert producer.out[0].startswith(b"-NOREPL")
    assert (job.state, broker.job_count, broker.blocked_count) == (GONE, 0, 0)


def test_its_time_out_is_kept():
    broker, _, producer, _ = start_once(timeout_ms=500)
    advance(broker, 490)
    assert producer.out == []
    advance(broker, 30)
    assert producer.out == [b"-NOREPL Timeout reached before replicating to the requested number of nodes\r\n"]
    assert (broker.job_count, broker.blocked_count) == (0, 0)


def test_without_its_producer_it_is_a_job_like_any_other():
    """It may be taken already."""
    broker, node, producer, job = start_once()
    inputs.disconnect(broker, producer)
    assert broker.blocked_count == 0
    say(broker, node, TOOK, (1, bytes([REFUSED_LEAVING])))
    assert queue_of(broker) == [job.id]


def test_when_the_taker_dies_it_is_not_given_to_another_process():
    """It may have been delivered there. The producer hears that it could not be placed, or it goes elsewhere."""
    broker, node, producer, job = start_once()
    sent(broker)
    node.flags |= FORGOTTEN
    broker.cluster.usable = ()
    inputs.forgotten(broker, node)
    assert producer.out[0].startswith(b"-NOREPL")
    assert job.state == GONE


# -- stories ----------------------------------------------------------------------------------------------


def test_a_job_finds_the_consumer_on_another_node_in_three_hops():
    world = World("abc")
    world.join()
    consumer = world.client("c")
    consumer.say("GETJOB", "FROM", "q")
    world.run(60_000)
    started_ms = world.now_ms
    job_id = world.ask("a", "ADDJOB", "q", "body", 0, "REPLICATE", 1)
    world.until(lambda: consumer.replies, 1000)
    assert consumer.replies == [[[b"q", job_id, b"body"]]]
    assert world.now_ms - started_ms <= 5


def test_a_lost_hand_over_costs_a_second():
    world = World("ab")
    world.join()
    world.drop = lambda sender, receiver, kind, item: kind == YOURJOBS
    consumer = world.client("b")
    consumer.say("GETJOB", "FROM", "q")
    world.run(100)
    world.ask("a", "ADDJOB", "q", "body", 0, "RETRY", 0)
    world.run(500)
    world.drop = None
    world.run(700)
    assert len(consumer.replies) == 1


def test_a_lost_answer_delivers_nothing_twice():
    world = World("ab")
    world.join()
    world.drop = lambda sender, receiver, kind, item: kind == TOOK
    consumer = world.client("b")
    consumer.say("GETJOB", "FROM", "q")
    world.run(100)
    world.ask("a", "ADDJOB", "q", "body", 0, "RETRY", 0)
    world.run(4_500)
    assert len(consumer.replies) == 1
    consumer.say("GETJOB", "NOHANG", "FROM", "q")
    world.drop = None
    world.run(3_000)
    assert consumer.replies[1] is None
    assert world["a"].job_count == 0


def test_make_job_is_what_image_sends():
    """The helper of these tests: one and the same job."""
    broker, node = make_pair()
    assert image(broker, node) == image_of(broker, make_job(broker, node, is_mine=False))
