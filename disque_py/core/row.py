"""Row: a command as one broker has it in force, with its counters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from disque_py.core.broker import Broker
    from disque_py.core.client import Client

Handler = Callable[["Broker", "Client", list[bytes]], bytes | None]


class Row:
    """One command in force.

    name            the original name, lower case (rename-command changes the key, not this)
    handler         called with (broker, client, argv)
    arity           argument count, the name included; negative: at least; 0: any
    is_denyoom      refused at 100 % of maxmemory
    is_for_loading  allowed while the journal is loaded
    is_for_strangers  allowed before login
    is_fast         LATENCY counts it as fast-command
    is_admin        may change what the next command is checked against
    overlaps        may start while earlier ones of the same kind and client still wait for copies
    calls, nanoseconds   since start or CONFIG RESETSTAT
    """

    __slots__ = (
        "arity",
        "calls",
        "handler",
        "is_admin",
        "is_denyoom",
        "is_fast",
        "is_for_loading",
        "is_for_strangers",
        "name",
        "nanoseconds",
        "overlaps",
    )

    def __init__(self, name: str, handler: Handler, arity: int, flags: tuple[str, ...]) -> None:
        self.name = name
        self.handler = handler
        self.arity = arity
        self.is_denyoom = "denyoom" in flags
        self.is_for_loading = "loading" in flags
        self.is_fast = "fast" in flags
        self.is_admin = "admin" in flags or name in ("auth", "hello", "monitor", "reset")
        self.is_for_strangers = name in ("auth", "hello", "quit", "reset")
        self.overlaps = name == "addjob"
        self.calls = 0
        self.nanoseconds = 0

    def accepts(self, count: int) -> bool:
        """Whether a request of `count` words has the right number of them."""
        return count == self.arity if self.arity > 0 else count >= -self.arity
