"""Waiting until a socket can be read or written, on every operating system.

Systems with `poll` use it, because it takes any number of open files. Windows has only `select`, which takes any socket
there. Each blocking connection has one of these objects.
"""

from __future__ import annotations

import select
import socket
from contextlib import suppress
from typing import Final, Protocol

# The longest wait, because poll takes 31 bits of milliseconds. It is over three weeks.
WAIT_S_MAX: Final = 2_000_000


class Readiness(Protocol):
    """A wait for one socket."""

    def wait(self, limit_s: float | None, *, wants_room: bool) -> bool:
        """Wait until the socket has bytes or, with `wants_room`, takes some. Return False after `limit_s` seconds."""

    def has_bytes(self) -> bool:
        """Return whether a read would return now: with bytes, or because the other side closed the connection."""

    def close(self) -> None:
        """Forget the socket."""


class PollReadiness:
    """A wait by poll."""

    __slots__ = ("_poll", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def wait(self, limit_s: float | None, *, wants_room: bool) -> bool:
        """Wait until the socket has bytes or, with `wants_room`, takes some. Return False after `limit_s` seconds."""
        # poll rounds up a part of a millisecond.
        limit_ms = None if limit_s is None else 1000 * (limit_s if limit_s < WAIT_S_MAX else WAIT_S_MAX)
        if not wants_room:  # Each command of a client waits so once.
            return len(self._poll.poll(limit_ms)) > 0
        self._poll.modify(self._sock, select.POLLIN | select.POLLOUT)
        events = self._poll.poll(limit_ms)
        self._poll.modify(self._sock, select.POLLIN)
        return len(events) > 0

    def has_bytes(self) -> bool:
        """Return whether a read would return now: with bytes, or because the other side closed the connection."""
        return bool(self._poll.poll(0))

    def close(self) -> None:
        """Forget the socket."""
        with suppress(KeyError, ValueError, OSError):
            self._poll.unregister(self._sock)


class SelectReadiness:
    """A wait by select."""

    __slots__ = ("_sock",)

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def wait(self, limit_s: float | None, *, wants_room: bool) -> bool:
        """Wait until the socket has bytes or, with `wants_room`, takes some. Return False after `limit_s` seconds."""
        written = [self._sock] if wants_room else []
        limit = None if limit_s is None else min(limit_s, WAIT_S_MAX)
        readable, writable, failed = select.select([self._sock], written, [self._sock], limit)
        return bool(readable or writable or failed)

    def has_bytes(self) -> bool:
        """Return whether a read would return now: with bytes, or because the other side closed the connection."""
        return self.wait(0, wants_room=False)

    def close(self) -> None:
        """Do nothing, because select keeps no state."""


def readiness_of(sock: socket.socket) -> Readiness:
    """Return the wait that this system has."""
    return PollReadiness(sock) if hasattr(select, "poll") else SelectReadiness(sock)
