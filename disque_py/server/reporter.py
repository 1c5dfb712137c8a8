"""Reporter: log lines made from counters. They report refused commands and clients, wrong passwords, and figures.

The core counts and logs nothing. Once a second the counters are compared with their last values. One line reports all
refusals of a kind since then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from disque_py.server.log import tell

if TYPE_CHECKING:
    from disque_py.core.broker import Broker

FIGURES_SECONDS: Final = 10
# After this many seconds without a refusal for memory, the log says that there is enough again.
CALM_LOOKS: Final = 10


class Reporter:
    """The reporter of one broker's counters. The server calls `look` once a second."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: dict[str, int] = {}
        self._calm_looks = 0
        self._looks = 0

    def look(self) -> None:
        """Log the refusals since the last call."""
        broker = self._broker
        stats, settings = broker.stats, broker.settings
        if count := self._more("memory", stats.memory_refusals):
            tell("memory-refused", count=count, used=broker.used_memory, maxmemory=settings.maxmemory)
            self._calm_looks = CALM_LOOKS
        elif self._calm_looks:
            self._calm_looks -= 1
            if not self._calm_looks:
                tell("memory-enough")
        if count := self._more("clients", stats.connections_beyond_maxclients):
            tell("clients-refused", count=count, maxclients=settings.maxclients)
        if count := self._more("foreign", stats.connections_foreign):
            tell("foreign-refused", count=count, client=stats.foreign_client)
        if count := self._more("passwords", stats.wrong_passwords):
            tell("wrong-password", count=count, client=stats.wrong_password_from)
        if count := self._more("access", stats.access_refusals):
            tell("access-refused", count=count)
        if count := self._more("limits", stats.limit_refusals):
            tell("limit-refused", count=count)
        self._looks += 1
        if self._looks % FIGURES_SECONDS == 0:
            self._tell_figures()

    def _tell_figures(self) -> None:
        broker = self._broker
        tell(
            "figures",
            jobs=broker.job_count,
            queues=len(broker.queues),
            clients=len(broker.clients),
            memory=broker.used_memory,
            commands=self._more("commands", broker.stats.commands_processed),
            messages=self._more("messages", broker.stats.messages_received),
            seconds=FIGURES_SECONDS,
        )

    def _more(self, name: str, count: int) -> int:
        """Return by how much a counter has grown. CONFIG RESETSTAT sets it back to 0."""
        known = self._known.get(name, 0)
        self._known[name] = count
        return count - known if count >= known else count
