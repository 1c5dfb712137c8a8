"""Watcher: whatever looks on while a world runs. This one ignores all it is told.

The world calls its watcher at the moments below. Checks (simulation.py) and stories (tests/scenarios) bring watchers
with methods of their own. A watcher acts later, not at once: the call may come in the middle of a node's turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mypy_extensions import mypyc_attr

from cluster_bus.outgoing import Outgoing

if TYPE_CHECKING:
    from disque_py.simulator.world.machine import Machine


@mypyc_attr(allow_interpreted_subclasses=True)  # Stories (tests/scenarios).
class Watcher:
    """The moments of a world that can be watched."""

    def outgoing_of(self, machine: Machine) -> Outgoing:
        """Return the place where a node's messages are gathered."""
        return Outgoing()

    def on_turn(self, machine: Machine) -> None:
        """A turn of this node is over."""

    def on_look(self) -> None:
        """World.EVENTS_PER_LOOK events have happened since the last look."""

    def on_death(self, machine: Machine, *, power: bool) -> None:
        """A process is about to lose its memory."""

    def on_reload(self, machine: Machine) -> None:
        """A process is about to forget all its jobs and to read them back (DEBUG LOADAOF)."""

    def on_loaded(self, machine: Machine) -> None:
        """A process has read its journal."""

    def on_settings_read(self, machine: Machine) -> None:
        """A process has read its file of queue settings."""

    def on_asked(self, machine: Machine, command: tuple[str | bytes | int, ...]) -> None:
        """An operator's command is about to be run by a node."""

    def on_answered(self, machine: Machine, command: tuple[str | bytes | int, ...], reply: Any) -> None:
        """An operator's command is answered."""

    def on_delivered(self, machine: Machine, entries: list[Any]) -> None:
        """A consumer got these from a node, [queue, id, …] each."""

    def on_lost(self, sender: str, receiver: str, kind: int, item: Any) -> None:
        """The network's filter took this message."""
