"""core/zones.py: distances, spread copies, and the majority of a data centre."""

from __future__ import annotations

from brokers import add_node, ask, ask_parsed, error_of, make_broker, make_client
from cluster_bus.messages import GOTJOB, HINT, HOLDERS, INTEREST, NEEDJOBS, REFUSED, REFUSED_MEMORY, REPLJOB
from cluster_bus.node import FAIL, LEAVING
from copies import advance, say, sent_of
from disque_py.core import ordering, pulls, zones
from disque_py.core.replica_sets import choose
from disque_py.core.rivals import Rivals
from disque_py.node import dispatch

NO_ZONES = "NOREPL Not enough zones for the requested replication level"
NO_NODES = "NOREPL Not enough reachable nodes for the requested replication level"


def cluster(*places, **settings):
    """This node in data centre `east`, zone `a`, and others in these."""
    broker = make_broker(datacenter="east", zone="a", **settings)
    nodes = [add_node(broker, number, place=place) for number, place in enumerate(places, 2)]
    return broker, make_client(broker), nodes


def add(broker, client, *options):
    return ask(broker, client, "ADDJOB", "q", "body", 0, *options)


def confirm(broker, *nodes):
    """Let these nodes confirm the only job, and return the replies of this moment."""
    (job_id,) = [job.id for shard in broker.shards if shard for job in shard.values()]
    for node in nodes:
        say(broker, node, GOTJOB, job_id)
    (client,) = broker.clients.values()
    data = b"".join(client.out)
    client.out.clear()
    return data


def test_distance_is_zero_in_a_zone_one_in_a_data_centre_two_elsewhere():
    """Spec ZN5."""
    broker, _, nodes = cluster(("east", "a"), ("east", "b"), ("west", "a"))
    assert [zones.distance(broker.me, node) for node in nodes] == [0, 1, 2]


def test_copies_go_to_zones_that_have_none_first():
    """Spec ZN2."""
    broker, _, nodes = cluster(("east", "a"), ("east", "a"), ("east", "b"), ("east", "c"))
    for _ in range(20):
        assert set(broker.copies.replica_sets.draw(broker, 2)[0]) == set(nodes[2:])
    one_more = {broker.copies.replica_sets.draw(broker, 3)[0] for _ in range(50)}
    assert one_more == {(nodes[0], *nodes[2:]), (nodes[1], *nodes[2:])}


def test_a_further_copy_goes_to_a_zone_without_one():
    """Spec ZN2."""
    broker, _, nodes = cluster(("east", "a"), ("east", "b"), ("east", "b"), ("east", "c"))
    for _ in range(20):
        assert choose(broker, 1, frozenset(nodes[:2]), held=(broker.me, nodes[1])) == (nodes[3],)


def test_a_zone_that_changes_counts_at_once():
    """Spec ZN1."""
    broker, client, nodes = cluster(("east", "a"), ("east", "b"))
    assert broker.copies.replica_sets.draw(broker, 1)[0] == (nodes[1],)
    assert ask(broker, client, "CONFIG", "SET", "zone", "b") == b"+OK\r\n"
    assert broker.copies.replica_sets.draw(broker, 1)[0] == (nodes[0],)


def test_zones_n_waits_for_copies_in_n_zones():
    """Spec ZN3."""
    broker, client, nodes = cluster(("east", "a"), ("east", "a"), ("east", "b"))
    assert add(broker, client, "REPLICATE", 2, "ZONES", 2) == b""
    assert confirm(broker, nodes[0]) == b""
    assert confirm(broker, nodes[2]).startswith(b"+D-")


def test_a_missing_zone_is_asked_for_in_that_zone_only():
    """Spec ZN3."""
    broker, client, nodes = cluster(("east", "a"), ("east", "b"), ("east", "a"), ("east", "b"))
    add(broker, client, "REPLICATE", 2, "ZONES", 2)
    asked = sent_of(broker, REPLJOB)[0][0]
    assert asked in ((nodes[1],), (nodes[3],))
    confirm(broker, nodes[0], nodes[2])
    (job,) = broker.copies.waiting_repl
    say(broker, asked[0], REFUSED, (job.id, REFUSED_MEMORY))
    other = nodes[3] if asked[0] is nodes[1] else nodes[1]
    assert sent_of(broker, REPLJOB)[-1][0] == (other,)


