"""node/turn.py: each turn does its work on the outside at its end, in the order that durability needs."""

from __future__ import annotations

from random import Random

import pytest

from brokers import NotedHost, NotedPort
from cluster_bus.codec import PROTOCOL_MAX, Decoder
from cluster_bus.handshake import Hello
from cluster_bus.membership import Membership
from cluster_bus.messages import DELJOB, GOTJOB, HINT, INTEREST, PAUSE, REPLJOB, SETACK, TOOK
from cluster_bus.node import Node
from cluster_bus.nodes_file import NodeLine
from cluster_bus.outgoing import Outgoing
from copies import hold_queued
from disque_py.config.settings import Settings
from disque_py.core.broker import Broker
from disque_py.core.client import RUNNING, Client
from disque_py.node import dispatch
from disque_py.node import turn as driver_module
from disque_py.node.turn import ITEMS_PER_RUN, Driver


class Outside:
    """The wire and clock of a test. Only the test moves time, and frames are kept per node."""

    def __init__(self):
        self.ms = 5_000_000
        self.wall = 1_700_000_000_000
        self.frames = []
        self.dialed = []
        self.hung_up = []
        self.turns = 0
        self.saves = 0
        self.log = []

    def now_ms(self):
        return self.ms

    def wall_ms(self):
        return self.wall

    def stopwatch_ns(self):
        return 0

    def dial(self, node):
        self.dialed.append(node)

    def hang_up(self, node):
        self.hung_up.append(node)

    def send(self, node, frame):
        self.frames.append((node, frame))

    def sent(self):
        """Return (node, kind, items) of every run of job messages since the last call."""
        found = []
        for node, data in self.frames:
            for runs in Decoder().feed(data):
                found += [(node, kind, items) for kind, *items in runs if kind >= REPLJOB]
        self.frames.clear()
        return found

    def save(self):
        self.saves += 1

    def on_turn(self):
        self.turns += 1


def make_driver():
    outside = Outside()
    outgoing = Outgoing()
    me = Node(b"\x01" * 20, "127.0.0.1", 7711, 17711)
    membership = Membership(me, outgoing, Random(1))
    broker = Broker(membership, outgoing, Settings(), Random(2), NotedHost())
    dispatch.install(broker)
    driver = Driver(broker, membership, outgoing, outside, outside, outside.on_turn, outside.save, outside.log.append)
    return driver, outside


def link(driver, number):
    """Return a node of the table, with a link to it."""
    node_id = bytes([number]) * 20
    driver.begin()
    driver.membership.load([NodeLine(node_id, f"127.0.0.{number}", 7711, 17711, 0, 0, 0)])
    node = driver.membership.table.intern(node_id)
    hello = Hello(node_id, bytes([number]) * 8, "", 7711, 17711, "0.1.0")
    driver.membership.link_up(node, hello, node.host, "127.0.0.1")
    driver.finish()
    driver.wire.frames.clear()
    return node


def connect(driver):
    client = Client(len(driver.broker.clients) + 1, NotedPort(), "127.0.0.1:1", driver.broker.now_ms)
    driver.broker.clients[client.id] = client
    return client


def run(driver, client, *words):
    dispatch.execute(driver.broker, client, [[str(word).encode() for word in words]])


def test_a_turn_begins_with_its_first_input_and_reads_the_clock_once():
    """Spec T2."""
    driver, outside = make_driver()
    driver.begin()
    outside.ms += 500
    driver.begin()
    assert (outside.turns, driver.broker.now_ms) == (1, 5_000_000)
    driver.finish()
    driver.begin()
    assert (outside.turns, driver.broker.now_ms, driver.membership.table.now_ms) == (2, 5_000_500, 5_000_500)


def test_time_moves_for_all_parts_at_once():
    driver, outside = make_driver()
    outside.ms, outside.wall = 6_000_000, 1_800_000_000_000
    driver.begin()
    broker = driver.broker
    assert {broker.now_ms, broker.schedule.now_ms, broker.waits.timeouts.now_ms, driver.membership.table.now_ms} == {
        6_000_000
    }
    assert {broker.wall_ms, driver.membership.table.wall_ms} == {1_800_000_000_000}


