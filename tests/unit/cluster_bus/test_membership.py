"""cluster_bus/membership.py: whole clusters in memory, on a virtual clock."""

from __future__ import annotations

import pytest

from bus_exchange import STRANGER, Exchange, heartbeat_item, is_whole, lone, seen_by
from cluster_bus.codec import FrameError
from cluster_bus.membership import HEARTBEATS_MAX, LONE_TICK_MS, TICK_MS, Membership
from cluster_bus.messages import FAIL_NODE, MEET, PING, PONG
from cluster_bus.node import FAIL, HANDSHAKE, LEAVING, NOADDR, PFAIL, UNKNOWN, Node
from cluster_bus.nodes_file import NodeLine, dump, parse, parse_notes


def dialed(node: Membership) -> list[Node]:
    return list(node.tray.dials)


# -- joining -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 7])
def test_nodes_that_meet_one_of_them_are_a_whole_cluster_within_a_second(count: int):
    assert is_whole(Exchange().start_joined(count))


def test_a_chain_of_meetings_becomes_a_mesh():
    exchange = Exchange()
    nodes = [exchange.start(7001 + at) for at in range(7)]
    for at in range(6):
        nodes[at].meet("10.0.0.1", 7002 + at)
    exchange.run(3000)
    assert is_whole(nodes)


def test_two_clusters_become_one_by_a_single_meeting():
    exchange = Exchange()
    one, other = exchange.start_joined(3), exchange.start_joined(4, 7101)
    one[2].meet("10.0.0.1", 7103)
    exchange.run(2000)
    assert is_whole(one + other)


def test_when_all_nodes_meet_all_others_at_once_each_has_one_entry():
    exchange = Exchange()
    nodes = [exchange.start(7001 + at) for at in range(4)]
    for node in nodes:
        for port in range(7001, 7005):
            node.meet("10.0.0.1", port)
    exchange.run(1000)
    assert is_whole(nodes)


def test_a_meeting_of_a_node_with_itself_ends():
    exchange = Exchange()
    node = exchange.start(7001)
    node.meet("10.0.0.1", 7001)
    assert len(node.table.nodes) == 2
    exchange.run(500)
    assert list(node.table.nodes.values()) == [node.table.me]


def test_a_second_meeting_with_the_same_address_is_one_handshake():
    node = lone()
    node.meet("10.0.0.9", 7009)
    node.meet("10.0.0.9", 7009)
    assert [each.flags for each in node.table.nodes.values() if each is not node.table.me] == [HANDSHAKE]
    assert [(each.host, each.port, each.bus_port) for each in dialed(node)] == [("10.0.0.9", 7009, 17009)]


def test_a_bus_port_may_be_given():
    node = lone()
    node.meet("10.0.0.9", 7009, 5000)
    assert dialed(node)[0].bus_port == 5000


def test_an_unanswered_handshake_ends_after_the_node_time_out():
    """Spec N4."""
    exchange = Exchange()
    node = exchange.start(7001)
    node.meet("10.0.0.9", 7009)
    exchange.run(1900)
    assert len(node.table.nodes) == 2
    exchange.run(300)
    assert len(node.table.nodes) == 1
    assert any(name == "handshake-failed" for name, _ in exchange.peer(node).notices)


def test_a_failed_handshake_has_the_reason_of_the_last_attempt_to_connect():
    exchange = Exchange()
    node = exchange.start(7001)
    node.meet("10.0.0.9", 7009)
    [tried] = dialed(node)
    tried.dial_error = "Connection refused"
    exchange.run(2200)
    [fields] = [fields for name, fields in exchange.peer(node).notices if name == "handshake-failed"]
    assert fields["reason"] == "Connection refused"


def test_a_second_meeting_gives_a_handshake_the_whole_time_again():
    """Spec N4. An operator may repeat MEET when the network works again. The first attempt must not shorten it."""
    exchange = Exchange()
    node = exchange.start(7001)
    node.meet("10.0.0.9", 7009)
    exchange.run(1900)
    node.meet("10.0.0.9", 7009)
    exchange.run(1900)
    assert len(node.table.nodes) == 2
    exchange.run(300)
    assert len(node.table.nodes) == 1


