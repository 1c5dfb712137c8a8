"""Commands about zones: QREBALANCE. The results are read by results.py, as those of other tasks."""

from __future__ import annotations

from collections.abc import Iterable

from disque_py.client import results
from disque_py.client.protocol import text, word
from disque_py.client.request import Lane, Repeat, Request, words
from disque_py.client.results import Task

COMMAND = "qrebalance"


def rebalance(queue: str | bytes, *, zones: Iterable[str | bytes] | None = None, wait: bool = True) -> Request[Task]:
    """QREBALANCE → the task that hands queued jobs over until all nodes hold equal parts.

    queue    name of the queue
    zones    names of zones, as `rack-1` or `eu-central/rack-1`: only their nodes take part. None, the default: all do
    wait     whether to wait for the end. True by default

    Jobs are delivered meanwhile, and none is delivered twice. Raises ReplyError for a zone that no node has, or if the
    node leads too many tasks.
    """
    argv = words(b"QREBALANCE", queue)
    if zones is not None:
        argv = (*argv, b"ZONES", *map(word, zones))
    name = text(word(queue))
    if not wait:
        return Request((*argv, b"ASYNC"), lambda reply: results.begun_task(reply, COMMAND, name), Repeat.ASK)
    return Request(argv, lambda reply: results.ended_task(reply, COMMAND, name), Repeat.SAFE, Lane.OWN, 0)
