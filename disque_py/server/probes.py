"""Probes: whether a start could open a file, a directory or an address, without making or changing it.

`--test-config` (trial.py) uses them. Each probe raises the OSError that the start would get. A probe takes no lock, so
it says nothing about files and ports that a running node uses. Only the disk itself can tell whether it is full.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import sys
from typing import Any, Final, NoReturn

from persistence.files import LOCK_NAME

# The bytes of a unix socket's path, with the NUL byte at its end.
UNIX_PATH_BYTES: Final = 108 if sys.platform == "linux" else 104


def writable(path: str) -> None:
    """Raise the OSError of appending to a file, which is made if it is missing."""
    try:
        # Without O_NONBLOCK, a pipe that no process reads would stop the probe.
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        _room_for(os.path.realpath(path), path)
    except OSError as error:
        if error.errno != errno.ENXIO or not stat.S_ISFIFO(os.stat(path).st_mode):
            raise
    else:
        os.close(fd)


def ownable(directory: str) -> None:
    """Raise the OSError of persistence.files.Files(directory), except that another process owns the directory."""
    try:
        os.lstat(directory)
    except FileNotFoundError:
        _room_for(directory, directory)
        return
    if not os.path.isdir(directory):
        _fail(errno.EEXIST, directory)
    with os.scandir(directory):
        pass
    writable(f"{directory}/{LOCK_NAME}")
    _room_for(f"{directory}/{LOCK_NAME}", directory)


def bindable_socket_file(path: str) -> None:
    """Raise the OSError of listening on a unix socket. A socket that is there may be in use, or a leftover."""
    if len(os.fsencode(path)) >= UNIX_PATH_BYTES:
        raise OSError("AF_UNIX path too long")
    _room_for(path, path)


def bindable(family: int, address: tuple[Any, ...]) -> None:
    """Raise the OSError of binding a TCP port, except that the port is in use.

    A UDP port of the same number needs the same address and the same capability, and keeps no TCP port from its owner.
    """
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            sock.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise


def _room_for(path: str, name: str) -> None:
    """Raise the OSError of making a file at `path`, for `name`."""
    parent = os.path.dirname(path) or "."
    if not stat.S_ISDIR(os.stat(parent).st_mode):
        _fail(errno.ENOTDIR, name)
    if not os.access(parent, os.W_OK | os.X_OK):
        is_read_only = os.statvfs(parent).f_flag & os.ST_RDONLY
        _fail(errno.EROFS if is_read_only else errno.EACCES, name)


def _fail(number: int, name: str) -> NoReturn:
    raise OSError(number, os.strerror(number), name)
