"""Caps in a cluster: rates and running leases stay within their bounds, and the work goes on (spec CP1 to CP5)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from cluster_bus.messages import CAP_GRANT, CAP_SETTLE
from disque_py.core.caps import Caps, Window
from world import Talker, World


class Worker(Talker):
    """A client that repeatedly takes a job, works for a while and acknowledges it."""

    def __init__(self, crew: Crew, node: str, work_ms: int) -> None:
        super().__init__(crew.world)
        self.crew = crew
        self.node = node
        self.work_ms = work_ms
        self.is_over = False

    def begin(self) -> None:
        if not self.is_over and self.crew.world.machines[self.node].is_up:
            self.say("GETJOB", "TIMEOUT", 500, "WITHMETA", "FROM", "q")

    def on_reply(self, reply: Any) -> None:
        if type(reply) is int or reply is None:
            self.begin()
            return
        assert not isinstance(reply, Exception), reply
        job_id = reply[0][1]
        pairs = reply[0][4]
        value = pairs[1] if pairs else b""
        self.crew.note_delivery(job_id, value, self)
        self.world.later(self.work_ms, self.end, job_id)

    def end(self, job_id: bytes) -> None:
        if not self.is_over:
            self.crew.ended(job_id)
            self.say("ACKJOB", job_id)


class Crew:
    """A cluster with a capped queue. It notes each delivery, and the most simultaneous deliveries per value."""

    def __init__(self, names: str = "abc", seed: int = 1, **settings: Any) -> None:
        self.world = World(names, seed=seed, **settings)
        if len(names) > 1:
            self.world.join()
        self.names = names
        self.taken: list[tuple[int, bytes]] = []
        self.running: dict[bytes, bytes] = {}
        self.most: dict[bytes, int] = {}
        self.workers: list[Worker] = []

    def cap(self, *words: str | int) -> None:
        assert self.world.ask(self.names[0], "QUEUE", "SET", "q", *words) == b"OK"
        self.world.run(1_000)

    def add(self, count: int, value: str = "", node: str = "", retry: int = 60) -> None:
        meta = ("META", "user", value) if value else ()
        for number in range(count):
            where = node or self.names[number % len(self.names)]
            assert isinstance(
                self.world.ask(where, "ADDJOB", "q", "b", 0, "RETRY", retry, "REPLICATE", 1, *meta), bytes
            )

    def work(self, node: str, count: int = 1, work_ms: int = 0) -> None:
        for _ in range(count):
            worker = Worker(self, node, work_ms)
            self.workers.append(worker)
            self.world.connect(self.world.machines[node], worker)
            worker.begin()

    def note_delivery(self, job_id: bytes, value: bytes, worker: Worker) -> None:
        self.taken.append((self.world.now_ms, value))
        self.running[job_id] = value
        running = sum(1 for each in self.running.values() if each == value)
        self.most[value] = max(self.most.get(value, 0), running)

    def ended(self, job_id: bytes) -> None:
        self.running.pop(job_id, None)

    def count(self, value: bytes = b"") -> int:
        return sum(1 for _, each in self.taken if each == value)

    def highest(self, span_ms: int, value: bytes = b"") -> int:
        """Return the most deliveries in any span of this length."""
        moments = [at for at, each in self.taken if each == value]
        return max((sum(1 for at in moments if start <= at < start + span_ms) for start in moments), default=0)


@pytest.mark.parametrize("names", ["a", "abc"])
def test_a_rate_is_kept_and_used(names):
    """Spec CP1: at most n x (T / time + 1) deliveries in T; at least 0.8 n per time while work waits."""
    crew = Crew(names)
    crew.cap("rate", "10/1s")
    crew.add(200)
    for name in names:
        crew.work(name, 3)
    crew.world.run(10_000)
    assert 80 <= crew.count() <= 110
    for span_ms in (100, 1_000, 2_500):
        assert crew.highest(span_ms) <= 10 * (span_ms / 1_000 + 1)


@pytest.mark.parametrize("place", ["a", "c"])
def test_one_node_may_use_the_whole_rate(place):
    """Spec CP1, CP4: the consumers may all be at one node."""
    crew = Crew("abc")
    crew.cap("rate", "10/1s")
    crew.add(150)
    crew.work(place, 5)
    crew.world.run(10_000)
    assert 80 <= crew.count() <= 110


def test_the_slots_of_a_long_rate_are_free_in_time_although_nodes_restart():
    """Spec CP1: nodes tell a node that restarts of old deliveries. These do not count as new ones."""
    crew = Crew("abc", cluster_node_timeout=1_000)
    world = crew.world
    crew.cap("rate", "2/100s")
    crew.add(2, node="b")
    for _ in range(2):
        assert world.ask("b", "GETJOB", "FROM", "q")
    for _ in range(2):
        for name in "abc":
            world.crash(name)
            world.run(3_000)
            world.restart(name)
            world.run(5_000)
        crew.add(1, node="b")
        assert world.ask("b", "GETJOB", "TIMEOUT", 2_000, "FROM", "q") is None
        world.run(22_000)
    world.run(10_000)
    crew.add(1, node="b")
    assert world.ask("b", "GETJOB", "TIMEOUT", 2_000, "FROM", "q")


@pytest.mark.parametrize("way", ["links", "restarts"])
def test_deliveries_of_a_rate_count_once_although_nodes_hear_of_them_again(way):
    """Spec CP1."""
    crew = Crew("abc", cluster_node_timeout=1_000)
    world = crew.world
    crew.cap("rate", "50/100s")
    crew.add(10, node="b")
    for _ in range(10):
        assert world.ask("b", "GETJOB", "FROM", "q")
        world.run(1_700)
    for name in "bcb":
        if way == "links":
            world.cut("a", name)
        else:
            world.crash(name)
        world.run(3_000)
        if way == "links":
            world.heal()
        else:
            world.restart(name)
        world.run(3_000)
    for name in "abc":
        assert world[name].caps.rate_used(b"q", world[name].now_ms) == 10


@pytest.mark.parametrize("names", ["a", "abc"])
def test_running_leases_stay_below_their_cap(names):
    """Spec CP1: a free slot is used immediately."""
    crew = Crew(names)
    crew.cap("max-running", 3)
    crew.add(120)
    for name in names:
        crew.work(name, 4, work_ms=100)
    crew.world.run(2_000)
    assert crew.most == {b"": 3}
    assert crew.count() >= 50


def test_a_value_at_its_cap_holds_back_no_other():
    """Spec CP3: its jobs are pending, and are passed by."""
    crew = Crew("abc")
    crew.cap("max-running", 1, "max-running-by", "user")
    crew.add(30, "ann")
    crew.add(3, "bob")
    for name in "abc":
        crew.work(name, 2, work_ms=1_000)
    crew.world.run(900)
    assert [crew.most[b"ann"], crew.most[b"bob"]] == [1, 1]
    assert crew.world.ask("a", "QLEN", "q", "CLUSTER") == 31
    crew.world.run(3_200)
    assert 4 <= crew.count(b"ann") <= 5
    assert crew.count(b"bob") == 3
    assert [crew.most[b"ann"], crew.most[b"bob"]] == [1, 1]


def test_both_caps_hold_by_different_names():
    """Spec CP1: jobs without the name are one value."""
    crew = Crew("abc")
    crew.cap("rate", "5/1s", "max-running", 1, "max-running-by", "user")
    for user in ("ann", "bob", ""):
        crew.add(30, user)
    crew.work("b", 6, work_ms=50)
    crew.world.run(4_000)
    assert set(crew.most.values()) == {1}
    moments = [at for at, _ in crew.taken]
    assert max(sum(1 for at in moments if start <= at < start + 1_000) for start in moments) <= 10
    assert len(moments) >= 16


def test_a_poll_without_waiting_gets_its_job():
    """GETJOB NOHANG waits for the answer of the coordinator. Spec CP4."""
    crew = Crew("abc")
    crew.cap("max-running", 1)
    crew.add(3, node="c")
    for _ in range(3):
        found = crew.world.ask("c", "GETJOB", "NOHANG", "FROM", "q")
        assert found is not None
        assert crew.world.ask("c", "GETJOB", "NOHANG", "FROM", "q") is None
        assert crew.world.ask("c", "ACKJOB", found[0][1]) == 1
        crew.world.run(20)


def test_at_most_once_jobs_count_for_the_rate_only():
    """Spec CP1."""
    crew = Crew("a")
    crew.cap("rate", "4/10s", "max-running", 1)
    crew.add(6, retry=0)
    found = [crew.world.ask("a", "GETJOB", "NOHANG", "FROM", "q") for _ in range(6)]
    assert [each is not None for each in found] == [True] * 4 + [False] * 2


@pytest.mark.parametrize("way", ["NACK", "CANCELJOB", "lease"])
def test_a_lease_that_ends_frees_its_slot(way):
    """Spec CP1: by NACK, by CANCELJOB, or by its time."""
    crew = Crew("ab")
    crew.cap("max-running", 1)
    crew.add(2, node="b", retry=2)
    first = crew.world.ask("b", "GETJOB", "FROM", "q")[0][1]
    assert crew.world.ask("b", "GETJOB", "NOHANG", "FROM", "q") is None
    if way != "lease":
        crew.world.ask("b", way, first)
    crew.world.run(3_000 if way == "lease" else 300)
    assert crew.world.ask("b", "GETJOB", "NOHANG", "FROM", "q") is not None


@pytest.mark.parametrize("command", ["WORKING", "EXTENDTOKEN"])
def test_an_extended_lease_of_a_node_that_crashed_keeps_its_slot(command):
    """Spec CP5: until it ends."""
    crew = Crew("abc", cluster_node_timeout=1_000)
    world = crew.world
    crew.cap("max-running", 1)
    crew.add(1, node="b", retry=5)
    ((_, job_id, _),) = world.ask("b", "GETJOB", "TOKEN", "t", "FROM", "q")
    world.ask("b", command, "t" if command == "EXTENDTOKEN" else job_id, 60)
    world.ask("a", "ADDJOB", "q", "other", 0, "REPLICATE", 1)
    world.run(100)
    world.crash("b")
    world.run(10_000)
    assert world.ask("a", "GETJOB", "TIMEOUT", 2_000, "FROM", "q") is None


@pytest.mark.parametrize("options", [(), ("DELAY", 60), ("FINAL",)])
def test_a_nack_at_another_node_frees_the_slot_at_once(options):
    """Spec CP1: the delivering node does not wait until it checks the lease."""
    crew = Crew("ab")
    crew.cap("max-running", 1)
    world = crew.world
    for _ in range(2):
        world.ask("a", "ADDJOB", "q", "x", 0, "RETRY", 600, "REPLICATE", 2)
    ((_, job_id, _),) = world.ask("a", "GETJOB", "FROM", "q")
    world.run(500)
    assert world.ask("b", "NACK", job_id, *options) == 1
    world.run(3)
    assert not world["a"].caps.running


def test_a_lease_that_is_extended_at_another_node_keeps_its_slot():
    """Spec CP1: the delivering node counts it no longer."""
    crew = Crew("ab")
    crew.cap("max-running", 1)
    world = crew.world
    for _ in range(2):
        world.ask("a", "ADDJOB", "q", "x", 0, "RETRY", 10, "REPLICATE", 2)
    ((_, job_id, _),) = world.ask("a", "GETJOB", "COUNT", 2, "FROM", "q")
    assert world.ask("b", "WORKING", job_id) == 10
    world.run(1_000)
    for name in "ab":
        assert world.ask(name, "GETJOB", "NOHANG", "FROM", "q") is None
    world.ask("b", "ACKJOB", job_id)
    assert len(world.ask("a", "GETJOB", "TIMEOUT", 2_000, "FROM", "q")) == 1


def test_a_lease_of_before_counts():
    """Spec CP2: a cap that is set counts the leases that run already, and ends none."""
    crew = Crew("ab")
    crew.add(3, node="b")
    crew.world.ask("b", "GETJOB", "FROM", "q")
    crew.cap("max-running", 1)
    assert crew.world.ask("b", "GETJOB", "NOHANG", "FROM", "q") is None
    crew.cap("max-running", "none")
    assert crew.world.ask("b", "GETJOB", "NOHANG", "FROM", "q") is not None


@pytest.mark.parametrize("other", [(), ("max-running", 1)], ids=["alone", "beside another capped queue"])
def test_a_cap_that_is_removed_and_set_again_has_all_slots(other):
    """Spec CP2: the lease ends while there is no cap."""
    crew = Crew("abc")
    world = crew.world
    if other:
        world.ask("a", "QUEUE", "SET", "other", *other)
    crew.cap("max-running", 1)
    crew.add(2, node="b", retry=3600)
    ((_, job_id, _),) = world.ask("b", "GETJOB", "FROM", "q")
    world.run(500)
    crew.cap("max-running", "none")
    assert world.ask("b", "ACKJOB", job_id) == 1
    world.run(500)
    crew.cap("max-running", 1)
    assert world.ask("b", "GETJOB", "TIMEOUT", 5_000, "FROM", "q")


def test_a_cap_of_a_node_with_a_slow_disk_includes_its_leases():
    """Spec CP2: the node tells of its leases before the other nodes know of the cap."""
    crew = Crew("abc")
    world = crew.world
    world.ask("a", "QUEUE", "SET", "other", "max-running", 1)
    world.run(1_500)
    crew.add(3, node="b", retry=3600)
    assert world.ask("b", "GETJOB", "FROM", "q")
    host = world["b"].host
    write = host.write_queue_settings
    host.write_queue_settings = lambda *words: world.later(300, write, *words)
    assert world.ask("b", "QUEUE", "SET", "q", "max-running", 1) == b"OK"
    world.run(3_000)
    assert world.ask("b", "GETJOB", "TIMEOUT", 2_000, "FROM", "q") is None


def test_jobs_that_were_held_back_go_when_the_cap_does():
    """Spec CP2."""
    crew = Crew("ab")
    crew.cap("rate", "1/10s", "rate-by", "user")
    crew.add(5, "ann", node="b")
    crew.work("b", 2)
    crew.world.run(500)
    assert crew.count(b"ann") == 1
    crew.cap("rate", 0)
    assert crew.count(b"ann") == 5


def test_the_part_of_a_minority_is_rounded_down():
    """Spec CP5: two of three nodes may use all, the third one its part."""
    crew = Crew("abc", cluster_node_timeout=1_000)
    crew.cap("max-running", 4)
    crew.add(30)
    crew.world.cut("a", "b")
    crew.world.cut("a", "c")
    crew.world.run(4_000)
    crew.work("a", 5, work_ms=60_000)
    crew.work("c", 5, work_ms=60_000)
    crew.world.run(2_000)
    by_node = [sum(1 for worker in crew.workers if worker.node == name) for name in "ac"]
    assert by_node == [5, 5]
    assert len(crew.taken) == 5


def test_a_crashed_node_keeps_its_leases_until_they_end():
    """Spec CP5."""
    crew = Crew("abc", cluster_node_timeout=1_000)
    crew.cap("max-running", 2)
    crew.add(4, node="a", retry=5)
    crew.add(4, node="b", retry=5)
    assert crew.world.ask("a", "GETJOB", "FROM", "q")
    assert crew.world.ask("a", "GETJOB", "FROM", "q")
    crew.world.crash("a")
    crew.work("b", 3, work_ms=60_000)
    crew.world.run(3_000)
    assert len(crew.taken) == 0
    crew.world.run(4_000)
    assert len(crew.taken) == 2


@pytest.mark.parametrize("has_cap", [True, False], ids=["with a cap", "before the cap"])
def test_a_coordinator_that_lost_its_link_to_a_follower_hears_of_it_again(has_cap):
    """Spec CP4: the follower's own link may have held. Without its followers a node gives out only a part."""
    crew = Crew("ab", cluster_node_timeout=1_000)
    first, second = crew.world.machines["a"], crew.world.machines["b"]
    crew.cap("max-running", 1)
    if not has_cap:
        crew.world.ask("a", "QUEUE", "UNSET", "q", "max-running")
        crew.world.run(1_000)
    crew.world.cut("a", "b", both=False)
    crew.world.run(100)
    crew.world.heal()
    crew.world.run(3_000)
    if not has_cap:
        crew.cap("max-running", 1)
    assert list(first.broker.caps.followers) == [first.broker.cluster.find(second.node_id)]
    crew.add(3, node="b", retry=60)
    crew.work("b", 1, work_ms=10)
    crew.world.run(2_000)
    assert len(crew.taken) == 3


