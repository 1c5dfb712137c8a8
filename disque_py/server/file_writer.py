"""The scribe: a thread that writes files, one after the other, while the loop serves clients.

A write with its syncs may take a disk any time. What is handed in first is written first, so of two CONFIG REWRITEs the
later one wins. Whoever hands in hears of the end on the loop. The thread starts with the first file; `close` waits for
what is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class FileWriter:
    """One per process."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="scribe")
        self._is_closed = False

    def write(self, deed: Callable[[], None], done: Callable[[OSError | None], None]) -> None:
        """Run `deed` on the thread, then `done` on the loop, with the error if there was one.

        Anything but OSError is our own mistake and goes to the loop's exception handler. After `close` nothing is
        written and nobody hears: the process ends, and has written what it wanted to.
        """
        if self._is_closed:
            return

        def on_end(end: asyncio.Future[None]) -> None:
            if end.cancelled():
                return
            error = end.exception()
            if error is not None and not isinstance(error, OSError):
                raise error
            done(error)

        asyncio.get_running_loop().run_in_executor(self._thread, deed).add_done_callback(on_end)

    def close(self) -> None:
        """No more files; what was handed in is written when this returns."""
        self._is_closed = True
        self._thread.shutdown()