def test_a_second_meeting_replaces_an_attempt_that_may_hang():
    """Spec N4. This happens at most once a second, so that repeated MEETs can't prevent a slow handshake."""
    node = lone()
    node.meet("10.0.0.9", 7009)
    (handshake,) = dialed(node)
    for wait_ms, is_anew in ((900, True), (900, False), (200, True)):
        node.tray.dials, node.tray.hang_ups = {}, {}
        node.table.now_ms += wait_ms
        node.meet("10.0.0.9", 7009)
        assert (list(node.tray.hang_ups), dialed(node)) == (([handshake],) * 2 if is_anew else ([], []))


def test_a_meeting_within_that_second_replaces_the_attempt_at_its_end():
    """Spec N4. The network may have healed only after the last attempt began (seed 13244)."""
    node = lone()
    node.meet("10.0.0.9", 7009)
    (handshake,) = dialed(node)
    for _ in range(2):
        node.tray.dials, node.tray.hang_ups = {}, {}
        node.table.now_ms += 300
        node.meet("10.0.0.9", 7009)
    assert not dialed(node)
    for wait_ms, expected in ((600, []), (200, [handshake]), (1_100, [])):
        node.tray.dials, node.tray.hang_ups = {}, {}
        node.table.now_ms += wait_ms
        node.tick()
        assert (list(node.tray.hang_ups), dialed(node)) == (expected, expected)


def test_a_handshake_does_not_count_for_size_and_groups():
    node = lone()
    node.meet("10.0.0.9", 7009)
    assert (node.table.size, node.table.usable, node.table.linked) == (1, (), ())


def test_a_name_is_replaced_by_the_address_it_led_to():
    node = lone()
    node.meet("seed.example.org", 7999)
    found = node.link_up(dialed(node)[0], STRANGER, "10.0.0.9", "10.0.0.1")
    assert found is node.table.intern(STRANGER.id)
    assert (found.host, found.port, found.bus_port) == ("10.0.0.9", 7999, 17999)
    assert node.table.me.host == "10.0.0.1"


def test_an_announced_host_wins_over_the_address_of_the_socket():
    """Spec N7."""
    node = lone()
    node.meet("10.0.0.9", 7999)
    found = node.link_up(dialed(node)[0], STRANGER._replace(host="b.example.org"), "10.0.0.9", "10.0.0.1")
    assert found is not None
    assert found.host == "b.example.org"


def test_heartbeats_to_a_node_just_met_are_meet_until_it_answers_then_ping():
    """The MEET may be lost with a link or refused in a crowd. Without another MEET the node would stay a stranger."""
    node = lone()
    node.meet("10.0.0.9", 7999)
    found = node.link_up(dialed(node)[0], STRANGER)
    assert found is not None
    node.link_down(found)
    node.link_up(found, STRANGER)
    node.receive(found, STRANGER, "10.0.0.9", "", PONG, [heartbeat_item()])
    node.link_down(found)
    node.link_up(found, STRANGER)
    assert [kind for _, kind, _ in node.outgoing.take()] == [MEET, MEET, PING]


def test_the_same_node_under_a_second_address_is_met_there_and_the_link_is_closed():
    node = lone()
    node.meet("10.0.0.9", 7999)
    found = node.link_up(dialed(node)[0], STRANGER)
    node.outgoing.take()
    node.meet("192.168.0.9", 7999)
    assert node.link_up(dialed(node)[1], STRANGER) is None
    assert [(nodes, kind) for nodes, kind, _ in node.outgoing.take()] == [((found,), MEET)]
    assert node.table.size == len(node.table.nodes) == 2


def test_a_known_node_without_link_takes_over_the_link_of_a_handshake():
    node = lone()
    node.receive(None, STRANGER, "10.0.0.9", "", MEET, [heartbeat_item()])
    known = node.table.nodes[STRANGER.id]
    node.meet("192.168.0.9", 7999)
    assert node.link_up(dialed(node)[1], STRANGER, "192.168.0.9") is known
    assert known.is_linked
    assert known.host == "192.168.0.9"
    assert len(node.tray.dials) == 1  # The handshake's dial. The other attempt was withdrawn.


def test_a_link_for_a_node_forgotten_meanwhile_is_closed():
    node = lone()
    node.meet("10.0.0.9", 7999)
    handshake = dialed(node)[0]
    node.forget(handshake)
    assert node.link_up(handshake, STRANGER) is None
    node.link_down(handshake)
    assert len(node.table.nodes) == 1


