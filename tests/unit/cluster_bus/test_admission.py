"""cluster_bus/admission.py: how nodes get into the table, and the limits for strangers."""

from __future__ import annotations

from collections import Counter

from bus_exchange import STRANGER, Exchange, is_whole, lone, seen_by
from cluster_bus.admission import (
    FORGOTTEN_MAX,
    HANDSHAKES_MAX,
    MEMBERS_MAX,
    NEWCOMERS_BURST,
    NEWCOMERS_MAX,
    NEWCOMERS_PER_S,
)
from cluster_bus.handshake import Hello
from cluster_bus.membership import TICK_MS, Membership
from cluster_bus.messages import FAIL_NODE, MEET
from cluster_bus.node import FAIL, FORGOTTEN, UNKNOWN


def strangers(count: int, first: int = 1) -> list[Hello]:
    return [STRANGER._replace(id=number.to_bytes(20, "big"), port=number) for number in range(first, first + count)]


def meet_from(node: Membership, hello: Hello, host: str = "10.0.0.9", entries: list[object] | None = None) -> None:
    header = {"host": "", "port": hello.port, "bus_port": hello.port, "flags": 0, "incarnation": hello.incarnation}
    item = [header, entries or []]
    node.receive(None, hello, host, "10.0.0.1", MEET, [item])


def give_up(node: Membership) -> None:
    """Let the time pass within which newcomers must be reached."""
    node.table.now_ms += node.node_timeout_ms + 1
    node.tick()


def test_a_newcomer_does_not_count_until_it_was_reached():
    """Any peer can send MEET. The quorum and the copies of jobs must not wait for a node that does not exist."""
    node = lone()
    meet_from(node, STRANGER)
    newcomer = node.table.nodes[STRANGER.id]
    assert (node.table.size, node.table.usable, list(node.table.newcomers)) == (1, (), [newcomer])
    node.link_up(newcomer, STRANGER)
    assert (node.table.size, node.table.usable, list(node.table.newcomers)) == (2, (newcomer,), [])


def test_a_newcomer_that_cannot_be_reached_is_given_up_and_leaves_no_trace():
    node = lone()
    meet_from(node, STRANGER)
    newcomer = node.table.nodes[STRANGER.id]
    give_up(node)
    assert list(node.table.nodes.values()) == [node.table.me]
    assert newcomer.flags == FORGOTTEN
    assert node.table.intern(STRANGER.id) is not newcomer
    assert node.tray.forgotten == []


def test_the_core_is_told_of_the_end_of_a_newcomer_only_if_it_knows_it():
    """The core responds with a walk over all acknowledged jobs. Strangers must not be able to start such a walk."""
    node = lone()
    meet_from(node, STRANGER)
    newcomer = node.table.nodes[STRANGER.id]
    newcomer.core = "interest and hand-overs"
    give_up(node)
    assert node.tray.forgotten == [newcomer]


def test_a_newcomer_that_claims_the_id_of_a_holder_changes_nothing_about_the_holder():
    """Jobs name the holder and wait for its confirmation. A liar that can't be reached must not end the wait."""
    node = lone()
    holder = node.table.intern(STRANGER.id)
    meet_from(node, STRANGER)
    give_up(node)
    assert holder.flags == UNKNOWN
    assert node.table.intern(STRANGER.id) is holder


def test_a_newcomer_that_jobs_name_meanwhile_is_still_their_holder_when_it_is_given_up():
    """Other nodes reached it and gave it copies. If it were flagged forgotten, it would count as knowing every ack."""
    node = lone()
    meet_from(node, STRANGER)
    holder = node.table.intern(STRANGER.id)
    give_up(node)
    assert list(node.table.nodes.values()) == [node.table.me]
    assert holder.flags == UNKNOWN
    assert node.table.intern(STRANGER.id) is holder


def test_a_newcomer_that_jobs_name_can_be_forgotten():
    node = lone()
    meet_from(node, STRANGER)
    holder = node.table.intern(STRANGER.id)
    node.forget(holder)
    assert holder.flags == FORGOTTEN
    assert node.tray.forgotten == [holder]


def test_a_node_that_comes_back_as_another_process_after_it_was_forgotten_is_reported():
    """The core numbers hand-overs per process. A new process must not get answers meant for the old one."""
    node = lone()
    meet_from(node, STRANGER)
    known = node.table.nodes[STRANGER.id]
    node.link_up(known, STRANGER)
    node.forget(known)
    meet_from(node, STRANGER._replace(incarnation=1))
    assert node.table.nodes[STRANGER.id] is known
    assert node.tray.new_runs == []
    node.forget(known)
    meet_from(node, STRANGER._replace(run=b"run-two-", incarnation=2))
    assert node.tray.new_runs == [known]
    assert known.run == b"run-two-"


def test_reports_of_failures_from_a_newcomer_are_ignored():
    exchange = Exchange()
    first, second = exchange.start_joined(2)
    other = seen_by(first, second)
    meet_from(first, STRANGER, entries=[[other.id, "10.0.0.1", 7002, 17002, FAIL, -1, -1]])
    first.receive(first.table.nodes[STRANGER.id], STRANGER, "10.0.0.9", "", FAIL_NODE, [[other.id]])
    assert not other.flags
    assert not other.reports


