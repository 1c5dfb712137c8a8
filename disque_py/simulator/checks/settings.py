"""Queue settings: an answered setting stays, and at the end all nodes have the same settings.

When a node answers a QUEUE SET or RESET with OK, its disk must have that version. From then on, each start of the node
must find this version or a later one, until the node is told to forget everything (CLUSTER RESET).

When the mesh is whole, all nodes must have the same versions of all settings, and each node must know that the others
have them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from disque_py.core import settings_sync
from disque_py.core.queue_settings import RESET_FIELD, Item, QueueSettingsTable
from disque_py.simulator.oracle import RuleBrokenError

if TYPE_CHECKING:
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

RULE = "an answered setting stays"
Command = tuple[str | bytes | int, ...]


class SettingsChecker:
    """The operators' commands that are under way, and the nodes that were told to forget everything."""

    def __init__(self) -> None:
        self._resets: dict[str, int] = {}
        self._asked: dict[tuple[str, Command], int] = {}

    def asked(self, machine: Machine, command: Command) -> None:
        """Note that an operator's command is about to reach the node."""
        if command[:2] == ("CLUSTER", "RESET"):
            self._resets[machine.name] = self._resets.get(machine.name, 0) + 1
            machine.settings_disk.promised.clear()
        elif command[0] == "QUEUE":
            self._asked[machine.name, command] = self._resets.get(machine.name, 0)

    def answered(self, machine: Machine, command: Command, reply: Any) -> None:
        """Note the reply to QUEUE SET or RESET. Raises RuleBrokenError if the setting is not on the disk."""
        if command[0] != "QUEUE":
            return
        resets = self._asked.pop((machine.name, command), -1)
        if reply != b"OK" or resets != self._resets.get(machine.name, 0):
            return
        disk = machine.settings_disk
        queue = _bytes(command[2])
        field, value = (_bytes(command[3]), _bytes(command[4])) if len(command) > 3 else (RESET_FIELD, b"")
        item = disk.written.get((queue, field, value))
        if item is None and field == RESET_FIELD:
            return  # There was nothing to reset.
        if item is None or not is_kept(disk.table(), item):
            raise RuleBrokenError(
                RULE, f"{queue!r} {field!r} {value!r} of {machine.name} was answered, but is not on disk"
            )
        disk.promised[queue, field] = item


def check_kept(machine: Machine) -> None:
    """Check that a process's file has all settings that were answered before. Raises RuleBrokenError."""
    for item in machine.settings_disk.promised.values():
        if not is_kept(machine.broker.queue_settings, item):
            raise RuleBrokenError(RULE, f"{machine.name} has lost {item}")


def is_kept(table: QueueSettingsTable, item: Item) -> bool:
    """Return whether a table has this version of a setting, or a later one."""
    queue, field, _, counter, node_id = item
    state = table.states.get(queue)
    if state is None:
        return False
    known = state.fields.get(field)
    version = (counter, node_id)
    return state.reset >= version or (known is not None and (known[1], known[2]) >= version)


def apart(world: World) -> str:
    """Return a line about nodes with different settings, or with unconfirmed ones; empty if there are none."""
    up = world.running()
    for machine in up:
        table = machine.broker.queue_settings
        if table.digest != up[0].broker.queue_settings.digest:
            return f"{up[0].name} and {machine.name}: {up[0].broker.queue_settings.states} {table.states}"
        for name in table.states:
            count = settings_sync.behind(machine.broker, name)
            if count:
                return f"{machine.name} believes that {count} nodes have not confirmed {name!r}"
    return ""


def _bytes(word: str | bytes | int) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()