def test_a_placeholder_of_a_job_becomes_the_node_when_it_is_met():
    exchange = Exchange()
    first, second = exchange.start(7001), exchange.start(7002)
    named = first.table.intern(second.table.me.id)
    assert named.flags == UNKNOWN
    second.meet("10.0.0.1", 7001)
    exchange.run(500)
    assert seen_by(first, second) is named
    assert not named.flags


# -- strangers -----------------------------------------------------------------------------------------------


def test_from_a_stranger_only_meet_is_accepted():
    """The log names the stranger once, with advice.

    The node was reset here. Without a reset it would come back (see below).
    """
    node = lone()
    node.reset(hard=False)
    assert node.accept(STRANGER, "10.0.0.9", "10.0.0.1") is None
    for kind in (PING, PONG):
        node.receive(None, STRANGER, "10.0.0.9", "10.0.0.1", kind, [heartbeat_item()])
    node.receive(None, STRANGER, "10.0.0.9", "10.0.0.1", FAIL_NODE, [[b"x" * 20]])
    assert node.ignored["stranger"] == 3
    assert [name for name, _ in node.tray.notices].count("unknown-member") == 1
    assert node.table.size == 1
    node.receive(None, STRANGER, "10.0.0.9", "10.0.0.1", MEET, [heartbeat_item()])
    newcomer = node.table.nodes[STRANGER.id]
    assert newcomer.host == "10.0.0.9"
    assert node.table.me.host == "10.0.0.1"
    assert node.accept(STRANGER, "10.0.0.9", "10.0.0.1") is newcomer


def test_a_ping_from_a_stranger_brings_a_node_back_that_lost_its_table():
    """The stranger dialed the node by its id, so both were members of one cluster."""
    node = lone()
    node.receive(None, STRANGER, "10.0.0.9", "10.0.0.1", PING, [heartbeat_item()])
    assert node.table.nodes[STRANGER.id].is_newcomer
    assert list(node.tray.dials) == [node.table.nodes[STRANGER.id]]
    assert "coming-back" in [name for name, _ in node.tray.notices]


def test_a_node_that_knows_others_believes_no_ping_of_a_stranger():
    node = lone()
    node.load([NodeLine(b"o" * 20, "10.0.0.5", 7001, 17001, 0, 0, 0)])
    node.receive(None, STRANGER, "10.0.0.9", "10.0.0.1", PING, [heartbeat_item()])
    assert STRANGER.id not in node.table.nodes


def test_a_node_comes_back_while_it_tries_to_reach_a_seed():
    """The placeholder of a handshake does not count as a member."""
    node = lone()
    node.meet("10.0.0.7", 7999)
    node.receive(None, STRANGER, "10.0.0.9", "10.0.0.1", PING, [heartbeat_item()])
    assert STRANGER.id in node.table.nodes


def test_a_node_at_whose_address_another_one_was_expected_says_what_helps():
    """The node may have lost its nodes file, and its id with it.

    A node that was reset or has members gives no advice.
    """
    node = lone()
    for _ in range(2):
        node.stranger_gone(STRANGER, "10.0.0.9")
    (notice,) = node.tray.notices
    assert (notice[0], notice[1]["host"]) == ("expected-another", "10.0.0.9")
    others = lone(), lone()
    others[0].reset(hard=True)
    others[1].load([NodeLine(b"o" * 20, "10.0.0.5", 7001, 17001, 0, 0, 0)])
    for other in others:
        other.stranger_gone(STRANGER, "10.0.0.9")
        assert "expected-another" not in [name for name, _ in other.tray.notices]


def test_a_newcomer_that_is_given_up_leaves_a_reset_node_alone():
    """A MEET that leads to no link must not make the node accept PINGs of former members."""
    node = lone()
    node.reset(hard=False)
    node.receive(None, STRANGER, "10.0.0.9", "10.0.0.1", MEET, [heartbeat_item()])
    assert node.admission.is_alone
    node.admission.expel(node.table.nodes[STRANGER.id])
    assert "vars alone" in node.dump()


