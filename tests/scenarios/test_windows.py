"""Windows and replacements across nodes: one job per key, for all clients and nodes (spec TP5, TP6)."""

from __future__ import annotations

from random import Random

import pytest

from world import World, joined


def add(world: World, node: str, *words: str | int) -> bytes:
    reply = world.ask(node, "ADDJOB", "q", "x", 500, "KEY", "k", *words)
    assert isinstance(reply, bytes), reply
    return reply


def test_a_window_holds_on_every_node_and_ends_everywhere() -> None:
    world = joined()
    first = add(world, "a", "WINDOW", 3, "REPLICATE", 2)
    assert add(world, "b") == add(world, "c") == first
    world.run(3_200)
    assert add(world, "c", "WINDOW", 3) != first


def test_a_replacement_on_another_node_leaves_one_job() -> None:
    world = joined()
    first = add(world, "a", "DELAY", 3, "REPLACE", "REPLICATE", 2)
    second = add(world, "c", "DELAY", 3, "REPLACE", "REPLICATE", 2)
    assert second != first
    assert add(world, "b") == second
    world.run(6_000)
    got = [world.ask(name, "GETJOB", "NOHANG", "COUNT", 5, "FROM", "q") or [] for name in "abc"]
    assert [job[1] for jobs in got for job in jobs] == [second]


@pytest.mark.parametrize("change", [("RESCHEDULE", "PRIORITY", 3), ("MOVEJOB", "TO", "other")])
@pytest.mark.parametrize("node", "abc")
def test_a_job_that_was_changed_while_it_waits_for_its_delay_is_replaced(
    change: tuple[str | int, ...], node: str
) -> None:
    """Spec TP6: the change leaves the delay as it is, wherever it is made."""
    world = joined()
    first = add(world, "a", "DELAY", 3, "REPLACE", "REPLICATE", 2)
    assert world.ask(node, change[0], first, *change[1:]) == 1
    world.run(2_000)
    second = add(world, "c", "DELAY", 3, "REPLACE", "REPLICATE", 2)
    assert second != first
    world.run(6_000)
    queues = ("q", "other")
    got = [world.ask(name, "GETJOB", "NOHANG", "COUNT", 5, "FROM", *queues) or [] for name in "abc"]
    assert [job[1] for jobs in got for job in jobs] == [second]


@pytest.mark.parametrize("change", [("RESCHEDULE", "PRIORITY", 3), ("MOVEJOB", "TO", "other")])
def test_a_job_that_was_changed_is_queued_when_its_delay_ends(change: tuple[str | int, ...]) -> None:
    world = joined()
    first = add(world, "a", "DELAY", 3, "REPLICATE", 2)
    assert world.ask("b", change[0], first, *change[1:]) == 1

    def got() -> list[bytes]:
        found = [world.ask(name, "GETJOB", "NOHANG", "COUNT", 5, "FROM", "q", "other") or [] for name in "abc"]
        return [job[1] for jobs in found for job in jobs]

    world.run(2_500)
    assert got() == []
    world.run(1_500)
    assert got() == [first]


@pytest.mark.parametrize("seed", range(12))
def test_any_number_of_replacements_at_once_leaves_one_job(seed: int) -> None:
    world = joined(seed=seed)
    rng = Random(seed)
    world.traffic.delay_ms = (1, rng.choice((1, 5, 20)))
    replies: list[bytes] = []
    talkers = []
    for number in range(12):
        talker = world.client(rng.choice("abc"))
        talker.say("ADDJOB", "q", number, 0, "KEY", "k", "DELAY", 5, "REPLACE", "REPLICATE", rng.randint(1, 3))
        talkers.append(talker)
        world.run(rng.choice((0, 0, 1, 10, 60)))
    world.until(lambda: all(talker.replies for talker in talkers), 5_000)
    replies = [talker.replies[0] for talker in talkers]
    assert all(isinstance(reply, bytes) for reply in replies), replies
    world.run(9_000)
    got: list[bytes] = []
    for _ in range(4):
        for name in "abc":
            got += [job[1] for job in world.ask(name, "GETJOB", "NOHANG", "COUNT", 20, "FROM", "q") or []]
        world.run(500)
    assert len(set(got)) == 1, got
    assert got[0] in replies


