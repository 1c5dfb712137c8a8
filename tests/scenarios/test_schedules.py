"""Schedules on random days: one job per tick while nodes are linked, even if nodes die (spec SD4 to SD9).

Deliberate defects show that the rule can break.
"""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from disque_py.core import firing, recurring
from disque_py.core.job import QUEUED
from disque_py.core.queue_settings import SCHEDULE, state_key
from world import World

SECOND = 1_000


class Day:
    """A cluster with a schedule that fires every second. It notes the ids of all jobs, by their ticks."""

    def __init__(self, names: str = "abcd", seed: int = 1, every: str = "1s", catchup: str = "all") -> None:
        self.world = World(names, seed=seed, cluster_node_timeout=1_000)
        self.world.join()
        self.names = names
        self.jobs: dict[int, dict[bytes, None]] = {}
        words = ("EVERY", every, "CATCHUP", catchup, "QUEUE", "q", "RETRY", 60, "REPLICATE", 2)
        assert self.world.ask("a", "SCHEDULE", "SET", "s", *words) == b"OK"
        self.since_ms = self.world["a"].wall_ms

    def run(self, span_ms: int) -> None:
        """Let time pass, and note each job on any node."""
        for _ in range(0, span_ms, 50):
            self.world.run(50)
            for machine in self.world.running():
                for shard in machine.broker.shards:
                    for job in shard.values():
                        if job.meta and job.state != 0:
                            tick = int(dict(zip(job.meta[::2], job.meta[1::2], strict=True))[b"x-disque-tick"])
                            self.jobs.setdefault(tick, {})[job.id] = None

    def ticks_twice(self) -> list[int]:
        """Return the ticks with more than one job."""
        return [tick for tick, ids in self.jobs.items() if len(ids) > 1]

    def ticks_missing(self, until_ms: int) -> list[int]:
        """Return the ticks without a job."""
        first = (self.since_ms // SECOND + 1) * SECOND
        return [tick for tick in range(first, until_ms + 1, SECOND) if tick not in self.jobs]


def die_in_turns(day: Day, seed: int, deaths: int = 6) -> None:
    """Kill and restart one node after another."""
    rng = Random(seed)
    for _ in range(deaths):
        day.run(rng.choice((150, 700, 1_900)))
        name = rng.choice(day.names)
        day.world.crash(name)
        day.run(rng.choice((300, 1_500, 4_000)))
        day.world.restart(name)
        day.run(3_500)


@pytest.mark.parametrize("seed", range(4))
def test_one_job_per_tick_whichever_node_dies(seed):
    """Spec SD4, SD6."""
    day = Day(seed=seed)
    die_in_turns(day, seed)
    now_ms = next(iter(day.world.running())).broker.wall_ms
    day.run(4_000)
    assert day.ticks_twice() == []
    assert day.ticks_missing(now_ms) == []


@pytest.mark.plain
def test_without_the_key_there_are_two(monkeypatch):
    """This is a deliberate defect: the KEY contains the node, so a tick that two nodes fire has two jobs."""
    monkeypatch.setattr(firing, "TURN_MS", 0)
    key_of = firing._key_of
    count = iter(range(10**9))
    monkeypatch.setattr(firing, "_key_of", lambda fired: b"%b %d" % (key_of(fired), next(count)))
    day = Day()
    day.run(5_000)
    assert day.ticks_twice() != []


def test_all_nodes_have_the_same_progress():
    """Spec SD5: a tick that one node fired, the others do not fire."""
    day = Day()
    day.run(10_000)
    progress = {day.world[name].recurring.known[b"s"].progress for name in day.names}
    assert len(progress) == 1
    assert progress.pop().fired >= 9


@pytest.mark.parametrize("name", "abcd")
def test_a_wall_clock_that_jumps_fires_nothing_twice(name):
    """Spec SD7: by minutes, back and forth."""
    day = Day(catchup="none")
    day.run(3_000)
    machine = day.world.machines[name]
    for span_ms in (-90_000, 180_000, -90_000):
        machine.wall_offset_ms += span_ms
        day.run(4_000)
    assert day.ticks_twice() == []


def test_each_side_fires_without_voters_and_one_with_them():
    """Spec SD9."""
    for has_voters in (False, True):
        day = Day("abc")
        if has_voters:
            ids = [name.encode().hex() * 20 for name in "abc"]
            assert day.world.ask("a", "CLUSTER", "VOTERS", "INIT", *ids) == b"OK"
        day.world.cut("a", "b")
        day.world.cut("a", "c")
        day.run(4_000)
        jobs = [recorded(day, name) for name in "abc"]
        day.run(3_000)
        lone = recorded(day, "a") - jobs[0]
        others = recorded(day, "b") - jobs[1]
        assert others >= 2
        assert lone == 0  # This side can't make two copies, and has no majority.
        day.world.heal()
        day.run(5_000)
        assert len({day.world[name].recurring.known[b"s"].progress for name in "abc"}) == 1


def test_a_node_that_dies_with_the_claim_of_a_tick_delays_ticks_by_ten_seconds():
    """Spec SD9: no tick is missed."""
    day = Day("abc", catchup="none")
    ids = [name.encode().hex() * 20 for name in "abc"]
    assert day.world.ask("a", "CLUSTER", "VOTERS", "INIT", *ids) == b"OK"
    day.run(3_000)
    while not (claiming := claimants(day)):
        day.world.run(1)
    day.world.crash(claiming[0])
    day.run(13_000)
    now_ms = next(iter(day.world.running())).broker.wall_ms
    assert day.ticks_missing(now_ms - 1_500) == []
    assert day.ticks_twice() == []


def test_nodes_that_try_a_late_tick_at_the_same_time_make_its_job():
    """Spec CL2, SD9: none of them keeps a grant that is not enough for it."""
    day = Day("abcde", catchup="none")
    ids = [name.encode().hex() * 20 for name in "abcde"]
    assert day.world.ask("a", "CLUSTER", "VOTERS", "INIT", *ids) == b"OK"
    day.run(3_000)
    for one, other in combinations("abcde", 2):
        day.world.cut(one, other)
    day.run(5_000)
    day.world.heal()
    day.run(10_000)
    assert day.ticks_missing(day.world["a"].wall_ms - 2_500) == []
    assert day.ticks_twice() == []


def claimants(day: Day) -> list[str]:
    """Return the nodes that have the claim of a tick, and have not made its job yet."""
    firings = [(machine.name, machine.broker.recurring.known[b"s"].firing) for machine in day.world.running()]
    return [name for name, each in firings if each is not None and each.fence and not each.reply]


def recorded(day: Day, name: str) -> int:
    """Return the ticks that a node has fired or heard of."""
    known: recurring.Schedule = day.world[name].recurring.known[b"s"]
    return known.progress.fired


def version(world: World, name: str) -> int:
    """Return the counter of the newest version of the schedule's fields on a node."""
    return world[name].queue_settings.states[state_key(SCHEDULE, b"s")].highest()


def test_a_node_that_is_not_linked_with_the_maker_of_a_definition_asks_others_for_it():
    """Otherwise it and the others would repeat progresses of two definitions without end (seed 13032). Spec SD5."""
    world = Day("abc").world
    world.run(1_500)
    world.cut("a", "c")
    world.run(10)
    assert world.ask("a", "SCHEDULE", "SET", "s", "EVERY", "1s", "QUEUE", "q") == b"OK"
    world.run(5_000)
    assert len({world[name].recurring.known[b"s"].definition.generation for name in "abc"}) == 1
    assert version(world, "c") < 60


def test_the_other_nodes_of_a_new_definition_write_no_progress_of_it():
    """They did, because the end of the former progress came first."""
    world = Day("ab").world
    world.run(2_500)
    assert world.ask("a", "SCHEDULE", "SET", "s", "EVERY", "1h", "QUEUE", "q") == b"OK"
    counter = version(world, "a")
    world.run(500)
    assert [version(world, name) for name in "ab"] == [counter] * 2


def ticks_of(world: World) -> dict[tuple[bytes, int], dict[bytes, None]]:
    """Return the ids of all queued jobs of schedules, by schedule and tick."""
    found: dict[tuple[bytes, int], dict[bytes, None]] = {}
    for machine in world.running():
        for shard in machine.broker.shards:
            for job in shard.values():
                if job.state != QUEUED:
                    continue  # Its ADDJOB may have failed, and then another node fires the tick.
                meta = dict(zip(job.meta[::2], job.meta[1::2], strict=True))
                found.setdefault((meta[b"x-disque-schedule"], int(meta[b"x-disque-tick"])), {})[job.id] = None
    return found


@pytest.mark.parametrize("catchup", ["none", "last", "all"])
def test_a_node_that_was_down_fires_no_tick_from_an_old_plan_of_many_schedules(catchup: str) -> None:
    """It hears of all progress in one turn, and plans only some of the schedules in a step."""
    world = World("")
    for name in "ab":
        world.add(name, journal="always")
    world.join()
    for number in range(83):
        words = ("EVERY", "60s", "CATCHUP", catchup, "QUEUE", "q", "REPLICATE", 1)
        assert world.ask("a", "SCHEDULE", "SET", f"s{number}", *words) == b"OK"
    world.run(2_000)
    world.crash("b")
    world.run(300_000)
    world.pause("a")
    world.restart("b")
    world.run(500)
    world.resume("a")
    world.run(10_000)
    found = ticks_of(world)
    assert found
    assert all(tick and tick % 60_000 == 0 and tick <= world["a"].wall_ms for _, tick in found)
    assert all(len(ids) == 1 for ids in found.values())


def test_a_tick_has_one_job_although_a_node_stood_still_for_longer_than_its_ttl() -> None:
    world = World("abc")
    world.join()
    for number in range(5):
        words = ("EVERY", "60s", "QUEUE", "q", "TTL", 30)
        assert world.ask("a", "SCHEDULE", "SET", f"s{number}", *words) == b"OK"
    world.run(60_000 - world["a"].wall_ms % 60_000 - 5_000)
    world.pause("b")
    found: dict[tuple[bytes, int], dict[bytes, None]] = {}
    for second in range(120):
        world.run(SECOND)
        if second == 100:
            world.resume("b")
        for tick, ids in ticks_of(world).items():
            found.setdefault(tick, {}).update(ids)
    assert found
    assert all(len(ids) == 1 for ids in found.values())


@pytest.mark.plain
def test_a_node_without_room_for_a_definition_does_not_repeat_its_progress_all_the_time() -> None:
    world = World("ab")
    world.join()
    words = ("EVERY", "1s", "QUEUE", "q")
    world.ask("a", "SCHEDULE", "SET", "s", *words)
    world.run(5_000)
    table = world["b"].queue_settings
    has_room = table.has_room
    table.has_room = lambda name, fields, size: size < 300 and has_room(name, fields, size)  # type: ignore[method-assign]
    world.ask("a", "SCHEDULE", "SET", "s", *words, "BODY", "x" * 300)
    world.run(3_000)
    before = world["a"].queue_settings.number
    world.run(10_000)
    assert world["a"].queue_settings.number - before < 100
