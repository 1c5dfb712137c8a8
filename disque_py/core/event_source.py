"""EventSource: the log of events, as commands use it.

`broker.event_source` is an EventSource while events are written (storage/event_log_service.py), else None. The core
knows only these methods, because reading a log is slow work that is done outside the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from disque_py.core.client import Client
    from disque_py.core.errors import CommandError


class EventSource(Protocol):
    """The log of events, as commands use it. Each method except `fields` raises CommandError if there is no log now.

    `done` is called within a turn, with the reply or a CommandError. This may happen before the method returns.
    """

    def position(self) -> tuple[str, int, int, int]:
        """Return the log's id, its first event, the next event that is not on disk yet, and its size in bytes."""

    def read(
        self,
        client: Client,
        argv: list[bytes],
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
        """Read lines or blocks from event `seq` on. `name` may be empty.

        While the request waits for events, `client.blocked` is set, with `argv` as the words of the request.

        block_ms   how long to wait for events; -1: do not wait; 0: wait without a limit
        """

    def seek(self, wall_ms: int, done: Callable[[bytes | CommandError], None]) -> None:
        """Find the first event that is not older than `wall_ms`."""

    def tail(self, client: Client) -> None:
        """Send the client all events from now on."""

    def forget(self, client: Client) -> None:
        """Drop what a client waits for, because its connection is gone, or its stream has ended."""

    def fields(self) -> list[tuple[str, str | int]]:
        """Return the fields of INFO events."""
