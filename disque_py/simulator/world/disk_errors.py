"""Errors of a simulated folder that wait for their operation, and sudden death."""

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
    """The process has died in the middle of its work. No `Exception`: a process cannot handle its own death."""


class Fault:
    """Trouble that waits for an operation.

    ops         which ones
    errno       what they raise
    countdown   how many of them go well before
    times       how often it strikes then; negative: always
    is_partial  something of the operation happens nevertheless
    when        asked with the file's name; None: any file
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
        """Return whether it is this operation's turn to fail; counts it."""
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
    """As the system raises it: the right subclass, with a text."""
    return OSError(errno, TEXTS.get(errno, "Error"), name)
