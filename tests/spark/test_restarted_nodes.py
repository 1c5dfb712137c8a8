"""Offsets of nodes that were killed and started again, with real nodes and without a JVM.

A restarted node continues its log, or begins another one. Its last process may have sent jobs that never arrived.
"""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import Any

import pytest

from disque_py.spark.event_log import DataLossError
from disque_py.spark.jobs_reading import JobPlanner, fetch, job_options
from event_plans import close_all, drain, planner
from runs import wait_readable
from servers import Cluster, Server, until


@pytest.fixture
def nodes(tmp_path):
    """Two nodes with journals."""
    with Cluster(tmp_path, 2, ["--appendonly", "yes"]) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def closed():
    """Close the planners' connections when the test is over."""
    yield
    close_all()


def places(nodes: Cluster) -> str:
    return ",".join(f"127.0.0.1:{server.port}" for server in nodes.servers)


def plan_of(nodes: Cluster, **given: str) -> Any:
    return planner(SimpleNamespace(servers=places(nodes)), startingOffsets="earliest", **given)


def add(server: Server, count: int) -> None:
    """Add jobs that only this node has, and wait until their events are on disk."""
    for number in range(count):
        server.command("ADDJOB", "work", number, 0, "REPLICATE", 1)
    wait_readable(server)


def told(nodes: Cluster, found: list[tuple[str, int]]) -> list[int]:
    """Return the numbers of the second node's events, in the order in which they were read."""
    return [seq for node, seq in found if node == nodes[1].node_id]


def test_a_killed_node_goes_on_in_its_log_and_so_do_its_readers(nodes):
    add(nodes[1], 5)
    nodes[1].kill()  # Acknowledged events are in the log, even if it was not synced.
    nodes[1].restart()
    plan = plan_of(nodes)
    found, end = drain(plan, plan.initial())
    add(nodes[1], 5)
    nodes[1].kill()
    assert plan.latest(end) is end  # The node is away, and keeps its position.
    nodes[1].restart()
    more, end = drain(plan_of(nodes), end)
    numbers = told(nodes, found + more)
    assert numbers == list(range(1, len(numbers) + 1))
    assert end["nodes"][nodes[1].node_id]["next"] == nodes[1].command("EVENTS", "INFO")[5]
    assert "lost" not in end


def test_a_node_that_lost_its_log_is_an_error_or_counted_and_then_read_from_the_new_ones_beginning(nodes):
    add(nodes[1], 5)
    plan = plan_of(nodes)
    _, end = drain(plan, plan.initial())
    node, log = nodes[1].node_id, end["nodes"][nodes[1].node_id]["log"]
    nodes[1].kill()
    shutil.rmtree(nodes[1].folder / "nodes.conf.events")
    nodes[1].restart()
    add(nodes[1], 3)
    with pytest.raises(DataLossError, match=rf"node {node}: log {log} is gone.*failOnDataLoss=false"):
        drain(plan_of(nodes), end)
    loose = plan_of(nodes, failOnDataLoss="false")
    with pytest.warns(UserWarning, match="the ends of 1 logs"):
        found, end = drain(loose, end)
    assert told(nodes, found) == list(range(1, end["nodes"][node]["next"]))
    assert end["lost"] == {"events": 0, "logs": 1}
    assert loose.latest(end) is end


def test_a_node_that_lost_everything_is_another_node_and_the_old_one_is_reported(nodes, capsys):
    add(nodes[1], 5)
    plan = plan_of(nodes)
    _, end = drain(plan, plan.initial())
    old = nodes[1].node_id
    nodes[1].kill()
    shutil.rmtree(nodes[1].folder)
    nodes[1].folder.mkdir()
    nodes[1].restart()
    nodes[0].meet(nodes[1])
    until(lambda: nodes[1].node_id in nodes[0].nodes() and nodes[0].nodes()[old][1] == "noaddr")
    add(nodes[1], 3)
    found, end = drain(plan, end)
    assert sorted(found) == [(nodes[1].node_id, seq) for seq in range(1, end["nodes"][nodes[1].node_id]["next"])]
    assert end["nodes"][old]["next"] > 5
    assert capsys.readouterr().err.count(f"node {old} has lost its address to another node") == 1


def test_jobs_of_a_node_that_was_killed_before_their_commit_come_again(nodes):
    """The node has the jobs and their tokens from its journal, but the rows may never have arrived."""
    add(nodes[1], 20)
    add(nodes[0], 20)
    plan = JobPlanner(job_options({"bootstrapServers": places(nodes), "subscribe": "work"}))
    try:
        end = plan.latest(plan.initial())
        assert fetched(plan, end) == 40
        nodes[1].kill()
        nodes[1].restart()
        with pytest.warns(
            UserWarning, match=f"from node {nodes[1].node_id} could not be acknowledged .the node was restarted"
        ):
            plan.commit(end)
        until(lambda: plan.latest(end) is not end)
        after = plan.latest(end)
        assert fetched(plan, after) == 20
        plan.commit(after)
        until(lambda: all(server.info("jobs")["registered_jobs"] == "0" for server in nodes.servers))
    finally:
        plan.stop()


def fetched(plan: JobPlanner, end: Any) -> int:
    """Fetch a batch, and return its number of jobs."""
    return sum(batch.num_rows for share, where in plan.shares(end) for batch in fetch(plan.options, end, share, where))
