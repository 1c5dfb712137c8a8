"""Order across nodes: better jobs of other nodes come before worse ones (spec F6, F7, F8)."""

from __future__ import annotations

from world import World, joined

WORSE_MAX = 64


def add(world: World, node: str, *words: str | int) -> bytes:
    reply = world.ask(node, "ADDJOB", "q", "x", 0, "REPLICATE", 1, *words)
    assert isinstance(reply, bytes)
    return reply


class Fetching:
    """A consumer that fetches from one node every `every_ms`. `got` has the ids of its jobs."""

    def __init__(self, world: World, node: str, every_ms: int, *words: str | int) -> None:
        self.world = world
        self.every_ms = every_ms
        self.words = words
        self.client = world.client(node)
        self.got: list[bytes] = []
        self.asked = self.heard = 0

    def run(self, span_ms: int) -> None:
        for _ in range(span_ms // self.every_ms):
            self.step()
            self.world.run(self.every_ms)

    def step(self) -> None:
        for reply in self.client.replies[self.heard :]:
            self.got += [entry[1] for entry in reply or ()]
        self.heard = len(self.client.replies)
        if self.heard == self.asked:
            self.asked += 1
            self.client.say("GETJOB", *(self.words or ("NOHANG",)), "FROM", "q")


def test_an_urgent_job_elsewhere_is_delivered_before_the_jobs_here() -> None:
    world = joined("ab")
    for _ in range(1_000):
        add(world, "b", "PRIORITY", 5)
    consumer = Fetching(world, "b", 10)
    consumer.run(1_000)
    urgent = add(world, "a", "PRIORITY", 1)
    consumer.run(400)
    assert urgent in consumer.got
    assert len(consumer.got) < 1_000


def test_at_most_64_worse_jobs_come_before_a_better_one_elsewhere() -> None:
    world = joined("ab", delay_ms=20)
    for _ in range(3_000):
        add(world, "b", "PRIORITY", 5)
    better = [add(world, "a", "PRIORITY", 1) for _ in range(500)]
    consumer = Fetching(world, "b", 1)
    consumer.run(3_500)
    at = max(consumer.got.index(job) for job in better)
    worse = [job for job in consumer.got[:at] if job not in set(better)]
    first = next(number for number, job in enumerate(consumer.got) if job in set(better))
    assert len(worse) - first <= WORSE_MAX


def test_consumers_that_have_just_begun_overtake_no_more() -> None:
    """A fast consumer begins on a node with worse jobs. Other nodes learn of it after a few of them."""
    world = joined("ab")
    for _ in range(1_000):
        add(world, "b", "PRIORITY", 5)
    better = [add(world, "a", "PRIORITY", 1) for _ in range(100)]
    world.run(2_000)
    consumer = Fetching(world, "b", 1)
    consumer.run(1_000)
    at = max(consumer.got.index(job) for job in better)
    assert len([job for job in consumer.got[:at] if job not in set(better)]) <= WORSE_MAX


def test_a_large_count_brings_no_more_worse_jobs() -> None:
    world = joined("ab", delay_ms=20)
    for _ in range(2_000):
        add(world, "b", "PRIORITY", 5)
    consumer = Fetching(world, "b", 100, "COUNT", 1)
    consumer.run(1_000)
    better = add(world, "a", "PRIORITY", 1)
    world.run(1_000)
    many = Fetching(world, "b", 10, "COUNT", 1_000)
    many.run(100)
    assert better in many.got
    assert many.got.index(better) <= WORSE_MAX


def test_old_jobs_elsewhere_come_before_young_ones_here() -> None:
    world = joined("ab")
    old = [add(world, "a") for _ in range(50)]
    world.run(5_000)
    for _ in range(1_000):
        add(world, "b")
    consumer = Fetching(world, "b", 5)
    consumer.run(3_000)
    assert set(old) <= set(consumer.got)


def test_a_node_that_does_not_answer_holds_jobs_back_for_a_second_only() -> None:
    world = joined("ab")
    for _ in range(2_000):
        add(world, "b", "PRIORITY", 5)
    consumer = Fetching(world, "b", 1)
    consumer.run(500)
    add(world, "a", "PRIORITY", 1)
    world.drop = lambda sender, receiver, kind, item: kind == 43
    consumer.run(1_500)
    assert len(consumer.got) > 600


def test_equal_backlogs_cost_few_messages() -> None:
    world = joined("ab")
    for _ in range(600):
        add(world, "a")
        add(world, "b")
    world.run(2_000)
    before = sum(machine.count("messages_received") for machine in world.machines.values())
    consumers = [Fetching(world, name, 4) for name in "ab"]
    for _ in range(400):
        for consumer in consumers:
            consumer.step()
        world.run(4)
    sent = sum(machine.count("messages_received") for machine in world.machines.values()) - before
    got = sum(len(consumer.got) for consumer in consumers)
    leased = 0
    assert got > 700
    print("messages per job", sent / got, leased)
    assert sent < got / 2


def test_a_queue_whose_jobs_are_fetched_at_once_costs_nothing() -> None:
    world = joined("ab")
    consumers = [Fetching(world, name, 4) for name in "ab"]
    sent = {"a": 0, "b": 0}
    told: list[int] = []
    world.drop = lambda sender, receiver, kind, item: bool(told.append(kind)) if kind in (43, 47, 48) else False
    for _ in range(500):
        for name in sent:
            add(world, name)
        for consumer in consumers:
            consumer.step()
        world.run(4)
    print("federation messages per job", len(told) / 1000)
    assert len(told) < 100