def test_the_last_member_can_be_forgotten_while_a_handshake_goes_on():
    node = lone()
    node.load([NodeLine(b"o" * 20, "10.0.0.5", 7001, 17001, 0, 0, 0)])
    node.meet("10.0.0.7", 7999)
    node.forget(node.table.nodes[b"o" * 20])
    assert node.admission.is_alone


def test_the_file_knows_at_once_that_a_meeting_was_given_up():
    """Otherwise a restarted node would follow the meeting in the earlier text again."""
    node = lone()
    node.meet("10.0.0.9", 7999)
    (placeholder,) = node.tray.dials
    node.tray.must_write = False
    node.admission.expel(placeholder)
    assert node.tray.must_write


def test_a_meeting_goes_on_after_a_kill():
    node = lone()
    node.meet("10.0.0.9", 7999)
    again = lone()
    again.load(parse(node.dump()))
    again.resume(parse_notes(node.dump(), 0))
    assert again.table.find_handshake("10.0.0.9", 7999) is not None


def test_a_meeting_that_was_given_up_is_not_begun_again():
    node = lone()
    node.meet("10.0.0.9", 7999)
    node.tray.must_save = False
    node.table.now_ms += 2_001
    node.tick()
    assert node.tray.must_save
    assert "10.0.0.9" not in node.dump()


def test_a_node_that_has_not_answered_is_met_again_by_the_next_process():
    node = lone()
    node.meet("10.0.0.9", 7999)
    (placeholder,) = node.tray.dials
    found = node.link_up(placeholder, STRANGER, "10.0.0.9", "10.0.0.1")
    again = lone()
    again.load(parse(node.dump()))
    assert again.table.nodes[STRANGER.id].must_meet
    node.receive(found, STRANGER, "10.0.0.9", "10.0.0.1", PONG, [heartbeat_item()])
    assert node.tray.must_write
    again = lone()
    again.load(parse(node.dump()))
    assert not again.table.nodes[STRANGER.id].must_meet


def test_a_meet_from_ourselves_is_ignored():
    node = lone()
    node.receive(None, node.hello(), "10.0.0.1", "10.0.0.1", MEET, [heartbeat_item()])
    assert node.table.size == 1


def test_a_kind_of_a_newer_version_is_ignored_and_counted():
    node = lone()
    node.receive(None, STRANGER, "", "", 31, [["?"]])
    assert node.ignored["unknown kind"] == 1


@pytest.mark.parametrize(("kind", "item"), [(MEET, ["?"]), (FAIL_NODE, []), (FAIL_NODE, [1]), (FAIL_NODE, 1)])
def test_a_malformed_message_is_a_frame_error(kind: int, item: object):
    with pytest.raises(FrameError):
        lone().receive(None, STRANGER, "", "", kind, [item])


# -- heartbeats ----------------------------------------------------------------------------------------------


def test_an_idle_cluster_sends_few_heartbeats_and_no_node_is_suspected():
    exchange = Exchange()
    nodes = exchange.start_joined(3)
    before = [len(exchange.peer(node).notices) for node in nodes]
    exchange.run(20_000)
    assert is_whole(nodes)
    assert [len(exchange.peer(node).notices) for node in nodes] == before
    assert all(exchange.now_ms - other.pong_received_ms <= 2500 for node in nodes for other in node.table.linked)


def test_memory_levels_reach_all_nodes_with_the_next_tick():
    exchange = Exchange()
    first, second, third = exchange.start_joined(3)
    first.table.me.memory_level = 2
    exchange.run(2 * TICK_MS)
    assert seen_by(second, first).memory_level == seen_by(third, first).memory_level == 2


def test_a_failing_disk_reaches_all_nodes_with_the_next_tick_and_so_does_its_recovery():
    """Spec C1."""
    exchange = Exchange()
    first, second, third = exchange.start_joined(3)
    for is_failing in (True, False):
        first.table.me.is_disk_failing = is_failing
        exchange.run(2 * TICK_MS)
        assert seen_by(second, first).is_disk_failing is seen_by(third, first).is_disk_failing is is_failing
        assert {node.table.counted for node in (first, second, third)} <= ({1, 2} if is_failing else {2})
        assert second.table.counted == 2 - is_failing