def test_zones_is_from_one_to_replicate():
    """Spec ZN3."""
    broker, client, _ = cluster(("east", "b"), ("east", "c"))
    for options in (("REPLICATE", 2, "ZONES", 3), ("ZONES", 0), ("ZONES", "x"), ("RETRY", 0, "ZONES", 2)):
        assert error_of(broker, client, "ADDJOB", "q", "b", 0, *options) == "ERR ZONES must be between 1 and REPLICATE"


def test_without_enough_zones_a_job_is_refused():
    """Spec ZN3."""
    broker, client, nodes = cluster(("east", "a"), ("east", "b"))
    assert error_of(broker, client, "ADDJOB", "q", "b", 0, "REPLICATE", 3, "ZONES", 3) == NO_ZONES
    nodes[1].flags |= FAIL
    broker.cluster.refresh()
    assert error_of(broker, client, "ADDJOB", "q", "b", 0, "REPLICATE", 2, "ZONES", 2) == NO_ZONES


def test_a_quorum_is_a_majority_of_the_data_centre_failed_nodes_included():
    """Spec ZN4."""
    broker, _, nodes = cluster(("east", "b"), ("east", ""), ("east", ""), ("west", ""), None)
    assert zones.quorum(broker) == 3  # Of five: the last one has never said where it is.
    nodes[0].flags |= FAIL
    assert zones.quorum(broker) == 3
    nodes[1].flags |= LEAVING
    nodes[2].flags |= LEAVING
    assert zones.quorum(broker) == 2


def test_replicate_quorum_waits_for_nodes_of_this_data_centre_only():
    """Spec ZN4."""
    broker, client, nodes = cluster(("east", "b"), ("east", "c"), ("west", ""), ("north", ""), ("west", ""))
    assert add(broker, client, "REPLICATE", "quorum") == b""
    (job,) = broker.copies.waiting_repl
    local = [node for node in nodes if node.datacenter == "east" and node in job.holders]
    assert [job.terms.replicate, len(local), len(job.holders)] == [2, 1, 4]
    assert confirm(broker, *nodes[2:]) == b""
    assert confirm(broker, local[0]).startswith(b"+D-")


def test_show_tells_the_number_that_was_waited_for():
    """Spec ZN4."""
    broker, client, nodes = cluster(("east", "b"), ("east", "c"))
    add(broker, client, "REPLICATE", "QUORUM")
    job_id = confirm(broker, *nodes)[1:-2]
    shown = ask_parsed(broker, client, "SHOW", job_id)
    assert shown[shown.index(b"repl") + 1] == 2


def test_a_minority_refuses_a_quorum():
    """Spec ZN4."""
    broker, client, nodes = cluster(("east", "b"), ("east", "c"), ("west", ""))
    for node in nodes[:2]:
        node.flags |= FAIL
    broker.cluster.refresh()
    assert error_of(broker, client, "ADDJOB", "q", "b", 0, "REPLICATE", "QUORUM") == NO_NODES


def test_a_refusal_elsewhere_is_passed_on_to_another_node_there():
    """Spec ZN4."""
    broker, client, nodes = cluster(("east", "b"), ("west", ""), ("west", ""))
    add(broker, client, "REPLICATE", "QUORUM")
    (job,) = broker.copies.waiting_repl
    (remote,) = [node for node in nodes[1:] if node in job.holders]
    say(broker, remote, REFUSED, (job.id, REFUSED_MEMORY))
    assert set(nodes) < job.holders
    assert sent_of(broker, HOLDERS)[0][0] == (nodes[0],)


def test_quorum_excludes_zones_and_retry_0():
    """Spec ZN4."""
    broker, client, _ = cluster(("east", "b"), ("east", "c"))
    for options, words in ((("RETRY", 0), "RETRY 0"), (("ZONES", 2), "ZONES")):
        error = error_of(broker, client, "ADDJOB", "q", "b", 0, "REPLICATE", "QUORUM", *options)
        assert error == f"ERR syntax error: REPLICATE QUORUM and {words} exclude each other"


