"""The cost of commands in the broker itself: no process, no socket, CPU time of this one.

Commands go in as bytes and come out as replies, a hundred at a time as in a pipeline. So parsing, the core and encoding
are included, but the event loop and the system are not. The path with copies runs over three brokers, and each message
is encoded and decoded as on the bus. Every round is divided by a calibration run right before it (machine.py). Compare
versions by the median of these ratios, as `--against` does.
"""

from __future__ import annotations

import gc
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Any

import hiredis

sys.path.append(str(Path(__file__).resolve().parents[2]))  # For the packages, if they are not installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scenarios"))  # For world.py.

from cluster_bus.codec import Decoder
from cluster_bus.node import Node
from disque_py.core.client import Client
from disque_py.node import dispatch
from disque_py.resp.requests import RequestParser
from disque_py.simulator.world.cuts import Cuts
from disque_py.simulator.world.machine import Machine
from disque_py.simulator.world.traffic import Traffic
from figures import Benchmark, Column, Row
from load import packed
from machine import calibration_ns
from plan import Plan
from world import World

BATCH = 100
COUNT = (60_000, 6_000)  # full, quick
WARM_ROUNDS = 5  # These rounds don't count: caches and the interpreter's specialised instructions settle.
BODY = "x" * 100

# CPU nanoseconds per command on all nodes, and on the asked node; all nodes in calibration steps.
Medians = tuple[float, float, float]


class Post(Traffic):
    """A traffic that keeps frames until the benchmark delivers them, so that each node's work is timed alone."""

    def __init__(self, world: World) -> None:
        super().__init__(world, world.stream("post"), Cuts(), (1, 1))
        self.posted: list[tuple[Machine, Machine, bytes]] = []

    def send(self, dialer: Machine, node: Node, frame: bytes) -> None:
        self.posted.append((dialer, self.world.machines[node.host], frame))


class Quiet:
    """The connection of a client whose replies are taken directly."""

    def wake(self) -> None: ...

    def close(self, *, after_replies: bool) -> None: ...

    def input_bytes(self) -> int:
        return 0

    def output_bytes(self) -> int:
        return 0


class Bench:
    """A cluster in memory, a client of its first node, and the stopwatch."""

    def __init__(self, names: str) -> None:
        self.world = World(names, maxmemory=0)
        self.world.join()
        self.post = self.world.traffic = Post(self.world)
        for member in self.world.members.values():
            member.broker.stopwatch_ns = perf_counter_ns  # As in a server. A world's stopwatch costs nothing.
        self.asked = self.world.members[names[0]]
        self.client = Client(1, Quiet(), "benchmark", self.world.now_ms)
        self.replies = hiredis.Reader()
        self.parser = RequestParser(1 << 26)
        self.decoder = Decoder()

    def measure(self, batches: list[bytes]) -> tuple[Medians, list[Any]]:
        """Run the batches, and return the medians and all replies."""
        total, own, ratios = [], [], []
        replies: list[Any] = []
        for number, batch in enumerate(batches):
            step_ns = calibration_ns()
            self.world.now_ms += 1
            asked_ns = self._timed(partial(self._execute, batch))
            others_ns, back_ns = self._deliver()
            replies += self._taken()
            if number >= WARM_ROUNDS:
                own.append((asked_ns + back_ns) / BATCH)
                total.append((asked_ns + back_ns + others_ns) / BATCH)
                ratios.append(total[-1] / step_ns)
        return (statistics.median(total), statistics.median(own), statistics.median(ratios)), replies

    def _timed(self, work: Callable[[], None]) -> int:
        before_ns = process_time_ns()
        work()
        return process_time_ns() - before_ns

    def _execute(self, batch: bytes) -> None:
        driver = self.asked.driver
        driver.begin()
        requests = self.parser.feed(batch)
        done = dispatch.execute(self.asked.broker, self.client, requests)
        driver.finish()
        assert done == len(requests)

    def _deliver(self) -> tuple[int, int]:
        """Deliver frames until there are none. Return the time of the other nodes, and of the asked node."""
        others_ns = back_ns = 0
        while True:
            frames, self.post.posted = self.post.posted, []
            late = []
            if not frames:
                late = [member for member in self.world.members.values() if member.driver.is_gathering]
                if not late:
                    break
                self.world.now_ms += 1  # The acks that wait for those of the next turns leave now. Spec N11.
            for member in self.world.members.values():
                mine = [(sender, frame) for sender, target, frame in frames if target is member]
                if mine or member in late:
                    took_ns = self._timed(partial(self._receive, member, mine) if mine else partial(self._tick, member))
                    if member is self.asked:
                        back_ns += took_ns
                    else:
                        others_ns += took_ns
        return others_ns, back_ns

    def _receive(self, member: Machine, frames: list[tuple[Machine, bytes]]) -> None:
        """Take the input of one turn."""
        member.driver.begin()
        for sender, frame in frames:
            node = member.membership.table.find(sender.node_id)
            assert node is not None
            for runs in self.decoder.feed(frame):
                member.driver.receive(node, runs)
        member.driver.finish()

    def _tick(self, member: Machine) -> None:
        """Take the turn of a timer."""
        member.driver.tick()
        member.driver.finish()

    def _taken(self) -> list[Any]:
        self.replies.feed(b"".join(self.client.out))
        self.client.out.clear()
        taken = []
        while (reply := self.replies.gets()) is not False:
            assert not isinstance(reply, hiredis.ReplyError), reply
            taken.append(reply)
        assert len(taken) == BATCH
        return taken


def run(plan: Plan) -> Iterator[Row]:
    """Measure one node, then three."""
    rounds = max(1, plan.count(*COUNT) // BATCH) + WARM_ROUNDS
    was_enabled = gc.isenabled()
    try:
        for names in ("a", "abc"):
            yield from _rows(plan, names, rounds)
            gc.collect()
    finally:
        if was_enabled:
            gc.enable()


def _rows(plan: Plan, names: str, rounds: int) -> Iterator[Row]:
    where = "one node" if len(names) == 1 else "three nodes, REPLICATE 3"
    plan.say(f"core: {where}, {rounds * BATCH} jobs")
    bench = Bench(names)
    gc.disable()  # As in the server, except that the server also collects garbage at chosen moments.
    yield _row(f"PING, {where}", bench.measure([packed("PING") * BATCH] * rounds)[0])
    copies = () if len(names) == 1 else ("REPLICATE", len(names))
    add = packed("ADDJOB", "q", BODY, 0, *copies) * BATCH
    yield _row(f"ADDJOB, {where}", bench.measure([add] * rounds)[0])
    get = packed("GETJOB", "FROM", "q") * BATCH
    found, jobs = bench.measure([get] * rounds)
    yield _row(f"GETJOB, {where}", found)
    acks = [packed("ACKJOB", reply[0][1]) for reply in jobs]
    found, _ = bench.measure([b"".join(acks[at : at + BATCH]) for at in range(0, len(acks), BATCH)])
    yield _row(f"ACKJOB, {where}", found)
    assert not any(member.broker.job_count for member in bench.world.members.values()), "jobs are left"


def _row(name: str, found: Medians) -> Row:
    total_ns, own_ns, ratio = found
    return Row(name, {"ns": total_ns, "asked_ns": own_ns, "ratio": ratio})


CORE = Benchmark(
    "core",
    "The broker alone, in memory",
    "command",
    (
        Column("ns", "ns each, all nodes"),
        Column("asked_ns", "of which the asked node"),
        Column("ratio", "× calibration step", 1),
    ),
    "ratio",
    run,
)
