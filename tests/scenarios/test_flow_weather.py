"""Waits and batches during faults: "WAITJOB tells the truth and never hangs", "a batch counts what is so".

A seed draws adds, ends, waits and cuts. At the end all nodes are linked. Then each wait must have its answer, and the
counts of each batch must agree with the replies to clients. Deliberate defects break these rules (spec RW5, RW6, BT2,
BT3).
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from disque_py.core import job_waits, keeping
from disque_py.core.id_sets import IdSet
from world import Talker, World

NODES = "abcd"
STEPS = 60
CALM_MS = 60_000


class Weather:
    """One run. `ends` has the ends that clients asked for, by job."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.world = World(NODES, seed, cluster_node_timeout=1_000)
        self.world.join()
        self.jobs: dict[bytes, bytes] = {}
        self.ends: dict[bytes, dict[bytes, set[bytes | None]]] = {}
        self.waits: list[tuple[bytes, Talker]] = []
        self.is_cut = False

    def up(self) -> str:
        return self.rng.choice(NODES)

    def step(self) -> None:
        """Do one random step."""
        rng, world = self.rng, self.world
        deed = rng.random()
        if deed < 0.4:
            batch = rng.choice((b"b0", b"b1"))
            reply = world.ask(
                self.up(), "ADDJOB", "q", "x", 2_000, "REPLICATE", rng.choice((1, 2, 3)), "BATCH", batch,
                "TTL", 3_600, "RETRY", 600,
            )  # fmt: skip
            if isinstance(reply, bytes):
                self.jobs[reply] = batch
        elif deed < 0.6 and self.jobs:
            job = rng.choice(list(self.jobs))
            if rng.random() < 0.8:
                result = b"r%d" % rng.randrange(3)
                self.ends.setdefault(job, {}).setdefault(b"completed", {None}).add(result)  # type: ignore[arg-type]
                world.ask(self.up(), "ACKJOB", job, "RESULT", result)
            else:
                self.ends.setdefault(job, {}).setdefault(b"canceled", {None})  # type: ignore[arg-type]
                world.ask(self.up(), "CANCELJOB", job)
        elif deed < 0.8 and self.jobs:
            job = rng.choice(list(self.jobs))
            talker = world.client(self.up())
            talker.say("WAITJOB", job)
            self.waits.append((job, talker))
        elif deed < 0.9 and not self.is_cut:
            for name in rng.sample(NODES, 1):
                for other in NODES:
                    if other != name:
                        world.cut(name, other)
            self.is_cut = True
        else:
            world.heal()
            self.is_cut = False
        world.run(rng.choice((1, 5, 300, 3_000)))

    def check(self) -> None:
        """End all faults, and compare the answers with the truth."""
        world = self.world
        world.heal()
        world.run(CALM_MS)
        for job, talker in self.waits:
            if job in self.ends:
                assert talker.replies, "a wait hangs"
            for reply in talker.replies:
                ((job_id, status, result, _),) = reply
                assert job_id == job
                if status == b"unknown" and job in self.ends:
                    continue  # The job ended more than two node timeouts before.
                assert status in self.ends.get(job, {}), "an end that no client asked for"
                assert result in self.ends[job][status], "a result that no client gave"
        for batch in set(self.jobs.values()):
            jobs = [job for job, of in self.jobs.items() if of == batch]
            over = sum(job in self.ends for job in jobs)
            for name in NODES:
                found = self.shown(name, batch)
                ended = found["completed"] + found["canceled"]
                assert (found["total"], ended) == (len(jobs), over), "a batch counts wrong"
                assert found["expired"] == found["errored"] == 0

    def shown(self, name: str, batch: bytes) -> dict[str, Any]:
        reply = self.world.ask(name, "BATCH", "SHOW", batch)
        return {field.decode(): value for field, value in zip(reply[::2], reply[1::2], strict=True)}


def play(seed: int) -> None:
    weather = Weather(seed)
    for _ in range(STEPS):
        weather.step()
    weather.check()


@pytest.mark.parametrize("seed", range(12))
def test_waits_and_batches_tell_the_truth(seed: int) -> None:
    """Spec RW5, RW6, BT2, BT3."""
    play(seed)


def _counts_twice(self: IdSet, key: bytes, status: int, version: int) -> bool:
    self.count += 1
    self.counts[status] += 1
    return True


@pytest.mark.plain
@pytest.mark.parametrize(
    ("where", "name", "defect"),
    [
        (job_waits, "_registered", lambda *args: iter(())),
        (IdSet, "merge", _counts_twice),
        (keeping, "_compared", lambda *args: iter(())),
    ],
)
def test_a_deliberate_defect_is_found(where: Any, name: str, defect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spec RW7, BT2, BT3."""
    monkeypatch.setattr(where, name, defect)
    broken = 0
    for seed in range(12):
        try:
            play(seed)
        except AssertionError:
            broken += 1
            break
    assert broken
