"""events_planning.py: batches are planned without loss or repetition, or an error says why not."""

from __future__ import annotations

import json
import threading

import pytest

pytest.importorskip("pyarrow", reason="the extra disque-py[spark] is not installed")

from disque_py.spark.event_log import DataLossError
from disque_py.spark.events_planning import EventPlanner, event_options
from disque_py.spark.nodes import ClusterError
from disque_py.spark.options import OptionError
from event_plans import all_of, close_all, drain, planner, rows
from spark_stub import StubCluster


@pytest.fixture(autouse=True)
def closed():
    """Planners close their connections when the test is over."""
    yield
    close_all()


def test_everything_from_the_earliest_in_batches_of_the_limit():
    with StubCluster(3) as cluster:
        for node, count in zip(cluster.nodes, (7, 20, 0), strict=True):
            node.events(count)
        plan = planner(cluster, startingOffsets="earliest", maxOffsetsPerTrigger="9")
        found, end = drain(plan, plan.initial())
        assert sorted(found) == all_of(*cluster.nodes)
        assert plan.latest(end) is end


def test_a_first_batch_repeated_after_a_crash_begins_where_it_began():
    """Spark then asks for the initial offset again, which is another position by then."""
    with StubCluster() as cluster:
        cluster.nodes[0].events(5)
        plan = planner(cluster, startingOffsets="latest")
        start = plan.initial()
        cluster.nodes[0].events(5)
        end = plan.latest(start)
        cluster.nodes[0].events(100)
        again = planner(cluster, startingOffsets="latest")
        assert again.initial() != start
        assert rows(again, end) == [(cluster.nodes[0].id, seq) for seq in range(5, 10)]


def test_a_node_that_joins_begins_at_its_first_event_and_one_that_leaves_keeps_its_place():
    with StubCluster(2) as cluster:
        first, second = cluster.nodes
        first.events(3)
        second.events(3)
        plan = planner(cluster, startingOffsets="earliest")
        _, end = drain(plan, plan.initial())
        third = cluster.add_node()
        third.events(4)
        cluster.hidden.add(second.id)
        second.events(2)
        found, end = drain(plan, end)
        assert found == all_of(third)
        assert end["nodes"][second.id]["next"] == 3
        cluster.hidden.clear()
        assert drain(plan, end)[0] == all_of(second, first=3)


@pytest.mark.parametrize("word", [b"SEEK", b"READ"])
def test_a_node_that_goes_away_while_a_batch_is_planned_keeps_its_position(word):
    with StubCluster(2) as cluster:
        near, away = cluster.nodes
        near.events(3)
        away.events(3)
        plan = planner(cluster)
        start = plan.initial()
        away.new_log("another", keep=True)
        start["nodes"][away.id] = {"since": 1} if word == b"SEEK" else start["nodes"][away.id]
        away.restarts_at = word
        end = plan.latest(start)
        assert end["nodes"][away.id] == start["nodes"][away.id]
        assert end["nodes"][near.id]["next"] == 3


def test_a_node_that_was_away_when_the_query_began_at_the_end_begins_at_that_moment():
    with StubCluster(2) as cluster:
        away = cluster.nodes[1]
        away.events(4)
        plan = planner(cluster, startingTimestamp="1700000000020")
        plan._nodes.discover()
        port, away.port = away.port, 1
        start = planner(cluster, startingTimestamp="1700000000020").initial()
        assert start["nodes"][away.id] == {"since": 1_700_000_000_020}
        away.port = port
        assert drain(plan, start)[0] == [(away.id, 2), (away.id, 3)]


def test_a_node_that_cannot_be_reached_is_reported_once_each_time(capsys):
    with StubCluster(2) as cluster:
        away = cluster.nodes[1]
        plan = planner(cluster)
        start = plan.initial()
        for port in (1, 1, away.port, 1):
            away.port = port
            plan.latest(start)
        told = capsys.readouterr().err
        assert told.count(f"warning: node {away.id} can't be reached (127.0.0.1:1: ") == 2
        assert told.count(f"node {away.id} can be reached again") == 1


