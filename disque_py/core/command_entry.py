"""CommandEntry: a command as one broker has it in force, with its counters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from persistence.disk_errors import NO_ACKS, NO_ADDS, NO_WRITES

if TYPE_CHECKING:
    from disque_py.core.broker import Broker
    from disque_py.core.client import Client
    from disque_py.core.units import Access

# Options of one command are read in one go; this many words take about two milliseconds. Commands with long lists read
# and handle them in parts (incremental.py), and have no limit of their own.
WORDS_MAX: Final = 8_192
WITH_LISTS: Final = frozenset(
    (
        "ackjob",
        "acktoken",
        "canceljob",
        "command",
        "deljob",
        "dequeue",
        "enqueue",
        "fastack",
        "nack",
        "nacktoken",
        "promote",
    )
)

Handler = Callable[["Broker", "Client", list[bytes]], bytes | None]


class CommandEntry:
    """One command in force, with its limits and counters.

    name            the original name, lower case (rename-command changes the key, not this)
    access          its units, for permissions
    handler         called with (broker, client, argv)
    arity           argument count, the name included; negative: at least; 0: any
    words_max       most words that a request may have
    is_denyoom      refused at 100 % of maxmemory
    is_for_loading  allowed while the journal is loaded
    awaits_loading  waits for the loading after a start; PING asks how the node is, so it is answered at once
    awaits_settings  waits after a start until the node has heard of queue settings
    is_for_strangers  allowed before login
    is_write        its reply may make a promise that must be on disk (node/output_commit.py)
    disk_level      the level of disk errors from which on it is refused (persistence/journal.py, `level`); 0: never
    is_fast         LATENCY counts it as fast-command
    is_admin        may change the settings by which the next command is checked
    overlaps        may start while earlier ones of the same kind and client still wait for copies
    calls, nanoseconds   since start or CONFIG RESETSTAT
    """

    __slots__ = (
        "access",
        "arity",
        "awaits_loading",
        "awaits_settings",
        "calls",
        "disk_level",
        "handler",
        "is_admin",
        "is_denyoom",
        "is_fast",
        "is_for_loading",
        "is_for_strangers",
        "is_write",
        "name",
        "nanoseconds",
        "overlaps",
        "words_max",
    )

    def __init__(self, name: str, handler: Handler, arity: int, flags: tuple[str, ...], access: Access) -> None:
        self.name = name
        self.access = access
        self.handler = handler
        self.arity = arity
        self.words_max = 1 << 60 if name in WITH_LISTS else WORDS_MAX
        self.is_denyoom = "denyoom" in flags
        self.is_write = "write" in flags or name in ("pause", "cluster", "debug")
        self.disk_level = _disk_level(name, flags)
        self.is_for_loading = "loading" in flags
        self.awaits_loading = not self.is_for_loading and name != "ping"
        self.awaits_settings = name in ("addjob", "getjob", "topic")
        self.is_fast = "fast" in flags
        self.is_admin = "admin" in flags or name in ("auth", "hello", "monitor", "reset")
        self.is_for_strangers = name in ("auth", "hello", "quit", "reset")
        self.overlaps = name in ("addjob", "topic")
        self.calls = 0
        self.nanoseconds = 0

    def accepts(self, count: int) -> bool:
        """Whether a request of `count` words has the right number of them."""
        return count == self.arity if self.arity > 0 else count >= -self.arity


def _disk_level(name: str, flags: tuple[str, ...]) -> int:
    """Commands that make no new durability promise are refused last (spec P5, Q40).

    PING says, like the original's, that this node takes no writes.
    """
    if name in ("ackjob", "acktoken", "canceljob", "fastack"):
        return NO_ACKS
    if name in ("extendtoken", "getjob", "nack", "nacktoken", "working"):
        return NO_WRITES
    return NO_ADDS if "write" in flags or name == "ping" else 0
