"""storage/loading.py: a node reads its journal before it serves clients."""

from __future__ import annotations

import errno

import pytest

import journal_files
from cluster_bus.codec import Decoder
from cluster_bus.messages import PAUSE
from disque_py.core.queue import PAUSED_IN, PAUSED_OUT
from journaled import JournaledNode
from persistence.recovery import RESTORED_NAME


def start(**settings):
    node = JournaledNode(**settings)
    node.settle()
    return node


def add(node, count=1, *, retry=5):
    ids = []
    for _ in range(count):
        ids += node.ask("ADDJOB", "q", b"x" * 100, 0, "RETRY", retry)
        node.settle()
        ids += node.taken()
    return ids


def begin(node, **settings):
    """The next process, at its start."""
    node.folder.kill()
    return JournaledNode(node.folder, now_ms=node.ms, wall_ms=node.wall, run=2, **(node.settings | settings))


def test_commands_get_loading_until_all_jobs_are_there():
    node = start()
    ids = add(node, 3)
    again = begin(node)
    assert str(again.ask("QLEN", "q")[0]).startswith("LOADING")
    assert dict(again.journal_service.fields())["loading"] == 1
    again.settle()
    assert (sorted(again.memory()), again.broker.is_loading) == (sorted(ids), False)
    assert "Journal loaded: 3 jobs" in again.log[0]


def test_nothing_is_written_before_all_is_read():
    """Only the mark is removed first. The new file and the fate of at-most-once jobs follow, before any reply."""
    node = start(appendfsync="everysec")
    add(node, 2)
    (job_id,) = add(node, retry=0)
    again = begin(node)
    again.folder.trace = []
    again.settle()
    assert again.is_ready
    changes = [(op, name) for op, name, *_ in again.folder.trace if op not in ("read", "names", "size")]
    assert changes[0] == ("remove", "clean")
    again.folder.cut_power()
    (state,) = [said for known, said in again.check_states().items() if known == job_id]
    assert state[0] & 2


def test_a_torn_tail_is_cut_with_a_warning_or_refused():
    node = start()
    add(node, 3)
    name = [each for each in node.folder.names() if each.endswith(".seg")][-1]
    node.folder.truncate(name, journal_files.cut_zeros(node.folder, name) - 1)
    refusing = begin(node, aof_load_truncated=False)
    refusing.settle()
    assert "aof-load-truncated yes" in refusing.failed
    again = begin(node)
    again.settle()
    assert (again.broker.job_count, "cut off" in again.log[0]) == (2, True)


def test_a_write_that_did_not_end_is_ignored_with_a_notice():
    node = start()
    add(node, 3)
    name = [each for each in node.folder.names() if each.endswith(".seg")][-1]
    end = len(node.folder.read(name, 0, node.folder.size(name)).rstrip(b"\0"))
    node.folder.write(name, end - 100, [bytes(100)])
    again = begin(node, aof_load_truncated=False)
    again.settle()
    assert (again.failed, again.broker.job_count) == ("", 2)
    assert f"{name}: the last " in again.log[0]
    assert "are a write that did not end: ignored" in again.log[0]


def test_a_damaged_middle_is_refused_with_its_place():
    node = start()
    add(node, 20)
    node.folder.write("0000000001.seg", 700, [b"\xff\xff\xff"])
    again = begin(node)
    again.settle()
    assert "0000000001.seg: damaged at byte" in again.failed
    assert not again.is_ready


def test_a_missing_segment_is_refused():
    node = start()
    add(node, 20)
    node.folder.remove("0000000001.seg")
    again = begin(node)
    again.settle()
    assert "segment 1 of the journal is missing" in again.failed


def test_a_newer_format_is_refused():
    node = start()
    add(node, 20)
    node.folder.write("0000000001.seg", 8, [b"\x63"])
    again = begin(node)
    again.settle()
    assert "written in format 99" in again.failed


def test_a_disk_that_cannot_be_read_is_reported():
    node = start()
    add(node)
    node.folder.fail("read", errno.EIO)
    again = JournaledNode(node.folder, run=2)
    again.settle()
    assert "Can't read the journal" in again.failed


