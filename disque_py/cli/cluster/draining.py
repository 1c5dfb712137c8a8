"""Removing a node from its cluster without losing a copy: LEAVING, wait, FORGET.

The node itself moves its jobs away (spec V1, V2). This module tells it to leave, watches `registered_jobs` fall to
zero, and passes on the reasons that the node gives for jobs that can't go. The other nodes forget the node only after
that, because a node that is forgotten early takes its copies with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from disque_py.cli.address import Target
from disque_py.cli.cluster.view import ClusterView, InfoFields, NodeView, patient
from disque_py.cli.connection import ConnectError
from disque_py.client import DisqueError, ReplyError, commands
from disque_py.client.one_node import OneNode

LOOK_EVERY_S: Final = 0.5
# The number of successive looks that must find no job, because one look may fall between two arrivals.
EMPTY_LOOKS: Final = 2
REASON_PREFIX: Final = "cluster_leaving_"


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """One look at a leaving node: the jobs that it still has, and its reasons."""

    remaining: int
    reasons: tuple[str, ...]

    @property
    def jobs(self) -> str:
        """`1 job`, `3 jobs`."""
        return f"{self.remaining} job" + ("s" if self.remaining != 1 else "")


class HiddenJobsError(Exception):
    """A node does not report how many jobs it has, so it can't be considered empty."""


def leave(node: OneNode) -> None:
    """Put the node into the leaving state. Raises DisqueError."""
    node.run(commands.cluster_leaving(True))


def look_at_drain(node: OneNode) -> DrainProgress:
    """Ask how many jobs are left, and why. Raises HiddenJobsError, DisqueError."""
    job_count = node.run(commands.info("jobs")).get("registered_jobs")
    if not isinstance(job_count, int):
        raise HiddenJobsError(f"INFO jobs of {node.address} does not say registered_jobs")
    return DrainProgress(job_count, leaving_reasons(node.run(commands.cluster_info())))


def leaving_reasons(cluster_info: InfoFields) -> tuple[str, ...]:
    """Return the reasons that a leaving node gives; plain numbers are progress, not reasons."""
    return tuple(
        f"{name.removeprefix(REASON_PREFIX).replace('_', ' ')}: {value}"
        for name, value in cluster_info.items()
        if name.startswith(REASON_PREFIX) and value and isinstance(value, str)
    )


def drain(node: OneNode, timeout_s: float | None, show: Callable[[DrainProgress], None]) -> DrainProgress:
    """Watch until the node has no job, or the time is over (None: for ever). Return the last look."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    empty_looks = 0
    while True:
        progress = look_at_drain(node)
        show(progress)
        empty_looks = 0 if progress.remaining else empty_looks + 1
        if empty_looks == EMPTY_LOOKS or (deadline is not None and time.monotonic() >= deadline):
            return progress
        time.sleep(LOOK_EVERY_S)


def forget_everywhere(cluster: ClusterView, leaver: NodeView, access: Target) -> list[str]:
    """Tell every other node to forget the leaver. Return a line per failure.

    A node that is not told keeps the leaver in its table, but does not bring it back to the others (spec N5).
    """
    failures = []
    for node in cluster.nodes:
        if node is leaver:
            continue
        if (failure := _forget(node, leaver, access)) is not None:
            failures.append(f"{node.name} did not forget it: {failure}")
    return failures


def _forget(node: NodeView, leaver: NodeView, access: Target) -> str | None:
    if node.error:
        return node.error
    try:
        with patient(access.at(node.address)) as connection:
            connection.run(commands.cluster_forget(leaver.id))
    except ReplyError as error:
        return None if error.text.startswith("ERR Unknown node") else error.text
    except (ConnectError, DisqueError) as error:
        return str(error)
    return None
