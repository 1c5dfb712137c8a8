"""The event log of a node from start to end: it is continued or begun anew, has no gap, and never stops the node."""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path
from random import Random

import hiredis
import pytest

from disque_py.simulator.world.folder import SimFolder
from disque_py.storage import event_log_service
from disque_py.storage.event_log_service import CLOSED, NEW_LOG_AFTER_MS, OFF, ON
from evented import EventedNode, names, turn
from persistence.disk import WRITING
from persistence.event_log import STALL_MS


def whole_way(node: EventedNode) -> bytes:
    """Add, deliver and acknowledge a job."""
    job_id = node.wait_for("ADDJOB", "q", "body", 0)
    node.wait_for("GETJOB", "FROM", "q")
    node.wait_for("ACKJOB", job_id)
    return job_id


def without_windows() -> SimFolder:
    """Return a folder without windows, so a thread writes its files, turn after turn."""
    folder = SimFolder(Random(8))
    folder.has_windows = False
    return folder


def test_events_can_be_read_once_they_are_on_disk_and_not_before():
    node = EventedNode()
    whole_way(node)
    assert node.service.log.next_seq == 4
    assert names(node.sync()) == ["added", "delivered", "acked"]
    assert [line["seq"] for line in node.lines()] == [1, 2, 3]


def test_no_reply_goes_ahead_of_its_event():
    """The disk was given nothing yet, so a killed process would lose the event."""
    node = EventedNode(event_folder=without_windows())
    assert node.ask("ADDJOB", "q", "body", 0) == []
    assert node.ask("PING", client=1) == [b"PONG"]
    node.work(WRITING)
    assert len(node.taken()) == 1


def test_no_reply_waits_for_the_disk_where_the_log_can_be_written_as_memory():
    node = EventedNode()
    assert len(node.ask("ADDJOB", "q", "body", 0)) == 1
    assert node.event_disk.waiting == []
    assert node.crash().service.log.next_seq == 2


def test_a_killed_process_loses_no_event_and_the_next_goes_on():
    """Spec E4."""
    node = EventedNode()
    whole_way(node)
    log_id = node.service.log.log_id
    node = node.crash()
    whole_way(node)
    assert node.service.log.log_id == log_id
    lines = node.sync()
    assert names(lines) == ["added", "delivered", "acked"] * 2
    assert [line["seq"] for line in lines] == list(range(1, 7))


def test_readable_events_survive_a_power_cut_and_their_numbers_are_not_used_again():
    for seed in range(12):
        node = EventedNode(event_folder=SimFolder(Random(seed)))
        whole_way(node)
        read = node.sync()
        whole_way(node)
        log_id = node.service.log.log_id
        node = node.crash(power=True)
        assert node.service.log.log_id == log_id
        assert node.lines(1)[: len(read)] == read
        whole_way(node)
        seqs = [line["seq"] for line in node.sync()]
        assert seqs == list(range(1, len(seqs) + 1))


def test_a_stop_and_a_start_go_on_in_the_same_log():
    node = EventedNode()
    whole_way(node)
    ended = []
    node.service.close(lambda: ended.append(True))
    node.settle()
    assert ended == [True]
    assert node.service.log.durable_seq == 4
    node = node.next_process()
    assert node.service.log.next_seq == 4


def test_the_event_of_a_start_tells_the_fate_of_the_jobs():
    node = EventedNode()
    node.driver.begin()
    node.service.started("memory lost")
    node.end_turn()
    (line,) = node.sync()
    assert (line["event"], line["reason"]) == ("started", "memory lost")


def test_every_field_of_info_is_explained():
    text = (Path(__file__).resolve().parents[3] / "docs/info.md").read_text(encoding="utf-8")
    node = EventedNode()
    node.service.event_readers.readers.clear()
    assert [name for name, _ in node.service.fields() if f"`{name}`" not in text] == []


def test_without_an_event_log_nothing_is_written_and_info_says_so():
    node = EventedNode(events=False)
    assert node.broker.events is None
    assert node.driver.output_commit is None
    assert len(node.ask("ADDJOB", "q", "body", 0)) == 1
    assert "events_state:off" in node.ask("INFO", "events")[0].decode()
    assert str(node.ask("EVENTS", "INFO")[0]) == "NOLOG none"


def test_a_start_without_events_ends_the_log_for_good():
    """There were transitions that are not in it."""
    node = EventedNode()
    whole_way(node)
    log_id = node.service.log.log_id
    node = node.crash(events=False)
    node = node.crash(events=True)
    assert node.service.log.log_id != log_id
    assert node.service.log.next_seq == 1


def test_switching_events_off_and_on_begins_a_new_log():
    """Spec E5."""
    node = EventedNode()
    whole_way(node)
    log_id = node.service.log.log_id
    node.broker.settings.events = False
    node.service.switch()
    node.settle()
    assert (node.service.state, node.broker.events, node.driver.events) == (OFF, None, None)
    whole_way(node)
    node.broker.settings.events = True
    node.service.switch()
    node.settle()
    whole_way(node)
    assert node.service.log.log_id != log_id
    lines = node.sync()
    assert lines[0]["event"] == "started"
    assert names(lines) == ["added", "delivered", "acked"]


