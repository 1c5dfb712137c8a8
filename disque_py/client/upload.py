"""The progress of bytes on their way to a node.

A node answers a command when it has read all of it. Over a slow network, a long body may need longer than the time
after which silence means a dead node. So before a connection is given up, it looks whether bytes still go out. A short
command gets no such look, so that a host that is gone is noticed in time.

The bytes are those that the program has not yet given to the system, and those that the system has sent without a
confirmation of the other side. Only Linux and macOS tell the second number.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

try:
    from fcntl import ioctl
    from termios import TIOCOUTQ
except ImportError:  # Windows.
    ioctl = None  # type: ignore[assignment]

# A body that is worth a look. Even a slow link carries less than this within the shortest time-outs.
LARGE_BYTES: Final = 65_536


class Upload:
    """The looks at one connection that has been silent since the first look."""

    __slots__ = ("_left", "_sock")

    def __init__(self, sock: socket.socket | None) -> None:
        self._sock = sock
        self._left: int | None = None

    def goes_on(self, unwritten: int) -> bool:
        """Return whether to wait for another time-out: a long upload has made progress since the last look.

        The first look only notes how much is left. `unwritten` is the number of bytes that the program still has.
        """
        left = unwritten + _unconfirmed(self._sock)
        before, self._left = self._left, left if left >= LARGE_BYTES else None
        return left >= LARGE_BYTES if before is None else left < before


def _unconfirmed(sock: socket.socket | None) -> int:
    """Return the number of bytes that the system has taken and the other side has not confirmed; 0: not known."""
    if sock is None or ioctl is None:
        return 0
    try:
        return int(struct.unpack("i", ioctl(sock.fileno(), TIOCOUTQ, b"\0" * 4))[0])
    except (OSError, ValueError):  # The connection is closed, or the system does not tell.
        return 0
