"""Pauses: a paused queue delivers nothing, and a pause that was ended everywhere is ended on every node.

A *promise* begins when a node answers a PAUSE with `out` or `all`. From then on no consumer may get a job of this queue
from this node. Deliveries that were decided before are excused: jobs in replies that wait for their record, and jobs
under a token, which a consumer may request again. A promise ends with the next PAUSE of the queue at this node, with a
later one from another node, and with FLUSHALL or RESET. It also ends with the process, unless the journal is certain to
have it.

At the end, when the mesh is whole, the nodes must agree on states that were set with BCAST. On each node the state with
the latest version is in force, unless the node got another state without BCAST. A process that was flushed may know no
state of a queue; it learns the state with its next link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.core.queue import PAUSED_OUT
from disque_py.simulator.checks.in_flight import unseen_jobs
from disque_py.simulator.oracle import RuleBrokenError

if TYPE_CHECKING:
    from disque_py.simulator.world.machine import Machine
    from disque_py.simulator.world.world import World

PAUSED_OUTPUT: Final = (b"out", b"all")
# Commands after which a node may have forgotten a pause, or its journal may lack it.
FORGETFUL: Final = ("DEBUG", "RESET", "APPENDONLY")

Command = tuple[str | bytes | int, ...]


class Promise:
    """One queue of one node, for which the reply to a PAUSE was sent.

    excused      ids of jobs that were on their way to consumers at that time
    is_recorded  the journal has the pause
    """

    __slots__ = ("excused", "is_recorded")

    def __init__(self, excused: dict[bytes, None], *, is_recorded: bool) -> None:
        self.excused = excused
        self.is_recorded = is_recorded


class Pauses:
    """The checker of pauses.

    promises   all promises, by node and queue
    own      nodes and queues whose last PAUSE was without BCAST
    flushed  nodes that had DEBUG FLUSHALL -> their run at that time
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._asked: dict[tuple[str, bytes], int] = {}
        # PAUSEs under way after which a later state may have come, from another node or another PAUSE: their replies
        # promise nothing.
        self._overtaken: set[tuple[str, bytes]] = set()
        self.promises: dict[tuple[str, bytes], Promise] = {}
        self.own: dict[tuple[str, bytes], None] = {}
        self.flushed: dict[str, int] = {}

    def asked(self, machine: Machine, command: Command) -> None:
        """Note that an operator's command is about to reach the node."""
        words = _upper(command)
        if words[0] == "PAUSE":
            key = machine.name, _name(command)
            self.promises.pop(key, None)
            self._asked[key] = self._asked.get(key, 0) + 1
            self.own.pop(key, None)
            if "BCAST" not in words:
                self.own[key] = None
        elif any(word in FORGETFUL for word in words):
            self._forget(machine)
            if "FLUSHALL" in words:
                self.flushed[machine.name] = machine.runs

    def answered(self, machine: Machine, command: Command, reply: Any) -> None:
        """Note the reply to a PAUSE. While other PAUSEs are under way, their order is unknown, so no promise begins."""
        if _upper(command)[0] != "PAUSE":
            return
        key = machine.name, _name(command)
        left = self._asked[key] = self._asked.get(key, 1) - 1
        if left > 0:
            if reply not in PAUSED_OUTPUT:
                self._overtaken.add(key)  # The last reply may be that of an earlier PAUSE, which waited for the disk.
            return
        is_overtaken = key in self._overtaken
        self._overtaken.discard(key)
        if reply in PAUSED_OUTPUT and not is_overtaken:
            excused = dict.fromkeys(unseen_jobs(machine))
            excused |= {job.id: None for job in machine.broker.tokens.by_job}
            self.promises[key] = Promise(excused, is_recorded=_is_recorded(machine))

    def heard(self, machine: Machine, items: list[Any]) -> None:
        """Note another node's states of queues, which are about to be read: (name, flags, version, node)."""
        for name, flags, version_ms, version_node, *_ in items:
            known = machine.broker.pauses.versions.get(name)
            if known is None or (known[1], known[2]) < (version_ms, version_node):
                key = machine.name, name
                self.own.pop(key, None)
                if not flags & PAUSED_OUT:
                    self.promises.pop(key, None)
                    if self._asked.get(key):
                        self._overtaken.add(key)

    def died(self, machine: Machine, *, power: bool) -> None:
        """Note that a process ends."""
        journal_storage = machine.journal_storage
        for key in [key for key in self._asked if key[0] == machine.name]:
            del self._asked[key]
            self._overtaken.discard(key)
        if journal_storage is None or journal_storage.may_lose(power=power):
            self._forget(machine)
        for key, promise in list(self.promises.items()):
            if key[0] == machine.name and not promise.is_recorded:
                del self.promises[key]

    def _forget(self, machine: Machine) -> None:
        for key in [key for key in self.promises if key[0] == machine.name]:
            del self.promises[key]

    def delivered(self, machine: Machine, entries: list[Any]) -> None:
        """Check jobs that a consumer got. Raises RuleBrokenError."""
        for queue, job_id, *_ in entries:
            promise = self.promises.get((machine.name, queue))
            if promise is not None and job_id not in promise.excused:
                raise RuleBrokenError(
                    "a paused queue delivers nothing", f"{job_id!r} of {queue!r} by {machine.name}", job_id
                )

    def check_agreed(self) -> None:
        """Check that all nodes have one state, after the mesh has been whole for a while. Raises RuleBrokenError."""
        running = self._world.running()
        latest: dict[bytes, tuple[tuple[int, bytes], int]] = {}
        for machine in running:
            for name, (flags, version_ms, node) in machine.broker.pauses.versions.items():
                latest[name] = max(latest.get(name, ((0, b""), 0)), ((version_ms, node), flags))
        for name, (version, flags) in latest.items():
            for machine in running:
                known = machine.broker.pauses.versions.get(name)
                queue = machine.broker.queues.get(name)
                paused = queue.paused if queue is not None else 0
                if known is None and not paused and self.flushed.get(machine.name) == machine.runs:
                    continue
                is_own = (machine.name, name) in self.own
                if known is None or (known[1], known[2]) != version or (paused != flags and not is_own):
                    raise RuleBrokenError(
                        "a pause is the same everywhere",
                        f"{name!r} on {machine.name}: {paused} by {known}; the latest is {flags} by {version}",
                        machine.name,
                    )


def _upper(command: Command) -> list[str]:
    return [word.upper() if isinstance(word, str) else "" for word in command]


def _name(command: Command) -> bytes:
    name = command[1]
    return name if isinstance(name, bytes) else str(name).encode()


def _is_recorded(machine: Machine) -> bool:
    journal_storage = machine.journal_storage
    if journal_storage is None or journal_storage.journal_service.journal is None:
        return False
    return journal_storage.journal_service.journal.must_wait()