def test_a_node_without_a_link_from_the_coordinator_gets_its_slots_later():
    """Spec CP4: a grant would be lost on its way, and its slot would never be free again."""
    crew = Crew("ab", cluster_node_timeout=10_000)
    crew.world.cut("a", "b", both=False)
    crew.world.run(100)
    assert crew.world.ask("b", "QUEUE", "SET", "q", "max-running", 1) == b"OK"
    crew.add(3, node="b")
    crew.work("b", 1, work_ms=10)
    crew.world.run(1_500)
    crew.world.heal()
    crew.world.run(4_000)
    assert len(crew.taken) == 3
    assert not crew.world["a"].caps.given


def test_a_node_counts_a_follower_only_while_it_has_a_link_to_it():
    """Spec CP4, CP5: the other node can't say that it follows no longer, and gives out its own part."""
    crew = Crew("ab", cluster_node_timeout=1_000)
    crew.world.cut("a", "b", both=False)
    crew.world.run(100)
    assert crew.world.ask("b", "QUEUE", "SET", "q", "max-running", 4) == b"OK"
    crew.add(10, node="a")
    crew.add(10, node="b")
    crew.world.run(3_000)
    for name in "ab":
        crew.work(name, 5, work_ms=60_000)
    crew.world.run(2_000)
    assert len(crew.taken) == 4


