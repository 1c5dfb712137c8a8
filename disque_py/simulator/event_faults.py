"""What may happen to logs of events: they are switched off and on, their limits change, their disks are in trouble.

These come on top of what else a plan has (plan.py), so that plans without events stay what they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from disque_py.simulator.ailing import TROUBLES, afflict, cure
from disque_py.simulator.annals import CAPACITY_BYTES
from disque_py.simulator.operator_faults import OperatorFaults
from disque_py.simulator.striking import Struck

if TYPE_CHECKING:
    from disque_py.simulator.plan import Fault

SLOW_MS: Final = (50, 600, 2_000)
LIMITS_BYTES: Final = (10_000, 60_000, 1 << 30)


class EventFaults(OperatorFaults):
    """See the module."""

    def do_events_off(self, fault: Fault) -> Struck:
        """CONFIG SET events no, and yes when it is over."""
        writing = [machine for machine in self.awake() if machine.annals is not None]
        if not writing:
            return None
        machine = writing[fault.picks[0] % len(writing)]
        self.ask(machine, "CONFIG", "SET", "events", "no")
        return f"events of {machine.name} off", lambda: self.ask(machine, "CONFIG", "SET", "events", "yes")

    def do_events_limit(self, fault: Fault) -> Struck:
        """CONFIG SET events-max-bytes."""
        writing = [machine for machine in self.awake() if machine.annals is not None]
        if not writing:
            return None
        machine = writing[fault.picks[0] % len(writing)]
        limit = LIMITS_BYTES[fault.picks[1] % len(LIMITS_BYTES)]
        self.ask(machine, "CONFIG", "SET", "events-max-bytes", limit)
        return f"events-max-bytes {limit} on {machine.name}", lambda: self.ask(
            machine, "CONFIG", "SET", "events-max-bytes", self.plan.events_bytes
        )

    def do_events_disk(self, fault: Fault) -> Struck:
        """The disk under a log gets slow, stuck or full, or fails."""
        writing = [machine for machine in self.up() if machine.annals is not None]
        if not writing:
            return None
        machine = writing[fault.picks[0] % len(writing)]
        annals = machine.annals
        assert annals is not None
        folder, disk = annals.folder, annals.disk
        annals.had_trouble = annals.had_gap = True
        annals.health.fall_ill()
        self.ledger.delays_ms += fault.span_ms  # A copy that is given away waits for its event.
        kind = TROUBLES[fault.picks[1] % len(TROUBLES)]
        afflict(folder, disk, kind, fault, SLOW_MS[fault.picks[2] % len(SLOW_MS)])

        def heal() -> None:
            cure(folder, disk, CAPACITY_BYTES)
            annals.health.get_well(self.world.now_ms)

        return f"disk under the events of {machine.name}: {kind}", heal
