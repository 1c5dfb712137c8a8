"""Ticks of schedules: one job per tick, in time, while there is no fault. Spec SD4, SD6.

Two jobs of one tick break the rule if all nodes were linked without a fault since some time before the first job was
seen. Ticks of two generations are two ticks: a node fires the ticks of the older one until it hears of the SET (spec
SD5). A job's id contains its key, and so its generation. A generation that no running node knows any more must make no
job. A job counts as soon as its ADDJOB has succeeded. On no node may the last recorded tick fall, unless a reset makes
the node forget the schedule. A tick must be recorded within seconds, although each node first leaves it to the nodes
before it in rank.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from disque_py.core.firing import ADD_MS, KEY_PREFIX, META_SCHEDULE, META_TICK
from disque_py.core.keys import KEY_AT, KEY_END, key_chars
from disque_py.core.recurring import Schedule
from disque_py.simulator.checks.cluster_invariants import is_made, jobs_of
from disque_py.simulator.oracle import Oracle, RuleBrokenError
from disque_py.simulator.world.world import World

ONE_JOB: Final = "one job per tick"
STALE: Final = "a schedule that was set anew fires no more"
NEVER_FALLS: Final = "the last recorded tick never falls"
IN_TIME: Final = "a tick is fired in time"
# For this time after a fault, several nodes may try to fire a tick.
CALM_MS: Final = 5_000
# The last node in rank waits four seconds longer than the first. A refused ADDJOB is repeated every second.
LATE_MS: Final = 8_000
# After a refused ADDJOB, or a claim without a majority of the voters, the tick is recorded within this time.
FAILED_MS: Final = 5_000
# An ADDJOB that began before its node heard of a SET may go on for this time.
STALE_MS: Final = ADD_MS + 1_000


class Seen(NamedTuple):
    """A job of a tick: when it was first seen, and whether there was no fault then."""

    at_ms: int
    is_settled: bool


class Tick(NamedTuple):
    """A planned moment of one generation of a schedule. Generation 0: no node was seen with the generation."""

    name: bytes
    generation: int
    tick_ms: bytes


class Generation(NamedTuple):
    """One definition of a schedule: the queue of its jobs, and when a running node last had it."""

    queue: bytes
    known_ms: int


class TickBook:
    """The jobs of all ticks that were seen on any node."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        self.world = world
        self._oracle = oracle
        self.jobs: dict[Tick, dict[bytes, Seen]] = {}
        self.generations: dict[bytes, dict[int, Generation]] = {}
        self._ticks: dict[bytes, Tick] = {}
        self._fails: dict[tuple[str, bytes], int] = {}
        self._failed_ms: dict[bytes, int] = {}
        self._last: dict[tuple[str, int, bytes, int], tuple[Schedule, int]] = {}
        # The moment since which, at each look, all nodes were linked and no node was leaving.
        self._whole_ms = world.now_ms

    def look(self) -> None:
        """Look at the jobs and the schedules of all nodes. Raises RuleBrokenError."""
        is_settled = self.world.is_meshed() and not self._oracle.faults
        now_ms = self.world.now_ms
        if not is_settled or any(machine.broker.is_leaving for machine in self.world.running()):
            self._whole_ms = now_ms
        for machine in self.world.running():
            for schedule in machine.broker.recurring.known.values():
                if schedule.fails > self._fails.get((machine.name, schedule.name), 0):
                    self._failed_ms[schedule.name] = now_ms
                self._fails[machine.name, schedule.name] = schedule.fails
        failing = {name for name, failed_ms in self._failed_ms.items() if now_ms <= failed_ms + FAILED_MS}
        for machine in self.world.running():
            for schedule in machine.broker.recurring.known.values():
                definition = schedule.definition
                known = self.generations.setdefault(schedule.name, {})
                known[definition.generation] = Generation(definition.queue, now_ms)
        for machine in self.world.running():
            for job in jobs_of(machine.broker):
                meta = job.meta
                if len(meta) >= 4 and meta[0] == META_SCHEDULE and meta[2] == META_TICK:
                    tick = self._ticks.get(job.id)
                    if tick is None:
                        if not is_made(self.world, job, 0):
                            continue
                        tick = self._ticks[job.id] = self.tick_of(meta[1], meta[3], job.id)
                    self.seen(tick, job.id, is_settled=is_settled)
            for schedule in machine.broker.recurring.known.values():
                key = (machine.name, machine.runs, schedule.name, schedule.progress.generation)
                last_ms = schedule.progress.last_ms
                # After a reset, a node has forgotten the schedule, and may learn an older state of it first.
                known_as, known_ms = self._last.get(key, (schedule, 0))
                if known_as is schedule and last_ms < known_ms:
                    raise RuleBrokenError(NEVER_FALLS, f"{schedule.name!r} of {machine.name} went back to {last_ms}")
                self._last[key] = schedule, last_ms
                is_wanted = schedule.next_ms and not schedule.is_paused and schedule.name not in failing
                late_ms = machine.broker.wall_ms - schedule.next_ms
                if is_wanted and late_ms > LATE_MS and now_ms > self._whole_ms + LATE_MS + CALM_MS:
                    raise RuleBrokenError(IN_TIME, f"{schedule.name!r} is {late_ms} ms late on {machine.name}")

    def tick_of(self, name: bytes, tick_ms: bytes, job_id: bytes) -> Tick:
        """Return the tick whose key is in the id of its job."""
        chars = job_id[KEY_AT:KEY_END]
        for generation, (queue, _) in self.generations.get(name, {}).items():
            if key_chars(queue, b"%b%b:%d:%b" % (KEY_PREFIX, name, generation, tick_ms)) == chars:
                return Tick(name, generation, tick_ms)
        return Tick(name, 0, tick_ms)

    def seen(self, tick: Tick, job_id: bytes, *, is_settled: bool) -> None:
        """Note a job of a tick. Raises RuleBrokenError if it is the second one, or if its generation is over."""
        jobs = self.jobs.setdefault(tick, {})
        if job_id in jobs:
            return
        now_ms = self.world.now_ms
        jobs[job_id] = Seen(now_ms, is_settled)
        first_ms = min(each.at_ms for each in jobs.values())
        is_calm = self._oracle.unrest_ms + CALM_MS < first_ms or not self._oracle.unrest_ms
        if not is_calm or not all(each.is_settled for each in jobs.values()):
            return
        if len(jobs) > 1:
            raise RuleBrokenError(ONE_JOB, f"{tick} has {sorted(jobs)}, though there was no fault", *jobs)
        known = self.generations.get(tick.name, {}).get(tick.generation)
        if known is not None and known.known_ms + STALE_MS < now_ms:
            raise RuleBrokenError(STALE, f"{tick} has a job; no node has known it since {known.known_ms} ms", job_id)
