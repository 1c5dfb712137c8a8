"""Hosts: the names that a Host header may have.

A page of another site can make a browser ask this gateway under that site's name (DNS rebinding). So the name must be
one of the gateway's own: a loopback name, the address that it listens on, or a name in the setting `hosts`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")


class Hosts:
    """The names of this gateway. `*` among them admits any."""

    def __init__(self, listen: str, names: Iterable[str]) -> None:
        own = f"[{listen}]" if ":" in listen else listen
        self._names = {*LOOPBACK, own.lower(), *names}
        self._admits_any = "*" in self._names
        # Most requests have one of the same few headers.
        self._good: set[str] = set()

    def admits(self, header: str) -> bool:
        """Return whether a Host header names this gateway. The port is ignored."""
        if self._admits_any or header in self._good:
            return True
        if name_of(header) not in self._names:
            return False
        if len(self._good) < 1000:
            self._good.add(header)
        return True


def name_of(header: str) -> str:
    """Return the name of a Host header, in lower case, without its port. If the header is malformed, it is empty."""
    head, bracket, rest = header.rpartition("]")
    name, _, port = rest.partition(":")
    if (bracket and name) or (port and not (port.isascii() and port.isdigit())):
        return ""
    return (head + bracket + name).lower().rstrip(".")


def is_loopback(header: str) -> bool:
    """Return whether a Host header names this machine. Browsers trust these names as they trust TLS."""
    name = name_of(header)
    return name in LOOPBACK or name.startswith("127.") or name.endswith(".localhost")
