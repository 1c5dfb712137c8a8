"""Faults that operators cause.

Operators pause queues, change settings and memory limits, and reset or flush nodes. They let nodes leave, join, and
forget each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from disque_py.simulator.faults.targets import Effect, End, Targets, nothing
from disque_py.simulator.plan import NAMES

if TYPE_CHECKING:
    from disque_py.simulator.plan import Fault
    from disque_py.simulator.world.machine import Machine

# The queues of claim workers (clients/claimers.py).
CLAIMED_QUEUES: Final = (b"x0", b"x1", b"x2")
PAUSES: Final = ("in", "out", "all")
NODES_MAX: Final = 12
# Queues without jobs, so that settings change no job. One command in RESETS_IN is a RESET.
SETTINGS_QUEUES: Final = (b"s0", b"s1", b"s2")
SETTINGS: Final = (b"lease", b"ttl", b"maxlen", b"maxsize")
RESETS_IN: Final = 6
# So many values that two commands rarely use the same one.
SETTING_MAX: Final = 10_000_000


# The situations in which a node is reset.
AMID: Final = ("giving jobs away", "waiting for copies", "leaving", "with clients that wait")


def is_amid(machine: Machine, situation: str) -> bool:
    """Return whether the node is in this situation, one of AMID."""
    broker = machine.broker
    if situation == "giving jobs away":
        return any(node.core is not None and node.core.pending for node in broker.cluster.nodes.values())
    if situation == "waiting for copies":
        return bool(broker.copies.waiting_repl)
    if situation == "leaving":
        return broker.is_leaving and broker.job_count > 0
    return broker.waits.blocked_count > 0


class OperatorFaults:
    """The faults that operators cause, by name in `kinds`."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self.kinds: dict[str, Callable[[Fault], Effect]] = {
            "leave": self.do_leave,
            "join": self.do_join,
            "forget": self.do_forget,
            "reset": self.do_reset,
            "reset-amid": self.do_reset_amid,
            "flush": self.do_flush,
            "pause": self.do_pause,
            "pause-claims": self.do_pause_claims,
            "memory": self.do_memory,
            "setting": self.do_setting,
        }

    def do_leave(self, fault: Fault) -> Effect:
        """Let a node leave. When the fault is over, an empty node goes. A node with jobs may stay after all."""
        staying = [machine for machine in self._targets.awake() if not machine.broker.is_leaving]
        if len(staying) < 2:
            return None
        machine = staying[fault.picks[0] % len(staying)]
        self._targets.losses.leaving(machine)
        self._targets.ask(machine, "CLUSTER", "LEAVING", "yes")
        run = machine.runs
        return f"{machine.name} leaves", lambda: self._leave(machine, run, fault.picks[1] % 3)

    def _leave(self, machine: Machine, run: int, dice: int) -> None:
        if not machine.is_up or machine.runs != run:
            return
        if machine.broker.job_count == 0 and machine.broker.is_leaving and not machine.is_stopped:
            self._targets.go(machine)
        elif dice == 0 or self._targets.is_over:
            self._targets.ask(machine, "CLUSTER", "LEAVING", "no")

    def do_join(self, fault: Fault) -> Effect:
        """Start a new node that meets one of the cluster."""
        up = self._targets.awake()
        if not up or len(self._targets.world.machines) >= NODES_MAX:
            return None
        world, plan = self._targets.world, self._targets.plan
        at = len(world.machines)
        name = NAMES[at]
        machine = world.add(name, offset_ms=plan.offsets_ms[at], journal=plan.journals[at])
        self._targets.oracle.sides += 1
        self._targets.tear(machine, "", "joined, and the node it met may have died")
        self._targets.meet(machine, up[fault.picks[0] % len(up)].name)
        return f"{name} joins", nothing

    def do_forget(self, fault: Fault) -> Effect:
        """Let some nodes forget another node, and meet it again afterwards."""
        up = self._targets.awake()
        if len(up) < 2:
            return None
        machine = up[fault.picks[0] % len(up)]
        others = [other for other in up if other is not machine]
        some = others[fault.picks[1] % len(others) :]
        for other in some:
            self._targets.tear(other, machine.name, "was told to forget it")
            self._targets.forget_on(other, machine.membership.table.me.id)
        told = " ".join(other.name for other in some)
        return f"{told} forget {machine.name}", lambda: self._meet_again(machine, some)

    def _meet_again(self, machine: Machine, others: list[Machine]) -> None:
        self._targets.losses.mishap(machine)  # While forgotten, it counted as confirmed.
        for other in others:
            self._targets.meet(other, machine.name)

    def do_reset(self, fault: Fault) -> Effect:
        """Reset a node with CLUSTER RESET, and let it MEET afterwards; a hard reset gives it another id."""
        up = self._targets.awake()
        if len(up) < 2:
            return None
        machine = up[fault.picks[0] % len(up)]
        is_hard = fault.picks[1] % 2 == 0
        old_id = machine.membership.table.me.id  # An earlier reset may have changed the id a moment ago.
        self._targets.called[old_id] = None
        self._targets.tear(machine, "", "was reset")
        self._targets.lose_pauses(machine)
        for node in machine.membership.table.nodes.values():
            machine.forgot[node.id] = machine.world.now_ms
        self._targets.ask(machine, "CLUSTER", "RESET", "HARD" if is_hard else "SOFT")
        return f"reset {machine.name}{' hard' if is_hard else ''}", lambda: self._back(machine, old_id)

    def do_reset_amid(self, fault: Fault) -> Effect:
        """Reset a node at the next moment at which it is in one of the situations of AMID."""
        amid = AMID[fault.picks[2] % len(AMID)]
        ends: list[End] = []
        self._reset_amid(fault, amid, ends)

        def end() -> None:
            for mend in ends or [nothing]:
                mend()
            ends.append(nothing)

        return f"reset of a node {amid}", end

    def _reset_amid(self, fault: Fault, amid: str, ends: list[End]) -> None:
        if ends or self._targets.is_over:
            return
        names = [machine.name for machine in self._targets.awake()]
        machine = next((machine for machine in self._targets.awake() if is_amid(machine, amid)), None)
        done = None
        if machine is not None:
            done = self.do_reset(replace(fault, picks=(names.index(machine.name), *fault.picks[1:])))
        if done is None:
            self._targets.world.later(1, self._reset_amid, fault, amid, ends)
        else:
            self._targets.world.trace.tell(self._targets.world.now_ms, done[0])
            ends.append(done[1])

    def _back(self, machine: Machine, old_id: bytes) -> None:
        if machine.is_up:
            machine.node_id = machine.membership.table.me.id
        others = [other for other in self._targets.up() if other is not machine]
        if machine.node_id != old_id:
            self._targets.gone[f"{machine.name} as {old_id.hex()[:8]}"] = old_id
            for other in others:
                self._targets.forget_on(other, old_id)
        if others:
            self._targets.meet(machine, others[0].name)

    def do_flush(self, fault: Fault) -> Effect:
        """Send DEBUG FLUSHALL to a node, one time in four."""
        up = self._targets.awake()
        if not up or fault.picks[1] % 4:
            return None
        machine = up[fault.picks[0] % len(up)]
        self._targets.flushed[machine.name] = machine.runs
        self._targets.lose_pauses(machine)
        self._targets.ask(machine, "DEBUG", "FLUSHALL")
        return f"flush {machine.name}", nothing

    def do_pause(self, fault: Fault) -> Effect:
        """Pause a queue, on one node or everywhere, until the fault is over."""
        up = self._targets.awake()
        if not up:
            return None
        queue = b"q%d" % (fault.picks[1] % self._targets.plan.queues)
        return self._pause(fault, up[fault.picks[0] % len(up)], queue)

    def do_pause_claims(self, fault: Fault) -> Effect:
        """Pause a queue whose jobs need a claim, at a node that asks the voters for one if there is such a node."""
        up = self._targets.awake()
        claiming = [machine for machine in up if machine.broker.exclusive.under_way] or up
        if not claiming:
            return None
        machine = claiming[fault.picks[0] % len(claiming)]
        picks = [pick for picks in machine.broker.exclusive.picks.values() for pick in picks]
        queues = [pick.queue.name for pick in picks] or list(CLAIMED_QUEUES)
        return self._pause(fault, machine, queues[fault.picks[1] % len(queues)])

    def _pause(self, fault: Fault, machine: Machine, queue: bytes) -> Effect:
        how = PAUSES[fault.picks[2] % len(PAUSES)]
        where = ("bcast",) if fault.picks[3] % 2 else ()
        paused = self._targets.pause(machine, queue, how, where)
        told = f"pause {queue.decode()} {how} {'everywhere' if where else 'on ' + machine.name}"
        return told, lambda: self._targets.end_pause(paused)

    def do_setting(self, fault: Fault) -> Effect:
        """Set a field of a queue without jobs, or reset its settings. Other operators may do the same elsewhere."""
        up = self._targets.awake()
        if not up:
            return None
        machine = up[fault.picks[0] % len(up)]
        queue = SETTINGS_QUEUES[fault.picks[1] % len(SETTINGS_QUEUES)]
        if fault.picks[2] % RESETS_IN == 0:
            self._targets.ask(machine, "QUEUE", "RESET", queue)
            return f"reset the settings of {queue.decode()} on {machine.name}", nothing
        field = SETTINGS[fault.picks[2] % len(SETTINGS)]
        value = b"%d" % (1 + fault.picks[3] % SETTING_MAX)
        self._targets.ask(machine, "QUEUE", "SET", queue, field, value)
        return f"{field.decode()} of {queue.decode()} is {value.decode()} on {machine.name}", nothing

    def do_memory(self, fault: Fault) -> Effect:
        """Change maxmemory until the fault is over."""
        up = self._targets.awake()
        if not up:
            return None
        machine = up[fault.picks[0] % len(up)]
        limit = (5_000, 15_000, 40_000)[fault.picks[1] % 3]
        self._targets.ask(machine, "CONFIG", "SET", "maxmemory", limit)
        return f"maxmemory {limit} on {machine.name}", lambda: self._targets.ask(
            machine, "CONFIG", "SET", "maxmemory", self._targets.plan.maxmemory
        )
