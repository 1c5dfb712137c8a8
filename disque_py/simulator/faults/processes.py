"""Faults of processes, machines and disks: kills, power cuts, stops, restarts, upgrades; slow and failing disks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from disque_py.simulator.faults.disks import TROUBLES, afflict, cure
from disque_py.simulator.faults.links import LinkFaults
from disque_py.simulator.faults.targets import Struck, nothing
from disque_py.simulator.world.codecs import NEW, OLD
from disque_py.simulator.world.journal_storage import CAPACITY_BYTES

if TYPE_CHECKING:
    from disque_py.simulator.plan import Fault
    from disque_py.simulator.world.machine import Machine

FUSE_MAX: Final = 12
SLOW_MS: Final = (50, 300, 1_000)
# So long an ack may be forgotten again, by a power cut under appendfsync everysec.
EVERYSEC_SETTLE_MS: Final = 4_000
POLICIES: Final = ("always", "everysec")


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
        self.oracle.delays_ms += fault.span_ms
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
        with_disk = [machine for machine in self.up() if machine.journal_storage is not None]
        if not with_disk:
            return None
        machine = with_disk[fault.picks[0] % len(with_disk)]
        journal_storage = machine.journal_storage
        assert journal_storage is not None
        folder = journal_storage.folder
        journal_storage.health.fall_ill()
        self.oracle.delays_ms += fault.span_ms  # A copy that is given away waits for its record.
        kind = TROUBLES[fault.picks[1] % len(TROUBLES)]
        disk = journal_storage.disk
        journal_storage.is_ill = kind not in ("slow", "stuck") or journal_storage.is_ill
        journal_storage.had_failure |= journal_storage.is_ill
        afflict(folder, disk, kind, fault, SLOW_MS[fault.picks[2] % len(SLOW_MS)])

        def heal() -> None:
            cure(folder, disk, CAPACITY_BYTES)
            journal_storage.health.get_well(self.world.now_ms)
            journal_storage.is_ill = False
            if journal_storage.has_refused:
                self._rise(machine)

        return f"disk of {machine.name}: {kind}", heal

    def do_rewrite(self, fault: Fault) -> Struck:
        """BGREWRITEAOF."""
        with_disk = [machine for machine in self.awake() if machine.journal_storage is not None]
        if not with_disk:
            return None
        machine = with_disk[fault.picks[0] % len(with_disk)]
        self.ask(machine, "BGREWRITEAOF")
        return f"rewrite the journal of {machine.name}", nothing

    def do_policy(self, fault: Fault) -> Struck:
        """CONFIG SET appendfsync, and back when it is over; a process that starts has the policy of its file."""
        with_journal = self._journaling()
        if not with_journal:
            return None
        machine = with_journal[fault.picks[0] % len(with_journal)]
        journal_storage = machine.journal_storage
        assert journal_storage is not None
        policy, own = POLICIES[fault.picks[1] % len(POLICIES)], str(machine.settings["appendfsync"])
        journal_storage.had_policy[policy] = None
        if policy == "everysec":
            self.losses.settle_ms = max(self.losses.settle_ms, EVERYSEC_SETTLE_MS)
        self.ask(machine, "CONFIG", "SET", "appendfsync", policy)
        return f"appendfsync {policy} on {machine.name}", lambda: self.ask(machine, "CONFIG", "SET", "appendfsync", own)

    def do_reload(self, fault: Fault) -> Struck:
        """DEBUG LOADAOF."""
        with_journal = self._journaling()
        if not with_journal:
            return None
        machine = with_journal[fault.picks[0] % len(with_journal)]
        self.ask(machine, "DEBUG", "LOADAOF")
        return f"{machine.name} loads its journal again", nothing

    def _journaling(self) -> list[Machine]:
        return [
            machine
            for machine in self.awake()
            if machine.journal_storage is not None and machine.journal_storage.is_loaded and not machine.is_ending
        ]
