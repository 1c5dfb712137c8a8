"""Progress of long work: a bar on a terminal, nothing elsewhere.

The bar is drawn on standard error, so that standard output can be a file of jobs. Short work shows no bar.
"""

from __future__ import annotations

import sys
import time
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

# Work that ends within this time needs no bar.
SHOWN_AFTER_S: Final = 0.5


class Bar:
    """A progress bar. Use it as a context; `show` may be called any number of times.

    label   name of the work, in one or two words
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._console = Console(file=sys.stderr)
        self._started_s = time.monotonic()
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int, total: int) -> None:
        """Show that `done` of `total` bytes are done."""
        if self._bar is None:
            if not self._console.is_terminal or time.monotonic() - self._started_s < SHOWN_AFTER_S:
                return
            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._task = self._bar.add_task(self._label, total=total)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total)
