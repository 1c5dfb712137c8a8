"""Faults: what a plan's list says is made to happen, and to end.

Each kind has a pair of methods: `do_x` chooses whom it strikes from the fault's numbers and from who is up, does it, and
says what has to be called when its time is over. What can't be done now (the only node is not killed twice) is left out.
Operators belong here, too: they pause queues, make nodes leave, forget them, reset them, change limits.

Whatever makes a node forget jobs by mishap is reported to the losses (checkers.py) before it happens.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from disque_py.simulator.codecs import NEW, OLD
from disque_py.simulator.connections import Connection, words
from disque_py.simulator.disk import DELAYS_MS
from disque_py.simulator.keeper import CAPACITY_BYTES
from disque_py.simulator.plan import NAMES
from disque_py.simulator.trace import FAULT

if TYPE_CHECKING:
    from disque_py.simulator.checkers import Losses
    from disque_py.simulator.ledger import Ledger
    from disque_py.simulator.machine import Machine
    from disque_py.simulator.plan import Fault, Plan
    from disque_py.simulator.world import World

JUMPS_MS: Final = (-3_600_000, -600_000, -5_000, 5_000, 600_000, 86_400_000)
LOSS_SHARES: Final = (0.01, 0.05, 0.2)
SLOW_MS: Final = (50, 300, 1_000)
PAUSES: Final = ("in", "out", "all")
NODES_MAX: Final = 12
FUSE_MAX: Final = 12
DISK_TROUBLES: Final = ("slow", "stuck", "full", "sync fails", "write fails")

End = Callable[[], None]


class Operator(Connection):
    """A connection for one command, whose reply nobody needs."""

    __slots__ = ()

    def on_reply(self, reply: Any) -> None:
        """Enough."""
        self.world.later(0, self._leave)

    def _leave(self) -> None:
        if self.is_open:
            self.hang_up()


class Weather:
    """Makes the faults of a plan happen.

    struck    faults that did happen, with what each did, for people
    gone      nodes that left for good
    """

    def __init__(self, world: World, plan: Plan, ledger: Ledger, losses: Losses) -> None:
        self.world = world
        self.plan = plan
        self.ledger = ledger
        self.losses = losses
        self.struck: list[str] = []
        self.gone: dict[str, bytes] = {}
        self.is_over = False
        self._ends: dict[int, End] = {}
        world.network.is_rough = plan.is_rough

    def begin(self) -> None:
        """Put the list on the calendar."""
        for fault in self.plan.faults:
            self.world.later(fault.at_ms, self._strike, fault)

    def end(self) -> None:
        """All is over, in the order in which it began."""
        self.is_over = True
        for number in list(self._ends):
            self._end(number)

    def _strike(self, fault: Fault) -> None:
        if self.is_over:
            return
        done = getattr(self, "do_" + fault.kind.replace("-", "_"))(fault)
        if done is not None:
            what, end = done
            self.struck.append(f"{fault.number}: {what}")
            self.world.trace.tell(self.world.now_ms, f"{FAULT} {fault.number}: {what}, {fault.span_ms} ms")
            self._ends[fault.number] = end
            self.world.later(fault.span_ms, self._end, fault.number)

    def _end(self, number: int) -> None:
        end = self._ends.pop(number, None)
        if end is not None:
            self.world.trace.tell(self.world.now_ms, f"{FAULT} {number} is over")
            end()

    # -- whom --------------------------------------------------------------------------------------

    def up(self) -> list[Machine]:
        """Nodes whose process lives."""
        return self.world.running()

    def awake(self) -> list[Machine]:
        """… and is not stopped."""
        return [machine for machine in self.world.running() if not machine.is_stopped]

    def ask(self, machine: Machine, *command: str | bytes | int) -> None:
        """An operator's command; it is run at once, unless the node is stopped."""
        if machine.is_up:
            connection = self.world.connect(machine, Operator(self.world))
            connection.send([words(*command)])

    def ask_all(self, *command: str | bytes | int) -> None:
        """The same on all nodes that are up."""
        for machine in self.up():
            self.ask(machine, *command)

    # -- processes ---------------------------------------------------------------------------------

    def do_kill(self, fault: Fault) -> tuple[str, End] | None:
        """Kill -9, and a start when it is over."""
        return self._kill(fault, power=False)

    def do_power(self, fault: Fault) -> tuple[str, End] | None:
        """The machine is without power: nobody hears of it."""
        return self._kill(fault, power=True)

    def _kill(self, fault: Fault, *, power: bool) -> tuple[str, End] | None:
        up = self.up()
        if not up:
            return None
        machine = up[fault.picks[0] % len(up)]
        machine.die(power=power)
        return f"{'power cut' if power else 'kill'} {machine.name}", lambda: self._rise(machine)

    def do_fuse(self, fault: Fault) -> tuple[str, End] | None:
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

    def tell_gone(self, machine: Machine) -> None:
        """A node that comes back must be told who was forgotten meanwhile."""
        for node_id in self.gone.values():
            self.ask(machine, "CLUSTER", "FORGET", node_id.hex())

    def do_stop(self, fault: Fault) -> tuple[str, End] | None:
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

    def do_restart(self, fault: Fault) -> tuple[str, End] | None:
        """SIGTERM, and a start when it is over."""
        awake = [machine for machine in self.awake() if not machine.broker.is_loading]
        if not awake:
            return None
        machine = awake[fault.picks[0] % len(awake)]
        machine.shut_down(_nothing)
        run = machine.runs
        return f"restart {machine.name}", lambda: self._kill_and_rise(machine, run)

    def _kill_and_rise(self, machine: Machine, run: int) -> None:
        if machine.is_up and machine.runs == run:
            machine.die()  # Its disk does not let it end.
        self._rise(machine)

    def do_upgrade(self, fault: Fault) -> tuple[str, End] | None:
        """An orderly stop, and a start that speaks the other version."""
        done = self.do_restart(fault)
        if done is not None:
            machine = self.world.machines[done[0][-1]]
            machine.version = OLD + NEW - machine.version
            return f"upgrade {machine.name}", done[1]
        return None

    # -- disks -------------------------------------------------------------------------------------

    def do_disk(self, fault: Fault) -> tuple[str, End] | None:
        """A disk gets slow, stuck or full, or fails."""
        with_disk = [machine for machine in self.up() if machine.keeper is not None]
        if not with_disk:
            return None
        machine = with_disk[fault.picks[0] % len(with_disk)]
        keeper = machine.keeper
        assert keeper is not None
        folder = keeper.folder
        keeper.had_trouble = True
        kind = DISK_TROUBLES[fault.picks[1] % len(DISK_TROUBLES)]
        disk = keeper.disk
        if kind == "slow":
            disk.delays_ms = [(low_ms + 20, high_ms + SLOW_MS[fault.picks[2] % len(SLOW_MS)]) for low_ms, high_ms in disk.delays_ms]
        elif kind == "stuck":
            disk.is_stuck = True
        elif kind == "full":
            folder.capacity_bytes = folder.used_bytes + fault.picks[2] % 3_000
        elif kind == "sync fails":
            folder.fail("sync", errno.EIO, nth=1 + fault.picks[2] % 3, times=1 + fault.picks[3] % 3)
        else:
            folder.fail("write create", errno.EIO, nth=1 + fault.picks[2] % 5, times=1 + fault.picks[3] % 4, is_partial=True)

        def heal() -> None:
            folder.capacity_bytes = CAPACITY_BYTES
            folder.heal()
            disk.delays_ms = list(DELAYS_MS)
            if disk.is_stuck:
                disk.free()

        return f"disk of {machine.name}: {kind}", heal

    def do_rewrite(self, fault: Fault) -> tuple[str, End] | None:
        """BGREWRITEAOF."""
        with_disk = [machine for machine in self.awake() if machine.keeper is not None]
        if not with_disk:
            return None
        machine = with_disk[fault.picks[0] % len(with_disk)]
        self.ask(machine, "BGREWRITEAOF")
        return f"rewrite the journal of {machine.name}", _nothing

    # -- links -------------------------------------------------------------------------------------

    def do_hiccup(self, fault: Fault) -> tuple[str, End] | None:
        """One connection breaks, and may be made again at once."""
        pair = self._pair(fault)
        if pair is None:
            return None
        self.world.network.hiccup(*pair)
        return f"the connection of {pair[0]} to {pair[1]} breaks", _nothing

    def do_hang_up(self, fault: Fault) -> tuple[str, End] | None:
        """A client's connection breaks."""
        connections = list(self.world.connections)
        if not connections:
            return None
        connection = connections[fault.picks[0] % len(connections)]
        connection.hang_up()
        return f"client {connection.client.id} of {connection.machine.name} is cut off", _nothing

    def _pair(self, fault: Fault) -> tuple[str, str] | None:
        names = list(self.world.machines)
        if len(names) < 2:
            return None
        one = names[fault.picks[0] % len(names)]
        names.remove(one)
        return one, names[fault.picks[1] % len(names)]

    def do_one_way(self, fault: Fault) -> tuple[str, End] | None:
        """Nothing gets from one node to another, while the other direction works."""
        pair = self._pair(fault)
        return None if pair is None else self._cut(fault, [pair], "one way")

    def do_halves(self, fault: Fault) -> tuple[str, End] | None:
        """Two groups that don't see each other."""
        names = self._shuffled(fault)
        half = 1 + fault.picks[2] % max(1, len(names) - 1)
        return self._part(fault, [names[:half], names[half:]], "halves")

    def do_bridge(self, fault: Fault) -> tuple[str, End] | None:
        """Two groups and one node that sees both."""
        names = self._shuffled(fault)
        half = 1 + (len(names) - 1) // 2
        return self._part(fault, [names[1:half], names[half:]], f"all meet at {names[0]} only")

    def do_alone(self, fault: Fault) -> tuple[str, End] | None:
        """Nobody sees anybody."""
        return self._part(fault, [[name] for name in self.world.machines], "everybody alone")

    def do_ring(self, fault: Fault) -> tuple[str, End] | None:
        """Each sees its two neighbours."""
        names = self._shuffled(fault)
        size = len(names)
        apart = [
            (one, other)
            for at, one in enumerate(names)
            for there, other in enumerate(names)
            if 1 < abs(at - there) < size - 1
        ]
        return self._cut(fault, apart, f"ring {' '.join(names)}") if apart else None

    def do_shift(self, fault: Fault) -> tuple[str, End] | None:
        """Groups that change soon."""
        kinds = (self.do_halves, self.do_one_way, self.do_ring, self.do_bridge)
        return kinds[fault.picks[3] % len(kinds)](fault)

    def _shuffled(self, fault: Fault) -> list[str]:
        names = list(self.world.machines)
        turn = fault.picks[0] % len(names)
        names = names[turn:] + names[:turn]
        return names if fault.picks[1] % 2 else names[::2] + names[1::2]

    def _part(self, fault: Fault, groups: list[list[str]], what: str) -> tuple[str, End] | None:
        apart = [(one, other) for left in groups for right in groups if left is not right for one in left for other in right]
        return self._cut(fault, apart, what) if apart else None

    def _cut(self, fault: Fault, pairs: list[tuple[str, str]], what: str) -> tuple[str, End]:
        silently = fault.picks[2] % 2 == 0
        network = self.world.network
        for one, other in pairs:
            network.cut(one, other, silently=silently)
        if silently:
            self.ledger.delays_ms += fault.span_ms

        def mend() -> None:
            for one, other in pairs:
                network.mend(one, other, silently=silently)

        told = ", ".join(f"{one}→{other}" for one, other in pairs[:12])
        return f"{what}{', silently' if silently else ''}: {told}", mend

    def do_loss(self, fault: Fault) -> tuple[str, End] | None:
        """Frames vanish."""
        network = self.world.network
        network.loss = LOSS_SHARES[fault.picks[0] % len(LOSS_SHARES)]
        return f"{network.loss:.0%} of frames vanish", self._no_loss

    def _no_loss(self) -> None:
        self.world.network.loss = 0.0

    def do_delay(self, fault: Fault) -> tuple[str, End] | None:
        """The network is slow."""
        network = self.world.network
        low_ms, high_ms = self.plan.delay_ms
        slow_ms = SLOW_MS[fault.picks[0] % len(SLOW_MS)]
        network.delay_ms = (low_ms, max(high_ms, slow_ms))
        self.ledger.delays_ms += slow_ms
        return f"frames take up to {network.delay_ms[1]} ms", self._no_delay

    def _no_delay(self) -> None:
        self.world.network.delay_ms = self.plan.delay_ms

    def do_jump(self, fault: Fault) -> tuple[str, End] | None:
        """Somebody sets a wall clock."""
        names = list(self.world.machines)
        machine = self.world.machines[names[fault.picks[0] % len(names)]]
        machine.wall_offset_ms += JUMPS_MS[fault.picks[1] % len(JUMPS_MS)]
        return f"wall clock of {machine.name} is {machine.wall_offset_ms / 1000:+g} s off", _nothing

    # -- operators ---------------------------------------------------------------------------------

    def do_leave(self, fault: Fault) -> tuple[str, End] | None:
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
        self.gone[machine.name] = machine.node_id
        self.ask_all("CLUSTER", "FORGET", machine.node_id.hex())

    def do_join(self, fault: Fault) -> tuple[str, End] | None:
        """A new node meets one that is there."""
        up = self.awake()
        if not up or len(self.world.machines) >= NODES_MAX:
            return None
        at = len(self.world.machines)
        name = NAMES[at]
        machine = self.world.add(name, offset_ms=self.plan.offsets_ms[at], journal=self.plan.journals[at])
        self.ask(machine, "CLUSTER", "MEET", up[fault.picks[0] % len(up)].name, 7711)
        return f"{name} joins", _nothing

    def do_forget(self, fault: Fault) -> tuple[str, End] | None:
        """A node is forgotten by some of the others, and met again."""
        up = self.awake()
        if len(up) < 2:
            return None
        machine = up[fault.picks[0] % len(up)]
        others = [other for other in up if other is not machine]
        some = others[fault.picks[1] % len(others) :]
        for other in some:
            self.ask(other, "CLUSTER", "FORGET", machine.node_id.hex())
        told = " ".join(other.name for other in some)
        return f"{told} forget {machine.name}", lambda: self._meet_again(machine, some)

    def _meet_again(self, machine: Machine, others: list[Machine]) -> None:
        for other in others:
            if machine.is_up and other.is_up:
                self.ask(other, "CLUSTER", "MEET", machine.name, 7711)

    def do_reset(self, fault: Fault) -> tuple[str, End] | None:
        """CLUSTER RESET of a node, and MEET when it is over; hard: it is somebody else from then on."""
        up = self.awake()
        if len(up) < 2:
            return None
        machine = up[fault.picks[0] % len(up)]
        is_hard = fault.picks[1] % 2 == 0
        self.losses.flushing(machine)
        self.ask(machine, "CLUSTER", "RESET", "HARD" if is_hard else "SOFT")
        old_id = machine.node_id
        return f"reset {machine.name}{' hard' if is_hard else ''}", lambda: self._back(machine, old_id)

    def _back(self, machine: Machine, old_id: bytes) -> None:
        if machine.is_up:
            machine.node_id = machine.membership.me.id
        others = [other for other in self.up() if other is not machine]
        if machine.node_id != old_id:
            for other in others:
                self.ask(other, "CLUSTER", "FORGET", old_id.hex())
        if others and machine.is_up:
            self.ask(machine, "CLUSTER", "MEET", others[0].name, 7711)

    def do_flush(self, fault: Fault) -> tuple[str, End] | None:
        """DEBUG FLUSHALL of a node, now and then."""
        up = self.awake()
        if not up or fault.picks[1] % 4:
            return None
        machine = up[fault.picks[0] % len(up)]
        self.losses.flushing(machine)
        self.ask(machine, "DEBUG", "FLUSHALL")
        return f"flush {machine.name}", _nothing

    def do_pause(self, fault: Fault) -> tuple[str, End] | None:
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

    def do_memory(self, fault: Fault) -> tuple[str, End] | None:
        """Another maxmemory."""
        up = self.awake()
        if not up:
            return None
        machine = up[fault.picks[0] % len(up)]
        limit = (5_000, 15_000, 40_000)[fault.picks[1] % 3]
        self.ask(machine, "CONFIG", "SET", "maxmemory", limit)
        return f"maxmemory {limit} on {machine.name}", lambda: self.ask(machine, "CONFIG", "SET", "maxmemory", self.plan.maxmemory)


def _nothing() -> None:
    """There is nothing to end."""
