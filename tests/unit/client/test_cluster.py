"""The choice of the node for a command."""

from __future__ import annotations

from random import Random

from disque_py.client.address import Address
from disque_py.client.cluster import FAILED_S, PAUSE_S_MAX, Cluster
from disque_py.client.commands import ack, ping
from disque_py.client.errors import from_reply
from disque_py.client.results import Hello, Job, NodeInfo

A, B, C = Address("a", 1), Address("b", 1), Address("c", 1)


def cluster_of(*seeds, discover=True):
    return Cluster(seeds, Random(1), discover=discover)


def hello_from(letter, *others, priority=1):
    """Return HELLO of the node whose id repeats the letter 40 times. Others are pairs (letter, priority)."""
    everyone = [(letter, priority), *others]
    return Hello(1, letter * 40, [NodeInfo(each * 40, each, 1, rank) for each, rank in everyone])


def test_a_client_begins_at_a_random_seed():
    """Otherwise all clients with the same list would crowd on its first node."""
    first = {Cluster((A, B, C), Random(seed)).choices(0)[0] for seed in range(20)}
    assert first == {A, B, C}


def test_nodes_that_hello_names_are_tried_after_the_seeds():
    """An announced address may not be reachable from here. A seed was given by a person who knows the network."""
    cluster = cluster_of(A)
    cluster.note_hello(A, hello_from("a", ("b", 1), ("c", 1)))
    assert cluster.choices(0)[0] == A
    assert set(cluster.choices(0)) == {A, B, C}


def test_without_discover_only_seeds_are_used():
    """This is for clients behind network address translation."""
    cluster = cluster_of(A, discover=False)
    cluster.note_hello(A, hello_from("a", ("b", 1)))
    assert cluster.choices(0) == [A]


def test_a_node_that_is_leaving_comes_last():
    """HELLO's priority says so (spec X4)."""
    cluster = cluster_of(A, B)
    cluster.note_hello(A, hello_from("a", ("b", 1), priority=100))
    assert not cluster.is_good(A)
    assert cluster.choices(0) == [B, A]


def test_a_node_that_failed_is_left_alone_for_a_doubling_pause():
    """The pause has jitter, and never exceeds PAUSE_S_MAX."""
    cluster = cluster_of(A)
    cluster.note_failure(A, 100.0)
    assert cluster.choices(100.0) == []
    assert cluster.choices(100.1) == [A]
    for _ in range(20):
        cluster.note_failure(A, 200.0)
    assert cluster.choices(201.0) == []
    assert cluster.choices(200.0 + PAUSE_S_MAX) == [A]


def test_a_node_that_failed_a_short_time_ago_comes_after_its_equals():
    """A frozen node costs a time-out each time that it is tried."""
    cluster = cluster_of(A, B, C)
    cluster.note_failure(B, 100.0)
    assert all(cluster.choices(100.2)[2] == B for _ in range(20))
    assert B in {cluster.choices(100.2 + FAILED_S)[0] for _ in range(20)}


def test_an_answer_ends_the_pause():
    """After the next failure the pause has its minimum again."""
    cluster = cluster_of(A)
    cluster.note_failure(A, 100.0)
    cluster.note_hello(A, hello_from("a"))
    assert cluster.is_due(A, 100.0)


def test_the_home_is_given_up_when_it_fails_or_leaves():
    """The node to which consumers have moved is given up as well."""
    cluster = cluster_of(A, B)
    cluster.home, cluster.feeder = A, B
    cluster.note_failure(B, 0)
    assert (cluster.home, cluster.feeder) == (A, None)
    cluster.note_refusal(A, from_reply("LEAVING go"))
    assert (cluster.home, cluster.is_good(A)) == (None, False)


def test_a_node_that_lacks_nodes_is_not_taken_for_a_leaving_one():
    """Other nodes come first for a while, including nodes that are not seeds. Otherwise the node counts as good."""
    cluster = cluster_of(A)
    cluster.note_hello(A, hello_from("a", ("b", 1)))
    cluster.home = A
    cluster.note_refusal(A, from_reply("NOREPL Not enough reachable nodes for the requested replication level"))
    assert (cluster.home, cluster.choices(0)) == (None, [B, A])
    assert (cluster.is_good(A), cluster.node_with_prefix("aaaaaaaa", 0)) == (True, A)
    cluster.note_hello(A, hello_from("a", ("b", 1)))
    assert cluster.choices(0) == [A, B]


def test_one_node_under_two_names_is_kept_once():
    """The dialled address replaces the announced one."""
    cluster = cluster_of(C)
    cluster.note_hello(C, hello_from("a"))
    assert cluster.choices(0) == [C]


def test_nodes_that_left_the_cluster_are_forgotten():
    """A node's HELLO shows that they left. Seeds are kept."""
    cluster = cluster_of(A)
    cluster.note_hello(A, hello_from("a", ("b", 1)))
    cluster.note_hello(A, hello_from("a"))
    assert cluster.choices(0) == [A]


