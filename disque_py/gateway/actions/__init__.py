"""The work of operations: one coroutine per row of the table, by its name.

A coroutine gets a Call (calls.py): the caller's client, the checked arguments, and the parts of the gateway that it
needs. It returns values for JSON. Permissions are checked before the call. Only lists check more: they leave out names
that the caller may not see.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from disque_py.gateway.actions import cluster, jobs, queues, searching
from disque_py.gateway.actions.calls import Call
from disque_py.gateway.operations import BY_NAME

Action = Callable[[Call], Awaitable[Any]]

_KNOWN: Final = {**vars(jobs), **vars(queues), **vars(cluster), **vars(searching)}
ACTIONS: Final[dict[str, Action]] = {name: _KNOWN[name] for name, row in BY_NAME.items() if row.form == "json"}
