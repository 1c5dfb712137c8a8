"""core/capping.py: messages about slots that no node sends, and late ones. Conversations: tests/scenarios."""

from __future__ import annotations

import pytest

from cluster_bus.messages import CAP_ASK, CAP_SETTLE, CAP_USE
from disque_py.core import capping
from disque_py.node import dispatch
from disque_py.node.dispatch import CAP_ROUNDS_PER_TURN
from tests.support.brokers import add_job, add_node, ask, make_broker, make_client
from tests.support.copies import advance, sent, sent_of
from world import World


@pytest.fixture
def broker():
    broker = make_broker()
    assert ask(broker, make_client(broker), "QUEUE", "SET", "q", "max-running", 1) == b"+OK\r\n"
    return broker


@pytest.mark.parametrize(
    ("handler", "item"),
    [
        (capping.on_follow, ["yes"]),
        (capping.on_ask, [b"q", 5, None, 1, 1]),
        (capping.on_ask, [b"q", None, b"", 0, 1]),
        (capping.on_grant, [b"x", b"q", None, b"", 1]),
        (capping.on_grant, [1, b"q", None, b"", -1]),
        (capping.on_settle, [1, -1]),
        (capping.on_use, [b"short", b"r" * 8, b"q", 1, b"", 1, 1]),
        (capping.on_use, [b"n" * 20, b"r" * 8, b"q", 1, b"", -1, 1]),
    ],
)
def test_a_message_that_no_node_sends_closes_the_link(broker, handler, item):
    """Spec CP4."""
    with pytest.raises(ValueError, match=r"\w"):
        handler(broker, add_node(broker), [item])


def test_messages_that_come_late_are_counted(broker):
    """Spec CP4: a question of a node that follows another one, a grant that is over."""
    node = add_node(broker)
    capping.on_ask(broker, node, [[b"q", None, b"", 1, 1]])
    capping.on_settle(broker, node, [[9, 1]])
    assert broker.stats.messages_ignored == 2


def test_the_lowest_id_coordinates(broker):
    """Spec CP4: among nodes that are linked and do not leave."""
    assert broker.caps.coordinator is broker.me
    broker.me.id = b"\xff" * 20
    node = add_node(broker)
    capping.look(broker)
    assert broker.caps.coordinator is node


def test_a_part_follows_the_number_of_followers(broker):
    """Spec CP5."""
    nodes = [add_node(broker, number) for number in (2, 3, 4)]
    capping.look(broker)
    assert broker.caps.share == (1, 4)
    for node in nodes[:2]:
        capping.on_follow(broker, node, [[1]])
    assert broker.caps.share == (3, 4)
    capping.on_link_lost(broker, nodes[0])
    assert broker.caps.share == (2, 4)


def uses_told(broker):
    """The items of CAP_USE that were sent since the last call, without the time that is left."""
    dispatch.settle(broker)
    return [item[:6] for _, item in sent_of(broker, CAP_USE)]


def test_a_node_tells_a_follower_how_many_of_its_leases_it_counts(broker):
    """Spec CP4: leases that ended while there was no link are not told. So the node that counts them asks."""
    node, other = add_node(broker), add_node(broker, 3)
    for each in (node, other):
        capping.on_use(broker, each, [[each.id, each.run, b"q", capping.RUNNING, b"", 1, 60_000]])
    for is_following in (0, 1):
        capping.on_follow(broker, node, [[is_following]])
        assert uses_told(broker) == [(node.id, node.run, b"q", capping.RUNNING, b"", 1)]


def test_a_wrong_number_of_leases_is_corrected_and_a_right_one_is_not_answered(broker):
    """Spec CP4: so two nodes never answer each other again and again."""
    node = add_node(broker)
    me = (broker.me.id, broker.run, b"q", capping.RUNNING, b"")
    for count, answers in ((2, [(*me, 0)]), (0, [])):
        capping.on_use(broker, node, [[*me, count, 60_000]])
        assert uses_told(broker) == answers