def test_places_reach_all_nodes_at_once_and_stand_in_the_file():
    """Spec ZN1."""
    exchange = Exchange()
    first, second, third = exchange.start_joined(3)
    first.set_place("east", "rack 1")
    exchange.run(50)
    assert {(seen_by(node, first).datacenter, seen_by(node, first).zone) for node in (second, third)} == {
        ("east", "rack 1")
    }
    assert [line.place for line in parse(second.dump()) if line.id == first.table.me.id] == [("east", "rack 1")]


def test_an_answer_lost_with_a_link_is_asked_for_again():
    """The PING arrived, but its PONG was lost. Without another PING a healthy node would be suspected."""
    exchange = Exchange()
    first, second = exchange.start_joined(2)
    exchange.peer(second).links.clear()  # Its messages are lost from now on, and it does not know that yet.
    first._ping(seen_by(first, second))
    exchange.run(TICK_MS)
    assert seen_by(first, second).ping_sent_ms
    second.link_down(seen_by(second, first))
    exchange.run(1500)
    assert not seen_by(first, second).ping_sent_ms
    assert not seen_by(first, second).flags


def test_a_lone_node_wakes_once_a_second_others_ten_times():
    node = lone()
    node.tick()
    assert node.next_tick_ms() == node.table.now_ms + LONE_TICK_MS
    node.meet("10.0.0.9", 7009)
    assert node.next_tick_ms() == node.table.now_ms + TICK_MS


def test_a_node_that_asks_many_times_in_a_moment_is_answered_once():
    exchange = Exchange()
    first, second = exchange.start_joined(2)
    first.table.now_ms += 1
    items = [heartbeat_item(port=7002, bus_port=17002)] * 200
    first.receive(seen_by(first, second), second.hello(), "10.0.0.1", "", PING, items)
    assert sum(len(sent) for _, kind, sent in first.outgoing.take() if kind == PONG) == 1


def test_more_heartbeats_in_a_run_than_any_node_has_to_say_are_a_frame_error():
    with pytest.raises(FrameError):
        lone().receive(None, STRANGER, "", "", PING, [heartbeat_item()] * (HEARTBEATS_MAX + 1))


# -- failures ------------------------------------------------------------------------------------------------


def test_a_majority_agrees_on_a_failure_right_after_the_time_out():
    exchange = Exchange()
    first, second, third = exchange.start_joined(3)
    exchange.stop(third)
    exchange.run(1900)
    assert len(first.table.usable) == 2
    exchange.run(1300)
    assert seen_by(first, third).flags == seen_by(second, third).flags == FAIL
    assert first.table.usable == (seen_by(first, second),)
    assert first.table.size == 3


def test_a_frozen_process_is_suspected_and_its_link_tried_anew():
    exchange = Exchange()
    first, second, third = exchange.start_joined(3)
    exchange.peer(third).is_frozen = True
    exchange.run(4000)
    assert seen_by(first, third).flags & FAIL
    assert not seen_by(first, third).is_linked
    assert is_whole([first, second]) is False
    exchange.peer(third).is_frozen = False
    exchange.run(3000)
    assert is_whole([first, second, third])


def test_a_node_without_a_link_counts_no_longer_for_copies_after_a_second():
    exchange = Exchange()
    first, second, third = exchange.start_joined(3)
    exchange.stop(third)
    exchange.run(800)
    assert first.table.counted == 2
    exchange.run(200)
    assert (first.table.counted, second.table.counted) == (1, 1)
    exchange.start(third.table.me.port, node_id=third.table.me.id).load(parse(dump(third.table.nodes.values())))
    exchange.run(2_000)
    assert (first.table.counted, second.table.counted) == (2, 2)


def test_a_node_that_has_just_started_counts_those_it_has_not_reached():
    """Its nodes file names them. Without them it is a minority."""
    exchange = Exchange()
    first, *_ = exchange.start_joined(3)
    again = Exchange().start(7001, node_id=first.table.me.id)
    again.load(parse(dump(first.table.nodes.values())))
    assert again.table.counted == 2
    again.table.now_ms += 5_000
    again.tick()
    assert again.table.counted == 2


def test_two_nodes_alone_never_get_past_suspicion():
    exchange = Exchange()
    first, second = exchange.start_joined(2)
    exchange.stop(second)
    exchange.run(20_000)
    assert seen_by(first, second).flags == PFAIL


