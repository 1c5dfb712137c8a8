"""The file of queue settings on a simulated disk, and the settings that the machine promised and wrote."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from disque_py.commands import user_changes
from disque_py.core import settings_sync
from disque_py.core.queue_settings import Item, QueueSettingsTable
from disque_py.simulator.world.framed_disk import FramedDisk
from disque_py.storage.queue_settings_file import QUEUE_SETTINGS

if TYPE_CHECKING:
    from disque_py.simulator.world.machine import Machine


class SettingsDisk:
    """One machine's file. `file.data` is the content that the next start reads.

    promised   settings that were answered with +OK here, by queue and field (checks/settings.py)
    written    settings that were made here and are on the disk, by queue, field and value
    """

    def __init__(self, machine: Machine, rng: Random) -> None:
        self.promised: dict[tuple[bytes, bytes], Item] = {}
        self.written: dict[tuple[bytes, bytes, bytes], Item] = {}
        self._machine = machine
        self.file = FramedDisk(machine, rng, QUEUE_SETTINGS, self._note)

    def load(self) -> None:
        """Read the file at the start of a process."""
        items, _ = self.file.load()
        settings_sync.start(self._machine.broker, items)
        user_changes.join(self._machine.broker)
        self._machine.world.watcher.on_settings_read(self._machine)

    def table(self) -> QueueSettingsTable:
        """Return the settings that a start would find now."""
        table = QueueSettingsTable()
        for item in self.file.items():
            table.merge(item)
        return table

    def write(self, items: list[Item], is_void: bool, done: Callable[[OSError | None], None]) -> None:
        """Write settings (see ports.Host)."""
        if is_void:
            self.written.clear()  # A later QUEUE RESET may find nothing to reset.
        self.file.write(items, is_void, done)

    def _note(self, items: list[Any]) -> None:
        me = self._machine.broker.me.id
        self.written.update({item[:3]: item for item in items if item[4] == me})
