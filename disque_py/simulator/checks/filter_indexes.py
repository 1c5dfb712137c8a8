"""Filters: indexes agree with a walk over the queue, and without faults jobs reach clients that wait with WHERE.

`check_indexes` compares each complete index of a node with the jobs that are ready there (spec W2). `meet` is played
without faults: clients without a timeout on one node, and jobs for some of them on another (spec W5, W6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from disque_py.core.filters import GONE, values_of
from disque_py.simulator.clients.connection import Connection, words
from disque_py.simulator.oracle import Promise, RuleBrokenError

if TYPE_CHECKING:
    from disque_py.core.broker import Broker
    from disque_py.simulator.simulation import Simulation
    from disque_py.simulator.world.machine import Machine

QUEUE: Final = b"q0"
COLOURS: Final = ("red", "green", "blue")
# Colours that clients ask for. Jobs of other colours have no client, and stay.
JOBS: Final = 3
SETTLE_MS: Final = 1_500
ARRIVED_MS: Final = 3_000
STEP_MS: Final = 100


def check_indexes(machine: Machine) -> None:
    """Compare each complete index with its queue. Raises RuleBrokenError."""
    broker: Broker = machine.broker
    for queue in broker.queues.values():
        filters = queue.filters
        if filters is None:
            continue
        jobs = [job for job in queue.oldest() if job.attributes is not None]
        groups = [group for index in filters.indexes.values() for group in index.groups.values()]
        for name, kept, counted in (
            ("held", filters.held, [group for group in groups if group.waiting and group.length]),
            ("lines", filters.lines, [group for group in groups if group.waiting]),
            ("told", filters.told, [group for group in groups if group.demand and group.demand.told != GONE]),
        ):
            if len(kept) != len(counted) or not all(group in kept for group in counted):
                raise RuleBrokenError(
                    "an index agrees with its queue", f"{name} of {queue.name!r} on {machine.name} is not a recount"
                )
        for index in filters.indexes.values():
            if index.build is not None:
                continue
            walked: dict[tuple[bytes, ...], list[bytes]] = {}
            for job in jobs:
                values = values_of(job, index.names)
                if values is not None:
                    walked.setdefault(values, []).append(job.id)
            known = {values: [job.id for job in group.oldest()] for values, group in index.groups.items()}
            known = {values: ids for values, ids in known.items() if ids}
            if known != walked or index.entries != sum(map(len, walked.values())):
                apart = [
                    values for values in dict.fromkeys([*known, *walked]) if known.get(values) != walked.get(values)
                ]
                raise RuleBrokenError(
                    "an index agrees with its queue",
                    f"{queue.name!r} of {machine.name} by {index.names}: {sorted(apart)[:3]}",
                    *[job_id for values in apart[:3] for job_id in (walked.get(values) or known.get(values, []))[:3]],
                )


def check_pairs(entry: list[Any], pairs: dict[bytes, bytes], shown_at: int) -> None:
    """Check that a job of a GETJOB with WHERE has all pairs (spec W1). Raises RuleBrokenError."""
    meta = entry[shown_at]
    shown = dict(zip(meta[::2], meta[1::2], strict=True))
    if any(shown.get(name) != value for name, value in pairs.items()):
        raise RuleBrokenError("a filter is kept", f"{entry[1]!r} has {meta}, but {pairs} were asked for", entry[1])


class Picker(Connection):
    """A client that waits for ever for a job of one colour."""

    __slots__ = ("_simulation", "colour")

    def __init__(self, simulation: Simulation, colour: str) -> None:
        super().__init__(simulation.world)
        self._simulation = simulation
        self.colour = colour

    def wait(self) -> None:
        """Send the GETJOB."""
        self.send([words("GETJOB", "WITHMETA", "WHERE", "colour", self.colour, "FROM", QUEUE)])

    def on_reply(self, reply: Any) -> None:
        """Acknowledge the job, and wait for the next one."""
        if isinstance(reply, list):
            oracle, now_ms = self._simulation.oracle, self.world.now_ms
            for entry in reply:
                check_pairs(entry, {b"colour": self.colour.encode()}, 4)
                self.world.watcher.on_delivered(self.machine, [entry[:3]])
                oracle.acknowledging(oracle.deliver(entry[0], entry[1], entry[2], now_ms), now_ms)
                self.send([words("ACKJOB", entry[1])], 1)
            self.world.later(1, self.wait)


def meet(simulation: Simulation) -> None:
    """Play the check, if there are two nodes. Raises RuleBrokenError."""
    world = simulation.world
    machines = world.running()
    if len(machines) < 2:
        return
    world.run(SETTLE_MS)  # Clients that drained the cluster before may still wait for jobs.
    pickers = []
    for machine, colour in zip(machines[1:] * len(COLOURS), COLOURS[:2], strict=False):
        picker = Picker(simulation, colour)
        world.connect(machine, picker)
        picker.wait()
        pickers.append(picker)
    promises: list[tuple[Promise, str]] = []
    for at in range(2 * JOBS):
        if at == JOBS:
            world.run(SETTLE_MS)  # Some jobs are added before the node knows the clients, others later.
        for colour in COLOURS:
            promise = simulation.oracle.add(QUEUE, 20, 60_000, 3_600_000, 1, world.now_ms)
            options = ("RETRY", 60, "TTL", 3_600, "REPLICATE", 1, "META", "colour", colour)
            simulation.targets.ask(machines[0], "ADDJOB", QUEUE, promise.body(), 0, *options)
            promises.append((promise, colour))
    end_ms = world.now_ms + ARRIVED_MS
    wanted = [promise for promise, colour in promises if colour in COLOURS[:2]]
    while not all(promise.delivered for promise in wanted):
        if world.now_ms >= end_ms:
            late = [promise for promise in wanted if not promise.delivered]
            raise RuleBrokenError(
                "jobs come to clients that wait with a filter",
                f"{len(late)} of {len(wanted)} not within {ARRIVED_MS} ms",
                *(promise.id for promise in late if promise.id),
            )
        world.run(STEP_MS)
    if any(promise.delivered for promise, colour in promises if colour == COLOURS[2]):
        raise RuleBrokenError("a filter is kept", "a job was delivered that no client had asked for")
    for machine in world.running():
        check_indexes(machine)
    world.run(STEP_MS)
    for picker in pickers:
        if picker.is_open:
            picker.hang_up()
