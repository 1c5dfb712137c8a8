"""Filters across nodes: a job reaches the consumer that asked for its metadata, on any node (spec W5, W6)."""

from __future__ import annotations

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
