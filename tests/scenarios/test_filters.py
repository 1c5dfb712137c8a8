"""Filters across nodes: a job reaches the consumer that asked for its metadata, on any node (spec W5, W6)."""

from __future__ import annotations

import pytest

from disque_py.core.job import QUEUED
from world import World, joined


def add(world: World, node: str, value: str, *words: str | int) -> bytes:
    reply = world.ask(node, "ADDJOB", "q", "x", 0, "REPLICATE", 1, "META", "t", value, *words)
    assert isinstance(reply, bytes)
    return reply


def test_a_job_goes_to_the_node_whose_client_waits_for_its_metadata() -> None:
    world = joined("ab")
    waiting = world.client("b")
    waiting.say("GETJOB", "WHERE", "t", "a", "FROM", "q")
    world.run(100)
    add(world, "a", "z")
    job = add(world, "a", "a")
    world.until(lambda: bool(waiting.replies), 50)
    assert waiting.replies[0][0][1] == job
    assert world["a"].queues[b"q"].length == 1


def test_a_client_finds_jobs_that_were_elsewhere_before_it_came() -> None:
    world = joined("ab")
    jobs = [add(world, "a", "a") for _ in range(30)]
    add(world, "a", "z")
    got = [world.ask("b", "GETJOB", "WHERE", "t", "a", "FROM", "q", within_ms=500)[0][1] for _ in jobs]
    assert sorted(got) == sorted(jobs)
    assert world["a"].queues[b"q"].length == 1


def test_a_filter_moves_no_job_that_does_not_match() -> None:
    world = joined("abc")
    for _ in range(10):
        add(world, "a", "z")
    world.client("b").say("GETJOB", "WHERE", "t", "a", "FROM", "q")
    world.client("c").say("GETJOB", "WHERE", "t", "z", "WHERE", "u", "1", "FROM", "q")
    world.run(2_000)
    assert world["a"].queues[b"q"].length == 10


def test_a_hint_goes_on_to_the_next_node_when_the_first_does_not_answer() -> None:
    world = joined("abc")
    b, c = world.client("b"), world.client("c")
    for client in (b, c):
        client.say("GETJOB", "WHERE", "t", "a", "FROM", "q")
    world.run(100)
    world.drop = lambda sender, receiver, kind, item: receiver == "b" and kind == 71
    add(world, "a", "a")
    world.until(lambda: bool(c.replies), 100)


def test_interest_ends_with_the_client() -> None:
    world = joined("ab")
    world.ask("b", "GETJOB", "TIMEOUT", 50, "WHERE", "t", "a", "FROM", "q", within_ms=500)
    world.run(3_000)
    assert not world["a"].consumers.filters
    assert not world["b"].consumers.told_filters
    add(world, "a", "a")
    world.run(1_000)
    assert world["a"].queues[b"q"].length == 1


def test_a_poll_in_vain_makes_the_next_one_find_the_job() -> None:
    world = joined("ab")
    add(world, "b", "z")
    assert world.ask("b", "GETJOB", "NOHANG", "WHERE", "t", "a", "FROM", "q") is None
    job = add(world, "a", "a")
    world.run(300)
    assert world.ask("b", "GETJOB", "NOHANG", "WHERE", "t", "a", "FROM", "q")[0][1] == job


def test_a_paused_queue_asks_for_nothing_and_asks_again_afterwards() -> None:
    world = joined("ab")
    waiting = world.client("b")
    waiting.say("GETJOB", "WHERE", "t", "a", "FROM", "q")
    world.run(100)
    world.ask("b", "PAUSE", "q", "all")
    world.run(100)
    add(world, "a", "a")
    world.run(500)
    assert world["a"].queues[b"q"].length == 1
    world.ask("b", "PAUSE", "q", "none")
    world.until(lambda: bool(waiting.replies), 200)