def test_a_node_answers_when_it_has_used_the_slots_that_it_was_given(follower):
    """Spec CP4: the other node may count a grant as used because its link broke. This node still has the grant."""
    broker, client, coordinator = follower
    ask(broker, make_client(broker), "QUEUE", "SET", "q", "rate", 0, "max-running", 5)
    advance(broker, 1_000)
    ask(broker, client, "GETJOB", "FROM", "q")
    dispatch.settle(broker)
    capping.on_grant(broker, coordinator, [[1, b"q", None, b"", 2]])
    uses_told(broker)
    me = (broker.me.id, broker.run, b"q", capping.RUNNING, b"")
    capping.on_use(broker, coordinator, [[*me, 2, 60_000]])
    assert uses_told(broker) == []
    advance(broker, 2_000)
    assert [item[:6] for _, item in sent_of(broker, CAP_USE)] == [(*me, 1)]


def test_slots_of_a_former_coordinator_are_not_settled_with_the_next_one(follower):
    """Spec CP4: both count their grants from 1."""
    broker, client, coordinator = follower
    ask(broker, client, "GETJOB", "FROM", "q")
    capping.on_grant(broker, coordinator, [[1, b"q", b"", None, 2]])
    dispatch.settle(broker)
    grant = broker.caps.grants[b"q", b"", None][0]
    broker.caps.coordinator = add_node(broker, 3)
    broker.caps.return_all(grant)
    sent(broker)
    dispatch.settle(broker)
    assert sent_of(broker, CAP_SETTLE) == []


def rate_told(broker, node):
    """The count and time of each RATE_KNOWN that a node gets when its link is new."""
    sent(broker)
    capping.on_link_up(broker, node)
    return [item[5:] for _, item in sent_of(broker, CAP_USE) if item[3] == capping.RATE_KNOWN]


def test_old_and_new_nodes_tell_each_other_deliveries_of_a_rate(broker):
    """Spec CP1: an older node takes the highest number, and sends it alone, without a time."""
    node = add_node(broker)
    ask(broker, make_client(broker), "QUEUE", "SET", "q", "rate", "10/100s")
    me = (node.id, node.run, b"q", capping.RATE_KNOWN, b"")
    capping.on_use(broker, node, [[*me, 3, 0]])
    advance(broker, 20_000)
    capping.on_use(broker, node, [[*me, 2, 100_000], [*me, 5, 80_000]])
    assert broker.caps.rate_used(b"q", broker.now_ms) == 5
    (newest, newest_ms), *others, (total, _) = rate_told(broker, node)
    assert (newest, total, others) == (2, 5, [])
    assert newest_ms == 100_000
    capping.on_use(broker, node, [[*me, 7, 0]])
    assert broker.caps.rate_used(b"q", broker.now_ms) == 7


def test_of_a_short_period_only_the_number_of_deliveries_is_told(broker):
    """Spec CP1: it is told for each value, and nodes do not restart within seconds."""
    node = add_node(broker)
    ask(broker, make_client(broker), "QUEUE", "SET", "q", "rate", "10/10s")
    for _ in range(3):
        capping.on_use(broker, node, [[node.id, node.run, b"q", capping.RATE, b"", 1, 0]])
        advance(broker, 1_000)
    assert rate_told(broker, node) == [(3, 0)]


def test_leases_are_counted_before_the_cap_is_known_and_after_it_is_gone(broker):
    """Spec CP2: the node with the leases tells of them only once, and may know of the cap earlier or later."""
    node = add_node(broker)
    capping.on_use(broker, node, [[node.id, node.run, b"new", capping.RUNNING, b"", 2, 60_000]])
    assert broker.caps.used((b"new", b""), broker.now_ms) == 2
    capping.on_use(broker, node, [[node.id, node.run, b"new", capping.RUNNING, b"", 0, 0]])
    assert broker.caps.used((b"new", b""), broker.now_ms) == 0


def test_leases_of_a_lost_node_are_forgotten_without_a_cap(broker):
    """Spec CP2, CP5: no job of the queue looks at them any more."""
    node = add_node(broker)
    ask(broker, make_client(broker), "QUEUE", "RESET", "q")
    capping.on_use(broker, node, [[node.id, node.run, b"q", capping.RUNNING, b"", 2, 500]])
    node.is_linked = False
    advance(broker, 300)
    assert broker.caps.uses
    advance(broker, 500)
    assert broker.caps.uses == {}


