"""Random days in the life of a small cluster, from a seed: work, weather, then calm; and what must hold throughout.

Safety is checked while the weather lasts, liveness after it has cleared. Each kind of weather has a switch:

    faults      links break (and, `silence`, swallow what is sent for a while), and heal
    crashes     processes die and come back with an empty memory
    leaving     nodes drain, leave or change their minds; new ones join
    forgetting  dead nodes are forgotten for good, and come back by MEET, if at all
    jumps       wall clocks jump
    losses      messages vanish
    pauses      processes stop for a while (SIGSTOP)
    pressure    maxmemory is a few dozen jobs
    short       some jobs have a TTL of seconds

A day by hand: python tests/scenarios/weather.py 42 43 crashes leaving nodes=abcde
"""

from __future__ import annotations

import sys
import traceback
from random import Random
from typing import Any

from disque_py.core.client import WAITS_FOR_COPIES
from judge import Judge, all_jobs, check_books, check_once, check_rest, tell
from world import Talker, World

QUEUES = ("q", "r")
# Wall clock differences, and a TTL's share of the way (semantics.md, section 1: spans are counted from receipt).
JUMPS_MS = (-600_000, -5_000, 0, 5_000, 600_000)
TTL_SLACK_MS = 500
NAMES = "abcdefghijklmnopqrstuvwxyz"