def test_a_lease_that_ends_while_its_node_has_no_link_to_the_coordinator_frees_its_slot():
    """Spec CP4."""
    crew = Crew("abc", cluster_node_timeout=1_000)
    world = crew.world
    crew.cap("max-running", 1)
    crew.add(2, node="b", retry=3600)
    ((_, job_id, _),) = world.ask("b", "GETJOB", "FROM", "q")
    world.run(500)
    world.cut("a", "b")
    world.run(3_000)
    assert world.ask("b", "ACKJOB", job_id) == 1
    world.run(1_000)
    world.heal()
    world.run(5_000)
    assert world.ask("b", "GETJOB", "TIMEOUT", 5_000, "FROM", "q")


def test_the_slot_of_a_grant_that_was_lost_with_its_link_is_free_again():
    """Spec CP4: the node that gave it out counts it as used until it hears that it is not."""
    crew = Crew("abc", cluster_node_timeout=1_000)
    world = crew.world
    crew.cap("max-running", 1)
    crew.add(2, node="b", retry=3600)
    world.drop = lambda sender, receiver, kind, item: kind == CAP_GRANT
    world.client("b").say("GETJOB", "TIMEOUT", 2_000, "FROM", "q")
    world.run(20)
    world.cut("a", "b")
    world.run(4_000)
    world.drop = None
    world.heal()
    world.run(5_000)
    assert world.ask("b", "GETJOB", "TIMEOUT", 5_000, "FROM", "q")


