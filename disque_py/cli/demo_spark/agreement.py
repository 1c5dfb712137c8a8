"""The end of `bin/demo --spark`: a comparison of the index that Spark has written with the broker itself.

The demo sends each flight of a data set through the broker as a job. The broker's side of the comparison is the number
of events that each node has logged, from INFO, and the jobs whose ACKJOB was answered. The index's side is its tables
`history` and `current`, which DuckDB reads. Both sides must agree on every event, job and flight. The demo calls
`compare` and prints its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from disque_py.spark.query.questions import ask


@dataclass(frozen=True, slots=True)
class NodeLog:
    """A node's event log, as INFO reports it: its events have the numbers 1 to `count`."""

    name: str
    node: str
    log: str
    count: int


@dataclass(slots=True)
class Agreement:
    """The result of a comparison.

    events       per node: its name, the number of events in its log, and the number that `history` has of them
    completed    the number of jobs that `current` calls completed
    flights      the number of flights that have such a job
    faults       a sentence for each disagreement
    """

    events: list[tuple[str, int, int]] = field(default_factory=list)
    completed: int = 0
    flights: int = 0
    faults: list[str] = field(default_factory=list)


def compare(
    db: Any, logs: Iterable[NodeLog], finished: Set[bytes], row_of_job: Mapping[bytes, int], wanted: int
) -> Agreement:
    """Compare the index with the broker.

    db           a connection to the index (query.tables.open_index)
    logs         the nodes' event logs
    finished     ids of the jobs whose ACKJOB was answered
    row_of_job   the flight of each job, as a row of the data set
    wanted       the number of flights in the data set
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
    result.faults += _some(sorted(map(bytes.decode, finished - completed)), "jobs were finished, but not in the index")
    result.faults += _some(sorted(map(bytes.decode, completed - finished)), "jobs are completed in the index alone")
    flights = {row_of_job[job_id] for job_id in completed if job_id in row_of_job}
    result.flights = len(flights)
    if len(flights) != wanted:
        result.faults.append(f"{wanted - len(flights):,} flights have no completed job in the index")
    return result


def _some(names: list[str], what: str) -> list[str]:
    """Return a sentence with the number of names and the first of them; none without names."""
    return [f"{len(names):,} {what}, such as {names[0]}"] if names else []