class Day:
    """One seed: a world, its clients, its weather."""

    def __init__(
        self,
        seed: int,
        *,
        nodes: str = "abc",
        faults: bool = True,
        silence: bool = False,
        crashes: bool = False,
        leaving: bool = False,
        forgetting: bool = False,
        jumps: bool = False,
        losses: bool = False,
        pauses: bool = False,
        pressure: bool = False,
        short: bool = False,
    ) -> None:
        self.rng = Random(seed)
        settings: dict[str, Any] = {"cluster_node_timeout": 2_000}
        if pressure:
            settings["maxmemory"] = self.rng.choice((12_000, 25_000, 60_000))
        offsets_ms = {name: self.rng.randrange(1 << 40) for name in nodes} if jumps else None
        delay_ms = self.rng.choice((1, 1, 3, 10))
        self.world = World(nodes, seed, delay_ms=delay_ms, clock_offsets_ms=offsets_ms, **settings)
        self.judge = Judge()
        self.faults = faults
        self.silence = silence
        self.crashes = crashes
        self.leaving = leaving
        self.forgetting = forgetting
        self.jumps = jumps
        self.losses = losses
        self.pauses = pauses
        self.pressure = pressure
        self.short = short
        self.gone: set[str] = set()  # Nodes that left for good.
        self.numbers = 0
        self.once_lost = 0

    def play(self, steps: int = 150) -> None:
        """Work and weather, then calm, then the verdict."""
        world = self.world
        world.join()
        if self.losses:
            dice = Random(world.seed)
            share = self.rng.choice((0.01, 0.05, 0.2))
            world.drop = lambda *_: dice.random() < share
        for _ in range(steps):
            self.act()
            world.run(self.rng.choice((0, 1, 5, 20, 100, 400)))
            self.collect()
            self.check()
        self.calm()

    def check(self) -> None:
        """What must hold at any moment."""
        everywhere = []
        for name in self.up():
            jobs = all_jobs(self.world[name])
            check_books(self.world[name], jobs)
            everywhere += jobs
        check_once(everywhere)

    # -- work ------------------------------------------------------------------------------------

    def up(self) -> list[str]:
        """Nodes whose process lives, stopped ones included."""
        return [name for name, member in self.world.members.items() if member.is_up]

    def act(self) -> None:
        """One thing somebody does."""
        rng = self.rng
        name = rng.choice(self.up())
        deed = rng.random()
        if deed < 0.40:
            self.add(name)
        elif deed < 0.70:
            timeout_ms, count = rng.choice((50, 500, 3000)), rng.choice((1, 1, 5))
            self.world.client(name).say("GETJOB", "TIMEOUT", timeout_ms, "COUNT", count, "FROM", *QUEUES)
        elif deed < 0.80:
            ids = [job_id for job_id in self.judge.delivered if job_id not in self.judge.acked]
            if ids:
                self.world.client(name).say(rng.choice(("NACK", "WORKING", "ENQUEUE", "DEQUEUE")), rng.choice(ids))
        elif deed < 0.84:
            self.world.client(name).say("PAUSE", rng.choice(QUEUES), rng.choice(("in", "out", "none", "none")), "BCAST")
        else:
            self.weather()

    def add(self, name: str) -> None:
        """A producer."""
        rng = self.rng
        self.numbers += 1
        body = f"body {self.numbers}"
        retry = rng.choice((0, 1, 2, 5))
        is_short = self.short and rng.random() < 0.2
        ttl_s = rng.choice((4, 8, 15)) if is_short else 3600
        words: list[Any] = ["ADDJOB", rng.choice(QUEUES), body, rng.choice((0, 100, 1000))]
        words += ["RETRY", retry, "TTL", ttl_s]
        replicate = 1
        if retry:
            replicate = rng.choice((1, 2, 3))
            words += ["REPLICATE", replicate]
        if rng.random() < 0.15:
            words += ["DELAY", rng.choice((1, 2))]
        if rng.random() < 0.1:
            words.append("ASYNC")
            # A node that keeps no copy sends it once, best effort, and answers.
            replicate = 0 if self.leaving or self.pressure else 1
        talker = self.world.client(name)
        talker.wanted = {
            "retry": retry, "body": body.encode(), "node": name, "replicate": replicate, "is_short": is_short,
            "at_ms": self.world.now_ms, "dies_ms": self.world.now_ms + ttl_s * 1000 + TTL_SLACK_MS,
        }  # fmt: skip
        if self.pauses or self.silence:
            talker.wanted["dies_ms"] += 1 << 40  # Time in a stopped process or a stuck link is not counted.
        talker.say(*words)

    def collect(self) -> None:
        """Read what clients were answered; consumers acknowledge most of what they got."""
        for talker in list(self.world.talkers):
            got = self.read(talker)
            if got is not None:
                talker.hang_up()
                self.world.talkers.remove(talker)
                for job_id in got:
                    if self.rng.random() < 0.85:
                        self.acknowledge(self.world.client(self.rng.choice(self.up())), job_id)

    def read(self, talker: Talker) -> list[bytes] | None:
        """Take note of a client's replies: the jobs it got; None if there were none."""
        replies, talker.replies = talker.replies, []
        got = []
        for reply in replies:
            if isinstance(reply, bytes) and reply.startswith(b"D-"):
                self.judge.added[reply] = talker.wanted
            elif isinstance(reply, list):
                for _, job_id, body in reply:
                    self.judge.deliver(job_id, body, talker.replied_ms)
                    got.append(job_id)
            elif isinstance(reply, int) and "ack" in talker.wanted:
                self.judge.confirmed[talker.wanted["ack"]] = talker.replied_ms
            elif isinstance(reply, Exception):
                word = str(reply).split()[0]
                self.judge.errors[word] = self.judge.errors.get(word, 0) + 1
        return got if replies else None

    def acknowledge(self, talker: Talker, job_id: bytes) -> None:
        """ACKJOB."""
        self.judge.acked[job_id] = self.world.now_ms
        # A leaving node makes no dummy acks (README), and a lone one has nobody to tell.
        if talker.broker.cluster.linked and not talker.broker.is_leaving:
            talker.wanted = {"ack": job_id}
        talker.say("ACKJOB", job_id)

    # -- weather ---------------------------------------------------------------------------------

    def weather(self) -> None:
        """One thing that happens to the cluster."""
        rng = self.rng
        kinds = [self.storm, self.storm, self.storm] if self.faults else []
        kinds += [self.die_or_rise] * self.crashes + [self.move] * (2 * self.leaving) + [self.jump] * self.jumps
        kinds += [self.stop_or_go] * (2 * self.pauses)
        if kinds:
            rng.choice(kinds)()

    def storm(self) -> None:
        """Links break or heal."""
        rng, world = self.rng, self.world
        up = self.up()
        if rng.random() < 0.5:
            world.heal()
        elif len(up) > 1:
            left, right = rng.sample(up, 2)
            world.cut(left, right, both=rng.random() < 0.7, silently=self.silence and rng.random() < 0.5)

    def die_or_rise(self) -> None:
        """A process dies, or one that did comes back."""
        rng, world = self.rng, self.world
        dead = [name for name, member in world.members.items() if not member.is_up and name not in self.gone]
        up = self.up()
        if dead and rng.random() < 0.6:
            if self.forgetting and rng.random() < 0.4:
                self.forget(dead[0])
            else:
                self.rise(dead[0])
        elif len(up) > 2:
            self.kill(rng.choice(up))

    def rise(self, name: str) -> None:
        """A new process; it must be told who was forgotten meanwhile."""
        self.world.restart(name)
        self.tell_gone(name)

    def tell_gone(self, name: str) -> None:
        """CLUSTER FORGET of all that left."""
        for gone in sorted(self.gone):
            self.world.client(name).say("CLUSTER", "FORGET", (bytes([ord(gone)]) * 20).hex())

    def kill(self, name: str) -> None:
        """kill -9."""
        self.judge.deaths.append(self.world.now_ms)
        self.once_lost += self.world[name].stats.once_lost_in_handover
        self.world.crash(name)

    def forget(self, name: str) -> None:
        """The node is not coming back: CLUSTER FORGET on all others."""
        self.gone.add(name)
        for other in self.up():
            self.world.client(other).say("CLUSTER", "FORGET", self.world.members[name].node_id.hex())

    def is_leaving(self, name: str) -> bool:
        """It said so."""
        return self.world.members[name].is_up and self.world[name].is_leaving

    def move(self) -> None:
        """A node leaves, changes its mind, goes when it is empty; or a new one joins."""
        rng, world = self.rng, self.world
        up = self.up()
        leaving = [name for name in up if self.is_leaving(name)]
        empty = [name for name in leaving if not world[name].job_count and not world.members[name].is_paused]
        if empty:
            self.go(empty[0])
        elif leaving and rng.random() < 0.3:
            world.client(leaving[0]).say("CLUSTER", "LEAVING", "no")
        elif len(up) - len(leaving) > 2 and rng.random() < 0.7:
            # From now on it gives copies away, and where all others have the job already, it gives one up.
            self.judge.exits.append(world.now_ms)
            world.client(rng.choice([name for name in up if name not in leaving])).say("CLUSTER", "LEAVING", "yes")
        elif len(up) < 5:
            name = NAMES[len(world.members)]
            world.add(name)
            world.meet(name, rng.choice(up))

    def go(self, name: str) -> None:
        """It is empty: shut it down."""
        self.judge.exits.append(self.world.now_ms)
        self.once_lost += self.world[name].stats.once_lost_in_handover
        self.world.crash(name)
        self.forget(name)

    def jump(self) -> None:
        """Somebody sets a clock."""
        member = self.world.members[self.rng.choice(self.up())]
        member.wall_offset_ms = self.rng.choice(JUMPS_MS)

    def stop_or_go(self) -> None:
        """SIGSTOP and SIGCONT."""
        stopped = [name for name in self.up() if self.world.members[name].is_paused]
        if stopped and self.rng.random() < 0.6:
            self.world.resume(stopped[0])
        elif len(self.up()) - len(stopped) > 1:
            self.world.pause(self.rng.choice(self.up()))

    # -- calm ------------------------------------------------------------------------------------

    def calm(self) -> None:
        """All heals; consumers take what there is; what is acknowledged vanishes, all else is delivered."""
        world = self.world
        world.drop = None
        world.heal()
        for name, member in list(world.members.items()):
            if name in self.gone:
                del world.members[name]
            elif not member.is_up:
                world.restart(name)
            elif member.is_paused:
                world.resume(name)
        first, *others = world.members
        for name in world.members:
            self.tell_gone(name)
        for name in others:
            world.meet(first, name)  # One that joined may have met a node that died before it told anybody.
        world.until(world.is_meshed, 90_000)
        world.run(4_000)
        for talker in [talker for talker in world.talkers if talker.client.waiting == WAITS_FOR_COPIES]:
            talker.hang_up()  # It would wait for ever where the cluster has become too small.
        for name in world.members:
            for queue in QUEUES:
                world.client(name).say("PAUSE", queue, "none")
        self.drain()
        for _ in range(120):
            for name in world.members:
                world.client(name).say("GETJOB", "TIMEOUT", "400", "COUNT", "50", "FROM", *QUEUES)
            world.run(500)
            for talker in list(world.talkers):
                for job_id in self.read(talker) or ():
                    self.acknowledge(talker, job_id)
            if not any(self.left_on(name) for name in world.members):
                break
        self.judge_all()

    def drain(self) -> None:
        """Whoever is leaving can go now, if the others have room."""
        world = self.world
        leaving = [name for name in world.members if self.is_leaving(name)]
        if len(leaving) == len(world.members):
            return
        if not self.pressure:
            for name in leaving:
                try:
                    world.until(lambda name=name: not world[name].job_count, 30_000)
                except AssertionError:
                    left = [tell(world[name], job) for job in all_jobs(world[name])]
                    drain = world[name].drain
                    raise AssertionError(f"{name} does not drain: {drain and drain.blocked_by!r} {left}") from None
                self.collect()
                self.go(name)
                del world.members[name]
            world.run(1_000)

    def judge_all(self) -> None:
        """The verdict."""
        world, judge = self.world, self.judge
        left = [f"{name}: {tell(world[name], job)}" for name in world.members for job in self.left_on(name)]
        assert not left, f"jobs that never went: {left}"
        assert not (missing := judge.missing(retried=True)), f"never delivered: {missing}"
        self.once_lost += sum(world[name].stats.once_lost_in_handover for name in world.members)
        missing = judge.missing(retried=False)
        assert len(missing) <= self.once_lost, f"at-most-once jobs lost without being counted: {missing}"
        self.check()
        world.run(3_000)
        check_rest([world[name] for name in world.members])

    def left_on(self, name: str) -> list[Any]:
        """Jobs that should go; a delivered at-most-once job that nobody acknowledges stays until its TTL."""
        return [job for job in all_jobs(self.world[name]) if job.retry_ms or not job.is_delivered]


def main(words: list[str]) -> int:
    """Days first … last - 1, with the switches named."""
    first, last = int(words[0]), int(words[1])
    switches: dict[str, Any] = {}
    for word in words[2:]:
        name, _, value = word.partition("=")
        switches[name] = value if name == "nodes" else value != "no"
    failed = after_ack = acked = 0
    for seed in range(first, last):
        day = Day(seed, **switches)
        try:
            day.play()
        except Exception as error:
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:600]}", flush=True)
            if failed <= 3:
                traceback.print_exc(limit=-5)
        after_ack += day.judge.after_ack
        acked += len(day.judge.acked)
    print(f"{last - first} days, {failed} failed; {after_ack} deliveries after an answered ACKJOB, of {acked} jobs")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