def test_a_coordinator_that_is_followed_again_has_all_slots():
    """Spec CP4: it gave slots to a node that then followed another one, and so never heard how they were used."""
    crew = Crew("abc", cluster_node_timeout=1_000)
    world = crew.world
    crew.cap("max-running", 1)
    crew.add(3, node="c", retry=3600)
    world.crash("a")
    world.run(4_000)
    world.drop = lambda sender, receiver, kind, item: kind == CAP_SETTLE and sender == "c"
    ((_, job_id, _),) = world.ask("c", "GETJOB", "FROM", "q")
    world.restart("a")
    world.run(3_000)
    world.drop = None
    assert world.ask("c", "ACKJOB", job_id) == 1
    world.crash("a")
    world.run(5_000)
    assert world.ask("c", "GETJOB", "TIMEOUT", 5_000, "FROM", "q")


@pytest.mark.parametrize("seed", range(4))
def test_random_operations_keep_all_invariants(seed):
    """Spec CP1, CP5: nodes restart. A cap is kept while all are linked, and all work is done in the end."""
    rng = Random(seed)
    crew = Crew("abcd", seed=seed, cluster_node_timeout=1_000)
    crew.cap("max-running", 3, "rate", "40/1s")
    crew.add(120, node="b", retry=5)
    for name in "abcd":
        crew.work(name, 2, work_ms=rng.choice((0, 20, 100)))
    for _ in range(3):
        crew.world.run(rng.randint(200, 1_500))
        name = rng.choice("acd")
        crew.world.crash(name)
        gone = [worker for worker in crew.workers if worker.node == name]
        crew.workers = [worker for worker in crew.workers if worker.node != name]
        for worker in gone:
            worker.is_over = True
        crew.world.run(rng.randint(10, 3_000))
        crew.world.restart(name)
        crew.world.run(500)
        crew.work(name, 2, work_ms=20)
    crew.world.run(20_000)
    assert len(crew.taken) >= 100
    moments = [at for at, _ in crew.taken]
    assert max(sum(1 for at in moments if start <= at < start + 1_000) for start in moments) <= 80


