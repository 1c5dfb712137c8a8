"""CommandEntry: a command as one broker has it in force, with its counters.

commands/table.py has the rows that are the same for all brokers. node/dispatch.py makes the entries from them, under
the names that rename-command gives, and checks each request by its entry. So a check reads a field, and looks up
no flag by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from persistence.disk_errors import NO_ACKS, NO_ADDS, NO_WRITES

if TYPE_CHECKING:
    from disque_py.core.broker import Broker
    from disque_py.core.client import Client
    from disque_py.core.units import Access

# The options of a command are read in one go, and this many words take about two milliseconds. Commands with long lists
# read and handle them in parts (incremental.py), so this limit does not apply to them.
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

    name            the original name in lower case; rename-command does not change it
    access          the command's units, for permissions
    handler         called with (broker, client, argv)
    arity           number of words, including the name; negative: the least number; 0: any number
    words_min, words_max   the least and the most words that a request may have
    is_denyoom      whether it is refused at 100 % of maxmemory
    is_for_loading  whether it is allowed while the journal is loaded
    awaits_loading  whether it waits, after a start, until the journal is loaded. PING does not wait, because it asks
                    for the state of the node
    awaits_settings  whether it waits, after a start, until the node has heard of queue settings
    is_for_strangers  whether it is allowed before login
    is_write        whether its reply may make a promise that must be on disk (node/output_commit.py)
    disk_level      the lowest level of disk errors at which it is refused (persistence/journal.py, `level`); 0: never
    is_fast         whether LATENCY counts it as fast-command
    is_admin        whether it may change the settings by which the next command is checked
    overlaps        whether it may start while earlier commands of this kind and client still wait for copies
    calls, nanoseconds   number of calls and their time, since the start or CONFIG RESETSTAT
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
        "words_min",
    )

    def __init__(self, name: str, handler: Handler, arity: int, flags: tuple[str, ...], access: Access) -> None:
        self.name = name
        self.access = access
        self.handler = handler
        self.arity = arity
        self.words_min = abs(arity)
        self.words_max = arity if arity > 0 else 1 << 60 if name in WITH_LISTS else WORDS_MAX
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
        """Return whether `count` words, including the name, are a valid number for this command."""
        return count == self.arity if self.arity > 0 else count >= -self.arity


def _disk_level(name: str, flags: tuple[str, ...]) -> int:
    """Return a command's `disk_level`. Commands that make no new durability promise are refused last (spec P5, Q40).

    PING is refused, too. As in the original, this tells a monitor that the node takes no writes.
    """
    if name in ("ackjob", "acktoken", "canceljob", "fastack"):
        return NO_ACKS
    if name in ("extendtoken", "getjob", "nack", "nacktoken", "working"):
        return NO_WRITES
    return NO_ADDS if "write" in flags or name == "ping" else 0