def test_a_command_about_a_job_belongs_to_the_node_that_delivered_it():
    """If that node is in its pause, any other node is tried."""
    cluster = cluster_of(A, B)
    job = Job("q", "i", b"", node=B)
    assert cluster.node_for(ack(job), 0) == B
    cluster.note_failure(B, 0)
    assert cluster.node_for(ack(job), 0) is None


def test_consumers_commands_follow_the_consumers():
    """Other commands go to the home node."""
    cluster = cluster_of(A, B)
    cluster.home = A
    cluster.move_consumers(B)
    assert cluster.node_for(ack("i"), 0) == B
    assert cluster.node_for(ping(), 0) is None
    assert cluster.consumer_home == B
    cluster.move_consumers(A)
    assert (cluster.feeder, cluster.consumer_home) == (None, A)


def test_a_maker_of_jobs_is_found_by_the_digits_in_their_ids():
    """A node whose priority in HELLO shows a problem is not found."""
    cluster = cluster_of(A)
    cluster.note_hello(A, hello_from("a", ("b", 1), ("c", 10)))
    assert cluster.prefix_of(A) == "aaaaaaaa"
    assert cluster.node_with_prefix("bbbbbbbb", 0) == B
    assert cluster.node_with_prefix("cccccccc", 0) is None
    assert cluster.node_with_prefix("", 0) is None


def test_a_node_that_hello_names_with_another_address_is_asked_there():
    """It has moved, or the first HELLO did not know its TLS port yet. A seed keeps its given address."""
    cluster = cluster_of(A)
    cluster.note_hello(A, hello_from("a", ("b", 1)))
    moved = Hello(1, "a" * 40, [NodeInfo("a" * 40, "elsewhere", 9, 1), NodeInfo("b" * 40, "b", 2, 1)])
    cluster.note_hello(A, moved)
    assert set(cluster.choices(0)) == {A, Address("b", 2)}


def test_a_failure_is_news_once():
    """The client warns once per failure, not once per attempt, until the node answers again."""
    cluster = cluster_of(A)
    assert [cluster.note_failure(A, 1.0), cluster.note_failure(A, 2.0)] == [True, False]
    cluster.note_hello(A, hello_from("a"))
    assert cluster.note_failure(A, 3.0)


def placed_hello(letter, **places):
    """Return HELLO EXTENDED of a node. Places are letter=(data centre, zone)."""
    nodes = [
        NodeInfo(each * 40, each, 1, 1, {"datacenter": datacenter, "zone": zone})
        for each, (datacenter, zone) in places.items()
    ]
    return Hello(1, letter * 40, nodes)


PLACES = {"a": ("west", "x"), "b": ("east", "y"), "c": ("east", "x"), "d": ("north", "x")}


def placed_cluster():
    """Return the cluster of a program in zone x of east, which got an answer from its seed in west."""
    cluster = Cluster([Address("a", 1)], Random(1), place=("east", "x"))
    cluster.note_hello(Address("a", 1), placed_hello("a", **PLACES))
    return cluster


def test_near_nodes_come_before_seeds():
    """Spec ZN9: the zone, then the data centre, then the others."""
    assert [address.host for address in placed_cluster().choices(0)] == ["c", "b", "a", "d"]


def test_a_far_node_is_left_for_a_nearer_one_that_was_not_tried():
    """Spec ZN9."""
    cluster = placed_cluster()
    a, b, c, d = (Address(letter, 1) for letter in "abcd")
    assert not cluster.is_best(a, [a], 0)
    assert cluster.is_best(c, [a, c], 0)
    assert [cluster.is_better(b, a), cluster.is_better(d, a)] == [True, False]
    cluster.note_failure(c, 0)
    assert cluster.is_best(b, [a, b], 0)


def test_consumers_do_not_move_to_a_farther_node():
    """Spec ZN9."""
    cluster = placed_cluster()
    cluster.home = Address("c", 1)
    assert cluster.node_with_prefix("a" * 8, 0) is None
    assert cluster.node_with_prefix("c" * 8, 0) == Address("c", 1)


def test_without_a_place_all_nodes_are_equally_near():
    cluster = Cluster([Address("a", 1)], Random(1))
    cluster.note_hello(Address("a", 1), placed_hello("a", **PLACES))
    assert cluster.choices(0)[0].host == "a"
    assert cluster.is_best(Address("a", 1), [], 0)


def test_a_login_is_wrong_when_all_known_nodes_refuse_it():
    """A node that can't be reached may accept it. It counts only while no node ever has: then the caller learns it."""
    cluster = cluster_of(A, B)
    assert cluster.note_login_refusal(A, 0)
    assert (cluster.all_refuse_login, cluster.is_login_wrong) == (False, True)
    cluster.note_hello(B, hello_from("b", ("a", 1)))
    assert not cluster.is_login_wrong
    assert not cluster.note_login_refusal(A, 5)
    assert cluster.note_login_refusal(B, 5)
    assert (cluster.all_refuse_login, cluster.is_login_wrong) == (True, True)
    cluster.note_failure(B, 10)
    assert not cluster.is_login_wrong
