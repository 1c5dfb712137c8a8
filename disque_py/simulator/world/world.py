"""World: time, nodes and clients of one simulation.

Events are tuples (moment, serial, call, arguments) in a heap. Each event is such a call. The world has one true time;
the clocks of a node belong to its machine (machine.py). The world does not decide what should happen. Plans (plan.py)
and scenarios (tests/scenarios) use the same world.

In a *prompt* world, a turn of a node ends with the input that began it, and no two timers fire at the same time. So a
transcript shows all events line by line. A timer that gave way to another one fires before timers that did not. So a
node with a timer in every millisecond does not hold up the other nodes. In other worlds, a turn includes all inputs of
the same millisecond, as in an event loop that finds several sockets ready.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mypy_extensions import mypyc_attr

from disque_py.core.grants import IDLE_MS
from disque_py.simulator.clients.connection import Connection
from disque_py.simulator.trace import Trace
from disque_py.simulator.world.codecs import OLD
from disque_py.simulator.world.cuts import Cuts
from disque_py.simulator.world.machine import DeathError, Machine
from disque_py.simulator.world.network import Network
from disque_py.simulator.world.traffic import Traffic
from disque_py.simulator.world.watcher import Watcher

if TYPE_CHECKING:
    from disque_py.core.broker import Broker

START_MS: Final = 1_000_000
WALL_START_MS: Final = 1_700_000_000_000

# A checker may look at all nodes each time this many events have happened.
EVENTS_PER_LOOK: Final = 5_000

Event = tuple[int, int, Callable[..., None], tuple[Any, ...]]


class StuckError(Exception):
    """An awaited state did not come in time."""


@mypyc_attr(allow_interpreted_subclasses=True)  # Scenarios have subclasses (tests/scenarios).
class World:
    """All nodes, the network between them, and time.

    now_ms      the world's time
    traffic, network, cuts   frames in transit; connections that begin and end; directions without bytes
    machines    nodes by name, in order of arrival, including those that are down
    events      how many events have happened, in steps of EVENTS_PER_LOOK
    votes_idle_ms   the time after which voters forget keys that have not counted
    is_prompt   True: one input per turn, and one timer at a time
    watcher     the observer of events; it may be replaced at any time
    trace       the record of events: a running hash, and text if a person wants to read it
    is_interrupted   of all worlds: `run_to` raises KeyboardInterrupt soon. A signal handler that raises it by itself
                     may do so inside an operation on large numbers, which compiled code takes for a lack of memory
    """

    is_interrupted: ClassVar[bool] = False

    def __init__(
        self,
        names: str,
        seed: int = 1,
        *,
        delay_ms: tuple[int, int] = (1, 1),
        is_prompt: bool = True,
        chance: Callable[[str], Random] = Random,
        trace: Trace | None = None,
        watcher: Watcher | None = None,
        **settings: Any,
    ) -> None:
        self.seed = seed
        self.now_ms = START_MS
        self.events = 0
        self.votes_idle_ms = IDLE_MS
        self.is_prompt = is_prompt
        self.settings = settings
        self.trace = trace if trace is not None else Trace()
        self.watcher = watcher if watcher is not None else Watcher()
        self._chance = chance
        self._heap: list[Event] = []
        self._serial = 0
        self._clients = 0
        self._since_look = 0
        self._timer_ms = 0
        self._gave_way: dict[object, int] = {}  # Nodes whose timers gave way, and when these fire.
        self.cuts = Cuts()
        rng = self.stream("network")
        self.traffic = Traffic(self, rng, self.cuts, delay_ms)
        self.network = Network(self, rng, self.cuts, self.traffic)
        self.machines: dict[str, Machine] = {}
        self.connections: dict[Connection, None] = {}
        for name in names:
            self.add(name)

    def __getitem__(self, name: str) -> Broker:
        return self.machines[name].broker

    def stream(self, name: str) -> Random:
        """Return a separate random generator for a purpose, so that drawing from it does not change the others."""
        return self._chance(f"{self.seed} {name}")

    @property
    def elapsed_ms(self) -> int:
        """Return the time since the beginning."""
        return self.now_ms - START_MS

    @property
    def wall_ms(self) -> int:
        """Return the wall clock of a node whose clock is right."""
        return WALL_START_MS + self.now_ms - START_MS

    # -- events ------------------------------------------------------------------------------------

    def later(self, span_ms: int, call: Callable[..., None], *args: Any) -> None:
        """Call something after `span_ms`."""
        self._serial += 1
        heappush(self._heap, (self.now_ms + span_ms, self._serial, call, args))

    def at(self, at_ms: int, call: Callable[..., None], *args: Any) -> None:
        """Call something at this moment."""
        self._serial += 1
        heappush(self._heap, (at_ms, self._serial, call, args))

    def may_tick(self, node: object) -> bool:
        """Return whether a node's timer may fire now. Otherwise it fires again in a millisecond.

        In a prompt world timers fire one by one. Timers that gave way come first, in the order in which they did.
        """
        gave_way = self._gave_way
        while gave_way:
            first, again_ms = next(iter(gave_way.items()))
            if first is node:
                break
            if again_ms >= self.now_ms:
                gave_way[node] = self.now_ms + 1
                return False
            del gave_way[first]  # The timer did not fire again: its process is gone, or has a new timer.
        if self._timer_ms == self.now_ms:
            gave_way[node] = self.now_ms + 1
            return False
        gave_way.pop(node, None)
        self._timer_ms = self.now_ms
        return True

    def run(self, span_ms: int) -> None:
        """Let `span_ms` pass."""
        self.run_to(self.now_ms + span_ms)

    def run_to(self, end_ms: int) -> None:
        """Let time pass up to and including this moment."""
        if World.is_interrupted:
            raise KeyboardInterrupt
        heap = self._heap
        count = self._since_look
        while heap and heap[0][0] <= end_ms:
            self.now_ms, _, call, args = heappop(heap)
            count += 1
            try:
                call(*args)
            except DeathError as crash:
                crash.machine.die()
            if count == EVENTS_PER_LOOK:
                if World.is_interrupted:
                    raise KeyboardInterrupt
                self.events += count
                count = 0
                self.watcher.on_look()
        self._since_look = count
        self.now_ms = end_ms

    def until(self, condition: Callable[[], bool], within_ms: int = 10_000) -> None:
        """Let time pass until the condition is true. Raises StuckError after `within_ms`."""
        end_ms = self.now_ms + within_ms
        while not condition():
            if not self._heap or self._heap[0][0] > end_ms:
                raise StuckError("it did not happen in time")
            self.run_to(self._heap[0][0])

    # -- nodes -------------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        *,
        offset_ms: int = 0,
        drift_ppm: int = 0,
        version: int = OLD,
        journal: str = "",
        place: tuple[str, str] = ("", ""),
        node_id: bytes = b"",
    ) -> Machine:
        """Add a node that no other node knows yet (see Machine). `journal`: its appendfsync; "": no journal."""
        settings = self.settings | {"datacenter": place[0], "zone": place[1]}
        machine = self.machines[name] = Machine(
            self, name, settings, offset_ms=offset_ms, drift_ppm=drift_ppm, version=version, node_id=node_id
        )
        if journal:
            machine.keep_journal(journal)
        machine.boot()
        return machine

    def running(self) -> list[Machine]:
        """Return the nodes whose process lives, including stopped ones."""
        return [machine for machine in self.machines.values() if machine.is_up]

    def meet(self, one: str, other: str) -> None:
        """Send CLUSTER MEET to a node."""
        machine = self.machines[one]
        machine.open()
        machine.membership.meet(other, 7711)
        machine.close()

    def join(self, within_ms: int = 10_000) -> None:
        """Make all nodes meet, and wait until each has a link to every other."""
        first, *others = self.machines.values()
        for machine in others:
            self.meet(first.name, machine.name)
        self.until(self.is_meshed, within_ms)

    def is_meshed(self) -> bool:
        """Return whether each node that is up has links to all other nodes that are up, and no further links."""
        machines = self.running()
        return all(
            len(machine.membership.table.linked) == len(machines) - 1
            and not machine.membership.table.newcomers
            and not machine.broker.is_loading
            for machine in machines
        )

    def crash(self, name: str) -> None:
        """Kill a process, as kill -9 does: memory and connections are gone."""
        self.machines[name].die()

    def restart(self, name: str) -> None:
        """Start a new process with the old id and nodes file."""
        self.machines[name].start()

    def pause(self, name: str) -> None:
        """Stop a process, as SIGSTOP does."""
        self.machines[name].stop()

    def resume(self, name: str) -> None:
        """Continue a process, as SIGCONT does."""
        self.machines[name].go_on()

    # -- links -------------------------------------------------------------------------------------

    def cut(self, left: str, right: str, *, both: bool = True, silently: bool = False) -> None:
        """Stop all bytes from left to right, and with `both` also back. Links break on both ends, unless `silently`."""
        for one, other in ((left, right), (right, left))[: 2 if both else 1]:
            self.network.cut(one, other, silently=silently)

    def heal(self) -> None:
        """Mend all cuts."""
        self.network.heal()

    # -- clients -----------------------------------------------------------------------------------

    def connect(self, machine: Machine, connection: Connection) -> Connection:
        """Open a client's connection to a node that is up."""
        self._clients += 1
        self.connections[connection] = None
        connection.open(machine, self._clients)
        return connection
