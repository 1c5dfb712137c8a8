"""Commands that start a task on all nodes: QPURGE, QMOVE, QREDRIVE and QREBALANCE; and QTASK. Pure.

A task changes the jobs of a queue, in parts, while nodes serve their clients. The node that gets the command leads the
task, and its id begins with the id of this node. With `wait=True` the answer comes when the task is over. With
`wait=False` it comes at once, and QTASK SHOW at the leading node tells the progress. If the answer is lost, the client
repeats a command that waits and has no limit, because its second task finds only jobs that the first one has left.
"""

from __future__ import annotations

from collections.abc import Iterable

from disque_py.client import results
from disque_py.client.arguments import TaskRef, Where, add_pair, of_status, where_words
from disque_py.client.protocol import text, word
from disque_py.client.request import Lane, Repeat, Request, words
from disque_py.client.results import Task
from disque_py.client.spans import whole
from disque_py.event_format import JobStatus


def purge(
    queue: str | bytes, *, where: Where | None = None, status: JobStatus | None = None, wait: bool = True
) -> Request[Task]:
    """Cancel the jobs of a queue, on all nodes (QPURGE) → the task that does it.

    queue    name of the queue
    where    names and values: only jobs whose metadata have all these pairs. None, the default: all jobs
    status   jobs of this status: "pending", the default, "invisible" or "errored"
    wait     True, the default: wait for the end of the task. False: return immediately, and ask `task` how far it is

    Jobs that are added later stay. Raises ReplyError if the node leads too many tasks.

        purged = client.purge("mail", where={"tenant": "a"})
        print(purged.jobs, purged.nodes_missing)
    """
    argv = of_status((*words(b"QPURGE", queue), *where_words(where)), status, cluster=False)
    return _task(argv, "qpurge", queue, Repeat.SAFE, wait=wait)


def move(
    queue: str | bytes,
    to: str | bytes,
    *,
    where: Where | None = None,
    status: JobStatus | None = None,
    limit: int | None = None,
    rate: int | None = None,
    wait: bool = True,
) -> Request[Task]:
    """Move the jobs of a queue to another queue, on all nodes (QMOVE) → the task that does it.

    queue    name of the queue
    to       name of the other queue
    where    names and values: only jobs whose metadata have all these pairs. None, the default: all jobs
    status   jobs of this status: "pending", the default, "invisible" or "errored"
    limit    the most jobs to move, beginning with those that are served first. None, the default: all
    rate     the most jobs per second. None, the default: as fast as possible
    wait     True, the default: wait for the end of the task

    Raises OutOfMemoryError, and ReplyError if the queues are the same or the node leads too many tasks.

        moved = client.move("mail", "mail-slow", where={"tenant": "a"}, limit=1000)
    """
    argv = of_status((*words(b"QMOVE", queue, to), *where_words(where)), status, cluster=False)
    return _task(_paced(argv, limit, rate), "qmove", queue, _repeat_of(limit), wait=wait)


def redrive(
    queue: str | bytes,
    *,
    where: Where | None = None,
    to: str | bytes | None = None,
    limit: int | None = None,
    rate: int | None = None,
    wait: bool = True,
) -> Request[Task]:
    """Give errored jobs and dead letters of a queue fresh attempts (QREDRIVE) → the task that does it.

    queue    name of the queue
    where    names and values: only jobs whose metadata have all these pairs. None, the default: all jobs
    to       queue that they go to. None, the default: errored jobs stay in their queue, and dead letters go back to
             theirs
    limit    the most jobs to redrive, beginning with the oldest. None, the default: all
    rate     the most jobs per second. None, the default: as fast as possible
    wait     True, the default: wait for the end of the task

    Raises OutOfMemoryError, and ReplyError if the node leads too many tasks.

        client.redrive("mail-dead", rate=50)
    """
    argv = (*words(b"QREDRIVE", queue), *where_words(where))
    if to is not None:
        argv = (*argv, b"TO", word(to))
    return _task(_paced(argv, limit, rate), "qredrive", queue, _repeat_of(limit), wait=wait)


def rebalance(queue: str | bytes, *, zones: Iterable[str | bytes] | None = None, wait: bool = True) -> Request[Task]:
    """Spread the queued jobs of a queue evenly over the nodes (QREBALANCE) → the task that does it.

    queue    name of the queue
    zones    names of zones, such as `rack-1` or `eu-central/rack-1`: only their nodes take part. None, the default: all
             nodes
    wait     True, the default: wait for the end of the task

    Jobs are delivered meanwhile, and none is delivered twice. Raises ReplyError for a zone that no node has, or if the
    node leads too many tasks.
    """
    argv = words(b"QREBALANCE", queue)
    if zones is not None:
        argv = (*argv, b"ZONES", *map(word, zones))
    return _task(argv, "qrebalance", queue, Repeat.SAFE, wait=wait)


def _paced(argv: tuple[bytes, ...], limit: int | None, rate: int | None) -> tuple[bytes, ...]:
    more: list[bytes] = []
    add_pair(more, b"LIMIT", None if limit is None else whole("limit", limit))
    add_pair(more, b"RATE", None if rate is None else whole("rate", rate))
    return (*argv, *more)


def _repeat_of(limit: int | None) -> Repeat:
    """Return the effect of a repetition: a second task finds nothing to do, but with a limit it takes further jobs."""
    return Repeat.SAFE if limit is None else Repeat.ASK


def _task(argv: tuple[bytes, ...], command: str, queue: str | bytes, repeat: Repeat, *, wait: bool) -> Request[Task]:
    name = text(word(queue))
    if not wait:
        return Request((*argv, b"ASYNC"), lambda reply: results.begun_task(reply, command, name), Repeat.ASK)
    return Request(argv, lambda reply: results.ended_task(reply, command, name), repeat, Lane.OWN, 0)


def tasks() -> Request[list[Task]]:
    """List the tasks that the node asked has started (QTASK LIST) → the tasks, oldest first.

    These are running tasks, and those that ended in the last hour.
    """
    return Request((b"QTASK", b"LIST"), results.tasks)


def task(task: TaskRef) -> Request[Task | None]:
    """Ask how far a task is (QTASK SHOW) → the `Task`; None if the node asked no longer knows it.

    task   a `Task`, and the client asks the node that started it; or an id
    """
    task_id, node = (task.id, task.node) if isinstance(task, Task) else (task, None)
    return Request(words(b"QTASK", b"SHOW", task_id), results.task, node=node, is_pinned=node is not None)


def cancel_task(task: TaskRef) -> Request[bool]:
    """Stop a task (QTASK CANCEL) → whether it was running. Finished changes stay.

    task   a `Task`, and the client asks the node that started it; or an id
    """
    task_id, node = (task.id, task.node) if isinstance(task, Task) else (task, None)
    return Request(words(b"QTASK", b"CANCEL", task_id), bool, node=node, is_pinned=node is not None)
