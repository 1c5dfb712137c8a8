"""QSCAN and JSCAN as iterators: the clients derive their methods from these functions, as from those of commands.py.

A scan belongs to one node. Its cursors mean nothing on another node, so it never fails over: a lost node ends it with
an error. Each queue or job that exists during the whole scan comes at least once. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

from disque_py.client.commands import JobState, Where, jscan_info_page, jscan_page, qscan_page
from disque_py.client.request import Request
from disque_py.client.results import JobInfo
from disque_py.event_format import JobStatus

T = TypeVar("T")

# The command that fetches the page behind a cursor.
Scan: TypeAlias = Callable[[int], Request[tuple[int, list[T]]]]


def qscan(
    *,
    count: int | None = None,
    minlen: int | None = None,
    maxlen: int | None = None,
    importrate: int | None = None,
) -> Scan[str]:
    """Iterate over the names of one node's queues; a name may come twice.

    count        number of queues that the node looks at in one step; by default the node chooses
    minlen       only queues with as many jobs; by default all
    maxlen       only queues with no more jobs; by default all
    importrate   only queues that import as many jobs a second; by default all

    Raises DisqueConnectionError if the node is lost.
    """
    return lambda cursor: qscan_page(cursor, count=count, minlen=minlen, maxlen=maxlen, importrate=importrate)


def jscan(
    *,
    count: int | None = None,
    queue: str | bytes | None = None,
    states: Iterable[JobState] = (),
    statuses: Iterable[JobStatus] = (),
    where: Where | None = None,
) -> Scan[str]:
    """Iterate over the ids of one node's jobs; an id may come twice.

    count      number of jobs that the node looks at in one step; by default the node chooses
    queue      only jobs of this queue; by default of all
    states     only jobs in one of these states of the node's books; none by default, which means all
    statuses   only jobs of one of these statuses, as "errored"; none by default, which means all
    where      pairs of names and values; only jobs whose metadata have all of them. None, the default, takes any job

    Raises DisqueConnectionError if the node is lost.
    """
    wanted, shown = tuple(states), tuple(statuses)
    return lambda cursor: jscan_page(cursor, count=count, queue=queue, states=wanted, statuses=shown, where=where)


def jscan_info(
    *,
    count: int | None = None,
    queue: str | bytes | None = None,
    states: Iterable[JobState] = (),
    statuses: Iterable[JobStatus] = (),
    where: Where | None = None,
) -> Scan[JobInfo]:
    """Iterate over one node's jobs as SHOW shows them; a job may come twice.

    count      number of jobs that the node looks at in one step; by default the node chooses
    queue      only jobs of this queue; by default of all
    states     only jobs in one of these states of the node's books; none by default, which means all
    statuses   only jobs of one of these statuses, as "errored"; none by default, which means all
    where      pairs of names and values; only jobs whose metadata have all of them. None, the default, takes any job

    Raises DisqueConnectionError if the node is lost.
    """
    wanted, shown = tuple(states), tuple(statuses)
    return lambda cursor: jscan_info_page(cursor, count=count, queue=queue, states=wanted, statuses=shown, where=where)
