"""cluster_bus/membership.py: forgotten and reset nodes, and what brings them back."""

from __future__ import annotations

import pytest

from bus_exchange import STRANGER, Exchange, heartbeat_item, is_whole, lone, seen_by
from cluster_bus.admission import UNHEARD
from cluster_bus.messages import MEET
from cluster_bus.node import FORGOTTEN, LEAVING, NOADDR
from cluster_bus.nodes_file import NodeLine, parse, parse_notes


def test_a_forgotten_node_is_out_of_everything_and_gossip_does_not_bring_it_back():
    exchange = Exchange()
    first, second, third = exchange.start_joined(3)
    gone = seen_by(first, third)
    first.forget(gone)
    exchange.run(5000)
    assert first.tray.forgotten == [gone]
    assert gone.flags == FORGOTTEN
    assert first.table.usable == (seen_by(first, second),)
    assert first.table.intern(third.table.me.id) is gone


def test_nodes_that_were_not_told_never_bring_it_back():
    """Spec N5."""
    exchange = Exchange()
    first, _, third = exchange.start_joined(3)
    gone = seen_by(first, third)
    first.forget(gone)
    exchange.run(200_000)
    assert gone.flags == FORGOTTEN


def test_a_meet_of_the_forgotten_node_itself_does_not_bring_it_back():
    """Spec N5. The node lost its table, got this address from a node that had not forgotten it, and sends MEET."""
    exchange = Exchange()
    first, second, third = exchange.start_joined(3)
    first.forget(seen_by(first, third))
    exchange.stop(third)
    again = exchange.start(7003, node_id=third.table.me.id)
    again.meet("10.0.0.9", 7999)
    again.table.me.incarnation = third.table.me.incarnation
    exchange.run(70_000)
    assert seen_by(second, again).is_linked
    assert first.table.find(third.table.me.id) is None
    assert first.ignored["forgotten"] > 0


@pytest.mark.parametrize("at", [1, 2])
def test_a_meet_at_any_node_of_the_cluster_or_at_itself_brings_it_back_everywhere(at: int):
    """Spec N10."""
    exchange = Exchange()
    nodes = exchange.start_joined(3)
    first, second, third = nodes
    for node in (first, second):
        node.forget(seen_by(node, third))
    exchange.run(70_000)
    nodes[at].meet("10.0.0.1", 7003 if at == 1 else 7002)
    exchange.run(5_000)
    assert is_whole(nodes)


def test_an_address_at_which_a_forgotten_node_is_found_by_chance_does_not_bring_it_back():
    """Spec N5. Gossip gave this address for another node, which has left."""
    node = lone()
    node.load([NodeLine(STRANGER.id, "10.0.0.9", 7999, 17999, 0, 0, 0, incarnation=5)])
    node.forget(node.table.nodes[STRANGER.id])
    placeholder = node.admission.shake_hands("10.0.0.9", 7999, 17999)
    assert node.link_up(placeholder, STRANGER._replace(incarnation=5)) is None
    placeholder = node.admission.shake_hands("10.0.0.9", 7999, 17999)
    assert node.link_up(placeholder, STRANGER._replace(incarnation=6)) is node.table.nodes[STRANGER.id]


def test_seeds_do_not_bring_a_forgotten_node_back():
    """Spec N5. Neither a restart of the forgotten node nor a restart of another node brings it back."""
    exchange = Exchange()
    first, second, third = exchange.start_joined(3)
    for node in (first, second):
        node.forget(seen_by(node, third))
    first.meet_seed("10.0.0.1", 7003, 17003)
    exchange.run(5_000)
    third.reset(hard=False)
    third.meet_seed("10.0.0.1", 7001, 17001)
    exchange.run(70_000)
    assert is_whole([first, second])


def test_seeds_bring_new_nodes_and_are_not_kept_in_the_file():
    exchange = Exchange()
    first, second = exchange.start(7001), exchange.start(7002)
    first.meet_seed("10.0.0.1", 7002, 17002)
    assert "vars meet" not in first.dump()
    exchange.run(1_000)
    assert is_whole([first, second])


def test_a_meeting_in_flight_does_not_bring_a_node_back_that_is_forgotten_meanwhile():
    """Spec N5."""
    exchange = Exchange()
    first, second = exchange.start(7001), exchange.start(7002)
    first.load([NodeLine(second.table.me.id, "10.0.0.1", 7002, 17002, 0, 0, 0)])
    first.meet("10.0.0.1", 7002)
    first.forget(first.table.nodes[second.table.me.id])
    exchange.run(20_000)
    assert list(first.table.nodes.values()) == [first.table.me]


def test_a_meeting_in_flight_goes_on_when_a_former_node_of_its_address_is_forgotten():
    """Spec N5. A node that was reset hard has a new id at that address."""
    exchange = Exchange()
    first, second = exchange.start(7001), exchange.start(7002)
    first.load([NodeLine(STRANGER.id, "10.0.0.1", 7002, 17002, 0, 0, 0)])
    first.meet("10.0.0.1", 7002)
    first.forget(first.table.nodes[STRANGER.id])
    exchange.run(1_000)
    assert is_whole([first, second])


def test_of_a_node_that_was_only_named_the_first_known_incarnation_is_forgotten():
    """Spec N5. Jobs named the node, and this node never met it."""
    node = lone()
    named = node.table.intern(STRANGER.id)
    assert node.forget_unknown(named.name)
    assert node.tray.must_save
    assert node.admission.forgotten() == [(STRANGER.id, UNHEARD)]
    assert node.admission.is_forgotten(STRANGER.id, 7)
    assert not node.admission.is_forgotten(STRANGER.id, 8)


