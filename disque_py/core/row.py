"""Row: a command as one broker has it in force, with its counters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from persistence.trouble import NO_ACKS, NO_ADDS, NO_WRITES

if TYPE_CHECKING:
    from disque_py.core.broker import Broker
    from disque_py.core.client import Client

# Options of one command are read in one go; so many words are about two milliseconds of that. Commands that take long
# lists read and do them in parts (slices.py), and have no limit of their own.
WORDS_MAX: Final = 8_192
WITH_LISTS: Final = frozenset(
    ("ackjob", "acktoken", "command", "deljob", "dequeue", "enqueue", "fastack", "nack", "nacktoken")
)

Handler = Callable[["Broker", "Client", list[bytes]], bytes | None]


class Row:
    """One command in force.

    name            the original name, lower case (rename-command changes the key, not this)
    handler         called with (broker, client, argv)
    arity           argument count, the name included; negative: at least; 0: any
    words_max       most words that a request may have
    is_denyoom      refused at 100 % of maxmemory
    is_for_loading  allowed while the journal is loaded
    awaits_loading  waits for it after a start; PING asks how the node is, so it is answered at once
    is_for_strangers  allowed before login
    is_write        its reply may promise something that has to be on disk (promises.py)
    disk_level      trouble of the disk from which on it is refused (persistence/journal.py, `level`); 0: never
    is_fast         LATENCY counts it as fast-command
    is_admin        may change what the next command is checked against
    overlaps        may start while earlier ones of the same kind and client still wait for copies
    calls, nanoseconds   since start or CONFIG RESETSTAT
    """

    __slots__ = (
        "arity",
        "awaits_loading",
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

    def __init__(self, name: str, handler: Handler, arity: int, flags: tuple[str, ...]) -> None:
        self.name = name
        self.handler = handler
        self.arity = arity
        self.words_max = 1 << 62 if name in WITH_LISTS else WORDS_MAX
        self.is_denyoom = "denyoom" in flags
        self.is_write = "write" in flags or name in ("pause", "cluster", "debug")
        self.disk_level = _disk_level(name, flags)
        self.is_for_loading = "loading" in flags
        self.awaits_loading = not self.is_for_loading and name != "ping"
        self.is_fast = "fast" in flags
        self.is_admin = "admin" in flags or name in ("auth", "hello", "monitor", "reset")
        self.is_for_strangers = name in ("auth", "hello", "quit", "reset")
        self.overlaps = name == "addjob"
        self.calls = 0
        self.nanoseconds = 0

    def accepts(self, count: int) -> bool:
        """Whether a request of `count` words has the right number of them."""
        return count == self.arity if self.arity > 0 else count >= -self.arity


def _disk_level(name: str, flags: tuple[str, ...]) -> int:
    """What needs no new promise goes on as long as it can (spec P5, Q40).

    PING says, as the original's does, that this node takes no writes.
    """
    if name in ("ackjob", "acktoken", "fastack"):
        return NO_ACKS
    if name in ("extendtoken", "getjob", "nack", "nacktoken", "working"):
        return NO_WRITES
    return NO_ADDS if "write" in flags or name == "ping" else 0
