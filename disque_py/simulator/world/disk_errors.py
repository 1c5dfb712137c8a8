"""Errors of a simulated folder, which wait for the operation that they hit, and the sudden death of a process."""

from __future__ import annotations

import errno as errnos
from collections.abc import Callable, Sequence
from typing import Final

TEXTS: Final = {
    errnos.EEXIST: "File exists",
    errnos.EIO: "Input/output error",
    errnos.ENOENT: "No such file or directory",
    errnos.ENOSPC: "No space left on device",
    errnos.EROFS: "Read-only file system",
}


class CrashError(BaseException):
    """The process has died in the middle of its work. Not an `Exception`, because a process can't handle its death."""


class Fault:
    """An error that waits for an operation.

    ops         the operations that may fail
    errno       the error that they raise
    countdown   how many operations succeed before
    times       how many operations fail then; negative: all
    is_partial  a part of the operation is done nevertheless
    when        called with the file's name, returns whether the file counts; None: any file does
    """

    __slots__ = ("countdown", "errno", "is_partial", "ops", "times", "when")

    def __init__(
        self,
        ops: Sequence[str],
        errno: int,
        countdown: int,
        times: int,
        is_partial: bool,
        when: Callable[[str], bool] | None,
    ) -> None:
        self.ops = ops
        self.errno = errno
        self.countdown = countdown
        self.times = times
        self.is_partial = is_partial
        self.when = when

    def strikes(self, op: str, name: str) -> bool:
        """Count this operation, and return whether it fails."""
        if op not in self.ops or (self.when is not None and not self.when(name)):
            return False
        if self.countdown:
            self.countdown -= 1
            return False
        if not self.times:
            return False
        self.times -= 1
        return True


def os_error(errno: int, name: str) -> OSError:
    """Return the error that the system would raise: the right subclass, with a text."""
    return OSError(errno, TEXTS.get(errno, "Error"), name)
