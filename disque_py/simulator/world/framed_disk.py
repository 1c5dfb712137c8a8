"""A file of frames on a simulated disk (storage/framed_file.py).

A write takes some milliseconds, and is synced when it ends. A power cut before that leaves none, some or all bytes of
the last frame. With `is_torn_by_kills` the death of a process does the same; otherwise it leaves all bytes or none.
"""

from __future__ import annotations

from collections.abc import Callable
from errno import ENOSPC
from random import Random
from typing import TYPE_CHECKING, Any, Final

from disque_py.storage.framed_file import Format, frame

if TYPE_CHECKING:
    from disque_py.simulator.world.machine import Machine

WRITE_MS_MAX: Final = 6
REWRITE_BYTES: Final = 4_000
# On a disk with `is_slow`: the share of writes that take long, how long they take, and the share that fail.
SLOW_SHARE: Final = 0.05
SLOW_MS_MAX: Final = 1_500
FAILING_SHARE: Final = 0.02


class FramedDisk:
    """One machine's file. `data` is the content that the next start reads.

    is_slow      some writes take long, and some fail
    on_written   called when a write is over, before the node hears of it, with its items
    """

    def __init__(
        self,
        machine: Machine,
        rng: Random,
        layout: Format,
        on_written: Callable[[list[Any]], None] | None = None,
        *,
        is_torn_by_kills: bool = True,
        is_slow: bool = False,
    ) -> None:
        self.data = b""
        self._machine = machine
        self._rng = rng
        self._layout = layout
        self._on_written = on_written
        self._is_torn_by_kills = is_torn_by_kills
        self._is_slow = is_slow
        self._is_torn = False
        self._writing = b""

    def load(self) -> tuple[list[Any], bool]:
        """Return the items at the start of a process, and whether the end had to be repaired."""
        contents = self._layout.parse(self.data)
        # The torn end stays until the next write replaces the file. A process that starts before finds it again.
        self._is_torn = contents.good_bytes < len(self.data)
        return contents.items, self._is_torn

    def items(self) -> list[Any]:
        """Return the items that a start would find now."""
        return self._layout.parse(self.data).items

    def write(self, items: list[Any], is_void: bool, done: Callable[[OSError | None], None]) -> None:
        """Write items (see ports.Host)."""
        machine = self._machine
        self._writing = b"" if is_void else frame(items)
        span_ms = 0 if machine.world.is_prompt else self._rng.randrange(WRITE_MS_MAX)
        if span_ms and self._is_slow and self._rng.random() < SLOW_SHARE:
            span_ms = self._rng.randrange(SLOW_MS_MAX)
        if span_ms and self._is_slow and self._rng.random() < FAILING_SHARE:
            machine.world.later(span_ms, self._failed, machine.runs, done)
            return
        machine.world.later(span_ms, self._written, machine.runs, items, is_void, done)

    def _failed(self, run: int, done: Callable[[OSError | None], None]) -> None:
        machine = self._machine
        if run != machine.runs or not machine.is_up:
            return
        if machine.is_stopped:
            machine.held.append((self._failed, (run, done)))
            return
        self._writing = b""
        machine.open()
        done(OSError(ENOSPC, "No space left on device"))
        machine.close()

    def _written(self, run: int, items: list[Any], is_void: bool, done: Callable[[OSError | None], None]) -> None:
        machine = self._machine
        if run != machine.runs or not machine.is_up:
            return
        if machine.is_stopped:
            machine.held.append((self._written, (run, items, is_void, done)))
            return
        if is_void:
            self.data = self._layout.rewritten(items)
        elif not self.data or self._is_torn or len(self.data) > REWRITE_BYTES:
            self.data = self._layout.rewritten([*self.items(), *items])
        else:
            self.data += self._writing
        self._writing = b""
        self._is_torn = False
        if self._on_written is not None:
            self._on_written(items)
        machine.open()
        done(None)
        machine.close()

    def died(self, *, power: bool) -> None:
        """Note that the process ends. A write that is under way may leave some bytes."""
        if self._writing and not self._is_torn:
            size = len(self._writing)
            count = self._rng.randrange(size + 1)
            if not power and not self._is_torn_by_kills:
                count = size * (count % 2)
            self.data = (self.data or self._layout.head) + self._writing[:count]
            self._writing = b""
