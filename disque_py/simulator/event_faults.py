"""What may happen to logs of events: they are switched off and on, their limits change, their disks are in trouble.

These come on top of what else a plan has (plan.py), so that plans without events stay what they are.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from disque_py.simulator.annals import CAPACITY_BYTES
from disque_py.simulator.disk import DELAYS_MS
from disque_py.simulator.operator_faults import OperatorFaults
from disque_py.simulator.striking import Struck

if TYPE_CHECKING:
    from disque_py.simulator.plan import Fault

SLOW_MS: Final = (50, 600, 2_000)
TROUBLES: Final = ("slow", "stuck", "full", "sync fails", "write fails")
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
        annals.had_trouble = True
        kind = TROUBLES[fault.picks[1] % len(TROUBLES)]
        if kind == "slow":
            disk.delays_ms = [
                (low_ms + 20, high_ms + SLOW_MS[fault.picks[2] % len(SLOW_MS)]) for low_ms, high_ms in disk.delays_ms
            ]
        elif kind == "stuck":
            disk.is_stuck = True
        elif kind == "full":
            folder.capacity_bytes = folder.used_bytes + fault.picks[2] % 3_000
        elif kind == "sync fails":
            folder.fail("sync", errno.EIO, nth=1 + fault.picks[2] % 3, times=1 + fault.picks[3] % 3)
        else:
            folder.fail(
                "write create", errno.EIO, nth=1 + fault.picks[2] % 5, times=1 + fault.picks[3] % 4, is_partial=True
            )

        def heal() -> None:
            folder.capacity_bytes = CAPACITY_BYTES
            folder.heal()
            disk.delays_ms = list(DELAYS_MS)
            if disk.is_stuck:
                disk.free()

        return f"disk under the events of {machine.name}: {kind}", heal