def test_a_client_that_waits_with_patterns_gets_the_slot_that_it_waits_for():
    """Spec TP2, CP3: jobs without RETRY need no slot of those that run, though jobs with RETRY wait for one."""
    broker = make_broker()
    worker, waiting, producer = (make_client(broker) for _ in range(3))
    ask(broker, producer, "QUEUE", "SET", "q", "max-running", 1, "rate", "100/1s")
    advance(broker, 1_000)
    for retry in (10, 10):
        ask(broker, producer, "ADDJOB", "q", "x", 0, "RETRY", retry)
    assert b"x" in ask(broker, worker, "GETJOB", "FROM", "q")
    assert ask(broker, waiting, "GETJOB", "FROMMATCH", "q*") == b""
    dispatch.settle(broker)
    ask(broker, producer, "ADDJOB", "q", "once", 0, "RETRY", 0)
    dispatch.settle(broker)
    assert b"once" in b"".join(waiting.out)


@pytest.fixture
def follower():
    """A node whose coordinator is another one, and that has six jobs of a queue with a rate."""
    broker = make_broker(node_id=b"\xff" * 20)
    client = make_client(broker)
    ask(broker, client, "QUEUE", "SET", "q", "rate", "100/1s", "rate-by", "user")
    for _ in range(6):
        ask(broker, client, "ADDJOB", "q", "x", 0)
    coordinator = add_node(broker)
    capping.look(broker)
    sent(broker)
    return broker, client, coordinator


def test_a_node_asks_for_as_many_slots_as_its_client_asks_for_jobs(follower):
    """Spec CP4: the client gets one job when the slots come, and the others with its next GETJOB."""
    broker, client, coordinator = follower
    assert ask(broker, client, "GETJOB", "COUNT", 5, "FROM", "q") == b""
    dispatch.settle(broker)
    assert [item[3] for _, item in sent_of(broker, CAP_ASK)] == [5]
    capping.on_grant(broker, coordinator, [[1, b"q", b"", None, 5]])
    dispatch.settle(broker)
    assert client.out
    client.out = []
    assert ask(broker, client, "GETJOB", "COUNT", 5, "FROM", "q").startswith(b"*4\r\n")


def test_slots_without_a_client_let_one_job_be_offered_and_the_others_soon(follower):
    """Spec CP3: a consumer that comes back at once costs no look at all jobs. Other nodes get them, too."""
    broker, client, coordinator = follower
    ask(broker, client, "GETJOB", "COUNT", 5, "TIMEOUT", 20, "FROM", "q")
    dispatch.settle(broker)
    advance(broker, 30)
    queue = broker.queues[b"q"]
    assert queue.length == 0
    capping.on_grant(broker, coordinator, [[1, b"q", b"", None, 5]])
    assert queue.length == 1
    dispatch.settle(broker)
    assert [item[:2] for _, item in sent_of(broker, CAP_SETTLE)] == [(1, 5)]
    advance(broker, 300)
    assert queue.length == 6


def test_slots_that_come_after_the_end_of_a_cap_leave_no_job_aside(follower):
    """Spec CP2, CP3: many jobs are offered one part after the other. A grant comes between two parts."""
    broker, client, coordinator = follower
    for _ in range(capping.RELEASED_PER_PART):
        ask(broker, client, "ADDJOB", "q", "x", 0, "REPLICATE", 1)
    ask(broker, client, "GETJOB", "FROM", "q")
    advance(broker, 50)
    ask(broker, make_client(broker), "QUEUE", "RESET", "q")
    while broker.queues[b"q"].length:
        ask(broker, make_client(broker), "GETJOB", "COUNT", 100, "FROM", "q")
    assert ask(broker, make_client(broker), "GETJOB", "FROM", "q") == b""
    capping.on_grant(broker, coordinator, [[1, b"q", b"", None, 1]])
    advance(broker, 3000)
    assert broker.queues[b"q"].parking.length == 0


def test_the_end_of_a_cap_offers_a_bounded_number_of_jobs_per_turn(broker):
    """Spec CP2: also if jobs of many values are aside."""
    client = make_client(broker)
    ask(broker, client, "QUEUE", "SET", "q", "max-running", 1, "max-running-by", "user")
    for number in range(2 * capping.RELEASED_PER_PART):
        ask(broker, client, "ADDJOB", "q", "x", 0, "META", "user", number % 9)
    for _ in range(3):
        ask(broker, client, "GETJOB", "NOHANG", "COUNT", 9, "FROM", "q")
        advance(broker, 10)
    queue = broker.queues[b"q"]
    assert queue.length == 0
    ask(broker, client, "QUEUE", "RESET", "q")
    assert queue.length == capping.RELEASED_PER_PART
    advance(broker, 10)
    assert queue.length == 2 * capping.RELEASED_PER_PART - 9


