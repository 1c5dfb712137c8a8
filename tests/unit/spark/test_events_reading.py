"""events_reading.py: ranges are read without loss or repetition, or an error says why not."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="the extra disque-py[spark] is not installed")

from disque_py.client import Address
from disque_py.spark.event_log import DataLossError
from disque_py.spark.event_slices import events_of
from disque_py.spark.events_reading import read_range
from disque_py.spark.nodes import ClusterError
from event_plans import all_of, close_all, planner, rows
from spark_stub import StubCluster, reply


@pytest.fixture(autouse=True)
def closed():
    """Planners close their connections when the test is over."""
    yield
    close_all()


def test_events_trimmed_between_planning_and_reading_are_not_skipped_silently():
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


def test_short_slices_and_a_broken_connection_are_read_over():
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(30)
        cluster.read_limit = 7
        plan = planner(cluster, startingOffsets="earliest")
        end = plan.latest(plan.initial())
        node.hang_up_after = 3
        assert rows(plan, end) == all_of(node)


@pytest.mark.parametrize("rows_are", ["events", "slices"])
def test_a_batch_of_rows_has_a_limit_of_bytes(rows_are):
    """Events may have long bodies. Fifty thousand of them would not fit into an Arrow array."""
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(30)
        cluster.read_limit = 4
        limit = 2 * len(b"".join(node.lines[:4]))
        plan = planner(cluster, startingOffsets="earliest", fetch__maxBytes=str(limit), rows=rows_are)
        ((piece, address),) = plan.ranges(plan.latest(plan.initial()))
        batches = list(read_range(plan.options, piece, address))
        assert len(batches) >= 3
        counts = [batch["count"][0].as_py() if rows_are == "slices" else len(batch) for batch in batches]
        assert (sum(counts), max(counts) <= 12) == (30, True)


def test_a_node_is_read_at_its_own_address_when_another_node_has_taken_the_one_that_was_planned():
    """The other node doesn't know the log. That says nothing about the log of the planned node."""
    with StubCluster(2) as cluster:
        moved, other = cluster.nodes
        moved.events(5)
        plan = planner(cluster, startingOffsets="earliest", failOnDataLoss="false")
        ((piece, _),) = plan.ranges(plan.latest(plan.initial()))
        (batch,) = read_range(plan.options, piece, Address("127.0.0.1", other.port))
        assert batch["seq"].to_pylist() == [0, 1, 2, 3, 4]


def test_a_node_whose_address_another_node_has_taken_is_away_and_has_lost_nothing():
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(5)
        plan = planner(cluster, startingOffsets="earliest", failOnDataLoss="false", fetch__timeoutMs="300")
        ((piece, address),) = plan.ranges(plan.latest(plan.initial()))
        node.id = "f" * 40
        node.new_log("another")
        with pytest.raises(ClusterError, match=f"can't be reached .*is the address of node {node.id} now"):
            list(read_range(plan.options, piece, address))


def test_a_node_that_gives_less_than_it_announced_is_named():
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(5)
        plan = planner(cluster, startingOffsets="earliest", fetch__timeoutMs="100")
        end = plan.latest(plan.initial())
        del node.lines[3:]
        with pytest.raises(ClusterError, match="doesn't give event 3 of log log1a, which it had announced"):
            rows(plan, end)
        node.stop()
        with pytest.raises(ClusterError, match="no node of bootstrapServers"):
            rows(planner(cluster, fetch__timeoutMs="100"), end)


def test_the_end_of_a_planned_batch_that_its_node_no_longer_has_is_left_out_if_losses_are_accepted():
    """The node was restarted with an older copy of its log. It never gives these events."""
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(5)
        plan = planner(cluster, startingOffsets="earliest", failOnDataLoss="false", fetch__timeoutMs="100")
        end = plan.latest(plan.initial())
        del node.lines[3:]
        with pytest.warns(
            UserWarning, match="events 3 to 4 of the planned batch are gone, .*going on without 2 events"
        ):
            assert rows(plan, end) == all_of(node)


def test_a_planned_batch_may_begin_beyond_the_end_of_a_log_that_was_cut():
    """The node refuses such a number. It may announce it again, so the task waits."""
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(5)
        start = {"nodes": {node.id: {"log": node.log, "next": 4}}, "from": {}}
        plan = planner(cluster, failOnDataLoss="false", fetch__timeoutMs="100")
        end = plan.latest(start)
        del node.lines[2:]
        with pytest.raises(ClusterError, match="doesn't give event 4 of log log1a, which it had announced"):
            rows(planner(cluster, fetch__timeoutMs="100"), end)
        with pytest.warns(UserWarning, match="events 4 to 4 of the planned batch are gone"):
            assert rows(plan, end) == []


def test_numbers_that_were_not_requested_are_refused():
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(5)
        plan = planner(cluster, startingOffsets="earliest")
        end = plan.latest(plan.initial())
        node.lines[2], node.lines[3] = node.lines[3], node.lines[2]
        with pytest.raises(ClusterError, match="not consecutive"):
            rows(plan, end)


def test_slices_hold_the_same_events_as_rows():
    with StubCluster(2) as cluster:
        for node in cluster.nodes:
            node.events(25)
        cluster.read_limit = 4
        plan = planner(cluster, startingOffsets="earliest", rows="slices", fetch__maxRows="10")
        end = plan.latest(plan.initial())
        slices = [one for piece, address in plan.ranges(end) for one in read_range(plan.options, piece, address)]
        assert {len(one) for one in slices} == {1}
        found = [(row["node"], row["seq"]) for batch in events_of(slices) for row in batch.to_pylist()]
        assert found == all_of(*cluster.nodes)


@pytest.mark.parametrize("hidden", [range(5, 10), range(3, 7)])
def test_a_user_who_may_not_see_all_names_gets_an_error_and_no_part_of_the_events(hidden, monkeypatch):
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(10)
        plan = planner(cluster, startingOffsets="earliest")
        end = plan.latest(plan.initial())
        seen = {seq: line for seq, line in enumerate(node.lines) if seq not in hidden}
        if 9 in hidden:  # The end of a reply says how far the log was read.
            node.event("", 1, seq=9, event="hidden", queue=None)
            seen[9] = node.lines[-1]
        monkeypatch.setattr(
            node, "on_events", lambda argv: reply(b"".join(seen[seq] for seq in seen if seq >= int(argv[3])))
        )
        with pytest.raises(ClusterError, match="if the names of the user are restricted, give it all names"):
            rows(plan, end)


def test_a_user_who_may_not_read_packed_events_gets_a_sentence(monkeypatch):
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.events(10)
        plan = planner(cluster, startingOffsets="earliest", rows="slices")
        end = plan.latest(plan.initial())
        monkeypatch.setattr(node, "on_events", lambda _: b"-NOPERM this user reads FORMAT LINES\r\n")
        with pytest.raises(ClusterError, match="give the user the right to EVENTS and to all names"):
            rows(plan, end)
