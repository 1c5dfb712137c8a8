"""QREBALANCE on a cluster: equal parts, by acknowledged hand-over (spec ZN7, ZN8)."""

from __future__ import annotations

from claimed_worlds import add, exclusive, get
from cluster_bus.messages import TOOK
from world import World, joined


def fill(world: World, node: str, count: int, *words: str | int) -> list[bytes]:
    return [world.ask(node, "ADDJOB", "q", number, 0, *words) for number in range(count)]


def lengths(world: World) -> list[int]:
    return [world.ask(name, "QLEN", "q") for name in world.members]


def rebalance(world: World, node: str = "a", *words: str) -> tuple[int, int]:
    """Run a rebalance. Return how many jobs moved, and how many did not."""
    reply = world.ask(node, "QREBALANCE", "q", *words)
    assert isinstance(reply, list), reply
    found = {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}
    return found["jobs"], found["failed"]


def drained(world: World) -> list[bytes]:
    """Return the bodies that consumers get, by node, each list in the node's order."""
    bodies = []
    for name in world.members:
        while got := world.ask(name, "GETJOB", "NOHANG", "FROM", "q"):
            bodies.append(got[0][2])
            world.ask(name, "ACKJOB", got[0][1])
    return bodies


def test_nodes_hold_equal_parts_to_one_job_whichever_node_is_asked() -> None:
    """Spec ZN7."""
    for asked in "abc":
        world = joined()
        fill(world, "a", 100, "REPLICATE", 1)
        assert rebalance(world, asked) == (66, 0)
        assert lengths(world) == [34, 33, 33]
        assert rebalance(world, asked) == (0, 0)


def test_jobs_of_a_busy_value_move_as_well() -> None:
    """Spec ZN7: they are held back, but pending."""
    world = exclusive()
    for _ in range(30):
        add(world, "a", "ann", copies=1)
    assert len(get(world, "a")) == 1
    assert rebalance(world) == (19, 0)
    assert lengths(world) == [10, 10, 9]


def test_many_jobs_move_in_slices() -> None:
    """Spec ZN7."""
    world = joined("abcd")
    fill(world, "a", 1_500, "REPLICATE", 1, "RETRY", 0)
    fill(world, "b", 101, "REPLICATE", 3)
    assert rebalance(world, "c")[1] == 0
    assert lengths(world) == [401, 400, 400, 400]


def test_every_job_is_delivered_once_and_in_order_on_its_node() -> None:
    """Spec ZN8."""
    world = joined()
    fill(world, "a", 60, "REPLICATE", 2)
    rebalance(world)
    bodies = [int(body) for body in drained(world)]
    assert sorted(bodies) == list(range(60))
    assert all(part == sorted(part) for part in (bodies[:20], bodies[20:40], bodies[40:]))


def test_a_lost_answer_delivers_nothing_twice() -> None:
    """Spec ZN8."""
    world = joined("ab")
    fill(world, "a", 10, "REPLICATE", 1)
    lost: list[object] = []
    world.drop = lambda sender, receiver, kind, item: kind == TOOK and not lost and not lost.append(item)
    assert rebalance(world) == (5, 0)
    assert len(lost) == 1
    assert lengths(world) == [5, 5]
    assert len(drained(world)) == 10


def test_only_nodes_of_the_zones_take_part() -> None:
    """Spec ZN7."""
    world = joined("abcd")
    for name, zone in zip("abcd", ("x", "y", "y", "z"), strict=True):
        world.ask(name, "CONFIG", "SET", "zone", zone)
    world.run(200)
    fill(world, "a", 10, "REPLICATE", 1)
    fill(world, "b", 11, "REPLICATE", 1)
    assert rebalance(world, "d", "ZONES", "y") == (5, 0)
    assert lengths(world) == [10, 6, 5, 0]
    assert rebalance(world, "a", "ZONES", "x", "/z") == (5, 0)
    assert lengths(world) == [5, 6, 5, 5]


def test_a_node_that_takes_no_jobs_gets_none_and_may_give() -> None:
    """Spec ZN7."""
    world = joined()
    fill(world, "a", 30, "REPLICATE", 1)
    world.ask("b", "PAUSE", "q", "in")
    assert rebalance(world) == (15, 0)
    assert lengths(world) == [15, 0, 15]
    world.ask("a", "PAUSE", "q", "in")
    world.ask("b", "PAUSE", "q", "none")
    assert rebalance(world) == (10, 0)
    assert lengths(world) == [10, 10, 10]


def test_a_node_that_leaves_gets_none() -> None:
    """Spec ZN7."""
    world = joined()
    fill(world, "a", 30, "REPLICATE", 1)
    world.ask("c", "CLUSTER", "LEAVING", "yes")
    assert rebalance(world) == (15, 0)
    assert lengths(world) == [15, 15, 0]


def test_jobs_go_to_holders_of_their_copies_first() -> None:
    """A hand-over makes its receiver a holder, so this keeps the number of copies."""
    world = joined("abcd")
    jobs = fill(world, "a", 80, "REPLICATE", 2)
    rebalance(world)
    shown = [world.ask("a", "SHOW", job) for job in jobs]
    copies = [
        len(show[show.index(b"nodes-confirmed") + 1]) + len(show[show.index(b"nodes-delivered") + 1]) for show in shown
    ]
    assert sum(count > 2 for count in copies) <= 5


def test_a_rebalance_is_shown_as_a_task() -> None:
    """Spec MV8."""
    world = joined()
    fill(world, "a", 500, "REPLICATE", 1)
    task = world.ask("a", "QREBALANCE", "q", "ASYNC")
    stat = world.ask("a", "QSTAT", "q")
    assert stat[stat.index(b"tasks") + 1] == 1
    world.run(3_000)
    shown = world.ask("a", "QTASK", "SHOW", task)
    found = dict(zip(shown[::2], shown[1::2], strict=True))
    assert (found[b"command"], found[b"state"], found[b"jobs"]) == (b"qrebalance", b"done", 333)


def test_a_node_that_dies_ends_its_share_and_the_others_go_on() -> None:
    """Spec MV7."""
    world = joined()
    fill(world, "a", 1_000, "REPLICATE", 3)
    task = world.ask("a", "QREBALANCE", "q", "ASYNC")
    world.members["c"].die()
    world.run(15_000)
    shown = world.ask("a", "QTASK", "SHOW", task)
    found = dict(zip(shown[::2], shown[1::2], strict=True))
    assert found[b"state"] == b"done"
    assert len(found[b"nodes-missing"]) == 1


def test_wrong_arguments_are_refused() -> None:
    """Spec ZN7."""
    world = joined("ab")
    for words, error in (
        (("ZONES",), "ERR syntax error: 'ZONES'"),
        (("ZONES", "ASYNC"), "ERR syntax error: 'ZONES'"),
        (("LIMIT", 1), "ERR syntax error: 'LIMIT'"),
        (("ZONES", "mars"), "ERR Unknown zone mars"),
    ):
        assert str(world.ask("a", "QREBALANCE", "q", *words)) == error
