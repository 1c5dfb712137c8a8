"""The audit log: a line of JSON for each change, each refused login and each refused permission.

A line has the time, the principal, the address, the interface, the operation, its cluster if there are several, its
target and the outcome. No line has bodies, metadata or secrets. The console shows the newest lines of this process.
"""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from typing import IO, Any, Final

import msgspec

KEPT: Final = 500
# Arguments that are names on which a caller needs a role.
NAMES: Final = ("queue", "name", "to", "batch", "dead_letter")
# Arguments that a line has.
TARGETS: Final = (*NAMES, "id", "action", "status", "direction", "limit")


class Audit:
    """Lines about changes.

    path   the file; empty: standard error

    Raises ValueError if the file can't be opened.
    """

    def __init__(self, path: str = "", stream: IO[bytes] | None = None) -> None:
        self._path = path
        try:
            self._stream: IO[bytes] = stream or (Path(path).open("ab", buffering=0) if path else sys.stderr.buffer)  # noqa: SIM115  # closed by close()
        except OSError as error:
            raise ValueError(f"audit-log {path}: {error.strerror or error}") from error
        self.newest: deque[dict[str, Any]] = deque(maxlen=KEPT)

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
        """Write a line. If the log can't be written, operations go on."""
        target: dict[str, Any] = {name: args[name] for name in TARGETS if name in args}
        entry: dict[str, Any] = {
            "time": round(now, 3),
            "principal": principal,
            "address": address,
            "door": interface,
            "operation": operation,
            **({"cluster": cluster} if cluster else {}),
            **target,
            "outcome": outcome,
        }
        self.newest.appendleft(entry)
        try:
            self._stream.write(msgspec.json.encode(entry) + b"\n")
            self._stream.flush()
        except (OSError, ValueError):
            return

    def close(self) -> None:
        """Close the file."""
        if self._path:
            self._stream.close()