def test_a_waiting_client_is_served_at_the_end_of_the_turn_that_brought_the_job():
    driver, _ = make_driver()
    consumer, producer = connect(driver), connect(driver)
    driver.begin()
    run(driver, consumer, "GETJOB", "FROM", "q")
    run(driver, producer, "ADDJOB", "q", "body", 0)
    assert consumer.out == []
    driver.finish()
    assert len(consumer.out) == 1
    assert consumer.port.wakes == 1


def test_a_thousand_messages_of_a_turn_are_one_write_per_node():
    driver, outside = make_driver()
    nodes = [link(driver, number) for number in (2, 3)]
    driver.begin()
    for number in range(1000):
        driver.broker.send((nodes[number % 2],), GOTJOB, b"%040d" % number)
    driver.finish()
    assert [node for node, _ in outside.frames] == nodes
    assert sum(len(items) for _, _, items in outside.sent()) == 1000
    assert driver.outgoing.sent_count >= 1000


def turn_with(driver, node, *messages):
    """Run a turn with these messages for a node."""
    driver.begin()
    for kind, item in messages:
        driver.broker.send(driver.broker.sets.only(node), kind, item)
    driver.finish()


def ack(number):
    return SETACK, (b"%040d" % number, b"", 1)


def make_busy_driver():
    """Return a driver whose messages left in this millisecond, its outside, and the node that got them."""
    driver, outside = make_driver()
    node = link(driver, 2)
    driver.tick()
    driver.finish()
    outside.sent()
    outside.ms += 1
    turn_with(driver, node, ack(1))
    assert [len(items) for _, _, items in outside.sent()] == [1]
    return driver, outside, node


def test_further_acks_of_a_millisecond_leave_together_when_it_is_over():
    """Spec N11."""
    driver, outside, node = make_busy_driver()
    for number in range(3, 6):
        turn_with(driver, node, ack(number))
    assert outside.sent() == []
    assert driver.next_ms() == outside.ms + 1
    outside.ms += 1
    driver.tick()
    driver.finish()
    assert [(kind, len(items)) for _, kind, items in outside.sent()] == [(SETACK, 3)]
    assert driver.next_ms() > outside.ms + 1


def test_a_message_that_cannot_wait_takes_along_the_acks_before_it():
    """Spec N11."""
    driver, outside, node = make_busy_driver()
    turn_with(driver, node, ack(3), (DELJOB, (b"%040d" % 1, b"")))
    turn_with(driver, node, (TOOK, (1, b"\0")), (GOTJOB, b"%040d" % 9))
    assert [kind for _, kind, _ in outside.sent()] == [SETACK, DELJOB, TOOK, GOTJOB]


def test_acks_that_wait_delay_no_other_work():
    driver, outside, node = make_busy_driver()
    done = []
    driver.broker.schedule.call_at(outside.ms + 1, lambda: done.append(outside.ms))
    turn_with(driver, node, ack(3))
    outside.ms = driver.next_ms()
    driver.tick()
    driver.finish()
    assert (done, len(outside.sent())) == ([outside.ms], 1)


def test_a_node_that_ends_sends_the_acks_that_wait():
    """Spec N11."""
    driver, outside, node = make_busy_driver()
    turn_with(driver, node, ack(3))
    driver.stop_gathering()
    assert [kind for _, kind, _ in outside.sent()] == [SETACK]
    turn_with(driver, node, ack(4))
    assert [kind for _, kind, _ in outside.sent()] == [SETACK]


def test_a_node_that_ends_in_the_middle_of_a_turn_sends_them_at_its_end():
    """Spec N11."""
    driver, outside, node = make_busy_driver()
    turn_with(driver, node, ack(3))
    driver.begin()
    driver.stop_gathering()
    driver.finish()
    assert [kind for _, kind, _ in outside.sent()] == [SETACK]


def test_acks_that_wait_do_not_go_to_the_next_process_of_a_node():
    """Spec H1."""
    driver, outside, node = make_busy_driver()
    turn_with(driver, node, ack(3))
    driver.membership.tray.new_runs.append(node)
    outside.ms += 1
    driver.tick()
    driver.finish()
    assert [kind for _, kind, _ in outside.sent() if kind == SETACK] == []


