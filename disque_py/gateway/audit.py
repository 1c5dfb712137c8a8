"""The audit log: a line of JSON for each change, each refused login and each refused permission.

A line has the time, the principal, the address, the interface, the operation, its cluster if there are several, its
target and the outcome. No line has bodies, metadata or secrets. The console shows the newest lines of this process.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from typing import IO, Any, Final

import msgspec

from disque_py.gateway.shapes import as_text

LOG: Final = logging.getLogger("disque-gateway")
# The newest lines, which the console shows.
KEPT: Final = 500
# Arguments that are names on which a caller needs a role.
NAMES: Final = ("queue", "name", "to", "batch", "dead_letter")
# Arguments that a line has.
TARGETS: Final = (*NAMES, "id", "action", "status", "direction", "limit")


class Audit:
    """Lines about changes.

    path   the file; empty: standard error. If it is renamed, as logrotate does, the next line begins a new one

    Raises ValueError if the file can't be opened.
    """

    def __init__(self, path: str = "", stream: IO[bytes] | None = None) -> None:
        self._path = path
        try:
            self._stream: IO[bytes] = stream or (self._opened() if path else sys.stderr.buffer)
        except OSError as error:
            raise ValueError(f"audit-log {path}: {error.strerror or error}") from error
        self.newest: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._is_failing = False

    def line(
        self,
        now: float,
        principal: str,
        address: str,
        interface: str,
        operation: str,
        args: dict[str, Any],
        outcome: str,
        cluster: str = "",
    ) -> None:
        """Write a line. If the log can't be written, operations go on, and the gateway's own log says so."""
        target: dict[str, Any] = {name: args[name] for name in TARGETS if name in args}
        # An issuer may give names that can't be encoded. They must not keep a line out of the log.
        entry: dict[str, Any] = {
            "time": round(now, 3),
            "principal": as_text(principal),
            "address": address,
            "door": interface,
            "operation": operation,
            **({"cluster": cluster} if cluster else {}),
            **as_text(target),
            "outcome": outcome,
        }
        self.newest.appendleft(entry)
        try:
            if self._path and self._has_moved():
                old, self._stream = self._stream, self._opened()
                old.close()
            self._stream.write(msgspec.json.encode(entry) + b"\n")
            self._stream.flush()
        except (OSError, ValueError) as error:
            if not self._is_failing:
                LOG.error("audit-log %s can't be written, lines are missing: %s", self._path, error)
            self._is_failing = True
            return
        if self._is_failing:
            LOG.info("audit-log %s is written again", self._path)
        self._is_failing = False

    def _opened(self) -> IO[bytes]:
        # A new file is for its owner only, as that of a node.
        return open(self._path, "ab", buffering=0, opener=lambda path, flags: os.open(path, flags, 0o600))

    def _has_moved(self) -> bool:
        """Return whether the path leads to another file than the open one, or to none."""
        try:
            there, here = os.stat(self._path), os.fstat(self._stream.fileno())
        except FileNotFoundError:
            return True
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)

    def close(self) -> None:
        """Close the file."""
        if self._path:
            self._stream.close()