def test_a_full_disk_is_waited_for():
    """Clients are served only when the fate of at-most-once jobs is recorded, which a full disk prevents."""
    node = start(appendfsync="everysec")
    add(node, 2)
    (job_id,) = add(node, retry=0)
    node.folder.remove("reserve") if "reserve" in node.folder.names() else None
    node.folder.capacity_bytes = node.folder.used_bytes
    again = begin(node)
    again.settle(10_000)
    assert (again.is_ready, again.failed) == (False, "")
    assert dict(again.journal_service.fields())["loading_trouble"] == "No space left on device"
    assert [line for line in again.log if line.startswith("No client is served")] == [again.log[-1]]
    again.folder.capacity_bytes = None
    again.settle(2_000)
    assert (again.is_ready, again.broker.job_count) == (True, 3)
    assert again.broker.find(job_id).is_delivered


def test_a_disk_too_full_to_cut_a_torn_tail_is_waited_for():
    node = start()
    add(node, 3)
    name = [each for each in node.folder.names() if each.endswith(".seg")][-1]
    node.folder.truncate(name, journal_files.cut_zeros(node.folder, name) - 1)
    again = begin(node)
    again.folder.fail("write truncate", errno.ENOSPC, times=5)
    again.settle(2_500)
    assert (again.is_ready, again.failed, again.journal_service._driver.loading.trouble != "") == (False, "", True)
    again.settle(5_000)
    assert (again.is_ready, again.broker.job_count) == (True, 2)
    assert again.stop() is None
    assert again.restart().broker.job_count == 2


def test_journals_of_the_first_format_are_read_and_written_on():
    node = JournaledNode(node_id=journal_files.NODE, appendonly=False)
    node.folder.create("0000000001.seg", (journal_files.JOURNALS / "v1.seg").read_bytes())
    again = JournaledNode(node.folder, node_id=journal_files.NODE, wall_ms=journal_files.WALL_MS + 2_000, run=2)
    again.settle()
    assert sorted(again.memory()) == sorted((journal_files.QUEUED_ID, journal_files.ACKED_ID, journal_files.ONCE_ID))
    again.ask("ADDJOB", "other", "x", 0)
    again.settle()
    third = again.restart()
    assert (third.is_ready, third.broker.job_count) == (True, 4)


def test_the_mark_of_a_backup_is_removed_when_its_consequences_are_on_disk():
    node = start()
    (job_id,) = add(node, retry=0)
    node.stop()
    node.folder.create(RESTORED_NAME, b"")
    again = begin(node)
    again.settle()
    assert (again.is_ready, RESTORED_NAME in again.folder.names(), again.journal_service.last_load.lost) == (
        True,
        False,
        1,
    )
    again.stop()
    third = again.restart()
    assert third.broker.find(job_id).is_delivered


def test_a_journal_survives_a_kill_and_then_a_power_cut():
    """The first restart reads records that were not synced. It syncs them before a new header says that they exist."""
    for seed in range(8):
        node = start(appendfsync="no")
        add(node, 3)
        again = begin(node)
        again.settle()
        assert again.is_ready
        again.folder.rng.seed(seed)
        again.folder.cut_power()
        third = again.restart()
        assert (third.is_ready, third.broker.job_count) == (True, 3)


def pause_of(node, other, flags, version_ms):
    """Another node tells a pause that it has made."""
    node.say(other, PAUSE, (b"q", flags, version_ms, other.id))


@pytest.mark.parametrize(("recorded_ms", "told_ms", "state"), [(1, 2, b"out"), (2, 1, b"in")])
def test_the_later_of_a_recorded_pause_and_one_that_is_told_during_the_loading_is_in_force(recorded_ms, told_ms, state):
    """The journal's state used to overwrite a later one when all was read, and nothing repeated that."""
    node = start()
    pause_of(node, node.other(), PAUSED_IN, recorded_ms)
    node.settle()
    again = begin(node)
    pause_of(again, again.other(), PAUSED_OUT, told_ms)
    again.settle()
    assert again.answer("PAUSE", "q", "state") == state


def test_a_pause_that_is_told_during_the_loading_is_in_the_journal():
    node = start()
    add(node)  # Without it, the old segment would be dropped, for which all pauses are recorded again.
    again = begin(node)
    pause_of(again, again.other(), PAUSED_IN, 1)
    again.settle()
    third = begin(again)
    third.settle()
    assert third.answer("PAUSE", "q", "state") == b"in"


def test_a_pause_that_is_told_before_the_loading_starts_over_is_asked_for_again():
    node = start()
    add(node)
    again = begin(node)
    again.folder.fail("read", errno.ENOSPC, times=1)
    pause_of(again, again.other(), PAUSED_IN, 1)
    again.settle(2_000)
    assert again.is_ready
    told = [run for _, frame in again.frames for runs in Decoder().feed(frame) for run in runs]
    assert [PAUSE, [b"q", 0, 0, b""]] in told