def test_each_node_gets_a_run_in_the_version_of_its_link():
    """In the middle of an upgrade. Spec N9."""
    driver, outside = make_driver()
    one, other = link(driver, 2), link(driver, 3)
    one.protocol = 2
    ids = [b"D-%037d" % number + b"a" for number in range(9)]
    driver.begin()
    driver.outgoing.send_all(driver.broker.sets.others(driver.broker.sets.of((one, other))), GOTJOB, ids)
    driver.finish()
    (_, plain), (_, packed) = outside.frames
    assert (plain[4], packed[4]) == (2, PROTOCOL_MAX)
    assert Decoder().feed(plain) == Decoder().feed(packed) == [[[GOTJOB, *ids]]]
    assert len(packed) < len(plain)
    assert driver.outgoing.sent_bytes >= len(packed) + len(plain)


def test_the_order_towards_each_node_is_the_order_of_the_calls():
    driver, outside = make_driver()
    one, other = link(driver, 2), link(driver, 3)
    both, only = driver.broker.sets.others(driver.broker.sets.of((one, other))), driver.broker.sets.only(one)
    driver.begin()
    for nodes, kind, item in ((only, GOTJOB, b"1"), (both, PAUSE, b"2"), (only, GOTJOB, b"3"), (both, PAUSE, b"4")):
        driver.broker.send(nodes, kind, item)
    driver.finish()
    sent = outside.sent()
    assert [items for node, _, items in sent if node is one] == [[b"1"], [b"2"], [b"3"], [b"4"]]
    assert [items for node, _, items in sent if node is other] == [[b"2"], [b"4"]]


def test_a_long_run_is_cut():
    """A receiver handles a whole frame at once, which must not take long."""
    driver, outside = make_driver()
    node = link(driver, 2)
    driver.begin()
    for number in range(2 * ITEMS_PER_RUN + 10):
        driver.broker.send((node,), GOTJOB, b"%040d" % number)
    driver.broker.send((node,), GOTJOB, b"last")
    driver.finish()
    items = [item for _, _, items in outside.sent() for item in items]
    assert len(items) == 2 * ITEMS_PER_RUN + 11
    assert items[-1] == b"last"
    lengths = [len(items) for _, _, items in outside.sent()]
    assert all(length <= ITEMS_PER_RUN for length in lengths)


@pytest.mark.plain
def test_large_jobs_travel_in_several_frames(monkeypatch):
    monkeypatch.setattr(driver_module, "FRAME_BYTES", 1000)
    driver, outside = make_driver()
    node = link(driver, 2)
    driver.begin()
    for kind in (GOTJOB, PAUSE, GOTJOB):
        driver.broker.send((node,), kind, b"x" * 800)
    driver.finish()
    ((_, data),) = outside.frames
    assert len(Decoder().feed(data)) == 3


def test_a_node_without_a_link_gets_nothing():
    driver, outside = make_driver()
    one, other = link(driver, 2), link(driver, 3)
    both = driver.broker.sets.others(driver.broker.sets.of((one, other)))
    other.is_linked = False
    driver.begin()
    driver.broker.send(both, GOTJOB, b"id")
    driver.broker.send((other,), GOTJOB, b"id")
    driver.finish()
    assert outside.sent() == [(one, GOTJOB, [b"id"])]


def test_a_client_that_wakes_may_begin_the_next_turn():
    """Its pipeline goes on while replies to others are still being flushed."""
    driver, _ = make_driver()
    client = connect(driver)
    opened = []
    client.port.wake = lambda: (driver.begin(), opened.append(driver.turns))
    driver.begin()
    run(driver, client, "PING")
    driver.broker.outbox.clients[client] = None
    driver.finish()
    assert opened == [2]
    assert driver.is_open


def test_replies_go_out_after_the_messages():
    """A client that has its reply may immediately ask another node."""
    driver, outside = make_driver()
    node = link(driver, 2)
    client = connect(driver)
    order = []
    outside.send = lambda node, frame: order.append("bus")
    client.port.wake = lambda: order.append("reply")
    driver.begin()
    driver.broker.send((node,), GOTJOB, b"id")
    driver.broker.outbox.clients[client] = None
    driver.finish()
    assert order == ["bus", "reply"]


# -- membership's tray ------------------------------------------------------------------------------------