def test_available_now_stops_where_the_logs_ended_at_the_start():
    with StubCluster(2) as cluster:
        for node in cluster.nodes:
            node.events(10)
        plan = planner(cluster, startingOffsets="earliest", maxOffsetsPerTrigger="6")
        plan.freeze()
        wanted = all_of(*cluster.nodes)
        start = plan.initial()
        for node in cluster.nodes:
            node.events(10)
        cluster.add_node().events(3)
        assert sorted(drain(plan, start)[0]) == wanted


def test_available_now_ends_before_a_log_that_was_begun_after_the_start():
    """It would have no end while events come."""
    with StubCluster(1) as cluster:
        node = cluster.nodes[0]
        node.events(5)
        plan = planner(cluster, startingOffsets="earliest")
        plan.freeze()
        start, wanted = plan.initial(), all_of(node)
        node.new_log("log1b", keep=True)
        node.events(3)
        found, end = drain(plan, start)
        assert sorted(found) == wanted
        assert end["nodes"] == {node.id: {"log": "log1b", "next": 0}}


def test_trimmed_events_are_an_error_or_skipped():
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(10)
        start = planner(cluster, startingOffsets="earliest").initial()
        node.trim(4)
        with pytest.raises(DataLossError, match="events 0 to 3 of log log1a were trimmed"):
            planner(cluster, startingOffsets="earliest").latest(start)
        plan = planner(cluster, startingOffsets="earliest", failOnDataLoss="false")
        with pytest.warns(UserWarning, match="failOnDataLoss is false"):
            end = plan.latest(start)
        assert rows(plan, end) == all_of(node)


def test_a_log_begun_anew_is_read_after_the_rest_of_the_old_one():
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(5)
        plan = planner(cluster, startingOffsets="earliest", maxOffsetsPerTrigger="3")
        start = plan.latest(plan.initial())
        node.new_log("log1b", keep=True)
        node.events(2)
        assert drain(plan, start)[0] == [(node.id, 3), (node.id, 4), (node.id, 0), (node.id, 1)]


def test_the_rest_of_an_old_log_is_read_within_the_limit_of_a_batch():
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        plan = planner(cluster, startingOffsets="earliest", maxOffsetsPerTrigger="2")
        start = plan.initial()
        node.events(5)
        node.new_log("log1b", keep=True)
        node.events(3)
        sizes = []
        while (end := plan.latest(start)) is not start:
            sizes.append(len(rows(plan, end)))
            start = end
        assert (sum(sizes), max(sizes)) == (8, 2)


def test_a_node_without_a_log_is_an_error_at_the_start_and_away_later():
    """The node's log could not be written. Another log begins when the disk works again."""
    with StubCluster(2) as cluster:
        node = cluster.nodes[1]
        node.events(3)
        plan = planner(cluster, startingOffsets="earliest")
        _, end = drain(plan, plan.initial())
        node.events(2)
        real, node.on_events = node.on_events, lambda argv: b"-NOLOG none\r\n"
        assert plan.latest(end) is end
        with pytest.raises(ClusterError, match="has no event log; set `events yes`"):
            planner(cluster).initial()
        node.on_events = real
        assert drain(plan, end)[0] == all_of(node, first=3)


def test_a_log_that_is_gone_is_an_error_that_names_both():
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(5)
        plan = planner(cluster, startingOffsets="earliest")
        _, end = drain(plan, plan.initial())
        node.new_log("log1b")
        node.events(2)
        with pytest.raises(DataLossError, match=r"log log1a is gone; it was read up to 5.*log1b"):
            plan.latest(end)
        loose = planner(cluster, failOnDataLoss="false")
        with pytest.warns(UserWarning, match="log1a is gone.*; lost so far: 0 events .*, and the ends of 1 logs"):
            found, end = drain(loose, end)
        assert (found, end["lost"]) == (all_of(node), {"events": 0, "logs": 1})


