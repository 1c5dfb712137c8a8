"""Planned batches of the event logs of a StubCluster, and their events, for the tests of planning and reading."""

from __future__ import annotations

from disque_py.spark.events_planning import EventPlanner, event_options
from disque_py.spark.events_reading import read_range
from spark_stub import StubCluster

OPEN: list[EventPlanner] = []


def close_all() -> None:
    """Close the planners of a test at its end."""
    while OPEN:
        OPEN.pop().close()


def planner(cluster: StubCluster, *, is_stream: bool = True, **given: str) -> EventPlanner:
    words = {name.replace("__", "."): value for name, value in given.items()}
    OPEN.append(EventPlanner(event_options({"bootstrapServers": cluster.servers, **words}, is_stream=is_stream)))
    return OPEN[-1]


def rows(plan: EventPlanner, end: dict) -> list[tuple[str, int]]:
    """Return (node, seq) of all events in the batch that ends there."""
    found = []
    for piece, address in plan.ranges(end):
        for batch in read_range(plan.options, piece, address):
            found += [(row["node"], row["seq"]) for row in batch.to_pylist()]
    return found


def drain(plan: EventPlanner, start: dict) -> tuple[list[tuple[str, int]], dict]:
    """Plan and read batches until there are no new events. Return all events and the last offset."""
    found = []
    while (end := plan.latest(start)) is not start:
        found += rows(plan, end)
        start = end
    return found, start


def all_of(*nodes, first: int = 0) -> list[tuple[str, int]]:
    return [(node.id, seq) for node in nodes for seq in range(max(first, node.first), node.first + len(node.lines))]
