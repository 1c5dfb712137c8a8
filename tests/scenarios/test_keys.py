"""Random days with keys: while all nodes are linked, a key never has two jobs. In any case callers get answers, and no
state is left over. The messages of nodes are in keys.txt."""

from __future__ import annotations

from random import Random

import pytest

KEYS = [f"k{number}" for number in range(6)]
TIMEOUTS_MS = (0, 5, 20, 60, 500)


class Day:
    """Clients that add with keys, get and acknowledge, on nodes that sometimes take no copies."""

    def __init__(self, make, seed, names="abcd", **settings):
        self.rng = Random(seed)
        self.world = make(names, seed=seed, **settings)
        self.world.traffic.delay_ms = (1, self.rng.choice((1, 4, 25)))
        self.names = names
        self.down = set()
        self.callers = []

    def node(self):
        return self.rng.choice([name for name in self.names if name not in self.down])

    def add(self):
        rng = self.rng
        replicate = rng.randint(1, 3)
        node = self.node()
        talker = self.world.client(node)
        key = rng.choice(KEYS)
        words = ("REPLICATE", replicate, "RETRY", 0 if replicate == 1 and rng.random() < 0.2 else 300)
        more = rng.choice(((), (), ("DELAY", 1), ("PRIORITY", 5), ("ASYNC",)))
        talker.say("ADDJOB", "q", key, rng.choice(TIMEOUTS_MS), *words, *more, "KEY", key)
        self.callers.append((key, talker, node))

    def consume(self):
        node = self.node()
        for _, job_id, _ in self.world.ask(node, "GETJOB", "NOHANG", "COUNT", 3, "FROM", "q") or []:
            self.world.ask(self.node(), "ACKJOB", job_id)

    def refuse(self):
        node = self.rng.choice(self.names)
        self.world.ask(node, "PAUSE", "q", "in")
        self.world.later(self.rng.randint(1, 100), lambda: self.world.client(node).say("PAUSE", "q", "none"))

    def hang_up(self):
        if self.callers:
            self.callers.pop(self.rng.randrange(len(self.callers)))[1].hang_up()

    def crash(self):
        """Restart a node without a journal: its memory and its waiting clients are lost."""
        if not self.down:
            node = self.node()
            self.down.add(node)
            self.callers = [caller for caller in self.callers if caller[2] != node]
            self.world.crash(node)
            self.world.later(self.rng.randint(100, 5_000), self.restart, node)

    def restart(self, node):
        self.down.discard(node)
        self.world.restart(node)

    def cut(self):
        one, other = self.rng.sample(self.names, 2)
        self.world.cut(one, other)
        self.world.later(self.rng.randint(1, 3_000), self.world.heal)

    def run(self, deeds, count):
        for _ in range(count):
            getattr(self, self.rng.choice(deeds))()
            self.world.run(self.rng.choice((0, 1, 3, 30)))
        self.world.heal()
        self.world.run(6_000)
        for node in self.names:
            self.world.ask(node, "PAUSE", "q", "none")
        self.world.run(10_000)

    def ids(self):
        """Return the ids in replies to callers, by key."""
        found = {key: set() for key in KEYS}
        for key, talker, _ in self.callers:
            assert len(talker.replies) == 1, f"a caller of {key} was not answered"
            if isinstance(talker.replies[0], bytes):
                found[key].add(talker.replies[0])
            else:
                assert str(talker.replies[0]).startswith(("NOREPL", "PAUSED", "UNREACHABLE")), talker.replies
        return found

    def check_rest(self):
        for node in self.names:
            broker = self.world[node]
            assert not broker.producers.searches
            assert not broker.producers.outcome_waits
            assert broker.waits.blocked_count == 0


@pytest.mark.parametrize("seed", range(12))
def test_one_job_per_key_while_all_nodes_are_linked(make, seed):
    day = Day(make, seed)
    day.run(("add", "add", "add", "add", "consume", "refuse", "hang_up"), 120)
    told = day.ids()
    assert all(len(ids) <= 1 for ids in told.values())
    assert any(told.values())
    day.check_rest()
    for key, ids in told.items():
        for node in day.names:
            again = day.world.ask(node, "ADDJOB", "q", key, 0, "KEY", key)
            assert ids in ({again}, set())
            ids.add(again)


@pytest.mark.parametrize("seed", range(12))
def test_callers_are_answered_whatever_breaks(make, seed):
    """With faults, a key may have two jobs, one per side. No client waits for ever, and there is no third job."""
    day = Day(make, 100 + seed)
    day.run(("add", "add", "add", "consume", "cut", "crash", "hang_up"), 80)
    told = day.ids()
    day.check_rest()
    brokers = [day.world[node] for node in day.names]
    used = {job_id for broker in brokers for ids in broker.producers.keys.jobs.values() for job_id in ids}
    for key in KEYS:
        if told[key]:
            assert {day.world.ask(node, "ADDJOB", "q", key, 0, "KEY", key) for node in day.names} <= used