def test_the_setting_replicate_quorum_means_the_same():
    """Spec ZN4."""
    broker, client, nodes = cluster(("east", "b"), ("east", "c"), ("west", ""))
    ask(broker, client, "QUEUE", "SET", "q", "replicate", "quorum")
    advance(broker, 2_000)
    sent_of(broker, REPLJOB)
    add(broker, make_client(broker))
    (job,) = broker.copies.waiting_repl
    assert (job.terms.replicate, nodes[2] in job.holders) == (2, True)


def test_async_sends_the_copies_of_a_quorum_without_waiting():
    """Spec ZN4."""
    broker, client, nodes = cluster(("west", ""))
    assert add(broker, client, "REPLICATE", "QUORUM", "ASYNC").startswith(b"+D-")
    assert sent_of(broker, REPLJOB)[0][0] == (nodes[0],)


# -- hints and pulls ------------------------------------------------------------------------------------


def wait_at(broker, *nodes):
    """Let one client of each of these nodes wait for jobs of the queue."""
    for node in nodes:
        say(broker, node, INTEREST, (b"q", 1))
    dispatch.settle(broker)
    sent_of(broker, HINT)


def test_a_hint_goes_to_the_nearest_node_whose_clients_wait():
    """Spec ZN5."""
    broker, client, nodes = cluster(("west", "a"), ("east", "b"), ("east", "a"))
    wait_at(broker, *nodes)
    add(broker, client, "REPLICATE", 1)
    dispatch.settle(broker)
    assert [receivers for receivers, _ in sent_of(broker, HINT)] == [(nodes[2],)]


def test_a_near_node_that_ignores_its_hint_is_passed_over():
    """Spec ZN5."""
    broker, client, nodes = cluster(("west", "a"), ("east", "a"))
    wait_at(broker, *nodes)
    add(broker, client, "REPLICATE", 1)
    dispatch.settle(broker)
    sent_of(broker, HINT)
    advance(broker, 11)
    assert [receivers for receivers, _ in sent_of(broker, HINT)] == [(nodes[0],)]


def test_the_hint_of_a_farther_node_waits_for_the_jobs_of_a_nearer_one():
    """Spec ZN5."""
    broker, client, (far, near) = cluster(("west", "a"), ("east", "a"))
    ask(broker, client, "GETJOB", "FROM", "q")
    dispatch.settle(broker)
    sent_of(broker, NEEDJOBS)
    say(broker, near, HINT, (b"q", 5))
    say(broker, far, HINT, (b"q", 5))
    assert [receivers for receivers, _ in sent_of(broker, NEEDJOBS)] == [(near,)]
    advance(broker, pulls.NEAR_MS)
    say(broker, far, HINT, (b"q", 5))
    assert [receivers for receivers, _ in sent_of(broker, NEEDJOBS)] == [(far,)]


def test_a_dry_queue_asks_its_nearest_source_first():
    """Spec ZN5."""
    broker, _, (far, near) = cluster(("west", "a"), ("east", "a"))
    queue = broker.queue(b"q")
    queue.sources = {far: broker.now_ms, near: broker.now_ms}
    asked = []
    for _ in range(2):
        pulls.ask_sources(broker, queue, is_urgent=False)
        asked.append([receivers for receivers, _ in sent_of(broker, NEEDJOBS)])
        advance(broker, 200)
    assert asked == [[(near,)], [(far,), (near,)]]


def known_elsewhere(broker, client, far, near, worse):
    """Jobs better than ours are known at two nodes, the best one at the far node."""
    queue = broker.queue(b"q")
    add(broker, client, "REPLICATE", 1, "PRIORITY", 100)
    queue.rivals = rivals = Rivals()
    rivals.note(near, (50, 0))
    rivals.note(far, (10, 0))
    rivals.worse = worse
    assert ordering.may_serve(broker, queue, rivals, is_picky=False)
    return [receivers for receivers, _ in sent_of(broker, NEEDJOBS)]


def test_better_jobs_are_fetched_from_the_nearest_node_while_the_bound_allows_it():
    """Spec ZN6."""
    broker, client, (far, near) = cluster(("west", "a"), ("east", "a"))
    assert known_elsewhere(broker, client, far, near, worse=0) == [(near,)]


def test_after_half_of_the_bound_of_inversion_the_best_job_is_fetched_from_anywhere():
    """Spec ZN6."""
    broker, client, (far, near) = cluster(("west", "a"), ("east", "a"))
    assert known_elsewhere(broker, client, far, near, worse=ordering.PULL_AFTER) == [(far,)]
