"""QSCAN and JSCAN: one page as a Request, and all pages as iterators, which are methods of the clients.

A scan belongs to one node. Its cursors mean nothing on another node, so it never fails over: a lost node ends it with
an error. Each queue or job that exists during the whole scan comes at least once. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

from disque_py.client import results
from disque_py.client.arguments import JobState, Where, add_pair, where_words
from disque_py.client.protocol import Reply, text
from disque_py.client.request import Repeat, Request
from disque_py.client.results import JobInfo
from disque_py.client.spans import whole
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

    count        number of queues that the node visits in one step; by default the node chooses
    minlen       only queues with at least this many jobs; by default all
    maxlen       only queues with at most this many jobs; by default all
    importrate   only queues that import at least this many jobs per second; by default all

    Raises DisqueConnectionError if the node is lost.

        for name in client.qscan(minlen=1):  # asyncio: async for
            print(name, client.qlen(name))
    """
    return lambda cursor: qscan_page(cursor, count=count, minlen=minlen, maxlen=maxlen, importrate=importrate)


def jscan(
    *,
    count: int | None = None,
    queue: str | bytes | None = None,
    states: Iterable[JobState] = (),
    statuses: Iterable[JobStatus] = (),
    where: Where | None = None,
    counted: bool = False,
) -> Scan[str]:
    """Iterate over the ids of one node's jobs; an id may come twice.

    count      number of jobs that the node visits in one step; by default the node chooses
    queue      only jobs of this queue; by default of all
    states     only jobs whose copy on the node has one of these states, such as "queued"; none by default, which means
               all
    statuses   only jobs of one of these statuses, such as "errored"; none by default, which means all
    where      names and values: only jobs whose metadata have all these pairs. None, the default: any job
    counted    True: only jobs that are counted on this node. With exactly one status in `statuses`, scans of all nodes
               then return each job once. False by default

    Raises DisqueConnectionError if the node is lost.

        for job_id in client.jscan(queue="mail", statuses=["errored"]):  # asyncio: async for
            client.enqueue(job_id)
    """
    wanted, shown = tuple(states), tuple(statuses)
    return lambda cursor: jscan_page(
        cursor, count=count, queue=queue, states=wanted, statuses=shown, where=where, counted=counted
    )


def jscan_info(
    *,
    count: int | None = None,
    queue: str | bytes | None = None,
    states: Iterable[JobState] = (),
    statuses: Iterable[JobStatus] = (),
    where: Where | None = None,
    counted: bool = False,
) -> Scan[JobInfo]:
    """Iterate over one node's jobs as SHOW shows them; a job may come twice.

    count      number of jobs that the node visits in one step; by default the node chooses
    queue      only jobs of this queue; by default of all
    states     only jobs whose copy on the node has one of these states, such as "queued"; none by default, which means
               all
    statuses   only jobs of one of these statuses, such as "errored"; none by default, which means all
    where      names and values: only jobs whose metadata have all these pairs. None, the default: any job
    counted    True: only jobs that are counted on this node. With exactly one status in `statuses`, scans of all nodes
               then return each job once. False by default

    Raises DisqueConnectionError if the node is lost.

        for info in client.jscan_info(queue="mail", statuses=["errored"]):  # asyncio: async for
            print(info.id, info.error)
    """
    wanted, shown = tuple(states), tuple(statuses)
    return lambda cursor: jscan_info_page(
        cursor, count=count, queue=queue, states=wanted, statuses=shown, where=where, counted=counted
    )


def qscan_page(
    cursor: int = 0,
    *,
    count: int | None = None,
    busyloop: bool = False,
    minlen: int | None = None,
    maxlen: int | None = None,
    importrate: int | None = None,
) -> Request[tuple[int, list[str]]]:
    """Read one page of a scan of queues (QSCAN) → the next cursor (0: done), and names of queues.

    A cursor is valid only on its node.
    """
    argv = [b"QSCAN", b"%d" % cursor]
    add_pair(argv, b"COUNT", None if count is None else whole("count", count))
    if busyloop:
        argv.append(b"BUSYLOOP")
    add_pair(argv, b"MINLEN", None if minlen is None else whole("minlen", minlen))
    add_pair(argv, b"MAXLEN", None if maxlen is None else whole("maxlen", maxlen))
    add_pair(argv, b"IMPORTRATE", None if importrate is None else whole("importrate", importrate))
    return Request(tuple(argv), _names_page, Repeat.NEVER if cursor else Repeat.SAFE)


def jscan_page(
    cursor: int = 0,
    *,
    count: int | None = None,
    busyloop: bool = False,
    queue: str | bytes | None = None,
    states: Iterable[JobState] = (),
    statuses: Iterable[JobStatus] = (),
    where: Where | None = None,
    counted: bool = False,
) -> Request[tuple[int, list[str]]]:
    """Read one page of a scan of jobs (JSCAN) → the next cursor (0: done), and ids of jobs."""
    argv = _jscan(cursor, count, busyloop, queue, states, statuses, where, counted)
    return Request(argv, _names_page, Repeat.NEVER if cursor else Repeat.SAFE)


def jscan_info_page(
    cursor: int = 0,
    *,
    count: int | None = None,
    busyloop: bool = False,
    queue: str | bytes | None = None,
    states: Iterable[JobState] = (),
    statuses: Iterable[JobStatus] = (),
    where: Where | None = None,
    counted: bool = False,
) -> Request[tuple[int, list[JobInfo]]]:
    """Read one page of a scan of jobs (JSCAN REPLY all) → the next cursor (0: done), and jobs as in SHOW."""
    argv = (*_jscan(cursor, count, busyloop, queue, states, statuses, where, counted), b"REPLY", b"all")
    return Request(argv, _infos_page, Repeat.NEVER if cursor else Repeat.SAFE)


def _jscan(
    cursor: int,
    count: int | None,
    busyloop: bool,
    queue: str | bytes | None,
    states: Iterable[JobState],
    statuses: Iterable[JobStatus],
    where: Where | None,
    counted: bool,
) -> tuple[bytes, ...]:
    argv = [b"JSCAN", b"%d" % cursor]
    add_pair(argv, b"COUNT", None if count is None else whole("count", count))
    if busyloop:
        argv.append(b"BUSYLOOP")
    add_pair(argv, b"QUEUE", queue)
    for state in states:
        add_pair(argv, b"STATE", state)
    for status in statuses:
        add_pair(argv, b"STATUS", status)
    argv += where_words(where)
    if counted:
        argv.append(b"COUNTED")
    return tuple(argv)


def _names_page(reply: Reply) -> tuple[int, list[str]]:
    return int(reply[0]), [text(name) for name in reply[1]]


def _infos_page(reply: Reply) -> tuple[int, list[JobInfo]]:
    infos = (results.job_info(entry) for entry in reply[1])
    return int(reply[0]), [entry for entry in infos if entry is not None]
