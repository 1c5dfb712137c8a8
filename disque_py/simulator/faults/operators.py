"""What operators do: pause queues, make nodes leave, join, forget and reset them, flush them, change their limits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from disque_py.simulator.faults.processes import ProcessFaults
from disque_py.simulator.faults.targets import End, Struck, nothing
from disque_py.simulator.plan import NAMES

if TYPE_CHECKING:
    from disque_py.simulator.plan import Fault
    from disque_py.simulator.world.machine import Machine

PAUSES: Final = ("in", "out", "all")
NODES_MAX: Final = 12


# The middle of what a node is reset in.
AMID: Final = ("giving jobs away", "waiting for copies", "leaving", "with clients that wait")


def is_amid(machine: Machine, what: str) -> bool:
    """Whether the node is in the middle of this."""
    broker = machine.broker
    if what == "giving jobs away":
        return any(node.core is not None and node.core.pending for node in broker.cluster.nodes.values())
    if what == "waiting for copies":
        return bool(broker.waiting_repl)
    if what == "leaving":
        return broker.is_leaving and broker.job_count > 0
    return broker.blocked_count > 0


class OperatorFaults(ProcessFaults):
    """See the module."""

    def do_leave(self, fault: Fault) -> Struck:
        """A node leaves; when the time is over it is gone if it is empty, or changes its mind."""
        staying = [machine for machine in self.awake() if not machine.broker.is_leaving]
        if len(staying) < 2:
            return None
        machine = staying[fault.picks[0] % len(staying)]
        self.losses.leaving(machine)
        self.ask(machine, "CLUSTER", "LEAVING", "yes")
        run = machine.runs
        return f"{machine.name} leaves", lambda: self._leave(machine, run, fault.picks[1] % 3)

    def _leave(self, machine: Machine, run: int, dice: int) -> None:
        if not machine.is_up or machine.runs != run:
            return
        if machine.broker.job_count == 0 and machine.broker.is_leaving and not machine.is_stopped:
            self.go(machine)
        elif dice == 0 or self.is_over:
            self.ask(machine, "CLUSTER", "LEAVING", "no")

    def go(self, machine: Machine) -> None:
        """It is empty: shut down and forgotten."""
        machine.die()
        self.forget(machine)

    def forget(self, machine: Machine) -> None:
        """It never comes back."""
        self.gone[machine.name] = machine.membership.me.id
        for other in self.up():
            self.forget_on(other, machine.membership.me.id)

    def do_join(self, fault: Fault) -> Struck:
        """A new node meets one that is there."""
        up = self.awake()
        if not up or len(self.world.machines) >= NODES_MAX:
            return None
        at = len(self.world.machines)
        name = NAMES[at]
        machine = self.world.add(name, offset_ms=self.plan.offsets_ms[at], journal=self.plan.journals[at])
        self.tear(machine, "", "joined, and the node it met may have died")
        self.meet(machine, up[fault.picks[0] % len(up)].name)
        return f"{name} joins", nothing

    def do_forget(self, fault: Fault) -> Struck:
        """A node is forgotten by some of the others, and met again."""
        up = self.awake()
        if len(up) < 2:
            return None
        machine = up[fault.picks[0] % len(up)]
        others = [other for other in up if other is not machine]
        some = others[fault.picks[1] % len(others) :]
        for other in some:
            self.tear(other, machine.name, "was told to forget it")
            self.forget_on(other, machine.membership.me.id)
        told = " ".join(other.name for other in some)
        return f"{told} forget {machine.name}", lambda: self._meet_again(machine, some)

    def _meet_again(self, machine: Machine, others: list[Machine]) -> None:
        self.losses.mishap(machine)  # Until now it had counted as confirmed.
        for other in others:
            if machine.is_up and other.is_up:
                self.meet(other, machine.name)

    def do_reset(self, fault: Fault) -> Struck:
        """CLUSTER RESET of a node, and MEET when it is over; hard: it is somebody else from then on."""
        up = self.awake()
        if len(up) < 2:
            return None
        machine = up[fault.picks[0] % len(up)]
        is_hard = fault.picks[1] % 2 == 0
        self.losses.flushing(machine)
        old_id = machine.membership.me.id  # It may have been reset before, a moment ago.
        self.called[old_id] = None
        self.tear(machine, "", "was reset")
        machine.forgot.update(dict.fromkeys(node.id for node in machine.membership.nodes.values()))
        self.ask(machine, "CLUSTER", "RESET", "HARD" if is_hard else "SOFT")
        return f"reset {machine.name}{' hard' if is_hard else ''}", lambda: self._back(machine, old_id)

    def do_reset_amid(self, fault: Fault) -> Struck:
        """CLUSTER RESET of a node that is in the middle of something: the next moment at which it is."""
        amid = AMID[fault.picks[2] % len(AMID)]
        ends: list[End] = []
        self._reset_amid(fault, amid, ends)

        def end() -> None:
            for mend in ends or [nothing]:
                mend()
            ends.append(nothing)

        return f"reset of a node {amid}", end

    def _reset_amid(self, fault: Fault, amid: str, ends: list[End]) -> None:
        if ends or self.is_over:
            return
        names = [machine.name for machine in self.awake()]
        machine = next((machine for machine in self.awake() if is_amid(machine, amid)), None)
        done = None
        if machine is not None:
            done = self.do_reset(replace(fault, picks=(names.index(machine.name), *fault.picks[1:])))
        if done is None:
            self.world.later(1, self._reset_amid, fault, amid, ends)
        else:
            self.world.trace.tell(self.world.now_ms, done[0])
            ends.append(done[1])

    def _back(self, machine: Machine, old_id: bytes) -> None:
        if machine.is_up:
            machine.node_id = machine.membership.me.id
        others = [other for other in self.up() if other is not machine]
        if machine.node_id != old_id:
            self.gone[f"{machine.name} as {old_id.hex()[:8]}"] = old_id
            for other in others:
                self.forget_on(other, old_id)
        if others and machine.is_up:
            self.meet(machine, others[0].name)

    def do_flush(self, fault: Fault) -> Struck:
        """DEBUG FLUSHALL of a node, now and then."""
        up = self.awake()
        if not up or fault.picks[1] % 4:
            return None
        machine = up[fault.picks[0] % len(up)]
        self.losses.flushing(machine)
        self.flushed[machine.name] = machine.runs
        self.ask(machine, "DEBUG", "FLUSHALL")
        return f"flush {machine.name}", nothing

    def do_pause(self, fault: Fault) -> Struck:
        """A queue is paused, here or everywhere, and goes on."""
        up = self.awake()
        if not up:
            return None
        machine = up[fault.picks[0] % len(up)]
        queue = b"q%d" % (fault.picks[1] % self.plan.queues)
        how = PAUSES[fault.picks[2] % len(PAUSES)]
        where = ("bcast",) if fault.picks[3] % 2 else ()
        self.ask(machine, "PAUSE", queue, how, *where)
        told = f"pause {queue.decode()} {how} {'everywhere' if where else 'on ' + machine.name}"
        return told, lambda: self.ask(machine, "PAUSE", queue, "none", *where)

    def do_memory(self, fault: Fault) -> Struck:
        """Another maxmemory."""
        up = self.awake()
        if not up:
            return None
        machine = up[fault.picks[0] % len(up)]
        limit = (5_000, 15_000, 40_000)[fault.picks[1] % 3]
        self.ask(machine, "CONFIG", "SET", "maxmemory", limit)
        return f"maxmemory {limit} on {machine.name}", lambda: self.ask(
            machine, "CONFIG", "SET", "maxmemory", self.plan.maxmemory
        )
