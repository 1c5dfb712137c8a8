"""In flight: decisions of a node that other processes can't see yet.

Replies and messages wait for their records (node/output_commit.py), and leave long after they were decided. Between the
decision about a delivery or a hand-over and its departure, the job may be acknowledged. A node's knowledge is safe only
when it is on disk: until then, a crash may bring back the state before. A stopped process may be in the middle of a
turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cluster_bus.messages import REPLJOB, REPLMANY, YOURJOBS
from disque_py.core.shared_copies import split_ids
from disque_py.simulator.oracle import ids_in

if TYPE_CHECKING:
    from disque_py.simulator.world.machine import Machine


def unseen_jobs(machine: Machine) -> Iterator[bytes]:
    """Yield the ids of jobs in replies that wait for the journal."""
    for connection in machine.clients:
        if connection.client.held or connection.client.out or connection.client in machine.broker.waits.incremental:
            for reply in connection.unseen():
                yield from ids_in(reply)


def unsent_jobs(machine: Machine) -> Iterator[bytes]:
    """Yield the ids of jobs in messages that wait for the journal, or for the end of the turn."""
    runs: list[Any] = list(machine.driver.outgoing.runs)
    output_commit = machine.driver.output_commit
    if output_commit is not None:
        runs += output_commit.waiting_runs()
    for _, kind, items in runs:
        for item in items:
            if kind == YOURJOBS:
                yield from (snapshot[0] for snapshot in item[2] if snapshot is not None)
            elif kind == REPLJOB:
                yield item[0][0]
            elif kind == REPLMANY:
                yield from split_ids(item[0])


def unsafe_ms(machine: Machine) -> int:
    """Return since when (the world's time) a crash would lose knowledge; the current time if it would lose none."""
    driver = machine.driver
    now_ms = since_ms = machine.now_ms()
    journal = driver.journal
    if journal is not None:
        if journal.has_unsynced:
            since_ms = journal.now_ms - journal.unsynced_ms()
        elif driver.is_open:
            since_ms = driver.broker.now_ms
    return machine.world.now_ms - max(0, now_ms - since_ms)


def is_unsafe(machine: Machine) -> bool:
    """Return whether the end of the process would lose knowledge."""
    driver = machine.driver
    journal = driver.journal
    return journal is not None and (journal.has_unsynced or driver.is_open)