def test_events_can_be_switched_on_again_before_the_old_log_is_closed():
    node = EventedNode()
    for wanted in (False, True):
        node.broker.settings.events = wanted
        node.service.switch()
    node.settle()
    assert node.service.state == ON
    whole_way(node)
    assert names(node.sync()) == ["added", "delivered", "acked"]


def test_a_disk_that_fails_ends_the_log_and_no_reply_waits_for_it():
    node = EventedNode(event_folder=without_windows())
    whole_way(node)
    node.sync()
    old = node.service.log.log_id
    node.event_folder.fail("write", errno=errno.EIO)
    whole_way(node)
    assert node.service.state == CLOSED
    assert any("closed, the node goes on without" in line for line in node.log)
    assert names(node.lines()) == ["added", "delivered", "acked"]  # Events on disk can still be read.
    node.settle(NEW_LOG_AFTER_MS + 1_000)
    assert node.service.state == ON
    assert node.service.log.log_id != old
    assert isinstance(node.wait_for("EVENTS", "READ", old, 1), hiredis.ReplyError)
    whole_way(node)
    assert names(node.sync()) == ["added", "delivered", "acked"]


def test_a_log_that_was_closed_is_not_continued_by_the_next_process():
    node = EventedNode()
    whole_way(node)
    old = node.service.log.log_id
    node.event_folder.fail("sync", errno=errno.EIO)
    node.settle(1_100)
    assert node.service.state == CLOSED
    node = node.crash()
    assert node.service.log.log_id != old


def test_no_reply_waits_for_ever_for_a_disk_that_is_stuck():
    node = EventedNode(event_folder=without_windows())
    assert node.ask("ADDJOB", "q", "body", 0) == []
    node.tick()
    for _ in range(STALL_MS // 100):
        node.pass_ms(100)
        node.tick()
    assert (node.taken(), node.service.state) == ([], ON)  # A busy disk takes its time when a segment ends.
    node.pass_ms(100)
    node.tick()
    assert len(node.taken()) == 1
    assert node.service.state == CLOSED
    assert "taken no write" in node.service.trouble


def test_a_node_starts_without_a_folder_for_its_log():
    node = EventedNode(open_error=PermissionError(errno.EACCES, "Permission denied"))
    assert (node.opened, node.service.state) == (1, CLOSED)
    assert len(node.ask("ADDJOB", "q", "body", 0)) == 1
    assert "Permission denied" in node.ask("INFO", "events")[0].decode()
    node.open_error = None
    node.settle(6_000)
    assert node.service.state == ON
    assert node.service.missed >= 1


def test_a_log_that_could_not_be_opened_for_a_while_is_not_continued():
    """Events of the meantime are in no log: the old one would have a gap."""
    node = EventedNode()
    whole_way(node)
    old = node.service.log.log_id
    node = node.crash(open_error=PermissionError(errno.EACCES, "Permission denied"))
    whole_way(node)
    node.open_error = None
    node.settle(6_000)
    assert (node.service.state, node.service.missed > 0) == (ON, True)
    assert node.service.log.log_id != old


def test_a_log_that_could_not_be_opened_is_not_continued_by_the_next_process():
    """The process in between could not open it, and its events are in no log (seed 6282)."""
    node = EventedNode()
    whole_way(node)
    old = node.service.log.log_id
    node.event_folder.fail("sync truncate", errno=errno.EIO, times=-1)
    node = node.crash()
    assert node.service.state == CLOSED
    whole_way(node)
    node.settle()
    node.event_folder.heal()
    node = node.crash()
    assert node.service.state == ON
    assert node.service.log.log_id != old


@pytest.mark.plain
def test_a_log_whose_slow_opening_drops_events_is_not_continued(monkeypatch):
    node = EventedNode()
    whole_way(node)
    old = node.service.log.log_id
    monkeypatch.setattr(event_log_service, "WAITING_MAX", 2)
    node = node.crash(is_waited_for=False)
    for _ in range(4):
        node.ask("ADDJOB", "q", "body", 0)
    node.settle()
    assert (node.service.state, node.service.missed > 0) == (ON, True)
    assert node.service.log.log_id != old


def test_a_damaged_log_gives_way_to_a_new_one():
    """A flipped bit in what had been on disk; the numbers must not be given to other events."""
    node = EventedNode(event_segment_bytes=100_000)
    whole_way(node)
    node.sync()
    whole_way(node)
    node.sync()
    old = node.service.log
    content = node.event_folder._files[old.segments[-1].name].content
    content[old.segments[-1].marks[0][1] + 40] ^= 1
    node = node.crash()
    assert node.service.log.log_id != old.log_id
    assert any("damaged" in line for line in node.log)


def test_segments_are_removed_for_their_bytes_and_readers_learn_where_the_log_goes_on():
    node = EventedNode(events_max_bytes=8_000)
    for _ in range(60):
        whole_way(node)
    node.settle(2_500)
    log = node.service.log
    assert log.size <= 8_000
    assert log.first_seq > 1
    assert str(node.read(1)) == f"TRIMMED {log.first_seq}"
    assert node.lines()[0]["seq"] == log.first_seq


def test_segments_are_removed_when_they_are_old():
    node = EventedNode(events_max_age=80)
    whole_way(node)
    node.settle(20_000)
    whole_way(node)
    assert node.service.log.first_seq == 1
    node.settle(100_000)
    assert node.service.log.first_seq == 4


def test_with_a_journal_under_always_replies_wait_for_both_disks_syncs():
    node = EventedNode(appendonly=True, appendfsync="always")
    node.settle()
    turn(node, lambda: node.put("ADDJOB", "q", "body", 0))
    while node.disk.run_one():
        node.end_turn()
    assert node.taken() == []
    while node.event_disk.run_one():
        node.end_turn()
    assert len(node.taken()) == 1
    assert names(node.lines()) == ["added"]  # Readable at once.


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_a_journal_comes_and_goes_while_events_are_written(policy):
    """A client that waits for either log is answered in any case, and no event is lost."""
    node = EventedNode(appendfsync=policy)
    for wanted in (True, False, True):
        turn(node, partial(node.put, "ADDJOB", "q", "body", 0))  # It is being written while the journal changes.
        node._turn(partial(_switch_journal, node, wanted))
        node.settle(2_500)
        assert len(node.taken()) == 1
        whole_way(node)
        node.settle()
    assert node.driver.journal is not None
    lines = node.sync()
    assert names(lines).count("added") == 6
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))


