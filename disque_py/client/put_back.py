"""Putting back jobs that a program has fetched but will not handle.

A fetch may be cancelled, and a loop over jobs may be left. Then jobs arrive that the program never sees. They go back
with DELAY 0, because the queue's back-off is for jobs that failed, and with a REASON, because an attempt is spent
without an error. ATTEMPT names the delivery if it is known, so a job that already runs elsewhere stays there.

Older nodes and Disque 1.0 do not support these options. Such a node refuses the command, which has no effect. From then
on it gets plain NACKs. Pure: the clients send the requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from disque_py.client.address import Address
from disque_py.client.dialect import NOT_WHILE, is_misunderstood
from disque_py.client.errors import BadIdError, DisqueError
from disque_py.client.job_commands import nack
from disque_py.client.request import Request
from disque_py.client.results import Job, is_at_most_once

REASON: Final = "put back: the program did not look at it"

# A NACK, and the jobs that it puts back.
Step = tuple[Request[int], list[Job]]


class PutBack:
    """The nodes that support only plain NACKs, and the requests for each node."""

    def __init__(self) -> None:
        self._older: set[Address | None] = set()

    def steps(self, jobs: Iterable[Job]) -> dict[Address | None, list[Step]]:
        """Return the requests that put these jobs back, by node."""
        nodes: dict[Address | None, list[Job]] = {}
        for job in jobs:
            nodes.setdefault(job.node, []).append(job)
        return {node: self._steps_of(node, found) for node, found in nodes.items()}

    def _steps_of(self, node: Address | None, jobs: list[Job]) -> list[Step]:
        if node in self._older:
            return [plain(jobs)]
        once = [job for job in jobs if is_at_most_once(job.id)]  # It has no back-off and no attempts.
        retried = [job for job in jobs if not is_at_most_once(job.id)]
        exact = [job for job in retried if job.attempt is not None]
        others = [job for job in retried if job.attempt is None]
        steps = [(nack(job, delay=0, reason=REASON, attempt=job.attempt), [job]) for job in exact]
        if others:
            steps.append((nack(*others, delay=0, reason=REASON), others))
        if once:
            steps.append(plain(once))
        return steps

    def plain_after(self, step: Step, error: DisqueError) -> Step | None:
        """Return a plain NACK if the node refused a request because of its options; None if it failed otherwise."""
        jobs = step[1]
        if not isinstance(error, BadIdError) and not is_misunderstood(error):
            return None
        if not str(error).startswith(NOT_WHILE):
            self._older.add(jobs[0].node)
        return plain(jobs)


def plain(jobs: list[Job]) -> Step:
    """Return the NACK that every node understands."""
    return nack(*jobs), jobs
