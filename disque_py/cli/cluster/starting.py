"""A start of nodes that may be interrupted: signals held back at the wrong moment, and the directories that it made.

Ctrl-C, SIGTERM and SIGHUP end a start. They must not come between the start of a process and its record, because the
process would then run on without a file that names it. Directories are removed only if the start has made them.
"""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

from disque_py.cli.cluster.local_nodes import STATE_FILE, node_directory

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Turns the signals that end the program into KeyboardInterrupt, but only outside of `held`.

    A signal that the program ignores, as under nohup, stays ignored.
    """

    def __init__(self) -> None:
        self._is_held = False
        self._is_pending = False

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Handle the signals within this block. Threads other than the first can't."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
        before = [(number, signal.signal(number, self._on_signal)) for number in numbers]
        try:
            yield
        finally:
            for number, handler in before:
                signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let a signal wait until the end of this block."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._is_pending:
            self._is_pending = False
            raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._is_held:
            raise KeyboardInterrupt
        self._is_pending = True


class MadeDirectories:
    """The directories that a start makes: those of new nodes, and the one of the cluster with its missing parents."""

    def __init__(self, directory: Path, ports: Sequence[int]) -> None:
        self._directory = directory
        self._homes = [home for port in ports if not (home := node_directory(directory, port)).exists()]
        self._parents = [path for path in (directory, *directory.parents) if not path.exists()]

    def remove(self) -> None:
        """Remove them, and the file of the nodes. Parents that other files lie in by now stay."""
        for home in self._homes:
            shutil.rmtree(home, ignore_errors=True)
        for name in (STATE_FILE, STATE_FILE + ".new"):
            with suppress(OSError):  # The reason why the start failed is more important.
                (self._directory / name).unlink()
        for path in self._parents:
            with suppress(OSError):
                path.rmdir()
