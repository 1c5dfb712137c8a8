"""Topics across nodes: bindings spread, and a job reaches all bound queues or none (spec TP7, TP8, TP9)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from world import World


def joined(names: str = "abc", seed: int = 1, *, bindings: tuple[str, ...] = ("t x", "t y", "t z")) -> World:
    world = World(names, seed=seed)
    world.join()
    for words in bindings:
        assert world.ask("a", "TOPIC", "BIND", *words.split()) == b"OK"
    return world


def publish(world: World, node: str, *words: str | int, timeout_ms: int = 500) -> Any:
    return world.ask(node, "TOPIC", "PUBLISH", "t", "body", timeout_ms, *words)


def held(world: World) -> dict[str, int]:
    """Return the number of jobs of each queue on all nodes: ready, running or waiting."""
    ids: dict[bytes, str] = {}
    for name in world.members:
        for shard in world[name].shards:
            for job in shard.values():
                ids[job.id] = job.queue.decode()
    return {queue: list(ids.values()).count(queue) for queue in sorted(set(ids.values()))}


def test_a_binding_is_known_everywhere_when_it_is_answered() -> None:
    world = joined()
    assert [world.ask(node, "TOPIC", "LIST") for node in "abc"] == [
        [[b"t", b"x", []], [b"t", b"y", []], [b"t", b"z", []]]
    ] * 3
    assert world.ask("b", "TOPIC", "UNBIND", "t", "y") == 1
    assert [len(world.ask(node, "TOPIC", "LIST")) for node in "abc"] == [2, 2, 2]


def test_bindings_survive_a_restart() -> None:
    world = joined()
    world.crash("b")
    world.run(1_000)
    world.restart("b")
    world.run(3_000)
    assert len(world.ask("b", "TOPIC", "LIST")) == 3


@pytest.mark.parametrize("words", [(), ("KEY", "k"), ("ASYNC",), ("REPLICATE", 1), ("REPLICATE", 3), ("DELAY", 1)])
def test_jobs_with_copies_become_ready_together(words: tuple[str | int, ...]) -> None:
    world = joined()
    jobs = publish(world, "b", *words)
    assert [queue for queue, _ in jobs] == [b"x", b"y", b"z"]
    world.run(2_000)
    assert held(world) == {"x": 1, "y": 1, "z": 1}
    got = [world.ask("b", "GETJOB", "TIMEOUT", 3_000, "FROM", queue)[0][1] for queue in "xyz"]
    assert got == [job_id for _, job_id in jobs]


def test_missing_copies_of_one_job_undo_all() -> None:
    world = joined()
    world.drop = lambda sender, receiver, kind, item: kind in (33, 69) and sender == "c"
    reply = world.ask("b", "ADDJOB", "t", "x", 200, "REPLICATE", 3)
    assert str(reply).startswith("NOREPL")
    world.run(1_000)
    assert held(world) == {}
    assert not world["b"].producers.fans


def test_no_job_is_delivered_from_a_copy_while_another_one_waits_for_copies() -> None:
    """RETRY is over several times meanwhile, so the nodes that have copies ask whether they may queue them."""
    world = joined()
    world.drop = lambda sender, receiver, kind, item: kind in (33, 69) and sender == "c"
    talker = world.client("b")
    talker.say("ADDJOB", "t", "x", 5_000, "REPLICATE", 3, "RETRY", 1)
    consumers = [world.client(name) for name in "abc"]
    for consumer in consumers:
        consumer.say("GETJOB", "TIMEOUT", 6_000, "FROM", "x", "y", "z")
    world.until(lambda: bool(talker.replies), 6_000)
    assert str(talker.replies[0]).startswith("NOREPL")
    world.run(3_000)
    assert [consumer.replies for consumer in consumers] == [[None]] * 3
    assert held(world) == {}


def test_a_pause_on_the_node_that_was_asked_undoes_all() -> None:
    world = joined()
    world.ask("b", "PAUSE", "y", "in", "BCAST")
    world.run(500)
    assert str(world.ask("c", "ADDJOB", "t", "x", 500, "KEY", "k")).endswith(": y")
    world.run(100)
    assert held(world) == {}


@pytest.mark.parametrize("seed", range(10))
def test_fan_outs_with_one_key_from_all_nodes_make_one_job_per_queue(seed: int) -> None:
    world = joined(seed=seed)
    rng = Random(seed)
    world.traffic.delay_ms = (1, rng.choice((1, 5, 25)))
    talkers = []
    for _ in range(9):
        talker = world.client(rng.choice("abc"))
        talker.say("TOPIC", "PUBLISH", "t", "body", 0, "KEY", "k", "REPLICATE", rng.randint(1, 3))
        talkers.append(talker)
        world.run(rng.choice((0, 0, 1, 8)))
    world.until(lambda: all(talker.replies for talker in talkers), 5_000)
    assert {str(talker.replies[0]) for talker in talkers} == {str(talkers[0].replies[0])}
    world.run(1_000)
    assert held(world) == {"x": 1, "y": 1, "z": 1}


@pytest.mark.parametrize("copies", [1, 3])
def test_a_batch_counts_each_job_of_a_topic_before_the_answer(copies: int) -> None:
    """Spec BT1, TP8."""
    world = joined()
    made = publish(world, "a", "REPLICATE", copies, "BATCH", "all")
    assert [queue for queue, _ in made] == [b"x", b"y", b"z"]
    shown = world.ask("b", "BATCH", "SHOW", "all")
    assert dict(zip(shown[::2], shown[1::2], strict=True))[b"total"] == 3