def test_a_replacement_after_a_partition_takes_the_places_of_the_jobs_of_both_sides() -> None:
    """Spec TP6: in a partition there is at most one job per side."""
    world = World("abcd", cluster_node_timeout=1_000)
    world.join()
    words = ("DELAY", 30, "WINDOW", 60, "REPLACE", "REPLICATE", 2)
    add(world, "a", *words)
    world.run(1_000)
    for one, other in ("ac", "ad", "bc", "bd"):
        world.cut(one, other)
    world.run(4_000)
    assert len({add(world, name, *words) for name in "acdb"}) == 4
    world.heal()
    world.run(10_000)
    last = add(world, "c", *words)
    world.run(40_000)
    got = [world.ask(name, "GETJOB", "NOHANG", "COUNT", 5, "FROM", "q") or [] for name in "abcd"]
    assert [job[1] for jobs in got for job in jobs] == [last]


def test_a_pending_job_is_not_replaced_by_a_node_whose_clock_is_behind() -> None:
    """Spec TP6: its creator says that it does not wait for its DELAY any more."""
    world = joined("ab")
    world.machines["b"].wall_offset_ms -= 5_000
    world.run(200)
    first = world.ask("a", "ADDJOB", "q", "x", 0, "KEY", "k", "DELAY", 2, "TTL", 600)
    world.run(3_500)
    assert world.ask("b", "ADDJOB", "q", "y", 0, "KEY", "k", "DELAY", 2, "TTL", 600, "REPLACE") == first
    assert world.ask("a", "QLEN", "q") == 1


def test_a_delayed_job_is_replaced_by_a_node_whose_clock_is_ahead() -> None:
    """Spec TP6."""
    world = joined("ab")
    world.machines["b"].wall_offset_ms += 5_000
    world.run(200)
    first = world.ask("a", "ADDJOB", "q", "x", 0, "KEY", "k", "DELAY", 2, "TTL", 600)
    world.run(500)
    assert world.ask("b", "ADDJOB", "q", "y", 0, "KEY", "k", "DELAY", 2, "TTL", 600, "REPLACE") != first


@pytest.mark.parametrize("has_copy", [True, False])
@pytest.mark.parametrize("leaver", ["creator", "holder"])
def test_a_node_that_gave_its_copy_away_does_not_keep_a_delayed_job_from_being_replaced(
    leaver: str, has_copy: bool
) -> None:
    """Spec TP6: it only remembers the key. The node that is asked has a copy itself, or asks a node that has one."""
    world = joined("abcd")
    words = ("KEY", "k", "DELAY", 100, "TTL", 600, "RETRY", 30)
    first = world.ask("a", "ADDJOB", "q", "x", 0, "REPLICATE", 2, *words)
    world.run(2_000)
    gone = "a" if leaver == "creator" else next(name for name in "bcd" if world[name].find(first))
    world.ask(gone, "CLUSTER", "LEAVING", "yes")
    world.run(10_000)
    at = next(name for name in "bcd" if name != gone and bool(world[name].find(first)) is has_copy)
    assert world.ask(at, "ADDJOB", "q", "y", 0, "REPLICATE", 1, *words, "REPLACE") != first


def test_a_node_without_a_copy_of_its_own_job_may_replace_it() -> None:
    """Spec TP6: it only remembers the key, and the nodes with copies say that the job waits."""
    world = joined()
    words = ("KEY", "k", "DELAY", 100, "TTL", 600, "RETRY", 30, "REPLACE")
    world.ask("c", "CLUSTER", "LEAVING", "yes")
    world.run(500)
    first = world.ask("c", "ADDJOB", "q", "x", 0, *words)
    world.run(500)
    reply = str(world.ask("c", "ADDJOB", "q", "y", 0, *words))
    assert reply.startswith("NOREPL")
    assert reply.endswith("I'm leaving the cluster")
    world.ask("c", "CLUSTER", "LEAVING", "no")
    world.run(500)
    second = world.ask("c", "ADDJOB", "q", "y", 0, *words)
    third = world.ask("c", "ADDJOB", "q", "z", 0, *words)
    world.run(150_000)
    assert len({first, second, third}) == 3
    assert [world.ask(name, "QLEN", "q", "CLUSTER") for name in "abc"] == [1, 1, 1]
    assert world.ask("c", "GETJOB", "FROM", "q")[0][2] == b"z"
