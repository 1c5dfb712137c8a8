"""Patterns across nodes: GETJOB … FROMMATCH gets jobs of every matching queue of any node (spec TP3, TP4)."""

from __future__ import annotations

from world import World, joined


def add(world: World, node: str, queue: str, *words: str | int) -> bytes:
    reply = world.ask(node, "ADDJOB", queue, "x", 0, "REPLICATE", 1, *words)
    assert isinstance(reply, bytes)
    return reply


def test_a_queue_that_comes_into_being_on_another_node_finds_the_waiting_client() -> None:
    world = joined("ab")
    waiting = world.client("b")
    waiting.say("GETJOB", "FROMMATCH", "mail.*")
    world.run(100)
    add(world, "a", "sms.new")
    job = add(world, "a", "mail.new")
    world.until(lambda: bool(waiting.replies), 50)
    assert waiting.replies[0][0][:2] == [b"mail.new", job]
    assert b"sms.new" not in world["b"].queues


def test_a_client_empties_queues_that_were_elsewhere_before_it_came() -> None:
    world = joined("ab")
    jobs = [add(world, "a", f"q.{number % 5}") for number in range(40)]
    got = [world.ask("b", "GETJOB", "FROMMATCH", "q.*", within_ms=500)[0][1] for _ in jobs]
    assert sorted(got) == sorted(jobs)


def test_a_node_with_one_client_takes_no_backlog_of_a_thousand_queues() -> None:
    world = joined("ab")
    for number in range(300):
        add(world, "a", f"q.{number}")
    world.ask("b", "GETJOB", "FROMMATCH", "q.*", within_ms=500)
    world.run(2_000)
    assert sum(queue.length for queue in world["b"].queues.values()) <= 5


def test_a_client_with_a_filter_gets_jobs_of_queues_of_other_nodes() -> None:
    world = joined("ab")
    first = add(world, "a", "q.old", "META", "t", "a")
    add(world, "a", "q.old", "META", "t", "z")
    client = world.client("b")
    client.say("GETJOB", "WHERE", "t", "a", "FROMMATCH", "q.*")
    world.until(lambda: bool(client.replies), 500)
    assert client.replies[0][0][1] == first
    client.say("GETJOB", "WHERE", "t", "a", "FROMMATCH", "q.*")
    world.run(100)
    second = add(world, "a", "q.new", "META", "t", "a")
    world.until(lambda: len(client.replies) == 2, 500)
    assert client.replies[1][0][1] == second


def test_a_client_that_polls_gets_jobs_of_other_nodes() -> None:
    world = joined("ab")
    job = add(world, "a", "q.a")
    got = None
    for _ in range(10):
        got = got or world.ask("b", "GETJOB", "NOHANG", "FROMMATCH", "q.*")
        world.run(200)
    assert got is not None
    assert got[0][1] == job


def test_interest_ends_with_the_client() -> None:
    world = joined("ab")
    world.ask("b", "GETJOB", "TIMEOUT", 50, "FROMMATCH", "q.*", within_ms=500)
    world.run(3_000)
    assert not world["a"].patterns.groups[b"q.*",].interested
    add(world, "a", "q.a")
    world.run(1_000)
    assert world["a"].queues[b"q.a"].length == 1
    assert b"q.a" not in world["b"].queues


def test_a_link_that_comes_back_gets_the_patterns() -> None:
    world = joined("ab")
    waiting = world.client("b")
    waiting.say("GETJOB", "FROMMATCH", "q.*")
    world.run(100)
    world.cut("a", "b")
    world.run(20_000)
    job = add(world, "a", "q.a")
    world.heal()
    world.until(lambda: bool(waiting.replies), 30_000)
    assert waiting.replies[0][0][1] == job


def test_a_queue_forgets_groups_of_patterns_that_were_dropped() -> None:
    world = joined("a")
    world.ask("a", "ADDJOB", "x1", "body", 0)
    world.ask("a", "PAUSE", "x1", "out")
    for number in range(50):
        world.ask("a", "GETJOB", "NOHANG", "FROMMATCH", "x*", f"worker-{number}-*")
    world.run(200_000)
    assert not world["a"].patterns.groups
    world.ask("a", "GETJOB", "NOHANG", "FROMMATCH", "x*")
    assert len(world["a"].queues[b"x1"].patterns or ()) == 1