def test_the_newcomers_of_one_host_are_limited_at_once_and_per_second():
    node = lone()
    for hello in strangers(1000):
        meet_from(node, hello)
    assert len(node.table.newcomers) == NEWCOMERS_BURST
    assert node.ignored["too many newcomers from one host"] == 1000 - NEWCOMERS_BURST
    node.table.now_ms += 1000
    for hello in strangers(1000, 2001):
        meet_from(node, hello)
    assert len(node.table.newcomers) == NEWCOMERS_BURST + NEWCOMERS_PER_S


def test_the_number_of_newcomers_of_all_hosts_is_limited():
    node = lone()
    for number, hello in enumerate(strangers(1000)):
        meet_from(node, hello, f"10.0.{number % 250}.1")
    assert len(node.table.newcomers) == len(node.table.nodes) - 1 == NEWCOMERS_MAX
    assert node.ignored["too many newcomers"] == 1000 - NEWCOMERS_MAX


def test_the_handshakes_that_gossip_starts_are_limited():
    node = lone()
    entries = [
        [number.to_bytes(20, "big"), "10.9.9.9", number, number, 0, -1, -1] for number in range(1, 4 * NEWCOMERS_BURST)
    ]
    meet_from(node, STRANGER, entries=entries)
    assert node.table.handshake_count == NEWCOMERS_BURST
    for number in range(250):
        meet_from(node, STRANGER, f"10.0.{number}.1", entries)
    assert node.table.handshake_count == HANDSHAKES_MAX
    assert node.ignored["too many handshakes"] > 0


def test_a_node_that_takes_the_id_of_a_placeholder_is_a_stranger():
    """CLUSTER NODES shows the ids of placeholders. A peer that reads one must not be able to stop the node with it."""
    node = lone()
    node.meet("10.0.0.8", 7999)
    placeholder = next(iter(node.tray.dials))
    meet_from(node, STRANGER._replace(id=placeholder.id))
    assert node.link_up(placeholder, STRANGER._replace(id=placeholder.id)) is not None
    node.meet("10.0.0.7", 7999)
    node.meet("10.0.0.6", 7999)
    seventh, sixth = list(node.tray.dials)[-2:]
    assert node.link_up(seventh, STRANGER._replace(id=sixth.id)) is None


def test_a_crowd_of_newcomers_costs_no_save():
    """A save costs two syncs of the disk, and a newcomer repeats MEET until it is reached."""
    node = lone()
    node.links.announced_host = "10.0.0.1"
    for hello in strangers(100):
        meet_from(node, hello)
    assert len(node.table.newcomers) == 100
    assert (node.tray.must_write, node.tray.must_save) == (False, False)
    node.table.now_ms += TICK_MS
    node.tick()
    assert not node.tray.must_save


def test_a_member_is_written_before_it_is_told_of_anything():
    node = lone()
    (hello,) = strangers(1)
    meet_from(node, hello)
    (newcomer,) = node.table.newcomers
    assert not node.tray.must_write
    node.link_up(newcomer, hello, "10.0.0.9", "10.0.0.1")
    assert node.tray.must_write
    assert hello.id.hex() in node.dump()


def test_fifty_nodes_on_one_machine_that_meet_one_of_them_are_whole_in_two_seconds():
    """Limits against liars must not keep a large cluster from forming."""
    exchange = Exchange()
    nodes = exchange.start_joined(50)
    exchange.run(1000)
    assert is_whole(nodes)
    assert not sum((node.ignored for node in nodes), Counter())


def test_a_crowd_above_a_hosts_rate_limit_still_comes_in():
    """A refused node repeats MEET."""
    exchange = Exchange()
    first, *others = [exchange.start(7001 + at) for at in range(6)]
    first.admission._newcomer_limiter.burst = first.admission._gossip_limiter.burst = 2
    first.admission._newcomer_limiter.rate = first.admission._gossip_limiter.rate = 1
    for node in others:
        node.meet("10.0.0.1", 7001)
    exchange.run(5000)
    assert first.ignored["too many newcomers from one host"] > 0
    exchange.run(5000)
    assert is_whole([first, *others])


def test_a_table_larger_than_any_cluster_grows_no_more_by_itself():
    node = lone()
    node.table.size = MEMBERS_MAX
    meet_from(node, STRANGER, entries=[[b"b" * 20, "10.9.9.9", 1, 1, 0, -1, -1]])
    assert len(node.table.nodes) == 1
    node.meet("10.0.0.9", 7999)
    assert len(node.table.nodes) == 2


def test_the_memory_of_forgotten_nodes_is_bounded_and_the_first_may_come_back():
    """Spec N5. Each forgotten node takes a line in the nodes file."""
    node = lone()
    for number in range(FORGOTTEN_MAX + 1):
        node.admission.keep_out(number.to_bytes(20, "big"), 3)
    assert len(node.admission.forgotten()) == FORGOTTEN_MAX
    assert not node.admission.is_forgotten((0).to_bytes(20, "big"), 3)
    assert node.admission.is_forgotten((1).to_bytes(20, "big"), 3)


def test_a_newcomer_that_says_what_an_operator_asked_is_heeded_when_it_is_reached():
    """Spec N10. Any peer can claim that an operator asked, and a new incarnation costs a write of the nodes file."""
    node = lone()
    meet_from(node, STRANGER)
    assert node.table.me.incarnation == 0
    node.link_up(node.table.nodes[STRANGER.id], STRANGER)
    assert node.table.me.incarnation == 1
