"""Faults of event logs: logs are switched off and on, their limits change, their disks have faults.

A plan draws these faults after all others (plan.py), so that plans without event logs stay the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from disque_py.simulator.faults.disks import TROUBLES, afflict, cure
from disque_py.simulator.faults.targets import Effect, Targets
from disque_py.simulator.world.event_log_storage import CAPACITY_BYTES

if TYPE_CHECKING:
    from disque_py.simulator.plan import Fault

SLOW_MS: Final = (50, 600, 2_000)
LIMITS_BYTES: Final = (10_000, 60_000, 1 << 30)


class EventLogFaults:
    """The faults of event logs, by name in `kinds`."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self.kinds: dict[str, Callable[[Fault], Effect]] = {
            "events-off": self.do_events_off,
            "events-limit": self.do_events_limit,
            "events-disk": self.do_events_disk,
        }

    def do_events_off(self, fault: Fault) -> Effect:
        """Send CONFIG SET events no, and yes when the fault is over."""
        writing = [machine for machine in self._targets.awake() if machine.event_logs is not None]
        if not writing:
            return None
        machine = writing[fault.picks[0] % len(writing)]
        self._targets.ask(machine, "CONFIG", "SET", "events", "no")
        return f"events of {machine.name} off", lambda: self._targets.ask(machine, "CONFIG", "SET", "events", "yes")

    def do_events_limit(self, fault: Fault) -> Effect:
        """Send CONFIG SET events-max-bytes."""
        writing = [machine for machine in self._targets.awake() if machine.event_logs is not None]
        if not writing:
            return None
        machine = writing[fault.picks[0] % len(writing)]
        limit = LIMITS_BYTES[fault.picks[1] % len(LIMITS_BYTES)]
        self._targets.ask(machine, "CONFIG", "SET", "events-max-bytes", limit)
        return f"events-max-bytes {limit} on {machine.name}", lambda: self._targets.ask(
            machine, "CONFIG", "SET", "events-max-bytes", self._targets.plan.events_bytes
        )

    def do_events_disk(self, fault: Fault) -> Effect:
        """Make the disk under a log slow, stuck or full, or let it fail."""
        writing = [machine for machine in self._targets.up() if machine.event_logs is not None]
        if not writing:
            return None
        machine = writing[fault.picks[0] % len(writing)]
        event_logs = machine.event_logs
        assert event_logs is not None
        folder, disk = event_logs.folder, event_logs.disk
        event_logs.had_trouble = event_logs.had_gap = True
        event_logs.health.fall_ill()
        self._targets.oracle.delays_ms += fault.span_ms  # A copy that moves to another node waits for its event.
        kind = TROUBLES[fault.picks[1] % len(TROUBLES)]
        afflict(folder, disk, kind, fault, SLOW_MS[fault.picks[2] % len(SLOW_MS)])

        def heal() -> None:
            cure(folder, disk, CAPACITY_BYTES)
            event_logs.health.get_well(self._targets.world.now_ms)
            event_logs.health.follow(self._targets.world, disk)

        return f"disk under the events of {machine.name}: {kind}", heal
