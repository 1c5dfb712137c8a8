"""A hint that is owed is sent in the end (spec I4)."""

from __future__ import annotations

from world import World


def test_jobs_that_had_to_rest_go_on_to_clients_that_wait_elsewhere() -> None:
    """
    b pulls all of a's jobs for its consumer, which then moves to a. Jobs that b got a moment ago may not leave
    immediately, but a hint is owed as soon as they may. The consumer must not need the fallback of 30 s.
    """
    world = World("abc")
    world.join()
    for _ in range(60):
        world.ask("a", "ADDJOB", "q", "x", 0, "REPLICATE", 1)
    for _ in range(10):
        world.ask("b", "GETJOB", "FROM", "q")
    assert world["b"].queues[b"q"].length > 5
    got = [world.ask("a", "GETJOB", "FROM", "q", within_ms=500) for _ in range(10)]
    assert all(got)


def test_a_hint_without_an_answer_is_repeated() -> None:
    """The consumer was busy when the first hint came. Another hint follows every 10 ms while it seems to wait."""
    world = World("ab")
    world.join()
    waiting = world.client("b")
    waiting.say("GETJOB", "FROM", "q")
    world.run(100)
    world.drop = lambda sender, receiver, kind, item: kind == 48
    world.ask("a", "ADDJOB", "q", "x", 0, "REPLICATE", 1)
    world.run(5)
    world.drop = None
    world.until(lambda: bool(waiting.replies), 50)
