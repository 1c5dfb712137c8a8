"""events_reading.py: batches are planned and read without loss or repetition, or a sentence says why not."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="the extra disque-py[spark] is not installed")

from disque_py.spark.event_log import DataLossError
from disque_py.spark.events_reading import EventPlanner, event_options, read_range
from disque_py.spark.nodes import ClusterError
from disque_py.spark.options import OptionError
from spark_stub import StubCluster

OPEN: list[EventPlanner] = []


@pytest.fixture(autouse=True)
def closed():
    """Planners of a test hang up when it is over."""
    yield
    while OPEN:
        OPEN.pop().close()


def planner(cluster: StubCluster, *, is_stream: bool = True, **given: str) -> EventPlanner:
    words = {name.replace("__", "."): value for name, value in given.items()}
    OPEN.append(EventPlanner(event_options({"bootstrapServers": cluster.servers, **words}, is_stream=is_stream)))
    return OPEN[-1]


def rows(plan: EventPlanner, end: dict) -> list[tuple[str, int]]:
    """(node, seq) of everything in the batch that ends there."""
    found = []
    for piece, address in plan.ranges(end):
        for batch in read_range(plan.options, piece, address):
            found += [(row["node"], row["seq"]) for row in batch.to_pylist()]
    return found


def drain(plan: EventPlanner, start: dict) -> tuple[list[tuple[str, int]], dict]:
    """Batches until there is nothing new."""
    found = []
    while (end := plan.latest(start)) is not start:
        found += rows(plan, end)
        start = end
    return found, start


def all_of(*nodes, first: int = 0) -> list[tuple[str, int]]:
    return [(node.id, seq) for node in nodes for seq in range(max(first, node.first), node.first + len(node.lines))]


def test_everything_from_the_earliest_in_batches_of_the_limit():
    with StubCluster(3) as cluster:
        for node, count in zip(cluster.nodes, (7, 20, 0), strict=True):
            node.events(count)
        plan = planner(cluster, startingOffsets="earliest", maxOffsetsPerTrigger="9")
        found, end = drain(plan, plan.initial())
        assert sorted(found) == all_of(*cluster.nodes)
        assert plan.latest(end) is end


def test_a_first_batch_repeated_after_a_crash_begins_where_it_began():
    """Spark then asks for the initial offset again, which by then is another place."""
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


def test_trimmed_events_are_an_error_or_passed_over_forwards():
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


def test_events_trimmed_between_planning_and_reading_are_not_passed_over_in_silence():
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(10)
        plan = planner(cluster, startingOffsets="earliest", failOnDataLoss="true")
        end = plan.latest(plan.initial())
        node.trim(4)
        with pytest.raises(DataLossError, match=r"events 0 to 3 .* are gone"):
            rows(plan, end)
        loose = planner(cluster, startingOffsets="earliest", failOnDataLoss="false")
        with pytest.warns(UserWarning, match="going on"):
            assert rows(loose, end) == all_of(node)


def test_a_log_begun_anew_is_read_after_the_rest_of_the_old_one():
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(5)
        plan = planner(cluster, startingOffsets="earliest", maxOffsetsPerTrigger="3")
        start = plan.latest(plan.initial())
        node.new_log("log1b", keep=True)
        node.events(2)
        assert drain(plan, start)[0] == [(node.id, 3), (node.id, 4), (node.id, 0), (node.id, 1)]


def test_a_node_without_a_log_is_an_error_at_the_start_and_away_later():
    """Its log could not be written; the next one begins when it can."""
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
        with pytest.raises(DataLossError, match=r"log log1a is gone, in which we had read up to 5.*log1b"):
            plan.latest(end)
        loose = planner(cluster, failOnDataLoss="false")
        with pytest.warns(UserWarning, match="log1a is gone"):
            assert drain(loose, end)[0] == all_of(node)


def test_short_slices_and_a_broken_connection_are_read_over():
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(30)
        cluster.read_limit = 7
        plan = planner(cluster, startingOffsets="earliest")
        end = plan.latest(plan.initial())
        node.hang_up_after = 3
        assert rows(plan, end) == all_of(node)


def test_a_node_that_gives_less_than_it_announced_is_named():
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(5)
        plan = planner(cluster, startingOffsets="earliest", fetch__timeoutMs="100")
        end = plan.latest(plan.initial())
        del node.lines[3:]
        with pytest.raises(ClusterError, match="gives no event 3 of log log1a, which it had announced"):
            rows(plan, end)
        node.stop()
        with pytest.raises(ClusterError, match="no node of bootstrapServers"):
            rows(planner(cluster, fetch__timeoutMs="100"), end)


def test_numbers_that_were_not_asked_for_are_refused():
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(5)
        plan = planner(cluster, startingOffsets="earliest")
        end = plan.latest(plan.initial())
        node.lines[2], node.lines[3] = node.lines[3], node.lines[2]
        with pytest.raises(ClusterError, match="not in a row"):
            rows(plan, end)


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
        with pytest.raises(OptionError, match="events up to 60, its log ends before 10"):
            batch(cluster, endingOffsets=f'{{"{node.id}": 60}}').batch()


def test_a_batch_read_wants_all_nodes():
    with StubCluster(2) as cluster:
        cluster.nodes[0].events(1)
        cluster.nodes[1].stop()
        with pytest.raises(ClusterError, match=f"node {cluster.nodes[1].id} can't be reached"):
            batch(cluster).batch()
        assert len(batch(cluster, failOnDataLoss="false").batch()) == 1


@pytest.mark.parametrize(
    ("given", "is_stream", "text"),
    [
        ({"startingOffsets": "latest"}, False, "can't be latest in a batch"),
        ({"endingOffsets": "latest"}, True, "endingOffsets is for batch reads"),
        ({"startingOffsets": "[1]"}, True, "startingOffsets is earliest, latest or a JSON object"),
        ({"startingoffset": "latest"}, True, "did you mean startingOffsets"),
        ({"maxOffsetsPerTrigger": "0"}, True, "maxOffsetsPerTrigger is at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(given, is_stream, text):
    with pytest.raises(OptionError, match=text):
        event_options({"bootstrapServers": "a", **given}, is_stream=is_stream)