def test_forgotten_nodes_stay_out_after_a_restart_and_a_reset():
    """Spec N5."""
    node = lone()
    node.load([NodeLine(STRANGER.id, "10.0.0.9", 7999, 17999, 0, 0, 0, incarnation=5)])
    node.forget(node.table.nodes[STRANGER.id])
    node.reset(hard=True)
    again = lone()
    again.resume(parse_notes(node.dump(), 0))
    assert again.admission.is_forgotten(STRANGER.id, 5)
    assert not again.admission.is_forgotten(STRANGER.id, 6)


def test_jobs_may_name_a_node_that_was_forgotten_before_a_restart():
    """Seed 10575: it counted as a holder that must confirm an ack, so the ack was kept until the TTL. Spec A8, N5."""
    node = lone()
    node.load([NodeLine(STRANGER.id, "10.0.0.9", 7999, 17999, 0, 0, 0, incarnation=5)])
    assert not node.table.has_forgotten
    node.forget(node.table.nodes[STRANGER.id])
    again = lone()
    again.load(parse(node.dump()))
    again.resume(parse_notes(node.dump(), 0))
    assert again.table.has_forgotten
    assert again.table.intern(STRANGER.id).flags == FORGOTTEN
    assert again.tray.forgotten == []  # The copies of that node were counted as lost before the restart.
    again.meet("10.0.0.9", 7999)
    again.link_up(again.table.find_handshake("10.0.0.9", 7999), STRANGER)
    assert not again.table.nodes[STRANGER.id].flags & FORGOTTEN


def test_a_node_keeps_its_incarnation_and_each_meet_of_an_operator_raises_it():
    """Spec N10. The number rises even if the clock was set back."""
    node = lone()
    node.table.wall_ms = 5_000
    node.meet("10.0.0.9", 7999)
    assert node.table.me.incarnation == 5_000
    again = lone()
    again.load(parse(node.dump()))
    again.resume(parse_notes(node.dump(), 0))
    assert again.table.me.incarnation == 5_000
    again.meet("10.0.0.9", 7999)
    assert again.table.me.incarnation == 5_001


def test_a_meet_that_an_operator_asked_for_raises_the_number_of_the_node_that_hears_it_once():
    """Spec N10. Such a MEET is repeated until it is answered. A MEET because of gossip does not raise the number."""
    node = lone()
    node.load([NodeLine(STRANGER.id, "10.0.0.9", 7999, 17999, 0, 0, 0)])
    for asked, told, expected in ((0, 3, 0), (1, 3, 1), (1, 3, 1), (1, 4, 2)):
        node.tray.must_write = False
        item = heartbeat_item(asked=asked, incarnation=told)
        node.receive(node.table.nodes[STRANGER.id], STRANGER, "10.0.0.9", "", MEET, [item])
        assert node.table.me.incarnation == expected
    assert node.tray.must_write


def test_a_meet_of_an_older_release_counts_as_an_operators():
    """Spec N10. During a rolling upgrade, older nodes send MEETs that do not say whether an operator asked."""
    node = lone()
    old = STRANGER._replace(incarnation=-1)
    node.load([NodeLine(STRANGER.id, "10.0.0.9", 7999, 17999, 0, 0, 0)])
    node.forget(node.table.nodes[STRANGER.id])
    node.receive(None, old, "10.0.0.9", "", MEET, [heartbeat_item()])
    node.link_up(node.table.nodes[STRANGER.id], old)
    assert node.table.me.incarnation == 1


def test_a_meet_brings_a_forgotten_node_back_at_once():
    exchange = Exchange()
    first, second, third = exchange.start_joined(3)
    first.forget(seen_by(first, third))
    exchange.run(500)
    first.meet("10.0.0.1", 7003)
    exchange.run(1000)
    assert is_whole([first, second, third])


def test_heartbeats_of_a_forgotten_node_are_ignored_its_reports_void():
    exchange = Exchange()
    first, second, third = exchange.start_joined(3)
    seen_by(first, second).reports[seen_by(first, third)] = first.table.now_ms
    first.forget(seen_by(first, third))
    assert seen_by(first, second).reports == {}
    exchange.run(3000)
    assert first.ignored["stranger"] > 0


def test_a_soft_reset_forgets_all_other_nodes_and_keeps_the_id():
    exchange = Exchange()
    first, *_ = exchange.start_joined(3)
    old_id = first.table.me.id
    first.reset(hard=False)
    assert (first.table.size, first.table.linked, len(first.tray.forgotten)) == (1, (), 2)
    assert first.tray.must_save
    assert first.table.me.id == old_id


def test_a_hard_reset_takes_another_id_and_others_notice_at_their_next_link():
    exchange = Exchange()
    first, second, third = exchange.start_joined(3)
    old_id = first.table.me.id
    first.set_leaving(True)
    first.reset(hard=True)
    assert first.table.me.id != old_id
    assert first.table.me.flags & LEAVING
    for node in (second, third):  # The reset closed the links that they had dialed.
        exchange.peer(node).links.pop(node.table.nodes[old_id])
        node.link_down(node.table.nodes[old_id])
    exchange.run(1000)
    assert second.table.nodes[old_id].flags & NOADDR
    first.set_leaving(False)
    first.meet("10.0.0.1", 7002)
    exchange.run(1000)
    assert first.table.me.id in second.table.nodes
    assert first.table.me.id in third.table.nodes
