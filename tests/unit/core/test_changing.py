"""core/changing.py: the changeable part of a job, errored jobs and dead letters, on all holders and after restarts."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, ask_parsed, make_broker, make_client
from cluster_bus.messages import (
    ASKCHANGED,
    CHANGED,
    HOLDERS,
    LEASED,
    QUEUED,
    QUEUED_WAITING,
    REPLJOB,
    WILLQUEUE,
    YOURJOBS,
)
from copies import advance, deliver, hold, hold_queued, make_id, make_job, queue_of, say, sent, sent_of
from disque_py.core import changing, events, handover, lifecycle
from disque_py.core.changeable import DUE_AT, Changeable, unpack
from disque_py.core.event_packing import Noted
from disque_py.core.job import ACTIVE, memory_of
from disque_py.core.job import QUEUED as IS_QUEUED
from disque_py.core.job_attributes import JobAttributes
from disque_py.core.job_snapshot import job_of, snapshot_of
from disque_py.core.queue import QUEUE_BYTES
from disque_py.core.queue_fields import QueueSettings
from disque_py.core.requeue import wins
from disque_py.event_format import line_fields
from disque_py.node import dispatch
from journaled import JournaledNode

NODE = b"\x03" * 20


def start():
    broker = make_broker()
    return broker, make_client(broker), add_node(broker)


def limited(broker, *others, limit=1, **fields):
    """Return a job of this node with this number of attempts."""
    job = make_job(broker, *others, **fields)
    job.attributes = JobAttributes(None, ())
    job.attributes.part = Changeable(3_600_000, limit)
    job.attributes.measure()
    lifecycle.register(broker, job)
    job.was_queued = True
    job.requeue_at_ms = broker.now_ms + job.retry_ms
    lifecycle.arm(broker, job)
    return job


def limited_id(number):
    """The id of such a job with RETRY 1."""
    return make_id(number, retry_s=1)


def dead_letters(broker, queue=b"q", to=b"dead", **fields):
    """Let the queue have a dead-letter queue."""
    rules = QueueSettings()
    rules.dead_letter = to
    for name, value in fields.items():
        setattr(rules, name, value)
    broker.queue_settings.in_force[queue] = rules


def changed(job, number, **fields):
    """Return the changeable part after a change at another node, in its form in messages."""
    part = Changeable(3_600_000, 1)
    part.number, part.node = number, NODE
    queue = fields.pop("queue", job.queue)
    due_ms = fields.pop("due_ms", 0)
    for name, value in fields.items():
        setattr(part, name, value)
    return part.pack(queue, None, 1_000_000, due_ms)


def lines_of(broker):
    """Names of the events of this turn, with the states left and entered."""
    blocks = [(events.CODES[event[0]][0], event) for event in broker.events._events]
    return [name for name, _ in blocks]


# -- numbers ----------------------------------------------------------------------------------------------------------


def test_a_change_is_told_to_all_holders_with_the_next_number():
    """Spec Y3."""
    broker, client, node = start()
    job = hold_queued(broker, node)
    deliver(broker)
    sent(broker)
    ask(broker, client, "NACK", job.id, "FINAL")
    [(to, item)] = sent_of(broker, CHANGED)
    assert to == (node,)
    assert (item[0], item[1][0], item[1][1]) == (job.id, 1, broker.me.id)


def test_the_higher_number_wins_as_a_whole():
    """The node id decides between equal numbers. Spec Y3."""
    broker, _, node = start()
    job = limited(broker, node)
    say(broker, node, CHANGED, [job.id, changed(job, 5, error=b"five", limit=7)])
    say(broker, node, CHANGED, [job.id, changed(job, 4, error=b"four", limit=9)])
    assert (job.part.error, job.part.limit) == (b"five", 7)
    assert [item[1][0] for _, item in sent_of(broker, CHANGED)] == [5]
    other = list(changed(job, 5, error=b"other"))
    other[1] = b"\x04" * 20
    say(broker, node, CHANGED, [job.id, other])
    assert job.part.error == b"other"


def test_a_change_carries_the_version_of_the_job():
    """Otherwise the next change, at another node, has the same version, and readers of events may see it first."""
    broker, _, node = start()
    job = hold(broker, node)
    say(broker, node, CHANGED, [job.id, changed(job, 1), 7])
    assert job.version == 7
    changing.change(broker, job)
    assert [item[2] for _, item in sent_of(broker, CHANGED)] == [7]
    say(broker, node, CHANGED, [job.id, changed(job, 9)])  # A node of an older version.
    assert job.version == 7


@pytest.mark.parametrize(
    ("kind", "item"),
    [(QUEUED, (QUEUED_WAITING, 0, 0, 0, 2)), (WILLQUEUE, (0,)), (LEASED, (30_000, 0, 2))],
)
def test_a_higher_number_is_asked_for_before_the_job_is_queued_or_delivered(kind, item):
    """Spec Y3."""
    broker, _, node = start()
    job = limited(broker, node, limit=5)
    lifecycle.enqueue(broker, job)
    sent(broker)
    say(broker, node, kind, [job.id, *item, 3, NODE])
    assert job.state == ACTIVE
    assert sent_of(broker, ASKCHANGED) == [((node,), job.id)]
    advance(broker, 3_000)
    assert job.state == ACTIVE
    say(broker, node, CHANGED, [job.id, changed(job, 3, is_errored=True)])
    advance(broker, 60_000)
    assert job.state == ACTIVE
    assert job.is_errored


def test_a_part_that_no_node_has_is_not_waited_for():
    """Its holders are gone. Spec Y3."""
    broker, _, node = start()
    job = limited(broker, node, limit=5)
    lifecycle.enqueue(broker, job)
    say(broker, node, WILLQUEUE, [job.id, 0, 3, NODE])
    advance(broker, 15_000)
    assert job.state == IS_QUEUED


def test_a_lower_number_is_answered_with_the_part():
    """Spec Y3."""
    broker, client, node = start()
    job = hold_queued(broker, node)
    deliver(broker)
    ask(broker, client, "NACK", job.id, "FINAL")
    sent(broker)
    say(broker, node, WILLQUEUE, [job.id, 1])
    [(to, item)] = sent_of(broker, CHANGED)
    assert (to, item[0]) == ((node,), job.id)


def test_a_change_continues_from_a_number_that_was_only_heard_of():
    """The part with that number has not come yet. Otherwise the older part would win over the change. Spec Y3."""
    broker, client, node = start()
    job = limited(broker, node, limit=5)
    say(broker, node, WILLQUEUE, [job.id, 0, 4, NODE])
    sent(broker)
    assert ask_parsed(broker, client, "NACK", job.id, "FINAL") == 1
    assert [item[1][0] for _, item in sent_of(broker, CHANGED)] == [5]
    assert job not in broker.behind


def test_a_change_continues_from_a_number_that_no_node_has():
    """Spec Y3."""
    broker, client, node = start()
    job = limited(broker, node, limit=5)
    lifecycle.enqueue(broker, job)
    say(broker, node, WILLQUEUE, [job.id, 0, 3, NODE])
    advance(broker, 15_000)
    deliver(broker)
    sent(broker)
    ask(broker, client, "NACK", job.id, "FINAL")
    assert [item[1][0] for _, item in sent_of(broker, CHANGED)] == [4]


@pytest.mark.parametrize("number", [1 << 33, 1 << 53])
def test_a_number_that_no_node_gives_is_not_believed(number):
    """So the next change has a number, which all nodes take. Spec Y3."""
    broker, client, node = start()
    job = limited(broker, node, limit=5)
    say(broker, node, WILLQUEUE, [job.id, 0, number, NODE])
    say(broker, node, CHANGED, [job.id, changed(job, number)])
    assert broker.stats.messages_ignored == 2
    ask(broker, client, "NACK", job.id, "FINAL")
    assert [item[1][0] for _, item in sent_of(broker, CHANGED)][-1] == 2  # The NACK tells of a delivery.


def test_a_copy_with_a_number_that_no_node_gives_can_be_changed():
    """Spec Y3."""
    broker, client, node = start()
    job = limited(broker, node, number=7)
    job.part.number, job.part.node = 1 << 53, NODE
    snapshot = snapshot_of(broker, job)
    lifecycle.forget(broker, job)
    say(broker, node, REPLJOB, [snapshot, 0])
    ask(broker, client, "NACK", job.id, "FINAL")
    [(_, item)] = sent_of(broker, CHANGED)
    assert unpack(item[1]).number > broker.find(job.id).part.number - 1 > 1 << 32


def test_a_nack_of_a_delivery_that_was_not_heard_of_wins_over_the_end_of_the_lease_before():
    """The node that delivered it noted that end, and its change is still on its way. Spec Y3."""
    broker, client, node = start()
    job = limited(broker, node, limit=3)
    job.attempt = 1
    assert ask_parsed(broker, client, "NACK", job.id, "FINAL", "ATTEMPT", 2) == 1
    assert job.is_errored
    field = list(changed(job, 1, limit=3, error=b"lease expired"))
    field[1] = b"\xff" * 20
    say(broker, node, CHANGED, [job.id, field])
    assert (job.is_errored, job.part.number) == (True, 2)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, -1), (0, (1 << 53) + 1), (0, "1"), (1, b"short"), (2, None), (3, 1 << 63), (4, 1 << 54), (6, 1 << 40),
        (9, -1), (10, 5), (12, 1), (13, (1,)),
    ],
)  # fmt: skip
def test_a_part_that_no_node_sends_closes_the_link(at, value):
    broker, _, node = start()
    job = limited(broker, node)
    field = list(changed(job, 5))
    field[at] = value
    with pytest.raises(dispatch.MalformedMessageError):
        say(broker, node, CHANGED, [job.id, field])


# -- attempts ---------------------------------------------------------------------------------------------------------


def test_a_queued_job_leaves_its_queue_when_its_last_attempt_is_learned():
    """It counts as running during the lease, and is errored after that. Spec Y4."""
    broker, _, node = start()
    job = limited(broker, node)
    lifecycle.enqueue(broker, job)
    say(broker, node, LEASED, [job.id, 5_000, 1, 2])
    assert job.state == ACTIVE
    assert not job.is_errored
    advance(broker, 8_000)
    assert job.is_errored
    assert queue_of(broker) == []


def test_a_queued_job_is_errored_when_the_lease_of_its_last_attempt_is_over():
    """Another holder is about to queue it, and so tells the attempt. Spec Y4."""
    broker, _, node = start()
    job = limited(broker, node)
    lifecycle.enqueue(broker, job)
    say(broker, node, WILLQUEUE, [job.id, 1])
    assert job.is_errored
    assert CHANGED in [kind for _, kind, _ in sent(broker)]


@pytest.mark.parametrize("sender_wins", [True, False])
def test_one_of_two_holders_ends_the_last_lease(sender_wins):
    """The other one waits for it, so one transition is one event. If it dies meanwhile, the other one acts. Spec Y4."""
    broker, _, node = start()
    number = next(n for n in range(99) if wins(node, broker.me, limited_id(n)) == sender_wins)
    job = limited(broker, node, number=number, retry_s=1)
    job.attempt = 1
    advance(broker, 600)
    say(broker, node, WILLQUEUE, [job.id, 1])
    advance(broker, 600)
    assert job.is_errored == (not sender_wins)
    advance(broker, 600)
    assert job.is_errored


@pytest.mark.parametrize("limit", [0, 1])
def test_a_limited_job_on_its_way_to_another_node_is_not_queued_by_a_third(limit):
    """The taker may deliver it before it hears of the question. Spec Y4."""
    broker, _, node = start()
    third = add_node(broker, 4)
    job = limited(broker, node, third, limit=limit)
    lifecycle.enqueue(broker, job)
    handover.hand_over(broker, node, [lifecycle.fetch(broker, broker.queues[b"q"])])
    sent(broker)
    say(broker, third, WILLQUEUE, [job.id, 0])
    assert [to for to, item in sent_of(broker, QUEUED)] == [(third,)] * limit


@pytest.mark.parametrize("words", [(), ("ATTEMPT", 1)])
def test_a_nack_tells_of_a_delivery_that_was_not_heard_of(words):
    """LEASED is still in transit. Otherwise the job would be delivered once more than allowed. Spec Y4."""
    broker, client, node = start()
    job = limited(broker, node)
    assert ask_parsed(broker, client, "NACK", job.id, *words) == 1
    assert job.is_errored
    say(broker, node, LEASED, [job.id, 5_000, 1, 2])
    assert job.is_errored


@pytest.mark.parametrize("kind", ["delayed", "paused", "mine", "new"])
def test_a_nack_twice_spends_no_attempt_where_no_delivery_can_have_been(kind):
    """A client without a reply repeats its NACK. Spec Y4."""
    broker, client, node = start()
    others = () if kind == "mine" else (node,)
    job = limited(broker, *others, limit=3, delay_s=60 if kind == "new" else 0)
    job.attempt = 0 if kind == "new" else 1
    job.part.ended = job.attempt
    attempt = job.attempt
    if kind == "paused":
        ask(broker, client, "PAUSE", "q", "in")
    elif kind == "new":
        job.requeue_at_ms += 60_000
    words = ("DELAY", 60) if kind == "delayed" else ()
    if kind in ("delayed", "paused"):
        changing.change(broker, job)
        job.is_leased_here = True
        ask(broker, client, "NACK", job.id, *words)
    ask(broker, client, "NACK", job.id)
    assert job.attempt == attempt


def test_a_hand_over_of_a_job_that_is_errored_here_is_refused():
    """Spec Y4."""
    broker, client, node = start()
    job = hold_queued(broker, node)
    snapshot = snapshot_of(broker, job)
    deliver(broker)
    ask(broker, client, "NACK", job.id, "FINAL")
    say(broker, node, YOURJOBS, [1, 0, [snapshot]])
    assert queue_of(broker) == []
    assert job.is_errored


def test_all_holders_of_a_limited_job_hear_which_node_took_it():
    """A holder that does not know the taker would queue the job without asking it. Spec Y4."""
    broker, _, node = start()
    third = add_node(broker, 4)
    job = limited(broker, node, third, number=7)
    snapshot = snapshot_of(broker, job)
    lifecycle.forget(broker, job)
    say(broker, node, YOURJOBS, [1, 0, [snapshot]])
    assert queue_of(broker) == [job.id]
    assert [to for to, item in sent_of(broker, HOLDERS)] == [(node, third)]


def test_the_part_travels_with_copies():
    """Spec Y3, Y5."""
    broker, _, node = start()
    job = limited(broker, node, number=7)
    changing.give_up(broker, job, b"broken")
    snapshot = snapshot_of(broker, job)
    lifecycle.forget(broker, job)
    say(broker, node, REPLJOB, [snapshot, 0])
    copy = broker.find(job.id)
    assert (copy.is_errored, copy.part.error, copy.requeue_at_ms) == (True, b"broken", 0)
    advance(broker, 120_000)
    assert queue_of(broker) == []


def test_a_delay_travels_as_a_span():
    """Spec Y6."""
    broker, _, node = start()
    job = limited(broker, node, limit=3)
    say(broker, node, CHANGED, [job.id, changed(job, 1, limit=3, due_ms=90_000)])
    advance(broker, 89_000)
    assert queue_of(broker) == []
    advance(broker, 4_000)
    assert queue_of(broker) == [job.id]
    assert job.deliveries == 0


# -- dead letters -----------------------------------------------------------------------------------------------------


@pytest.mark.plain
def test_a_job_without_attempts_moves_to_the_dead_letter_queue():
    """Its history follows its own META. Spec Y7."""
    broker, client, _ = start()
    dead_letters(broker)
    broker.queue_settings.in_force[b"dead"] = rules = QueueSettings()
    rules.retention_ms = 50_000
    broker.events = Noted()
    reply = ask(
        broker, client, "ADDJOB", "q", "body", 0, "REPLICATE", 1, "ATTEMPTS", 1, "META", "a", "b", "PRIORITY", 5
    )
    job = broker.find(reply[1:-2])
    ask(broker, client, "GETJOB", "FROM", "q")
    assert ask_parsed(broker, client, "NACK", job.id, "REASON", "broken") == 1
    assert queue_of(broker, b"dead") == [job.id]
    time = b"%d" % broker.wall_ms
    assert job.meta == (
        b"a", b"b", b"x-disque-from", b"q", b"x-disque-error", b"broken", b"x-disque-attempts", b"1",
        b"x-disque-time", time, b"x-disque-count", b"1",
    )  # fmt: skip
    assert job.expire_at_ms == broker.now_ms + 50_000
    assert (job.priority, job.part.limit) == (5, 0)
    assert lines_of(broker)[-1] == "dead-lettered"
    [entry] = ask_parsed(broker, client, "GETJOB", "WITHMETA", "FROM", "dead")
    assert entry[4][:4] == [b"a", b"b", b"x-disque-from", b"q"]


@pytest.mark.plain
@pytest.mark.parametrize(("words", "error"), [((), None), (("REASON", "broken"), "broken")])
def test_the_event_of_a_dead_letter_has_an_error_if_there_is_one(words, error):
    """Spec Y7."""
    broker, client, _ = start()
    dead_letters(broker)
    broker.events = Noted()
    job_id = ask_parsed(broker, client, "ADDJOB", "q", "body", 0, "REPLICATE", 1, "ATTEMPTS", 1)
    ask(broker, client, "GETJOB", "FROM", "q")
    ask(broker, client, "NACK", job_id, *words)
    fields = line_fields(1, 0, broker.events._events[-1])
    assert (fields["event"], fields["error"], fields["from_queue"]) == ("dead-lettered", error, "q")


def test_a_dead_letter_is_not_moved_a_second_time():
    """So cycles of dead-letter queues end. Spec Y7."""
    broker, client, _ = start()
    dead_letters(broker)
    dead_letters(broker, b"dead", b"q", attempts=1)
    job = hold_queued(broker)
    deliver(broker)
    ask(broker, client, "NACK", job.id, "FINAL")
    ask(broker, client, "GETJOB", "FROM", "dead")
    ask(broker, client, "NACK", job.id)
    assert job.is_errored
    assert job.queue == b"dead"
    assert job.part.history[4] == 1


def test_a_dead_letter_waits_while_its_queue_is_paused():
    """Spec Y7."""
    broker, client, _ = start()
    dead_letters(broker)
    ask(broker, client, "PAUSE", "dead", "in")
    job = hold_queued(broker)
    deliver(broker)
    ask(broker, client, "NACK", job.id, "FINAL")
    assert queue_of(broker, b"dead") == []
    assert (job.queue, job.is_errored) == (b"dead", False)
    ask(broker, client, "PAUSE", "dead", "none")
    assert queue_of(broker, b"dead") == [job.id]


def test_a_dead_letter_of_a_paused_queue_ends_the_lease_of_the_node_that_delivered_it():
    """The NACK came to another node. Otherwise the job would run and be invisible at the same time. Spec U2, Y7."""
    broker, client, node = start()
    dead_letters(broker)
    ask(broker, client, "PAUSE", "dead", "in")
    job = limited(broker, node)
    job.attempt = 1
    sent(broker)
    ask(broker, client, "NACK", job.id, "FINAL")
    told = sent_of(broker, CHANGED)[0][1][1]
    assert (unpack(told).ended, told[DUE_AT]) == (1, job.retry_ms)
    advance(broker, 10 * job.retry_ms)
    assert (job.state, job.is_errored) == (ACTIVE, False)
    ask(broker, client, "PAUSE", "dead", "none")
    assert queue_of(broker, b"dead") == [job.id]


@pytest.mark.parametrize("to", [b"", b"dead"])
def test_a_pause_keeps_no_job_whose_last_lease_has_ended(to):
    """It is errored or a dead letter, as after a NACK during the pause. Spec Y4, Y7."""
    broker, client, _ = start()
    dead_letters(broker, to=to, attempts=1)
    ask(broker, client, "ADDJOB", "q", "body", 0, "RETRY", 2, "REPLICATE", 1)
    ask(broker, client, "GETJOB", "FROM", "q")
    ask(broker, client, "PAUSE", "q", "in")
    advance(broker, 2_100)
    job = next(job for shard in broker.shards for job in shard.values())
    assert (job.is_errored, job.queue, job.part.error) == (not to, to or b"q", b"lease expired")


def test_holders_of_a_dead_letter_follow_to_its_queue():
    """Spec Y7."""
    broker, _, node = start()
    job = limited(broker, node)
    lifecycle.enqueue(broker, job)
    field = changed(job, 1, queue=b"dead", is_dead_letter=True, limit=0, history=(b"q", b"broken", 1, 5, 1, 0))
    say(broker, node, CHANGED, [job.id, field])
    assert (job.queue, job.state) == (b"dead", ACTIVE)
    assert queue_of(broker) == []
    assert unpack(snapshot_of(broker, job)[7]).history == (b"q", b"broken", 1, 5, 1, 0)
    assert job_of(broker, snapshot_of(broker, job)).meta == job.meta


# -- sums and records -------------------------------------------------------------------------------------------------


def test_memory_is_right_whatever_changes():
    """The part counts while the job exists, and so does the name of its queue."""
    broker, _, node = start()
    dead_letters(broker, to=b"d" * 200)
    jobs = [limited(broker, node, number=1), hold(broker, node, number=2), limited(broker, number=3, queue=b"r")]
    for job in jobs:
        changing.give_up(broker, job, b"x" * 500)
        changing.change(broker, job)
    queues = sum(QUEUE_BYTES + len(name) for name in broker.queues)
    assert broker.used_memory == sum(map(memory_of, jobs)) + queues
    for job in jobs:
        lifecycle.forget(broker, job)
    assert broker.used_memory == queues


def test_everything_survives_a_restart_with_a_journal():
    """Attempts, errors, delays, dead letters and cancellations. Spec Y3."""
    node = JournaledNode(appendonly=True, appendfsync="always")
    node.settle()
    dead_letters(node.broker, b"doomed")
    errored = node.answer("ADDJOB", "q", "one", 0, "ATTEMPTS", 1, "REPLICATE", 1)
    delayed = node.answer("ADDJOB", "r", "two", 0, "ATTEMPTS", 3, "REPLICATE", 1)
    dead = node.answer("ADDJOB", "doomed", "three", 0, "REPLICATE", 1)
    for queue in ("q", "r", "doomed"):
        node.answer("GETJOB", "FROM", queue)
    node.answer("NACK", errored, "REASON", "broken")
    node.answer("NACK", delayed, "DELAY", 60)
    node.answer("NACK", dead, "FINAL")
    node.settle()
    node = node.restart()
    broker = node.broker
    found = broker.find(errored)
    assert (found.is_errored, found.part.error, found.attempt) == (True, b"broken", 1)
    assert queue_of(broker, b"q") == queue_of(broker, b"r") == []
    assert broker.find(delayed).part.is_delayed
    assert queue_of(broker, b"dead") == [dead]
    assert broker.find(dead).part.history[0] == b"doomed"
    assert node.answer("ENQUEUE", errored) == 1
    assert broker.find(errored).part.attempts_left(1) == 1
    node.recount()


def test_a_delivery_is_recorded_before_the_reply():
    """So a crash forgets no attempt under `always`. Spec Y4."""
    node = JournaledNode(appendonly=True, appendfsync="always")
    node.settle()
    job_id = node.answer("ADDJOB", "q", "body", 0, "ATTEMPTS", 1, "REPLICATE", 1, "RETRY", 1)
    assert node.answer("GETJOB", "FROM", "q")
    node = node.restart()
    assert node.broker.find(job_id).attempt == 1
    node.settle(10_000)
    assert node.answer("GETJOB", "NOHANG", "FROM", "q") is None
    assert node.broker.find(job_id).is_errored
