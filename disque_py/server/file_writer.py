"""File writer: a thread that writes small files, one after the other, while the loop serves clients.

A write with its syncs may take any time. Writes happen in the order of the calls, so of two CONFIG REWRITEs the later
one wins. The caller learns the outcome on the loop. The thread starts with the first file (persistence/lanes.py).

Answers to other nodes wait for the file of votes. So the loop waits for these writes at the end of its turn, as it does
for the journal, if the disk is quick.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from persistence.lanes import CLOSE_LIMIT_S, Lanes

LANE: Final = 0


class FileWriter:
    """The file-writing thread of a process."""

    def __init__(self) -> None:
        self._lanes: Lanes | None = None
        self._is_closed = False
        self._is_awaited = False

    def write(
        self, work: Callable[[], None], done: Callable[[OSError | None], None], *, is_awaited: bool = False
    ) -> None:
        """Run `work` on the thread, then `done` on the loop, with the OSError if there was one.

        Any other exception is our own mistake and goes to the loop's exception handler. After `close`, `work` is not
        run and `done` not called: the process ends, and has written its files.

        is_awaited   whether the next `wait` waits for it
        """
        if self._is_closed:
            return
        self._is_awaited |= is_awaited
        self._thread().start(LANE, work, partial(self._ended, done))

    def wait(self) -> None:
        """Wait a moment for the writes that are to be awaited, and call `done` of those that end meanwhile."""
        if self._is_awaited and self._lanes is not None:
            self._is_awaited = False
            self._lanes.wait(LANE)

    def close(self, last: Callable[[], None] | None = None, limit_s: float = CLOSE_LIMIT_S) -> OSError | None:
        """Take no more files, run `last` after the writes that were requested, and wait for it.

        Return its OSError, or one that says that the disk did not take all files in `limit_s` seconds.
        """
        self._is_closed = True
        self._is_awaited = False
        outcomes: list[OSError | None] = []
        if last is not None:
            self._thread().start(LANE, last, outcomes.append)
        if self._lanes is not None and not self._lanes.close(limit_s):
            return OSError("the disk doesn't answer")
        return outcomes[0] if outcomes else None

    def _thread(self) -> Lanes:
        if self._lanes is None:
            self._lanes = Lanes(1, "file-writer", asyncio.get_running_loop().call_soon_threadsafe)
        return self._lanes

    def _ended(self, done: Callable[[OSError | None], None], outcome: OSError | None) -> None:
        if not self._is_closed:
            done(outcome)