@pytest.mark.plain
@pytest.mark.parametrize(
    ("owner", "name", "words"),
    [(Caps, "used", ("max-running", 3)), (Window, "used", ("rate", "10/1s"))],
    ids=["running leases are not counted", "deliveries are not counted"],
)
def test_a_deliberate_defect_breaks_the_bound(monkeypatch, owner, name, words):
    """This shows that the checks above can fail."""
    monkeypatch.setattr(owner, name, lambda *words: 0)
    crew = Crew("abc")
    crew.cap(*words)
    crew.add(60)
    for node in "abc":
        crew.work(node, 4, work_ms=100)
    crew.world.run(2_000)
    assert crew.most[b""] > 3
    assert crew.highest(1_000) > 20


@pytest.mark.parametrize("words", [("TIMEOUT", 5_000), ("NOHANG",)], ids=["wait", "poll"])
@pytest.mark.parametrize("where", ["FROM", "FROMMATCH"])
def test_a_filter_finds_a_value_with_slots_behind_very_many_jobs_of_one_without(where, words):
    """Spec CP3, EX8: the next turns look at the jobs that one turn can't."""
    world = World("a")
    world.ask("a", "QUEUE", "SET", "q", "max-running", 1, "max-running-by", "user")
    world.run(1_000)
    meta = ("META", "kind", "video", "META", "user")
    for _ in range(2_100):
        world.ask("a", "ADDJOB", "q", "x", 0, "RETRY", 600, *meta, "ann")
    bob = world.ask("a", "ADDJOB", "q", "x", 0, "RETRY", 600, *meta, "bob")
    assert world.ask("a", "GETJOB", "FROM", "q")
    reply = world.ask("a", "GETJOB", *words, "WHERE", "kind", "video", where, "q")
    assert [each[1] for each in reply or ()] == [bob]
    began = world.now_ms
    assert world.ask("a", "GETJOB", "NOHANG", "WHERE", "kind", "video", where, "q") is None
    assert world.now_ms - began < 200
