"""Acks of jobs that several nodes delivered: each node gets one command, and the answers are added up. Pure.

The clients make methods of these functions (faces.py). A pipeline sends one command for all jobs (job_commands.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import ParamSpec

from disque_py.client.arguments import JobRef
from disque_py.client.job_commands import ack, by_node, fast_ack, nack
from disque_py.client.request import Request

P = ParamSpec("P")


def for_each_node(build: Callable[..., Request[int]], jobs: Iterable[JobRef]) -> list[Request[int]]:
    """Return one command about jobs for each node that delivered some of them; without jobs, a single command.

    Raises the errors of `build` for all jobs together, as for an option that is about a single delivery.
    """
    jobs = tuple(jobs)
    single = build(*jobs)
    groups = by_node(jobs)
    return [single] if len(groups) <= 1 else [build(*group) for group in groups.values()]


def spread(build: Callable[P, Request[int]]) -> Callable[P, list[Request[int]]]:
    """Return `for_each_node` with the arguments and the documentation of a command about jobs."""

    @wraps(build)
    def requests(*jobs: P.args, **options: P.kwargs) -> list[Request[int]]:
        return for_each_node(partial(build, **options), jobs)  # type: ignore[arg-type]  # all arguments are jobs

    return requests


def ack_jobs(jobs: Iterable[JobRef]) -> list[Request[int]]:
    """Acknowledge a collection of jobs, as `ack` does → the number of jobs that were known.

    jobs   jobs, or their ids

    Raises BadIdError.
    """
    return for_each_node(ack, jobs)


def fast_ack_jobs(jobs: Iterable[JobRef]) -> list[Request[int]]:
    """Acknowledge a collection of jobs, as `fast_ack` does → the number of jobs that were known.

    jobs   jobs, or their ids

    Raises BadIdError.
    """
    return for_each_node(fast_ack, jobs)


def nack_jobs(jobs: Iterable[JobRef]) -> list[Request[int]]:
    """Give a collection of jobs back, as `nack` does → the number of jobs that were given back.

    jobs   jobs, or their ids

    Raises BadIdError, OutOfMemoryError.
    """
    return for_each_node(nack, jobs)
