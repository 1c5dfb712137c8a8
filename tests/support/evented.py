"""A node with a log of events for tests: a JournaledNode (journaled.py) with a second folder and disk for its log.

`lines` has the readable events as Python values. `crash` ends the process by a kill or a power cut, and returns the
next process after it has read everything again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

from disque_py.simulator.world.disk import InlineDisk
from disque_py.simulator.world.folder import SimFolder
from disque_py.storage.event_log_service import EventLogService
from journaled import JournaledNode

SEEDS = count(100)


class EventedNode(JournaledNode):
    """A node with a log of events.

    event_folder, event_disk   the folder and the disk of the log
    service                    the node's event log service
    opened                     how many times the service reported that it was ready
    """

    def __init__(
        self,
        folder: SimFolder | None = None,
        *,
        event_folder: SimFolder | None = None,
        is_waited_for: bool = True,
        **more: Any,
    ) -> None:
        self.event_folder = event_folder if event_folder is not None else SimFolder(Random(8))
        self.event_disk = InlineDisk(self.event_folder)
        self.opened = 0
        self.open_error: OSError | None = more.pop("open_error", None)
        self.event_segment_bytes = more.pop("event_segment_bytes", 2_000)
        super().__init__(folder, **({"appendonly": False, "appendfsync": "everysec", "events": True} | more))
        self.broker.rng = Random(next(SEEDS))  # Each process must draw different ids for its logs.
        self.service = EventLogService(
            self.driver,
            self._open_events,
            lambda: None,
            lambda: bool(self.event_folder.names()),
            self.log.append,
            segment_bytes=self.event_segment_bytes,
        )
        self._turn(lambda: self.service.start(self._event_ready))
        if is_waited_for:
            self.settle()

    def _open_events(self) -> InlineDisk:
        if self.open_error is not None:
            raise self.open_error
        return self.event_disk

    def _event_ready(self) -> None:
        self.opened += 1

    def work(self, lane: int | None = None) -> bool:
        """Let one of the disks do one piece of work."""
        if self.event_disk.run_one(lane):
            self.end_turn()
            return True
        return super().work(lane)

    def settle(self, span_ms: int = 0) -> None:
        """Settle as the base class does, including the disk of the log."""
        super().settle(span_ms)
        while self.work():
            pass

    def lines(self, first: int | None = None) -> list[dict[str, Any]]:
        """Return all events that can be read now, with as many READs as needed."""
        log = self.service.log
        assert log is not None
        self.taken()
        seq = log.first_seq if first is None else first
        found: list[dict[str, Any]] = []
        while seq < log.durable_seq:
            part = [json.loads(line) for line in self.read(seq).splitlines()]
            assert part
            found += part
            seq += len(part)
        return found

    def read(self, seq: int, *options: str | int) -> Any:
        """Send EVENTS READ for the current log."""
        log = self.service.log
        assert log is not None
        return self.wait_for("EVENTS", "READ", log.log_id, seq, *options)

    def wait_for(self, *words: str | bytes | int) -> Any:
        """Return the reply to a command that needs the disk."""
        replies = self.ask(*words)
        while not replies and self.work():
            replies = self.taken()
        assert len(replies) == 1, replies
        return replies[0]

    def sync(self) -> list[dict[str, Any]]:
        """Let a second pass, and return the events that can be read then."""
        self.settle(1_100)
        return self.lines()

    def crash(self, *, power: bool = False, **settings: Any) -> EventedNode:
        """End this process by a kill or a power cut, and return the next one."""
        for folder in (self.folder, self.event_folder):
            folder.cut_power() if power else folder.kill()
        return self.next_process(**settings)

    def next_process(self, **settings: Any) -> EventedNode:
        """Return the next process, on the same folders."""
        return EventedNode(
            self.folder,
            event_folder=self.event_folder,
            now_ms=self.ms,
            wall_ms=self.wall,
            segment_bytes=self.segment_bytes,
            event_segment_bytes=self.event_segment_bytes,
            node_id=self.node_id,
            **(self.settings | settings),
        )


def names(lines: list[dict[str, Any]]) -> list[str]:
    """Return the events, without the node's own ones."""
    return [line["event"] for line in lines if line["job_id"] is not None]


def turn(node: EventedNode, *deeds: Callable[[], None]) -> None:
    """Several inputs in one turn."""
    node._turn(*deeds)
