"""Watcher: the interface of an observer of a world, which does nothing itself.

The world calls its watcher at the moments below. Checks (simulation.py) and scenarios (tests/scenarios) have watchers
that override these methods. A watcher must not act during the call, which may come in the middle of a node's turn, but
later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mypy_extensions import mypyc_attr

from cluster_bus.outgoing import Outgoing

if TYPE_CHECKING:
    from disque_py.simulator.world.machine import Machine


@mypyc_attr(allow_interpreted_subclasses=True)  # Scenarios have subclasses (tests/scenarios).
class Watcher:
    """The moments of a world that can be watched."""

    def outgoing_of(self, machine: Machine) -> Outgoing:
        """Return the object that gathers a node's messages."""
        return Outgoing()

    def on_turn(self, machine: Machine) -> None:
        """A turn of this node is over."""

    def on_look(self) -> None:
        """EVENTS_PER_LOOK events (world.py) have happened since the last look."""

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
        """A consumer got jobs from a node, [queue, id, …] each."""

    def on_lost(self, sender: str, receiver: str, kind: int, item: Any) -> None:
        """The network's filter took this message."""