def test_a_new_log_without_its_beginning_is_reported_as_a_loss():
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(5)
        plan = planner(cluster, startingOffsets="earliest")
        _, end = drain(plan, plan.initial())
        node.new_log("log1b", keep=True)
        node.events(9)
        node.trim(4)
        with pytest.raises(
            DataLossError, match=r"events 1 to 3 of log log1b, which follows log log1a, were trimmed.*events-max-age"
        ):
            drain(plan, end)
        loose = planner(cluster, failOnDataLoss="false")
        with pytest.warns(UserWarning, match="lost so far: 3 events"):
            assert drain(loose, end)[0] == all_of(node)


def test_a_log_that_ends_before_the_position_was_cut_and_is_read_again_as_another_log():
    """Its next events have numbers that the query knows. The name of the log tells them from the earlier ones."""
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(9)
        plan = planner(cluster, startingOffsets="earliest")
        _, end = drain(plan, plan.initial())
        del node.lines[5:]
        node.events(2)
        with pytest.raises(DataLossError, match=r"log1a ends before 7, but event 9 .* from its first event"):
            plan.latest(end)
        loose = planner(cluster, failOnDataLoss="false")
        with pytest.warns(UserWarning, match="log1a ends before 7.*; lost so far: 0 events .*, and the ends of 1 logs"):
            found, end = drain(loose, end)
        assert (found, end["lost"]) == (all_of(node), {"events": 0, "logs": 1})
        assert end["nodes"][node.id] == {"log": "log1a.1", "next": 7}
        node.events(6)
        assert drain(planner(cluster), end)[0] == all_of(node, first=7)


def test_a_log_that_was_cut_twice_gets_a_third_name():
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(3)
        loose = planner(cluster, failOnDataLoss="false")
        place = {node.id: {"log": "log1a.1", "next": 9}}
        with pytest.warns(UserWarning, match="ends before 3"):
            found, end = drain(loose, {"nodes": place, "from": place})
        assert (found, end["nodes"][node.id]["log"]) == (all_of(node), "log1a.2")


def test_a_query_may_start_in_a_log_that_was_cut():
    """An index refuses the old name of such a log, and its error gives this option."""
    with StubCluster(2) as cluster:
        for node in cluster.nodes:
            node.events(5)
        first, second = cluster.nodes
        start = {first.id: {"log": f"{first.log}.1", "next": 3}, second.id: -2}
        plan = planner(cluster, startingOffsets=json.dumps(start))
        found, end = drain(plan, plan.initial())
        assert sorted(found) == sorted([(first.id, 3), (first.id, 4), *all_of(second)])
        assert end["nodes"][first.id] == {"log": f"{first.log}.1", "next": 5}


def test_available_now_and_the_lag_know_a_log_that_was_cut():
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(3)
        plan = planner(cluster)
        plan.freeze()
        place = {node.id: {"log": "log1a.1", "next": 1}}
        assert drain(plan, {"nodes": place, "from": place})[0] == all_of(node, first=1)
        assert plan.report() == {"nodes": {node.id: {"log": "log1a.1", "next": 3}}}


def test_a_batch_read_from_beyond_the_end_of_a_log_is_a_loss():
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(9)
        beyond = json.dumps({node.id: {"log": node.log, "next": 12}})
        with pytest.raises(DataLossError, match="ends before 9, but event 12 comes next"):
            batch(cluster, startingOffsets=beyond).batch()
        loose = batch(cluster, startingOffsets=beyond, failOnDataLoss="false")
        with pytest.warns(UserWarning, match="ends before 9"):
            [(piece, _)] = loose.batch()
        assert piece[1:] == ("log1a.1", 0, 9)


