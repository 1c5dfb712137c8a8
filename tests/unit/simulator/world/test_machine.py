"""Machine: clocks, ends of a process, turns, and the nodes file."""

from __future__ import annotations

import pytest

from disque_py.simulator.world.world import World
from simulated import ask, asker, joined, words


def test_a_clock_that_drifts_still_ticks_in_time():
    """The timer is set in the world's time for a moment of the node's own clock."""
    world = World("")
    machine = world.add("a", offset_ms=1 << 40, drift_ppm=-5_000)
    before = machine.now_ms()
    world.run(100_000)
    assert machine.now_ms() - before == pytest.approx(99_500, abs=2)
    assert machine.ticks >= 990


def test_a_node_comes_back_with_its_id_and_its_nodes_file():
    """A restart begins a new run, which finds its cluster again."""
    world = joined("ab")
    world.run(1_000)
    run = world["a"].run
    world.crash("a")
    world.run(500)
    world.restart("a")
    world.until(world.is_meshed)
    assert world["a"].run != run
    assert world["b"].cluster.find(world.machines["a"].node_id).run == world["a"].run


def test_an_older_text_of_the_nodes_file_never_replaces_a_newer_one():
    """Saves take different times."""
    world = joined("a")
    machine = world.machines["a"]
    machine._saved(machine.runs, 3, "new", None)
    machine._saved(machine.runs, 2, "old", None)
    assert machine.nodes_file == "new"


def test_a_fuse_kills_a_node_between_two_of_its_steps():
    """The first reply leaves, the second does not."""
    world = joined("a")
    one, other = asker(world, "a"), asker(world, "a")
    world.is_prompt = False
    world.machines["a"].fuse = 2
    one.send([words("PING")])
    other.send([words("PING")])
    world.run(1)
    assert (one.replies, other.replies) == ([b"PONG"], [])
    assert other.is_lost
    assert not world.machines["a"].is_up


def test_a_stopped_node_handles_its_input_later():
    """SIGSTOP: the kernel keeps what was sent."""
    world = joined("ab")
    connection = asker(world, "a")
    world.pause("a")
    connection.send([words("ADDJOB", "q", "x", 0)])
    world.run(200)
    assert connection.replies == []
    world.resume("a")
    world.run(20)
    assert len(connection.replies) == 1


def test_a_crash_may_come_before_the_nodes_file_is_written():
    """Membership asked for the write only a moment ago."""
    world = World("ab", is_prompt=False)
    world.machines["a"].rng.randrange = lambda _: 50
    world.meet("a", "b")
    world.run(20)
    assert "b:7711" not in world.machines["a"].nodes_file
    world.run(200)
    assert "b:7711" in world.machines["a"].nodes_file


def test_counters_outlive_the_process():
    """Counters of INFO before a crash count, too."""
    world = joined("a")
    ask(world, "a", "ADDJOB", "q", "x", 0)
    world.crash("a")
    world.restart("a")
    ask(world, "a", "ADDJOB", "q", "x", 0)
    assert world.machines["a"].count("jobs_added") == 2
    assert world["a"].stats.jobs_added == 1


def test_an_orderly_end_leaves_a_journal_that_restores_everything():
    """SIGTERM: the journal is closed with its mark, so even at-most-once jobs are queued again."""
    world = World("")
    machine = world.add("a", journal="everysec")
    world.run(100)
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0, "RETRY", 0)
    ended = []
    machine.shut_down(lambda: ended.append(True))
    world.until(lambda: bool(ended))
    world.restart("a")
    world.run(100)
    assert ask(world, "a", "GETJOB", "NOHANG", "FROM", "q") == [[b"q", job_id, b"x"]]


def test_an_orderly_stop_leaves_a_nodes_file_that_is_up_to_date():
    """The server does the same. A crash may leave an older file."""
    world = joined("abc")
    machine = world.machines["a"]
    machine.nodes_file = ""
    machine.shut_down(lambda: None)
    world.run(50)
    assert not machine.is_up
    assert len(machine.nodes_file.splitlines()) >= 3


@pytest.mark.parametrize("power", [False, True])
def test_a_kill_undoes_no_write_of_the_nodes_file_and_a_power_cut_may(power):
    """The file is synced a moment later."""
    world = World("ab", is_prompt=False)
    machine = world.machines["a"]
    machine.rng.randrange = lambda _: 50
    world.meet("a", "b")
    world.until(lambda: len(machine.membership.table.linked) == 1)
    world.run(1)
    machine.die(power=power)
    assert ("b:7711" in machine.nodes_file) == (not power)
