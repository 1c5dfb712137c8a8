"""Traffic: frames arrive in order, and are read as on the real bus."""

from __future__ import annotations

from cluster_bus.messages import INTEREST
from simulated import joined


def say(world, name, queue):
    machine = world.machines[name]
    machine.open()
    machine.broker.send(machine.membership.table.linked, INTEREST, (queue, 1))
    machine.close()


def heard(world):
    """Return the list of messages that are read from now on."""
    told = []
    world.traffic.tap = lambda sender, receiver, runs: told.extend(
        (sender, receiver, item[0]) for run in runs if run[0] == INTEREST for item in run[1:] if item[0]
    )
    return told


def test_frames_of_a_connection_arrive_in_order():
    """Each has its own delay."""
    world = joined("ab", delay_ms=(1, 50))
    told = heard(world)
    for number in range(20):
        say(world, "a", b"q%d" % number)
        world.run(1)
    world.run(500)
    assert told == [("a", "b", b"q%d" % number) for number in range(20)]


def test_frames_on_their_way_have_an_age():
    world = joined("ab", delay_ms=(20, 20))
    world.run(200)
    say(world, "a", b"q")
    sent_ms = world.now_ms
    world.run(10)
    assert world.traffic.oldest_ms() == sent_ms
    world.run(100)
    assert world.traffic.oldest_ms() == world.now_ms or world.traffic.flying


def test_unread_frames_of_a_stopped_process_are_on_their_way():
    """The sender gave the connection up long ago (seed 92)."""
    world = joined("ab")
    world.pause("b")
    sent_ms = world.now_ms
    say(world, "a", b"q")
    world.run(10)
    world.network.close(world.machines["a"], world["a"].cluster.linked[0])
    world.run(50)
    assert world.traffic.oldest_ms() == sent_ms
    world.resume("b")
    world.run(50)
    assert world.traffic.oldest_ms() > sent_ms


def test_a_lost_frame_is_lost_for_good():
    world = joined("ab")
    told = heard(world)
    world.traffic.loss = 1.0
    say(world, "a", b"q")
    world.traffic.loss = 0.0
    say(world, "a", b"r")
    world.run(50)
    assert told == [("a", "b", b"r")]


def test_job_messages_of_a_stranger_are_not_read():
    """Its connection is closed, and the messages have no effect."""
    world = joined("ab")
    told = heard(world)
    say(world, "a", b"q")
    b = world.machines["b"]
    b.open()
    b.membership.forget(b.membership.table.find(world.machines["a"].node_id))
    pipe = next(pipe for pipe in world.traffic.pipes if pipe.dialer.name == "a")
    world.traffic._deal_jobs(pipe, b, [[INTEREST, (b"q", 1)]])
    b.close()
    assert not pipe.is_open
    world.run(50)
    assert told == []
