"""A machine's event log goes on after a crash, and has every event that a client was told of."""

from __future__ import annotations

import errno

import pytest

import journal_files
from disque_py.event_format import ACKED, ADDED
from disque_py.simulator.oracle import RuleBrokenError
from disque_py.simulator.world.world import World
from disque_py.storage.event_log_service import CLOSED, ON
from simulated import ask, asker, words


@pytest.fixture
def world():
    """A world with one node. A thread writes its log, so an event is written only some time after it is made."""
    world = World("a", events=True)
    world.machines["a"].event_logs.folder.has_windows = False
    world.machines["a"].event_logs.disk.wait_share = 0.0
    world.run(200)
    return world


@pytest.fixture
def event_logs(world):
    return world.machines["a"].event_logs


def test_a_node_serves_when_its_log_is_open():
    """Requests that come earlier wait."""
    world = World("", events=True)
    machine = world.add("a")
    connection = asker(world, "a")
    connection.send([words("PING")])
    assert (machine.is_deaf, connection.replies) == (True, [])
    world.run(100)
    assert (machine.is_deaf, connection.replies) == (False, [b"PONG"])
    assert machine.event_logs.is_whole


def test_a_disk_that_does_not_answer_is_not_waited_for():
    world = World("", events=True)
    machine = world.add("a")
    machine.event_logs.had_trouble = machine.event_logs.disk.is_stuck = True
    world.run(3_100)
    assert (machine.is_deaf, machine.event_logs.is_whole) == (False, False)


@pytest.mark.parametrize("power", [False, True])
def test_the_log_goes_on_after_a_crash(world, event_logs, power):
    """A kill loses no event. A power cut loses the last second, which no client could read."""
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0)
    log_id = event_logs.current.log_id
    world.machines["a"].die(power=power)
    world.restart("a")
    world.run(500)
    assert (event_logs.current.log_id, event_logs.service.state) == (log_id, ON)
    assert bool(event_logs.current.last_of(job_id, (ADDED,))) is not power
    assert bool(event_logs.lost) is power


def test_where_files_are_memory_an_answer_waits_for_nothing():
    world = World("a", events=True)
    world.run(200)
    event_logs = world.machines["a"].event_logs
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0)
    event_logs.check_told(job_id, (ADDED,), "answer")
    assert event_logs.service.log.written == event_logs.service.log.position
    world.machines["a"].die()
    world.restart("a")
    world.run(500)
    assert event_logs.current.last_of(job_id, (ADDED,))


def test_another_log_without_a_reason_breaks_a_rule(world, event_logs):
    """The marker of the open log is gone, although the disk had no fault."""
    world.machines["a"].die()
    event_logs.folder.remove("open")
    world.restart("a")
    with pytest.raises(RuleBrokenError, match="a log goes on"):
        world.run(500)


def test_a_log_that_ends_too_early_breaks_a_rule(world, event_logs):
    ask(world, "a", "ADDJOB", "q", "x", 0)
    world.machines["a"].die()
    [name] = [name for name in event_logs.folder.names() if name.endswith(".events")]
    event_logs.folder.truncate(name, journal_files.cut_zeros(event_logs.folder, name) - 1)
    world.restart("a")
    with pytest.raises(RuleBrokenError, match="events stay"):
        world.run(500)


def test_a_reply_without_its_event_breaks_a_rule(world, event_logs):
    """The event may be in no log, or not on disk yet."""
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0)
    event_logs.check_told(job_id, (ADDED,), "answer")
    with pytest.raises(RuleBrokenError, match="no event"):
        event_logs.check_told(job_id, (ACKED,), "answer")
    connection = asker(world, "a")
    connection.send([words("ACKJOB", job_id)])
    with pytest.raises(RuleBrokenError, match="before its event"):
        event_logs.check_told(job_id, (ACKED,), "answer")
    assert connection.replies == []


def test_versions_must_rise(world, event_logs):
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0)
    world["a"].find(job_id).version = 0
    with pytest.raises(RuleBrokenError, match="versions rise"):
        ask(world, "a", "ACKJOB", job_id)


def test_a_job_whose_creation_failed_may_come_again_with_any_version(world, event_logs):
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0)
    world["a"].find(job_id).version = 0
    event_logs.forget_version(job_id)
    ask(world, "a", "ACKJOB", job_id)


def test_versions_may_repeat_after_the_journal_was_loaded_again():
    """Seed 20120: progress is not in the journal, so the next change has the version of the progress again."""
    world = World("", events=True)
    world.add("a", journal="always")
    world.run(200)
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0)
    ask(world, "a", "GETJOB", "FROM", "q")
    ask(world, "a", "PROGRESS", job_id, 50)
    world.run(2_000)
    assert ask(world, "a", "DEBUG", "LOADAOF") == b"OK"
    assert ask(world, "a", "ACKJOB", job_id) == 1


def test_a_queued_job_must_be_pending(world, event_logs):
    job_id = ask(world, "a", "ADDJOB", "q", "x", 0)
    event_logs.check_states()
    world["a"].find(job_id).status = 3
    with pytest.raises(RuleBrokenError, match="events tell the state"):
        event_logs.check_states()


def test_a_stopped_process_goes_on_with_its_log(world, event_logs):
    """A write was under way when it was stopped."""
    machine = world.machines["a"]
    connection = asker(world, "a")
    connection.send([words("ADDJOB", "q", "x", 0)])
    machine.stop()
    world.run(5_000)
    machine.go_on()
    world.run(100)
    assert event_logs.service.state == ON
    assert len(connection.replies) == 1


def test_a_log_that_ends_on_a_healthy_disk_breaks_a_rule(world, event_logs):
    """During a disk fault it may end, and the next log has another id."""
    event_logs.folder.fail("write", errno.EIO)
    with pytest.raises(RuleBrokenError, match="a disk in health"):
        ask(world, "a", "ADDJOB", "q", "x", 0)


def test_a_log_goes_on_over_no_hole(world, event_logs):
    """Events that happened while it was closed are in no log."""
    event_logs.had_trouble = True
    event_logs.service.state = CLOSED
    ask(world, "a", "ADDJOB", "q", "x", 0)
    assert event_logs.current.has_hole
    world.machines["a"].die()
    world.restart("a")
    with pytest.raises(RuleBrokenError, match="a log goes on without a hole"):
        world.run(500)


@pytest.mark.parametrize(("is_stuck", "power"), [(True, False), (False, True), (False, False)])
def test_the_mark_of_a_closed_log_may_be_missing_on_a_failing_disk(world, event_logs, is_stuck, power):
    """The removal of a file needs no room, but a disk that works."""
    event_logs.current.has_hole = event_logs.had_trouble = True
    event_logs.health.fall_ill()
    event_logs.disk.is_stuck = is_stuck
    world.run(1)
    if is_stuck:
        event_logs.disk.start(0, lambda folder: None, lambda outcome: None)
    world.machines["a"].die(power=power)
    assert event_logs.current.has_hole == (not is_stuck and not power)


def test_a_disk_problem_excuses_nothing_after_the_log_is_written_again(world, event_logs):
    event_logs.had_trouble = True
    event_logs.health.fall_ill()
    ask(world, "a", "PING")
    assert event_logs.had_trouble
    event_logs.health.get_well(world.now_ms)
    world.run(1_100)
    ask(world, "a", "PING")
    assert not event_logs.had_trouble