def test_losses_are_counted_in_the_offset():
    with StubCluster(2) as cluster:
        for node, cut in zip(cluster.nodes, (3, 4), strict=True):
            node.events(10)
            node.trim(cut)
        plan = planner(cluster, startingOffsets="earliest", failOnDataLoss="false")
        starts = {node.id: {"log": node.log, "next": 0} for node in cluster.nodes}
        with pytest.warns(UserWarning, match="lost so far"):
            end = plan.latest({"nodes": starts, "from": starts})
        assert end["lost"] == {"events": 7, "logs": 0}
        cluster.nodes[0].events(2)
        assert plan.latest(end)["lost"] == {"events": 7, "logs": 0}


def test_a_planned_batch_with_events_of_a_node_that_has_left_ends_the_query_or_goes_on_without_them():
    with StubCluster(2) as cluster:
        stays, gone = cluster.nodes
        for node in cluster.nodes:
            node.events(3)
        plan = planner(cluster, startingOffsets="earliest")
        end = plan.latest(plan.initial())
        cluster.hidden.add(gone.id)
        with pytest.raises(
            ClusterError, match=f"{gone.id}.*events 0 to 2.*let it join again, set failOnDataLoss=false"
        ):
            plan.ranges(end)
        loose = planner(cluster, failOnDataLoss="false")
        with pytest.warns(UserWarning, match=f"{gone.id}.*events 0 to 2.*going on without them"):
            assert {piece.node for piece, _ in loose.ranges(end)} == {stays.id}


def test_a_planned_batch_with_events_of_an_emptied_node_goes_on_without_them():
    """The other nodes still have the id that it had before, without an address."""
    with StubCluster(2) as cluster:
        stays, emptied = cluster.nodes
        for node in cluster.nodes:
            node.events(3)
        plan = planner(cluster, failOnDataLoss="false", startingOffsets="earliest", fetch__timeoutMs="300")
        end = plan.latest(plan.initial())
        emptied.has_address = False
        with pytest.warns(UserWarning, match=f"{emptied.id}.*events 0 to 2.*going on without them"):
            assert {piece.node for piece, _ in plan.ranges(end)} == {stays.id}


def test_a_planned_batch_waits_for_a_node_that_moves_to_another_address():
    with StubCluster(2) as cluster:
        node = cluster.nodes[1]
        node.events(3)
        plan = planner(cluster, startingOffsets="earliest")
        end = plan.latest(plan.initial())
        node.has_address = False
        threading.Timer(0.1, setattr, (node, "has_address", True)).start()
        assert rows(plan, end) == all_of(node)


def test_a_node_that_the_cluster_no_longer_knows_is_reported_once(capsys):
    with StubCluster(2) as cluster:
        gone = cluster.nodes[1]
        gone.events(3)
        plan = planner(cluster, startingOffsets="earliest")
        _, end = drain(plan, plan.initial())
        cluster.hidden.add(gone.id)
        assert (plan.latest(end), plan.latest(end)) == (end, end)
        told = capsys.readouterr().err
        line = f"node {gone.id} is no longer known to the cluster; the next event to read of its log log2a is 3"
        assert told.count(line) == 1


def test_an_emptied_node_is_not_read_under_the_id_it_had_before():
    """Other nodes still name the address with the old id. Under that id its events would be read twice."""
    with StubCluster(2) as cluster:
        node = cluster.nodes[1]
        node.events(3)
        plan = planner(cluster, startingOffsets="earliest", failOnDataLoss="false")
        _, end = drain(plan, plan.initial())
        node.known_as, node.id = node.id, "f" * 40
        node.new_log("another")
        node.events(2)
        for each in (plan, planner(cluster, failOnDataLoss="false")):
            assert each.latest(end) is end
        node.known_as = ""
        assert drain(plan, end)[0] == all_of(node)


def test_a_log_that_another_node_at_the_address_does_not_know_is_no_loss():
    """The node begins another log, and is replaced at its address before it is asked for the rest of the old one."""
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(3)
        plan = planner(cluster, startingOffsets="earliest")
        end = plan.latest(plan.initial())
        node.new_log("another")
        real = node.on_events

        def replaced(argv):
            if argv[1] == b"READ":
                node.id = "f" * 40
            return real(argv)

        node.on_events = replaced
        assert plan.latest(end) is end