def test_the_smaller_side_of_a_partition_only_suspects():
    exchange = Exchange()
    nodes = exchange.start_joined(5)
    exchange.partition(nodes[:2], nodes[2:])
    exchange.run(6000)
    assert {seen_by(nodes[0], other).flags for other in nodes[2:]} == {PFAIL}
    assert {seen_by(nodes[4], other).flags for other in nodes[:2]} == {FAIL}


def test_when_a_partition_heals_so_do_its_suspicions():
    exchange = Exchange()
    nodes = exchange.start_joined(5)
    exchange.partition(nodes[:2], nodes[2:])
    exchange.run(6000)
    exchange.cut.clear()
    exchange.run(3000)
    assert is_whole(nodes)
    assert any(name == "node-recovered" for name, _ in exchange.peer(nodes[0]).notices)


def test_a_node_that_can_be_heard_but_not_reached_is_suspected():
    exchange = Exchange()
    first, second = exchange.start_joined(2)
    exchange.cut.add((exchange.peer(first), exchange.peer(second)))
    exchange.run(5000)
    assert seen_by(first, second).flags == PFAIL


def test_a_false_report_of_a_failure_is_corrected_by_the_next_answer():
    exchange = Exchange()
    first, second, third = exchange.start_joined(3)
    hello = second.hello()
    first.receive(
        seen_by(first, second), hello, "10.0.0.1", "10.0.0.1", FAIL_NODE, [[third.table.me.id], [first.table.me.id]]
    )
    assert seen_by(first, third).flags == FAIL
    exchange.run(200)
    assert is_whole([first, second, third])


def test_after_a_pause_of_the_node_itself_no_other_node_is_suspected():
    """A machine that was suspended finds many unanswered pings, although only the machine itself was silent."""
    exchange = Exchange()
    nodes = exchange.start_joined(3)
    exchange.run(1000)
    nodes[0]._ping(seen_by(nodes[0], nodes[1]))
    exchange.now_ms += 100_000
    exchange.run(1000)
    assert is_whole(nodes)


def test_everything_heals_when_failed_nodes_come_back():
    exchange = Exchange()
    first, second, third = exchange.start_joined(3)
    exchange.stop(third)
    exchange.run(5000)
    back = exchange.start(7003, node_id=third.table.me.id)
    back.load(parse(dump(third.table.nodes.values())))
    exchange.run(1500)
    assert is_whole([first, second, back])
    assert [node.id for node in exchange.peer(first).new_runs] == [back.table.me.id]


# -- addresses -----------------------------------------------------------------------------------------------


def test_a_node_restarted_on_another_port_is_found_within_a_second():
    exchange = Exchange()
    first, second, third = exchange.start_joined(3)
    exchange.stop(third)
    moved = exchange.start(7500, node_id=third.table.me.id)
    moved.load(parse(dump(third.table.nodes.values())))
    exchange.run(1000)
    assert is_whole([first, second, moved])
    assert seen_by(first, moved).port == 7500
    assert seen_by(first, moved) in first.tray.address_changed


def test_a_node_loses_its_address_when_another_node_answers_there():
    exchange = Exchange()
    first, second = exchange.start_joined(2)
    exchange.stop(second)
    exchange.start(7002)
    exchange.run(1000)
    lost = seen_by(first, second)
    assert lost.flags & NOADDR
    assert (lost.host, lost.port) == ("", 0)
    exchange.run(3000)
    assert lost.flags & PFAIL


def test_a_failing_node_is_found_where_others_say_it_is():
    exchange = Exchange()
    first, second, third = exchange.start_joined(3)
    seen_by(first, third).flags |= PFAIL
    entry = [third.table.me.id, "10.9.9.9", 7003, 17003, 0, -1, -1]
    item = [heartbeat_item(port=7002, bus_port=17002)[0], [entry]]
    first.receive(seen_by(first, second), second.hello(), "10.0.0.1", "10.0.0.1", PING, [item])
    assert first.table.find_handshake("10.9.9.9", 7003) is not None


# -- leaving, saving -------------------------------------------------------------------------------------------


def test_leaving_is_known_everywhere_in_a_moment_and_taken_back_likewise():
    exchange = Exchange()
    first, second, third = exchange.start_joined(3)
    first.set_leaving(True)
    exchange.run(100)
    assert seen_by(second, first).flags == seen_by(third, first).flags == LEAVING
    assert second.table.usable == (seen_by(second, third),)
    assert second.table.size == 3
    first.set_leaving(False)
    exchange.run(100)
    assert is_whole([first, second, third])


