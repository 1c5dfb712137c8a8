"""The file of queue settings on a simulated disk.

A write takes some milliseconds and is synced when it is over. A process that dies before leaves a part of the last
frame behind: none, some or all of its bytes. The bytes are those of storage/queue_settings_file.py.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from disque_py.core import settings_sync
from disque_py.core.queue_settings import Item, QueueSettingsTable
from disque_py.storage.queue_settings_file import HEAD, frame, parse, rewritten

if TYPE_CHECKING:
    from disque_py.simulator.world.machine import Machine

WRITE_MS_MAX: Final = 6
REWRITE_BYTES: Final = 4_000


class SettingsDisk:
    """One machine's file; `data` is what the next start reads.

    promised   settings that were answered with +OK here, by queue and field (checks/settings.py)
    written    settings that were made here and are on the disk, by queue, field and value
    """

    def __init__(self, machine: Machine, rng: Random) -> None:
        self.data = b""
        self.promised: dict[tuple[bytes, bytes], Item] = {}
        self.written: dict[tuple[bytes, bytes, bytes], Item] = {}
        self._machine = machine
        self._rng = rng
        self._writing = b""

    def load(self) -> None:
        """Read the file at the start of a process."""
        contents = parse(self.data)
        self.data = self.data[: contents.good_bytes]
        settings_sync.start(self._machine.broker, contents.items)
        self._machine.world.watcher.on_settings_read(self._machine)

    def table(self) -> QueueSettingsTable:
        """Return the settings that a start would find now."""
        table = QueueSettingsTable()
        for item in parse(self.data).items:
            table.merge(item)
        return table

    def write(self, items: list[Item], is_void: bool, done: Callable[[OSError | None], None]) -> None:
        """Write settings; see ports.Host."""
        machine = self._machine
        if is_void:
            self._writing = b""
        else:
            self._writing = frame(items)
        span_ms = 0 if machine.world.is_prompt else self._rng.randrange(WRITE_MS_MAX)
        machine.world.later(span_ms, self._written, machine.runs, items, is_void, done)

    def _written(self, run: int, items: list[Item], is_void: bool, done: Callable[[OSError | None], None]) -> None:
        machine = self._machine
        if run != machine.runs or not machine.is_up:
            return
        if machine.is_stopped:
            machine.held.append((self._written, (run, items, is_void, done)))
            return
        if is_void:
            self.data = rewritten(items)
        elif not self.data or len(self.data) > REWRITE_BYTES:
            self.data = rewritten([*parse(self.data).items, *items])
        else:
            self.data += self._writing
        self._writing = b""
        me = machine.broker.me.id
        self.written.update({item[:3]: item for item in items if item[4] == me})
        machine.open()
        done(None)
        machine.close()

    def died(self) -> None:
        """The process ends: of a write that is under way some bytes may be there."""
        if self._writing:
            self.data = (self.data or HEAD) + self._writing[: self._rng.randrange(len(self._writing) + 1)]
            self._writing = b""