@pytest.mark.parametrize("waited_ms", [1, 2_000])
def test_a_client_with_a_pattern_and_a_filter_gets_the_first_job_of_a_new_queue(waited_ms: int) -> None:
    world = joined("a")
    waiting = world.client("a")
    waiting.say("GETJOB", "WHERE", "t", "a", "FROMMATCH", "q*")
    world.run(waited_ms)
    job = add(world, "a", "a")
    world.run(1_000)
    assert waiting.replies[0][0][1] == job


def test_a_job_is_found_that_comes_while_another_queue_is_indexed() -> None:
    world = joined("a")
    producer = world.client("a")
    for _ in range(10):
        for _ in range(500):
            producer.say("ADDJOB", "long", "x", 0, "REPLICATE", 1, "META", "t", "z")
        world.run(100)
    waiting = world.client("a")
    waiting.say("GETJOB", "WHERE", "t", "a", "FROM", "q", "long")
    job = add(world, "a", "a")
    world.run(1_000)
    assert waiting.replies[0][0][1] == job


@pytest.mark.parametrize("source", ["FROM", "FROMMATCH"])
def test_a_job_comes_to_a_client_on_another_node_when_its_queue_is_no_longer_paused(source: str) -> None:
    """Spec W6, I4."""
    world = joined("ab")
    world.ask("b", "PAUSE", "q", "out")
    waiting = world.client("a")
    waiting.say("GETJOB", "WHERE", "t", "a", source, "q")
    world.run(1_000)
    add(world, "b", "a")
    world.run(1_000)
    assert not waiting.replies
    world.ask("b", "PAUSE", "q", "none")
    world.run(1_000)
    assert waiting.replies


@pytest.mark.parametrize("words", [(), ("WHERE", "t", "a")])
def test_other_nodes_hear_of_waiting_clients_when_memory_is_no_longer_full(words: tuple[str, ...]) -> None:
    """Spec I1: a node without room for jobs tells the others that it has no clients."""
    world = joined("ab")
    stored = [world.ask("a", "ADDJOB", "stock", "x" * 50_000, 0, "REPLICATE", 1) for _ in range(22)]
    waiting = world.client("a")
    waiting.say("GETJOB", *words, "FROM", "q")
    world.run(1_000)
    world.ask("a", "CONFIG", "SET", "maxmemory", 1_150_000)
    world.run(3_000)
    assert world["a"].memory_level == 2
    world.ask("a", "ACKJOB", *stored)
    world.run(3_000)
    add(world, "b", "a")
    world.run(2_000)
    assert waiting.replies


def test_a_filter_on_the_history_of_a_dead_letter_follows_its_change_on_another_node() -> None:
    """While the nodes were cut off, one of them redrove the job, and the job failed again."""
    world = joined("ab")
    world.ask("a", "QUEUE", "SET", "q", "dead-letter", "dead", "attempts", "1")
    world.ask("a", "QUEUE", "SET", "dead", "index", "x-disque-count")
    world.run(1_100)
    job = world.ask("a", "ADDJOB", "q", "x", 0, "REPLICATE", 2, "RETRY", 20)
    world.ask("a", "GETJOB", "FROM", "q")
    world.ask("a", "NACK", job)
    world.run(500)
    world.cut("a", "b")
    world.run(25_000)
    world.ask("b", "QREDRIVE", "dead")
    world.ask("b", "GETJOB", "FROM", "q")
    world.ask("b", "NACK", job)
    assert world["a"].find(job).state == world["b"].find(job).state == QUEUED
    assert world.ask("a", "QDEPTH", "dead", "BY", "x-disque-count") == [b"1", 1]
    world.heal()
    world.until(lambda: world["a"].find(job).part.history[4] == 2, 60_000)
    assert world.ask("a", "QDEPTH", "dead", "BY", "x-disque-count") == [b"2", 1]
    assert world.ask("a", "GETJOB", "NOHANG", "WHERE", "x-disque-count", "1", "FROM", "dead") is None
    world.ask("a", "ACKJOB", job)
    assert world.ask("a", "GETJOB", "NOHANG", "WHERE", "x-disque-count", "1", "FROM", "dead") is None