def test_a_node_that_lost_its_address_to_another_is_reported_and_keeps_its_position(capsys):
    with StubCluster(2) as cluster:
        node = cluster.nodes[1]
        node.events(3)
        plan = planner(cluster, startingOffsets="earliest")
        _, end = drain(plan, plan.initial())
        node.has_address = False
        assert (plan.latest(end), plan.latest(end)) == (end, end)
        assert capsys.readouterr().err.count(f"node {node.id} has lost its address to another node") == 1
        node.has_address = True
        node.events(2)
        assert drain(plan, end)[0] == all_of(node, first=3)


def test_bytes_limit_a_batch_through_the_average_event():
    with StubCluster() as cluster:
        cluster.nodes[0].events(100)
        size = sum(map(len, cluster.nodes[0].lines))
        plan = planner(cluster, startingOffsets="earliest", maxBytesPerTrigger=str(size // 10))
        assert plan.latest(plan.initial())["nodes"][cluster.nodes[0].id]["next"] == 10


def test_the_ends_of_logs_are_reported_for_the_lag():
    with StubCluster() as cluster:
        cluster.nodes[0].events(4)
        plan = planner(cluster)
        assert plan.report() == {"nodes": {cluster.nodes[0].id: {"log": "log1a", "next": 4}}}


def batch(cluster: StubCluster, **given: str) -> EventPlanner:
    return planner(cluster, is_stream=False, **given)


def test_a_batch_read_is_everything_between_two_places():
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(10)
        plan = batch(cluster, startingOffsets=f'{{"{node.id}": 2}}', endingOffsets=f'{{"{node.id}": 6}}')
        assert [(piece.start, piece.end) for piece, _ in plan.batch()] == [(2, 6)]
        with pytest.raises(OptionError, match="events up to 60, but its log ends before 10"):
            batch(cluster, endingOffsets=f'{{"{node.id}": 60}}').batch()


def test_a_batch_read_needs_all_nodes():
    with StubCluster(2) as cluster:
        cluster.nodes[0].events(1)
        cluster.nodes[1].stop()
        with pytest.raises(ClusterError, match=f"node {cluster.nodes[1].id} can't be reached"):
            batch(cluster).batch()
        assert len(batch(cluster, failOnDataLoss="false").batch()) == 1


def test_a_batch_read_without_a_node_that_is_away_accepts_its_offsets():
    """It said that the node is not one of the cluster."""
    with StubCluster(2) as cluster:
        near, away = cluster.nodes
        near.events(9)
        away.stop()
        starts, ends = (f'{{"{near.id}": {seq}, "{away.id}": {seq}}}' for seq in (3, 7))
        plan = batch(cluster, startingOffsets=starts, endingOffsets=ends, failOnDataLoss="false")
        assert [(piece.node, piece.start, piece.end) for piece, _ in plan.batch()] == [(near.id, 3, 7)]
        with pytest.raises(ClusterError, match=f"node {away.id} can't be reached .*start it, or set failOnDataLoss"):
            batch(cluster, startingOffsets=starts, endingOffsets=ends).batch()


@pytest.mark.parametrize(
    ("given", "is_stream", "text"),
    [
        ({"startingOffsets": "latest"}, False, "can't be latest in a batch"),
        ({"endingOffsets": "latest"}, True, "endingOffsets is for batch reads"),
        ({"startingOffsets": "[1]"}, True, "startingOffsets must be earliest, latest or a JSON object"),
        ({"startingoffset": "latest"}, True, "did you mean startingOffsets"),
        ({"maxOffsetsPerTrigger": "0"}, True, "maxOffsetsPerTrigger must be at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(given, is_stream, text):
    with pytest.raises(OptionError, match=text):
        event_options({"bootstrapServers": "a", **given}, is_stream=is_stream)
