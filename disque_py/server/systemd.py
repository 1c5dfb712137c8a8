"""Messages to systemd: READY, STOPPING, WATCHDOG.

The protocol (man sd_notify) is one datagram of `NAME=value` lines to the unix socket named by NOTIFY_SOCKET. A leading
`@` stands for the NUL byte of an abstract address. A message that can't be sent is dropped: it never fails the server.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Notifier:
    """A sender of messages to the service manager, if there is one.

    is_active             whether there is a manager
    watchdog_interval_s   how often to call alive(); 0: the manager doesn't watch
    """

    def __init__(self, supervised: str, environ: Mapping[str, str] = os.environ) -> None:
        address = "" if supervised == "no" else environ.get("NOTIFY_SOCKET", "")
        self.is_active = address.startswith(("/", "@"))
        self.watchdog_interval_s = _watchdog_interval_s(environ) if self.is_active else 0.0
        self._address = "\0" + address[1:] if address.startswith("@") else address

    def ready(self) -> None:
        """Say that the node serves clients."""
        self._send(f"READY=1\nMAINPID={os.getpid()}\nSTATUS=Serving clients")

    def stopping(self) -> None:
        """Say that the node is going down."""
        self._send("STOPPING=1\nSTATUS=Stopping")

    def alive(self) -> None:
        """Say that the loop still runs."""
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if not self.is_active:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.setblocking(False)
                channel.sendto(message.encode(), self._address)
        except OSError:
            return


def _watchdog_interval_s(environ: Mapping[str, str]) -> float:
    """Return half of the manager's limit, as its manual advises."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    limit_us = environ.get("WATCHDOG_USEC", "")
    return int(limit_us) / 2_000_000 if limit_us.isdecimal() else 0.0
