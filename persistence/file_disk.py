"""FileDisk: the journal's work on a real directory, on threads (lanes.py)."""

# Stays Python: threads.
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from persistence.disk import LANES, Folder
from persistence.lanes import CLOSE_LIMIT_S, Lanes

T = TypeVar("T")


class FileDisk:
    """A Disk on threads.

    folder     must allow use by several threads at once, like Files
    loop_call  makes the loop's thread call a function soon: `loop.call_soon_threadsafe`
    """

    def __init__(self, folder: Folder, loop_call: Callable[[Callable[[], None]], object]) -> None:
        self._folder = folder
        self._lanes = Lanes(LANES, "journal", loop_call)

    def start(self, lane: int, work: Callable[[Folder], T], done: Callable[[T | OSError], None]) -> None:
        """Do `work` in this lane. `done` gets its result, or its OSError, in the loop's thread.

        Any other exception is a mistake of this program: it is raised in the loop's thread, and `done` is not called.
        """
        self._lanes.start(lane, partial(work, self._folder), done)

    def wait(self, lane: int) -> None:
        """Wait a moment for the work of this lane, and hand over what ends meanwhile. A slow disk is not waited for.

        This includes work that a `done` starts in this lane.
        """
        self._lanes.wait(lane)

    def close(self, limit_s: float = CLOSE_LIMIT_S) -> bool:
        """Wait for all started work, also work that a `done` starts meanwhile, hand it over and end the threads.

        Nothing can be started afterwards. False if work had not ended after `limit_s` seconds; its `done` is skipped.
        """
        return self._lanes.close(limit_s)
