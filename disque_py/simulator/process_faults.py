"""Faults of processes, machines and disks: kills, power cuts, stops, restarts, upgrades; slow and failing disks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from disque_py.simulator.ailing import TROUBLES, afflict, cure
from disque_py.simulator.codecs import NEW, OLD
from disque_py.simulator.keeper import CAPACITY_BYTES
from disque_py.simulator.link_faults import LinkFaults
from disque_py.simulator.striking import Struck, nothing

if TYPE_CHECKING:
    from disque_py.simulator.machine import Machine
    from disque_py.simulator.plan import Fault

FUSE_MAX: Final = 12
SLOW_MS: Final = (50, 300, 1_000)


class ProcessFaults(LinkFaults):
    """See the module."""

    def do_kill(self, fault: Fault) -> Struck:
        """Kill -9, and a start when it is over."""
        return self._kill(fault, power=False)

    def do_power(self, fault: Fault) -> Struck:
        """The machine is without power: nobody hears of it."""
        return self._kill(fault, power=True)

    def _kill(self, fault: Fault, *, power: bool) -> Struck:
        up = self.up()
        if not up:
            return None
        machine = up[fault.picks[0] % len(up)]
        machine.die(power=power)
        return f"{'power cut' if power else 'kill'} {machine.name}", lambda: self._rise(machine)

    def do_fuse(self, fault: Fault) -> Struck:
        """It dies in the midst of a turn soon."""
        up = [machine for machine in self.up() if not machine.fuse]
        if not up:
            return None
        machine = up[fault.picks[0] % len(up)]
        machine.fuse = 1 + fault.picks[1] % FUSE_MAX
        return f"kill {machine.name} in {machine.fuse} steps", lambda: self._rise(machine)

    def _rise(self, machine: Machine) -> None:
        machine.fuse = 0
        if not machine.is_up and machine.name not in self.gone:
            machine.start()
            self.tell_gone(machine)

    def do_stop(self, fault: Fault) -> Struck:
        """SIGSTOP, SIGCONT."""
        awake = self.awake()
        if not awake:
            return None
        machine = awake[fault.picks[0] % len(awake)]
        machine.stop()
        self.ledger.delays_ms += fault.span_ms
        run = machine.runs
        return f"stop {machine.name}", lambda: self._go_on(machine, run)

    def _go_on(self, machine: Machine, run: int) -> None:
        if machine.is_up and machine.is_stopped and machine.runs == run:
            machine.go_on()

    def do_restart(self, fault: Fault) -> Struck:
        """SIGTERM, and a start when it is over."""
        awake = [machine for machine in self.awake() if not machine.broker.is_loading]
        if not awake:
            return None
        machine = awake[fault.picks[0] % len(awake)]
        machine.shut_down(nothing)
        run = machine.runs
        return f"restart {machine.name}", lambda: self._kill_and_rise(machine, run)

    def _kill_and_rise(self, machine: Machine, run: int) -> None:
        if machine.is_up and machine.runs == run:
            machine.die()  # Its disk does not let it end.
        self._rise(machine)

    def do_upgrade(self, fault: Fault) -> Struck:
        """An orderly stop, and a start that speaks the other version."""
        done = self.do_restart(fault)
        if done is not None:
            machine = self.world.machines[done[0][-1]]
            machine.version = OLD + NEW - machine.version
            return f"upgrade {machine.name}", done[1]
        return None

    def do_disk(self, fault: Fault) -> Struck:
        """A disk gets slow, stuck or full, or fails."""
        with_disk = [machine for machine in self.up() if machine.keeper is not None]
        if not with_disk:
            return None
        machine = with_disk[fault.picks[0] % len(with_disk)]
        keeper = machine.keeper
        assert keeper is not None
        folder = keeper.folder
        keeper.health.fall_ill()
        self.ledger.delays_ms += fault.span_ms  # A copy that is given away waits for its record.
        kind = TROUBLES[fault.picks[1] % len(TROUBLES)]
        disk = keeper.disk
        keeper.is_ill = kind not in ("slow", "stuck") or keeper.is_ill
        keeper.had_failure |= keeper.is_ill
        afflict(folder, disk, kind, fault, SLOW_MS[fault.picks[2] % len(SLOW_MS)])

        def heal() -> None:
            cure(folder, disk, CAPACITY_BYTES)
            keeper.health.get_well(self.world.now_ms)
            keeper.is_ill = False
            if keeper.has_refused:
                self._rise(machine)

        return f"disk of {machine.name}: {kind}", heal

    def do_rewrite(self, fault: Fault) -> Struck:
        """BGREWRITEAOF."""
        with_disk = [machine for machine in self.awake() if machine.keeper is not None]
        if not with_disk:
            return None
        machine = with_disk[fault.picks[0] % len(with_disk)]
        self.ask(machine, "BGREWRITEAOF")
        return f"rewrite the journal of {machine.name}", nothing
