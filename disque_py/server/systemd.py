"""Telling systemd how we are: READY, STOPPING, WATCHDOG.

The protocol (man sd_notify) is one datagram of `NAME=value` lines to the unix socket named by NOTIFY_SOCKET; a leading
`@` stands for the NUL byte of an abstract address. Nothing here may fail the server: a lost message is the manager's.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Notifier:
    """Messages to the service manager, or to nobody.

    is_active             there is a manager to talk to
    watchdog_interval_s   how often to call alive(); 0: the manager doesn't watch
    """

    def __init__(self, supervised: str, environ: Mapping[str, str] = os.environ) -> None:
        address = "" if supervised == "no" else environ.get("NOTIFY_SOCKET", "")
        self.is_active = address.startswith(("/", "@"))
        self.watchdog_interval_s = _watchdog_interval_s(environ) if self.is_active else 0.0
        self._address = "\0" + address[1:] if address.startswith("@") else address

    def ready(self) -> None:
        """The node serves clients."""
        self._send(f"READY=1\nMAINPID={os.getpid()}\nSTATUS=Serving clients")

    def stopping(self) -> None:
        """The node is going down."""
        self._send("STOPPING=1\nSTATUS=Stopping")

    def alive(self) -> None:
        """The loop still turns."""
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
    """Half of the manager's limit, as its manual advises."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    limit_us = environ.get("WATCHDOG_USEC", "")
    return int(limit_us) / 2_000_000 if limit_us.isdecimal() else 0.0
