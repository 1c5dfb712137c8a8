"""File writer: a thread that writes small files, one after the other, while the loop serves clients.

A write with its syncs may take any time. Writes happen in the order of the calls, so of two CONFIG REWRITEs the later
one wins. The caller learns the outcome on the loop. The thread starts with the first file. `close` waits for the writes
that were requested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class FileWriter:
    """The file-writing thread of a process."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="file-writer")
        self._is_closed = False

    def write(self, work: Callable[[], None], done: Callable[[OSError | None], None]) -> None:
        """Run `work` on the thread, then `done` on the loop, with the OSError if there was one.

        Any other exception is our own mistake and goes to the loop's exception handler. After `close`, `work` is not
        run and `done` not called: the process ends, and has written its files.
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

        asyncio.get_running_loop().run_in_executor(self._thread, work).add_done_callback(on_end)

    def close(self) -> None:
        """Take no more files. All files that were requested are written when this returns."""
        self._is_closed = True
        self._thread.shutdown()