def test_a_node_is_told_what_it_missed_when_its_link_is_up():
    driver, outside = make_driver()
    consumer = connect(driver)
    driver.begin()
    run(driver, consumer, "GETJOB", "FROM", "q")
    driver.finish()
    outside.frames.clear()
    driver.begin()
    node_id = b"\x02" * 20
    driver.membership.load([NodeLine(node_id, "127.0.0.2", 7711, 17711, 0, 0, 0)])
    node = driver.membership.table.intern(node_id)
    driver.membership.link_up(node, Hello(node_id, b"r" * 8, "", 7711, 17711, "0.1.0"), "127.0.0.2", "127.0.0.1")
    driver.finish()
    assert (node, INTEREST, [[b"", -2], [b"q", 1]]) in outside.sent()


def test_the_outside_dials_saves_and_logs():
    driver, outside = make_driver()
    driver.begin()
    driver.membership.meet("127.0.0.9", 7711)
    driver.finish()
    outside.ms += 100
    driver.tick()
    driver.finish()
    assert [node.host for node in outside.dialed] == ["127.0.0.9"]
    assert outside.saves == 1
    outside.ms += 60_000
    driver.tick()
    driver.finish()
    assert any("no handshake with 127.0.0.9:7711" in line for line in outside.log)
    assert outside.hung_up


def test_a_reset_is_saved_before_it_goes_on():
    driver, outside = make_driver()
    driver.begin()
    driver.membership.reset(hard=False)
    driver.finish()
    assert outside.saves == 1


@pytest.mark.plain
def test_a_new_process_is_noted_before_its_messages_are_handled():
    """Otherwise its first hand-over would be taken for an answered one of the old process."""
    driver, _ = make_driver()
    node = link(driver, 2)
    driver.begin()
    driver.membership.tray.new_runs.append(node)
    order = []
    original = dispatch.new_run
    try:
        dispatch.new_run = lambda broker, node: order.append("new run")
        driver.receive(node, [[HINT, [b"q", 1]]])
    finally:
        dispatch.new_run = original
    assert order == ["new run"]


def test_a_forgotten_node_is_taken_out_of_everything():
    driver, _ = make_driver()
    node = link(driver, 2)
    driver.receive(node, [[INTEREST, [b"q", 1]]])
    assert driver.broker.consumers.interest[b"q"] == {node: 1}
    driver.membership.forget(node)
    driver.finish()
    assert driver.broker.consumers.interest == {}


# -- time ---------------------------------------------------------------------------------------------------


def test_the_next_moment_is_the_first_of_cluster_and_core():
    driver, _ = make_driver()
    driver.tick()
    driver.finish()
    client = connect(driver)
    driver.begin()
    run(driver, client, "GETJOB", "TIMEOUT", 30, "FROM", "q")
    driver.finish()
    assert 5_000_030 <= driver.next_ms() <= 5_000_047


def test_a_tick_does_what_is_due():
    driver, outside = make_driver()
    client = connect(driver)
    driver.begin()
    run(driver, client, "GETJOB", "TIMEOUT", 30, "FROM", "q")
    driver.finish()
    outside.ms += 50
    driver.tick()
    driver.finish()
    assert client.out == [b"*-1\r\n"]


def test_with_more_to_do_the_next_moment_is_now():
    driver, outside = make_driver()
    driver.begin()
    for number in range(1500):
        hold_queued(driver.broker, number=number, ttl_s=1, retry_s=0)
    driver.finish()
    outside.ms += 1100
    driver.tick()
    assert driver.has_more
    assert driver.next_ms() == driver.broker.now_ms
    while driver.has_more:
        driver.tick()
    assert driver.broker.job_count == 0


def test_a_command_that_takes_several_turns_goes_on_in_the_next_one():
    driver, _ = make_driver()
    client = connect(driver)
    for number in range(600):
        run(driver, client, "ADDJOB", "q", f"job {number}", "0")
    driver.finish()
    driver.tick()
    run(driver, client, "GETJOB", "COUNT", "600", "FROM", "q")
    driver.finish()
    assert driver.next_ms() == driver.broker.now_ms
    turns = 0
    while driver.has_more:
        driver.tick()
        driver.finish()
        turns += 1
    assert 1 < turns < 10
    assert client.waiting == RUNNING


def test_a_malformed_message_is_an_error_for_the_caller():
    driver, _ = make_driver()
    node = link(driver, 2)
    with pytest.raises(dispatch.MalformedMessageError):
        driver.receive(node, [[GOTJOB, 17]])
    driver.finish()
