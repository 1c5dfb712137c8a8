"""Waiting for nodes that can't take a command now.

The client changes nodes by itself, and waits for nodes that load their journal. The adapter still gets these answers:

* NOREPL: a node died, and the others have not noticed yet, so copies can't be made. It takes `cluster-node-timeout`.
* UNREACHABLE: the node that may know a key can't be asked, for the same reason.
* LOADING, LEAVING: every node that can be reached refuses, for longer than the patience of the client.
* NOQUORUM: too few voters answer.

If a web request or a worker failed immediately, it would lose its task because of an outage of some seconds. So
adapters repeat the command for PATIENCE_S. The node deletes the copies of a refused job on the nodes that it can reach.
A copy on another node may be delivered, so in rare cases a repeated job runs twice. `once` prevents that: it gives the
job a unique KEY, and the command is also repeated if its answer is lost.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from itertools import count
from secrets import token_hex
from typing import Any, Final, TypeVar

from disque_py.client import (
    DisqueConnectionError,
    DisqueError,
    LeavingError,
    LoadingError,
    NoQuorumError,
    NoReplError,
    UnreachableError,
)
from disque_py.client.retry import NO_VOTERS

# The time that nodes may need to notice that another node is dead: twice their default time-out.
PATIENCE_S: Final = 30.0
PAUSE_S: Final = 0.1
# A repetition within this window finds the first job. The nodes remember a finished job's key for at most this time.
WINDOW_S: Final = 60

PASSING: Final = (NoReplError, UnreachableError, LoadingError, LeavingError, NoQuorumError)

T = TypeVar("T")


def is_passing(error: BaseException) -> bool:
    """Return whether nodes refuse a command only for now."""
    return isinstance(error, PASSING) and str(error) != NO_VOTERS


def is_outage(error: BaseException) -> bool:
    """Return whether no node can be used now. Adapters raise the connection errors of their frameworks for this."""
    return isinstance(error, DisqueConnectionError) or is_passing(error)


def unique() -> str:
    """Return a unique name: no other call, in any program, returns it."""
    return f"{_prefix}{next(_numbers):x}"


def _begin() -> None:
    global _prefix
    _prefix = f"{token_hex(10)}-"


_numbers = count()
_prefix = ""
_begin()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin)  # Otherwise a child would use the numbers of its parent.


def once(key: str | None = None) -> dict[str, Any]:
    """Return the options of an ADDJOB that may be repeated without making a second job.

    key   a name that only repetitions of this job have; None, the default: a new one
    """
    return {"key": key or unique(), "window": WINDOW_S, "retry_unsafe": True}


def persist(work: Callable[[], T], seconds: float = PATIENCE_S) -> T:
    """Do this work, and repeat it while nodes refuse it for now → its value. Raises DisqueError."""
    until = time.monotonic() + seconds
    while True:
        try:
            return work()
        except DisqueError as error:
            if not is_passing(error) or time.monotonic() >= until:
                raise
        time.sleep(PAUSE_S)


async def apersist(work: Callable[[], Awaitable[T]], seconds: float = PATIENCE_S) -> T:
    """Do this work as `persist` does, for asyncio."""
    until = time.monotonic() + seconds
    while True:
        try:
            return await work()
        except DisqueError as error:
            if not is_passing(error) or time.monotonic() >= until:
                raise
        await asyncio.sleep(PAUSE_S)
