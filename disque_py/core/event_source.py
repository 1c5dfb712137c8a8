"""EventSource: the log of events as commands see it.

`broker.event_source` is one while events are wanted (storage/event_log_service.py), else None. The core knows only
these methods: reading a log is slow work that goes on beside the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from disque_py.core.client import Client
    from disque_py.core.errors import CommandError


class EventSource(Protocol):
    """The log of events as commands see it. Each method but `fields` raises CommandError if there is no log now.

    `done` is called with the reply, or with the CommandError, within a turn; perhaps before the method returns.
    """

    def position(self) -> tuple[str, int, int, int]:
        """Return log id, first event, next event that is not on disk yet, bytes."""

    def read(
        self,
        log_id: str,
        seq: int,
        count: int,
        bytes_max: int,
        block_ms: int,
        name: str,
        done: Callable[[bytes | CommandError], None],
        *,
        is_packed: bool = False,
    ) -> None:
        """Read lines or blocks from event `seq` on. `block_ms` -1: don't wait; 0: for ever. `name` may be empty."""

    def seek(self, wall_ms: int, done: Callable[[bytes | CommandError], None]) -> None:
        """Find the first event that is not older."""

    def tail(self, client: Client) -> None:
        """Send the client all events from now on."""

    def fields(self) -> list[tuple[str, str | int]]:
        """Return the fields of INFO events."""
