"""Pauses of the machine: the longest time that a process had to wait for the CPU while a test measured time."""

from __future__ import annotations

import threading
import time

NAP_SECONDS = 0.01


class LongestPause:
    """A thread that sleeps and notes how late it wakes. `seconds` is the longest such delay."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> LongestPause:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._is_over.wait(NAP_SECONDS):
            now = time.monotonic()
            self.seconds = max(self.seconds, now - before - NAP_SECONDS)
            before = now