@pytest.mark.plain
def test_a_turn_has_a_bounded_number_of_rounds(broker, monkeypatch):
    """The next turn goes on with slots that are always asked for again. Spec CP3."""
    rounds = []
    broker.caps.freed[True, (b"q", b"")] = None
    monkeypatch.setattr(capping, "settle", rounds.append)
    dispatch.settle(broker)
    assert len(rounds) == CAP_ROUNDS_PER_TURN + 1
    advance(broker, 1)
    assert len(rounds) > CAP_ROUNDS_PER_TURN + 1


def test_a_cap_that_is_set_in_a_pause_counts_no_lease_that_ended_in_it():
    """Spec CP1."""
    world = World("a")
    first = world.ask("a", "ADDJOB", "q", "x", 0, "RETRY", 5)
    second = world.ask("a", "ADDJOB", "q", "x", 0, "RETRY", 600)
    assert world.ask("a", "GETJOB", "FROM", "q")[0][1] == first
    world.ask("a", "PAUSE", "q", "in")
    world.run(6_000)
    world.ask("a", "QUEUE", "SET", "q", "max-running", 1)
    world.run(2_000)
    assert [job[1] for job in world.ask("a", "GETJOB", "NOHANG", "FROM", "q")] == [second]


def test_a_client_that_waits_for_a_slot_of_a_rate_costs_no_timer_per_look():
    """Spec CP4: the coordinator looks ten times a second, and the slot may become free an hour later."""
    broker = make_broker()
    client = make_client(broker)
    ask(broker, client, "QUEUE", "SET", "q", "rate", "1/1h")
    for _ in range(2):
        add_job(broker, client)
    advance(broker, 1_000)
    assert ask(broker, client, "GETJOB", "FROM", "q").startswith(b"*1")
    assert ask(broker, client, "GETJOB", "FROM", "q") == b""
    advance(broker, 10_000)
    assert broker.schedule.task_count < 10


def test_values_whose_jobs_have_expired_are_forgotten():
    """Spec CP3: also if the queue was dropped before their slots are free. There may be very many values."""
    broker = make_broker()
    client = make_client(broker)
    ask(broker, client, "QUEUE", "SET", "q", "rate", "1/10m", "rate-by", "user")
    for _ in range(2):
        add_job(broker, client, "META", "user", "ann", "TTL", 60)
    for _ in range(2):
        ask(broker, make_client(broker), "GETJOB", "NOHANG", "FROM", "q")
        advance(broker, 1_000)
    assert len(broker.caps.aside[b"q"]) == 1
    advance(broker, 700_000)
    assert not broker.queues
    assert not broker.caps.aside[b"q"]


def test_a_step_looks_at_a_bounded_number_of_values_that_wait():
    """Spec B1: there may be a hundred thousand of them. Each look takes microseconds, ten times a second."""
    broker = make_broker()
    client = make_client(broker)
    ask(broker, client, "QUEUE", "SET", "q", "rate", "1/1h", "rate-by", "user")
    advance(broker, 1_000)
    for number in range(2 * capping.CHECKED_PER_STEP):
        pair = (b"q", b"=%d" % number, None)
        broker.caps.window(*pair[:2]).add(broker.now_ms, 1, 3_600_000)
        broker.caps.asked[pair] = broker.now_ms
        broker.caps.to_ask[pair] = (1, 0)
    dispatch.settle(broker)
    assert len(broker.caps.waits) == broker.schedule.task_count == 2 * capping.CHECKED_PER_STEP
    looked = []
    for _ in range(2):
        capping.step(broker)
        looked.append(list(broker.caps.freed))
        dispatch.settle(broker)
    assert [len(each) for each in looked] == [capping.CHECKED_PER_STEP] * 2
    assert not set(looked[0]) & set(looked[1])
    assert broker.schedule.task_count == 2 * capping.CHECKED_PER_STEP
