"""Connections of clients: order, breaks, and unread replies."""

from __future__ import annotations

import pytest

from disque_py.simulator.world.world import World
from simulated import ask, asker, joined, words


def test_requests_arrive_in_the_order_in_which_they_were_sent():
    """Their travel times differ."""
    world = joined("a")
    connection = asker(world, "a")
    connection.send([words("ECHO", "first")], 9)
    connection.send([words("ECHO", "second")], 1)
    world.run(20)
    assert connection.replies == [b"first", b"second"]


def test_a_blocked_client_that_hangs_up_gets_nothing_more():
    """Its place in the queue of waiting clients is freed."""
    world = joined("a")
    connection = asker(world, "a")
    connection.send([words("GETJOB", "FROM", "q")])
    connection.hang_up()
    ask(world, "a", "ADDJOB", "q", "x", 0)
    world.run(10)
    assert connection.replies == []
    assert ask(world, "a", "QLEN", "q") == 1


def test_a_pipeline_goes_on_after_the_reply_it_waits_for():
    """The second GETJOB is run when the first was answered."""
    world = joined("a")
    connection = asker(world, "a")
    connection.send([words("GETJOB", "TIMEOUT", 50, "FROM", "q"), words("PING")])
    world.run(30)
    assert connection.replies == []
    world.run(60)
    assert connection.replies == [None, b"PONG"]


def test_replies_that_wait_for_the_journal_can_be_looked_at():
    """The node has answered, but no client knows it. That explains jobs that vanish with the connection."""
    world = World("")
    world.add("a", journal="always").journal_storage.disk.wait_share = 0.0
    world.run(100)
    connection = asker(world, "a")
    connection.send([words("ADDJOB", "q", "x", 0)])
    assert connection.replies == []
    assert [reply[:2] for reply in connection.unseen()] == [b"D-"]
    world.run(100)
    assert len(connection.replies) == 1
    assert connection.unseen() == []


@pytest.mark.parametrize("journal", ["", "always"])
@pytest.mark.parametrize("is_prompt", [False, True])
def test_replies_sent_before_the_node_noticed_the_hangup_count_as_unseen(is_prompt, journal):
    """It was stopped meanwhile. Then it gave the client a job before it noticed the end of the connection."""
    world = World("", is_prompt=is_prompt)
    world.add("a", journal=journal)
    world.join()
    machine = world.machines["a"]
    connection = asker(world, "a")
    connection.send([words("GETJOB", "FROM", "q")])
    producer, other = asker(world, "a"), asker(world, "a")
    machine.stop()
    producer.send([words("ADDJOB", "q", "x", 0, "RETRY", 0)])
    other.send([words("GETJOB", "FROM", "q")])
    connection.hang_up()
    machine.go_on()
    world.run(1_000)
    assert [jobs[0][2] for jobs in connection.unread] == [b"x"]
    assert (len(producer.replies), connection.replies, other.replies) == (1, [], [])


def test_replies_that_wait_for_the_journal_when_a_node_reads_that_the_client_had_hung_up_are_unseen_once():
    """They don't leave later as well. The node was stopped in the middle of a turn, and continued it first."""
    world = World("", is_prompt=False)
    machine = world.add("a", journal="always")
    world.run(100)
    connection, producer = asker(world, "a"), asker(world, "a")
    connection.send([words("GETJOB", "FROM", "q")])
    world.run(1)
    producer.send([words("ADDJOB", "q", "x", 0, "RETRY", 0)])
    machine.stop()
    world.run(1)
    connection.hang_up()
    machine.go_on()
    world.run(100)
    assert [jobs[0][2] for jobs in connection.unread] == [b"x"]
    assert (len(producer.replies), connection.replies) == (1, [])


def test_commands_that_were_not_run_die_with_the_node():
    """The client learns that there will be no reply."""
    world = joined("a")
    connection = asker(world, "a")
    connection.send([words("ADDJOB", "q", "x", 0)], 5)
    world.crash("a")
    world.run(20)
    assert connection.is_lost
    assert connection.replies == []