def test_a_restart_finds_the_cluster_from_the_file_alone():
    exchange = Exchange()
    first, second = exchange.start_joined(2)
    second.set_leaving(True)
    text = dump(second.table.nodes.values())
    exchange.stop(second)
    back = exchange.start(7002, node_id=second.table.me.id)
    back.load(parse(text))
    assert back.table.me.flags & LEAVING
    assert back.table.me.host == "10.0.0.1"
    exchange.run(500)
    assert back.table.linked[0].id == first.table.me.id


def test_a_ping_in_flight_before_a_restart_begins_now():
    node = lone()
    text = f"{'62' * 20} h:1 fail 5 7 connected\n{node.table.me.name.decode()} :7001 myself 0 0 connected\n"
    node.load(parse(text))
    other = node.table.nodes[b"b" * 20]
    assert (other.ping_sent_ms, other.pong_received_ms, other.fail_at_ms) == (1_000_000, 1_000_000, 1_000_000)
    assert other.flags == FAIL


@pytest.mark.parametrize("seed", range(20))
def test_with_any_seed_a_cluster_becomes_whole_and_the_epoch_tells(seed: int):
    exchange = Exchange(seed)
    nodes = exchange.start_joined(5)
    epoch = nodes[0].table.epoch
    assert is_whole(nodes)
    exchange.stop(nodes[4])
    exchange.run(200)
    assert nodes[0].table.epoch > epoch


@pytest.mark.parametrize("seed", range(10))
def test_after_any_faults_the_cluster_is_whole_again_after_healing(seed: int):
    """Kills, restarts elsewhere, freezes, partitions and meetings happen in any order. Then the network is quiet."""
    exchange = Exchange(seed)
    rng, nodes = exchange.rng, exchange.start_joined(5)
    for step in range(30):
        at = rng.randrange(5)
        what = rng.choice(["move", "freeze", "thaw", "cut", "heal", "meet", "leave"])
        if what == "move":
            old = nodes[at]
            exchange.stop(old)
            exchange.run(rng.choice([0, 500, 4000]))
            nodes[at] = exchange.start(7100 + step, node_id=old.table.me.id)
            nodes[at].load(parse(dump(old.table.nodes.values())))
        elif what in ("freeze", "thaw"):
            exchange.peer(nodes[at]).is_frozen = what == "freeze"
        elif what == "cut":
            exchange.partition(nodes[:at], nodes[at:])
        elif what == "heal":
            exchange.cut.clear()
        elif what == "meet":
            nodes[at].meet("10.0.0.1", rng.choice(nodes).table.me.port)
        else:
            nodes[at].set_leaving(rng.random() < 0.5)
        exchange.run(rng.choice([0, 100, 1000, 5000]))
    exchange.cut.clear()
    for node in nodes:
        exchange.peer(node).is_frozen = False
        node.set_leaving(False)
        node.meet("10.0.0.1", nodes[0].table.me.port)  # A node that moved while all others moved too can't find them.
    exchange.run(15_000)
    assert is_whole(nodes)


def notes(exchange, node):
    """Return the notices of a node."""
    return dict(exchange.peer(node).notices)


def test_the_log_has_a_failure_with_its_address_and_the_state_of_the_cluster():
    exchange = Exchange()
    nodes = exchange.start_joined(5)
    exchange.partition(nodes[:2], nodes[2:])
    exchange.run(6000)
    few, many = notes(exchange, nodes[0]), notes(exchange, nodes[4])
    assert many["node-failed"]["address"] in {f"{node.table.me.host}:{node.table.me.port}" for node in nodes[:2]}
    assert many["node-failed"]["reason"]
    assert few["cluster-fail"] == {"lost": 3, "size": 5}
    assert "cluster-fail" not in many
    exchange.cut.clear()
    exchange.run(3000)
    assert "cluster-ok" in notes(exchange, nodes[0])


def test_the_log_has_one_line_about_leaving():
    exchange = Exchange()
    node = exchange.start(7001)
    node.set_leaving(True)
    node.set_leaving(True)
    node.set_leaving(False)
    assert [name for name, _ in node.tray.notices] == ["leaving-began", "leaving-ended"]
