"""Faults of processes, machines and disks: kills, power cuts, stops, restarts, upgrades; slow and failing disks.

`ProcessFaults.kinds` has a function for each kind of fault in a plan. It chooses a target (targets.py), does the fault,
and returns a description for people, and the function that ends the fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from disque_py.simulator.faults.disks import TROUBLES, afflict, cure
from disque_py.simulator.faults.targets import Effect, Targets, nothing
from disque_py.simulator.world.codecs import NEW, OLD
from disque_py.simulator.world.journal_storage import CAPACITY_BYTES

if TYPE_CHECKING:
    from disque_py.simulator.plan import Fault
    from disque_py.simulator.world.machine import Machine

FUSE_MAX: Final = 12
SLOW_MS: Final = (50, 300, 1_000)
# A power cut under appendfsync everysec may undo an ack for this long.
EVERYSEC_SETTLE_MS: Final = 4_000
POLICIES: Final = ("always", "everysec")


class ProcessFaults:
    """The faults of processes, machines and disks, by name in `kinds`."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self.kinds: dict[str, Callable[[Fault], Effect]] = {
            "kill": self.do_kill,
            "power": self.do_power,
            "wipe-votes": self.do_wipe_votes,
            "fuse": self.do_fuse,
            "stop": self.do_stop,
            "restart": self.do_restart,
            "upgrade": self.do_upgrade,
            "disk": self.do_disk,
            "rewrite": self.do_rewrite,
            "policy": self.do_policy,
            "reload": self.do_reload,
            "lose": self.do_lose,
            "wipe": self.do_wipe,
            "late": self.do_late,
        }

    def do_kill(self, fault: Fault) -> Effect:
        """Kill a process; it starts again when the fault is over."""
        return self._kill(fault, power=False)

    def do_power(self, fault: Fault) -> Effect:
        """Cut a machine's power. Other nodes don't notice."""
        return self._kill(fault, power=True)

    def do_wipe_votes(self, fault: Fault) -> Effect:
        """Kill a process, and remove its file of votes."""
        up = self._targets.up()
        if not up:
            return None
        machine = up[fault.picks[0] % len(up)]
        machine.die()
        machine.votes_disk.data = b""
        return f"{machine.name} loses its votes", lambda: self._targets.rise(machine)

    def _kill(self, fault: Fault, *, power: bool) -> Effect:
        up = self._targets.up()
        if not up:
            return None
        machine = up[fault.picks[0] % len(up)]
        machine.die(power=power)
        return f"{'power cut' if power else 'kill'} {machine.name}", lambda: self._targets.rise(machine)

    def do_fuse(self, fault: Fault) -> Effect:
        """Kill a process in the middle of a turn, a few steps later."""
        up = [machine for machine in self._targets.up() if not machine.fuse]
        if not up:
            return None
        machine = up[fault.picks[0] % len(up)]
        machine.fuse = 1 + fault.picks[1] % FUSE_MAX
        return f"kill {machine.name} in {machine.fuse} steps", lambda: self._targets.rise(machine)

    def do_stop(self, fault: Fault) -> Effect:
        """Stop a process with SIGSTOP; SIGCONT when the fault is over."""
        awake = self._targets.awake()
        if not awake:
            return None
        machine = awake[fault.picks[0] % len(awake)]
        machine.stop()
        self._targets.oracle.delays_ms += fault.span_ms
        run = machine.runs
        return f"stop {machine.name}", lambda: self._go_on(machine, run)

    def _go_on(self, machine: Machine, run: int) -> None:
        if machine.is_up and machine.is_stopped and machine.runs == run:
            machine.go_on()

    def do_restart(self, fault: Fault) -> Effect:
        """Stop a process with SIGTERM; it starts again when the fault is over."""
        awake = [machine for machine in self._targets.awake() if not machine.broker.is_loading]
        if not awake:
            return None
        machine = awake[fault.picks[0] % len(awake)]
        machine.shut_down(nothing)
        run = machine.runs
        return f"restart {machine.name}", lambda: self._kill_and_rise(machine, run)

    def _kill_and_rise(self, machine: Machine, run: int) -> None:
        if machine.is_up and machine.runs == run:
            machine.die()  # Its disk keeps it from ending in an orderly way.
        self._targets.rise(machine)

    def do_upgrade(self, fault: Fault) -> Effect:
        """Restart a process in an orderly way, with the next bus version, or from the newest back to an older one."""
        done = self.do_restart(fault)
        if done is not None:
            machine = self._targets.world.machines[done[0][-1]]
            machine.version = OLD if machine.version == NEW else machine.version + 1
            return f"upgrade {machine.name}", done[1]
        return None

    def do_disk(self, fault: Fault) -> Effect:
        """Make a disk slow, stuck or full, or let it fail."""
        with_disk = [machine for machine in self._targets.up() if machine.journal_storage is not None]
        if not with_disk:
            return None
        machine = with_disk[fault.picks[0] % len(with_disk)]
        journal_storage = machine.journal_storage
        assert journal_storage is not None
        folder = journal_storage.folder
        journal_storage.health.fall_ill()
        self._targets.oracle.delays_ms += fault.span_ms  # A copy that moves to another node waits for its record.
        kind = TROUBLES[fault.picks[1] % len(TROUBLES)]
        disk = journal_storage.disk
        journal_storage.is_ill = kind not in ("slow", "stuck") or journal_storage.is_ill
        journal_storage.had_failure |= journal_storage.is_ill
        afflict(folder, disk, kind, fault, SLOW_MS[fault.picks[2] % len(SLOW_MS)])

        def heal() -> None:
            cure(folder, disk, CAPACITY_BYTES)
            journal_storage.health.get_well(self._targets.world.now_ms)
            journal_storage.health.follow(self._targets.world, disk)
            journal_storage.is_ill = False
            if journal_storage.has_refused:
                self._targets.rise(machine)

        return f"disk of {machine.name}: {kind}", heal

    def do_rewrite(self, fault: Fault) -> Effect:
        """Send BGREWRITEAOF."""
        with_disk = [machine for machine in self._targets.awake() if machine.journal_storage is not None]
        if not with_disk:
            return None
        machine = with_disk[fault.picks[0] % len(with_disk)]
        self._targets.ask(machine, "BGREWRITEAOF")
        return f"rewrite the journal of {machine.name}", nothing

    def do_policy(self, fault: Fault) -> Effect:
        """Send CONFIG SET appendfsync, and restore the policy afterwards.

        A process that starts has the policy of its configuration file again.
        """
        with_journal = self._journaling()
        if not with_journal:
            return None
        machine = with_journal[fault.picks[0] % len(with_journal)]
        journal_storage = machine.journal_storage
        assert journal_storage is not None
        policy, own = POLICIES[fault.picks[1] % len(POLICIES)], str(machine.settings["appendfsync"])
        journal_storage.had_policy[policy] = None
        targets = self._targets
        if policy == "everysec":
            targets.losses.settle_ms = max(targets.losses.settle_ms, EVERYSEC_SETTLE_MS)
        targets.ask(machine, "CONFIG", "SET", "appendfsync", policy)
        return f"appendfsync {policy} on {machine.name}", lambda: targets.ask(
            machine, "CONFIG", "SET", "appendfsync", own
        )

    def do_reload(self, fault: Fault) -> Effect:
        """Send DEBUG LOADAOF."""
        with_journal = self._journaling()
        if not with_journal:
            return None
        machine = with_journal[fault.picks[0] % len(with_journal)]
        self._targets.ask(machine, "DEBUG", "LOADAOF")
        return f"{machine.name} loads its journal again", nothing

    def _journaling(self) -> list[Machine]:
        return [
            machine
            for machine in self._targets.awake()
            if machine.journal_storage is not None and machine.journal_storage.is_loaded and not machine.is_ending
        ]

    def do_lose(self, fault: Fault) -> Effect:
        """Lose a node and its disk for ever. An operator tells the other nodes to forget it."""
        machine = self._one_of_many(fault)
        if machine is None:
            return None
        machine.die(power=bool(fault.picks[1] % 2))
        self._targets.losses.wiped(machine)
        self._targets.go(machine)
        return f"lose {machine.name}", nothing

    def do_wipe(self, fault: Fault) -> Effect:
        """Lose a node's memory and journal; it starts again with its nodes file when the fault is over."""
        machine = self._one_of_many(fault)
        if machine is None:
            return None
        machine.die()
        self._targets.losses.wiped(machine)
        self._targets.flushed[machine.name] = machine.runs + 1
        if machine.journal_storage is not None:
            machine.keep_journal(str(machine.settings["appendfsync"]))
        return f"wipe {machine.name}", lambda: self._targets.rise(machine)

    def do_late(self, fault: Fault) -> Effect:
        """Kill a node and let the others forget it; it comes back with its copies when the fault is over."""
        machine = self._one_of_many(fault)
        if machine is None:
            return None
        machine.die()
        others = self._targets.up()
        for other in others:
            self._targets.tear(other, machine.name, "was told to forget it")
            self._targets.forget_on(other, machine.membership.table.me.id)
        return f"{machine.name} is forgotten, and comes late", lambda: self._come_late(machine, others)

    def _come_late(self, machine: Machine, others: list[Machine]) -> None:
        self._targets.rise(machine)
        self._targets.losses.mishap(machine)
        for other in others:
            self._targets.meet(other, machine.name)

    def _one_of_many(self, fault: Fault) -> Machine | None:
        """Return a node that may be lost, or None if fewer than two others are up."""
        up = self._targets.up()
        return up[fault.picks[0] % len(up)] if len(up) > 2 else None
