"""Backups: without faults, a journal is switched off and on, one of its bits flips, and its node starts from a backup.

Jobs are added to one node only. CONFIG SET appendonly no and yes makes a new journal. A process that is killed after
that must lose no job. JOURNAL BACKUP is answered, and the files of the backup are copied elsewhere. Then the node is
killed, and one bit of a closed file is flipped. The next process either refuses to start or has all its jobs (if the
bit was in the padding). Then the operator replaces the journal by the copy, as `disque-cluster restore` does. The node
must have every job from before the backup. Several bits are tried this way.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

from disque_py.simulator.clients.connection import Connection, words
from disque_py.simulator.oracle import Promise, RuleBrokenError
from persistence.records import parse_file_name
from persistence.recovery import RESTORED_NAME

if TYPE_CHECKING:
    from disque_py.simulator.simulation import Simulation
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

JOBS: Final = 20
ROUNDS: Final = 3
STEP_MS: Final = 100
MADE_MS: Final = 10_000
STARTED_MS: Final = 10_000
# A RETRY so long that no job comes back while its node is down.
RETRY_S: Final = 60
NAME: Final = "calm"
DIRECTORY: Final = f"backups/{NAME}"


class Asking(Connection):
    """A client that sends JOURNAL BACKUP, and repeats it while it is refused because the journal is too new."""

    __slots__ = ("is_made",)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.is_made = False

    def ask(self) -> None:
        """Send the command."""
        self.send([words("JOURNAL", "BACKUP", NAME)], 1)

    def on_reply(self, reply: Any) -> None:
        """Handle the reply: the backup is made, or not yet."""
        self.is_made = not isinstance(reply, Exception)
        if not self.is_made:
            self.world.later(STEP_MS, self.ask)


def play(simulation: Simulation) -> None:
    """Play the check with the first node that has a journal, if there is one. Raises RuleBrokenError."""
    world = simulation.world
    machine = next((machine for machine in world.running() if machine.journal_storage is not None), None)
    if machine is None:
        return
    promises = _add(simulation, machine)
    _switch(simulation, machine)
    machine.die()
    machine.start()
    _starts(world, machine)
    _check(machine, promises, "a journal that is switched on has all jobs")
    promises += _add(simulation, machine)
    files = _back_up(world, machine)
    chance = world.stream("rot")
    for _ in range(ROUNDS):
        machine.die()
        _rot(machine, files, chance)
        machine.start()
        if _starts(world, machine):
            _check(machine, promises, "a bit that rots costs no job")
            machine.die()
        _restore(machine, files)
        machine.start()
        if not _starts(world, machine):
            raise RuleBrokenError("a node starts from a backup", f"{machine.name} does not", machine.name)
        _check(machine, promises, "a backup has what was promised before it")


def _check(machine: Machine, promises: list[Promise], rule: str) -> None:
    for promise in promises:
        if machine.broker.find(promise.id) is None:
            raise RuleBrokenError(rule, f"{machine.name} has lost {promise}", promise.id)


def _switch(simulation: Simulation, machine: Machine) -> None:
    """Switch the journal off, and on again, so that a new one is made."""
    journal_storage, world = machine.journal_storage, simulation.world
    assert journal_storage is not None
    journal_storage.durability = None
    for word, is_done in (("no", journal_storage.is_off), ("yes", journal_storage.is_complete)):
        simulation.targets.ask(machine, "CONFIG", "SET", "appendonly", word)
        end_ms = world.now_ms + MADE_MS
        while not is_done():
            if world.now_ms >= end_ms:
                raise RuleBrokenError(
                    "a journal can be switched", f"{machine.name}, {word}: not within {MADE_MS} ms", machine.name
                )
            world.run(STEP_MS)
    journal_storage.read_back()


def _add(simulation: Simulation, machine: Machine) -> list[Promise]:
    """Add jobs that only this node has."""
    oracle, world = simulation.oracle, simulation.world
    simulation.targets.ask(machine, "CONFIG", "SET", "maxmemory", 0)  # A new process has the limit of its file.
    adding = Adding(world, simulation)
    world.connect(machine, adding)
    for _ in range(JOBS):
        adding.add()
    world.run(MADE_MS // 10)
    promises = [promise for promise in oracle.promises[-JOBS:] if promise.answered_ms]
    if adding.is_open:
        adding.hang_up()
    return promises


class Adding(Connection):
    """A client that adds jobs one after another, and notes the replies."""

    __slots__ = ("_promises", "_simulation")

    def __init__(self, world: World, simulation: Simulation) -> None:
        super().__init__(world)
        self._simulation = simulation
        self._promises: list[Promise] = []

    def add(self) -> None:
        """Add a job with one copy."""
        promise = self._simulation.oracle.add(b"q0", 200, RETRY_S * 1000, 3_600_000, 1, self.world.now_ms)
        promise.asked = self.machine
        self._promises.append(promise)
        options = ("RETRY", RETRY_S, "TTL", 3_600, "REPLICATE", 1)
        self.send([words("ADDJOB", "q0", promise.body(), 0, *options)], 1)

    def on_reply(self, reply: Any) -> None:
        """Note the id of a job."""
        promise = self._promises.pop(0)
        if not isinstance(reply, bytes):
            raise RuleBrokenError("no odd errors", f"{reply!r} for {promise} in good weather")
        self._simulation.oracle.answered(promise, reply, self.world.now_ms)


def _back_up(world: World, machine: Machine) -> dict[str, bytes]:
    """Make a backup, and return a copy of its files, by name."""
    asking = Asking(world)
    world.connect(machine, asking)
    asking.ask()
    end_ms = world.now_ms + MADE_MS
    while not asking.is_made:
        if world.now_ms >= end_ms:
            raise RuleBrokenError("a backup is made", f"not within {MADE_MS} ms on {machine.name}", machine.name)
        world.run(STEP_MS)
    asking.hang_up()
    assert machine.journal_storage is not None
    linked = machine.journal_storage.folder.linked[DIRECTORY]
    return {name: bytes(file.content) for name, file in linked.items() if parse_file_name(name) is not None}


def _rot(machine: Machine, files: dict[str, bytes], chance: Random) -> None:
    """Flip one bit of a file that was complete when the backup was made."""
    assert machine.journal_storage is not None
    folder = machine.journal_storage.folder
    there = [name for name in sorted(files) if files[name] and folder.has(name)]
    if there:
        name = chance.choice(there)
        machine.journal_storage.is_rotten = True
        folder.flip(name, chance.randrange(8 * len(files[name])))


def _restore(machine: Machine, files: dict[str, bytes]) -> None:
    assert machine.journal_storage is not None
    machine.journal_storage.is_rotten = False
    machine.journal_storage.folder.replace_all({**files, RESTORED_NAME: b""})


def _starts(world: World, machine: Machine) -> bool:
    """Start the node, and return whether it starts; False if it refuses to."""
    assert machine.journal_storage is not None
    end_ms = world.now_ms + STARTED_MS
    while not (machine.is_up and machine.journal_storage.is_loaded):
        if not machine.is_up and machine.journal_storage.has_refused:
            return False
        if world.now_ms >= end_ms:
            raise RuleBrokenError("a node can start", f"{machine.name} not within {STARTED_MS} ms", machine.name)
        world.run(STEP_MS)
    return True