def _switch_journal(node: EventedNode, wanted: bool) -> None:
    node.broker.settings.appendonly = wanted
    node.journal_service.switch()


def test_jobs_are_read_back_while_events_are_written():
    """DEBUG LOADAOF: the journal goes and comes; nothing about jobs has changed."""
    node = EventedNode(appendonly=True, appendfsync="always")
    job_id = node.wait_for("ADDJOB", "q", "body", 0)
    assert node.ask("DEBUG", "LOADAOF") == []
    node.settle(3_000)
    assert node.taken() == [b"OK"]
    assert node.broker.find(job_id) is not None
    whole_way(node)
    assert names(node.sync())[0] == "added"


@pytest.mark.parametrize("end", ["loadaof", "appendonly no"])
def test_a_reply_waits_for_its_event_when_the_journal_goes(end):
    """Spec E4. The disk with the events stands still."""
    node = EventedNode(appendonly=True, appendfsync="always")
    turn(node, lambda: node.put("ADDJOB", "q", "body", 0, client=1))
    if end == "loadaof":
        node.ask("DEBUG", "LOADAOF")
    else:
        node._turn(partial(_switch_journal, node, False))
    while node.disk.run_one() or node.driver.has_more:
        node.tick()
    assert node.taken(1) == []
    node.settle(100)
    assert len(node.taken(1)) == 1


def test_jobs_that_come_back_from_the_journal_keep_their_versions():
    node = EventedNode(appendonly=True, appendfsync="always")
    job_id = node.wait_for("ADDJOB", "q", "body", 0)
    node.wait_for("GETJOB", "FROM", "q")
    node = node.crash()
    assert node.broker.find(job_id).version == 2
    node.wait_for("ACKJOB", job_id)
    last = node.sync()[-1]
    assert (last["event"], last["version"], last["from_state"]) == ("acked", 3, "running")


@pytest.mark.parametrize("power", [False, True])
def test_random_days_leave_no_gap_and_nothing_twice(power):
    """Jobs come and go, the disk works in random steps, and processes die.

    The numbers of each log have no gaps. An event that was read once reads the same later. A killed process loses none.
    """
    for seed in range(6):
        rng = Random(seed)
        node = EventedNode(event_folder=SimFolder(Random(seed)))
        seen: dict[tuple[str, int], str] = {}
        done = 0
        for _ in range(120):
            deed = rng.randrange(12)
            if deed < 7 and not node.clients[0].client.waiting:
                turn(node, partial(node.put, "ADDJOB", "q", "body", 0))
                done += 1
            elif deed < 10:
                node.work()
            elif deed == 10:
                node.settle(rng.randrange(1_500))
                for line in node.lines():
                    assert seen.setdefault((node.service.log.log_id, line["seq"]), line["job_id"]) == line["job_id"]
            elif rng.random() < 0.3:
                node.settle()  # All was handed to the system.
                before = node.service.log.next_seq
                node = node.crash(power=power)
                assert power or node.service.log.next_seq == before
        lines = node.sync()
        assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
        assert power or len(lines) == done
        for (log_id, seq), job_id in seen.items():
            assert log_id == node.service.log.log_id
            assert lines[seq - 1]["job_id"] == job_id
