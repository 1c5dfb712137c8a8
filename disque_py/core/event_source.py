"""EventSource: the log of events as commands see it.

`broker.event_source` is one while events are wanted (storage/event_log_service.py), None while they are not. The core knows the
shape only: reading a log is slow work that goes on beside the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from disque_py.core.client import Client
    from disque_py.core.errors import CommandError


class EventSource(Protocol):
    """The log of events as commands see it; each method but `fields` raises CommandError if there is none now.

    `done` hears the reply, or the CommandError, within a turn; perhaps before the method returns.
    """

    def position(self) -> tuple[str, int, int, int]:
        """Log id, first event, next event that is not on disk yet, bytes."""

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
        """Lines or blocks from event `seq` on; `block_ms` -1: don't wait for it, 0: for ever. `name` may be empty."""

    def seek(self, wall_ms: int, done: Callable[[bytes | CommandError], None]) -> None:
        """The first event that is not older."""

    def tail(self, client: Client) -> None:
        """Send the client everything from now on."""

    def fields(self) -> list[tuple[str, str | int]]:
        """INFO events."""
