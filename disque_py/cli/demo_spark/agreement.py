"""Comparison of the indexes with the broker: every event, every job, every flight.

The broker's side are the answers of nodes: INFO about their event logs, and the ACKJOBs of the workers. The other
side are the tables that Spark has written; DuckDB reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from disque_py.spark.query.questions import ask


@dataclass(frozen=True, slots=True)
class NodeLog:
    """A node's event log, as INFO tells: its numbers are 1 to `count`."""

    name: str
    node: str
    log: str
    count: int


@dataclass(slots=True)
class Agreement:
    """The result of a comparison.

    events       per node: its name, events in its log, events of it in `history`
    completed    jobs that `current` calls completed
    faults       sentences; none if all agrees
    """

    events: list[tuple[str, int, int]] = field(default_factory=list)
    completed: int = 0
    flights: int = 0
    faults: list[str] = field(default_factory=list)


def compare(
    db: Any, logs: Iterable[NodeLog], finished: Set[bytes], row_of_job: Mapping[bytes, int], wanted: int
) -> Agreement:
    """Put both sides beside each other.

    db           an index (query.tables.open_index)
    finished     jobs whose ACKJOB was answered
    row_of_job   which flight a job was
    wanted       flights there are
    """
    result = Agreement()
    places = {
        (node, log): (count, distinct, highest)
        for node, log, count, distinct, highest in ask(
            db, "SELECT node, log, count(*), count(DISTINCT seq), max(seq) FROM history GROUP BY node, log"
        ).rows
    }
    for log in logs:
        count, distinct, highest = places.get((log.node, log.log), (0, 0, 0))
        result.events.append((log.name, log.count, count))
        if not count == distinct == highest == log.count:
            result.faults.append(
                f"node {log.name} wrote {log.count:,} events, the index has {count:,} of them ({distinct:,} different)"
            )
    states = ask(db, "SELECT job_id, to_state FROM current").rows
    completed = {job_id.encode() for job_id, state in states if state == "completed"}
    other = [f"{job_id} is {state}" for job_id, state in states if state != "completed"]
    result.completed = len(completed)
    result.faults += _some(other, "jobs are not completed in the index")
    result.faults += _some(sorted(map(bytes.decode, finished - completed)), "jobs were finished and the index lacks it")
    result.faults += _some(sorted(map(bytes.decode, completed - finished)), "jobs are completed in the index alone")
    flights = {row_of_job[job_id] for job_id in completed if job_id in row_of_job}
    result.flights = len(flights)
    if len(flights) != wanted:
        result.faults.append(f"{wanted - len(flights):,} flights have no completed job in the index")
    return result


def _some(names: list[str], what: str) -> list[str]:
    return [f"{len(names):,} {what}, such as {names[0]}"] if names else []
