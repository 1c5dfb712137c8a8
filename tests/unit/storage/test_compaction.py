"""storage/compaction.py: when space is freed, and that no job is lost by it."""

from __future__ import annotations

import errno

import pytest

from disque_py.core import client_acks, journaling, lifecycle
from journaled import JournaledNode


def start(**settings):
    node = JournaledNode(**({"auto_aof_rewrite_percentage": 0} | settings))
    node.settle()
    return node


def fill(node, count):
    ids = []
    for number in range(count):
        ids += node.ask("ADDJOB", "q", b"%d" % number * 100, 0, "RETRY", 5)
    node.settle()
    return ids + node.taken()


def acknowledge(node, ids):
    for job_id in ids:
        node.ask("ACKJOB", job_id)
    node.settle()
    node.taken()


def segments(node):
    return [name for name in node.folder.names() if name.endswith(".seg")]


def test_bgrewriteaof_leaves_little_more_than_the_living_records():
    """Also of a small journal, all of which is in the segment that is being written."""
    for segment_bytes in (1_500, 1 << 20):
        node = JournaledNode(segment_bytes=segment_bytes, auto_aof_rewrite_percentage=0)
        node.settle()
        acknowledge(node, fill(node, 30)[3:])
        before = node.journal_service.journal.size
        node.ask("BGREWRITEAOF")
        node.settle(1_000)
        journal = node.journal_service.journal
        assert journal.size < before / 3
        assert journal.size < 2 * sum(node.broker.journal.live_bytes.values()) + 1_000
        assert not node.driver.compaction.is_running
        node.check_folder(at_least=node.promised)
        node.recount()


def test_a_second_rewrite_is_refused_while_one_runs():
    node = start()
    fill(node, 30)
    node.ask("BGREWRITEAOF")
    assert node.driver.compaction.is_running
    replies = node.ask("BGREWRITEAOF", client=1)
    node.settle(1_000)
    assert "already in progress" in str([*replies, *node.taken(1)][0])


def test_a_journal_grows_by_a_percentage_before_it_is_rewritten_by_itself():
    node = start(auto_aof_rewrite_percentage=100, auto_aof_rewrite_min_size=4_000)
    for _ in range(30):
        acknowledge(node, fill(node, 10))
        node.settle(300)
    assert node.journal_service.journal.size < 12_000
    node.check_folder(at_least=node.promised)


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_a_full_disk_is_freed_however_small_the_journal_is(policy):
    """All of it is in the segment that is being written, far below auto-aof-rewrite-min-size."""
    node = JournaledNode(segment_bytes=1 << 20, reserve_bytes=16 << 10, appendfsync=policy)
    node.settle(3_000)
    ids = fill(node, 100)
    node.folder.capacity_bytes = used = node.folder.used_bytes
    node.settle(3_000)
    while not node.broker.journal.disk_level:
        node.ask("ADDJOB", "q", b"x" * 1000, 0)
        node.settle(100)
    node.settle(2_000)
    assert "MISCONF" in str(node.ask("ADDJOB", "q", "body", 0, client=1))
    for job_id in [job_id for shard in node.broker.shards for job_id in shard if job_id not in ids[:3]]:
        node.ask("ACKJOB", job_id, client=1)
        node.settle()
    node.settle(5_000)
    assert (node.broker.journal.disk_level, node.broker.journal.disk_trouble) == (0, "")
    assert node.folder.used_bytes < used * 0.8
    node.taken()
    assert str(node.answer("ADDJOB", "q", "body", 0)).startswith("b'D-")
    again = node.restart()
    assert [again.broker.find(ids[at]) is not None for at in (0, 2, 3, 99)] == [True, True, False, False]


def test_on_a_full_disk_a_segment_that_cannot_be_removed_is_not_rewritten_again_at_once():
    """Each attempt uses a part of the reserved room, and acks have no other room."""
    node = JournaledNode(segment_bytes=1 << 20, reserve_bytes=64 << 10)
    node.settle(3_000)
    ids = fill(node, 100)
    node.folder.capacity_bytes = node.folder.used_bytes
    while not node.broker.journal.disk_level:
        ids += node.ask("ADDJOB", "q", b"x" * 1000, 0) + node.taken()
        node.settle(100)
    node.folder.fail("remove", errno.EIO, times=-1)
    acknowledge(node, [job_id for shard in node.broker.shards for job_id in shard if job_id not in ids[:3]])
    node.settle(1_000)
    position = node.journal_service.journal.position
    node.settle(8_000)
    assert (node.broker.journal.disk_level, node.journal_service.journal.position) == (1, position)
    node.folder.heal()
    node.settle(12_000)
    assert node.broker.journal.disk_level == 0


def test_dead_segments_are_removed_without_being_read():
    node = start()
    acknowledge(node, fill(node, 40))
    node.settle(1_000)
    node.folder.trace = []
    node.settle(1_000)
    assert len(segments(node)) <= 2
    assert "read" not in [op for op, *_ in node.folder.trace]


def test_pauses_survive_the_segment_that_has_their_records():
    node = start()
    node.ask("PAUSE", "p", "in")
    node.ask("PAUSE", "r", "out", "BCAST")
    acknowledge(node, fill(node, 40))
    node.settle(1_000)
    again = node.restart()
    assert {name: queue.paused for name, queue in again.broker.queues.items() if queue.paused} == {b"p": 1, b"r": 2}
    assert b"r" in again.broker.pauses.versions


def test_a_file_that_cannot_be_removed_brings_nothing_back():
    """It still exists after a restart, but its jobs are over."""
    node = start()
    ids = fill(node, 12)
    node.folder.fail("remove", errno.EIO, times=-1, when=lambda name: name == "0000000001.seg")
    node.ask("BGREWRITEAOF")
    node.settle(1_000)
    acknowledge(node, ids)
    for _ in range(6):
        acknowledge(node, fill(node, 12))
        node.ask("BGREWRITEAOF")
        node.settle(1_000)
    assert "0000000001.seg" in segments(node)
    again = node.restart()
    assert (again.is_ready, again.broker.job_count) == (True, 0)


@pytest.mark.parametrize("ends", [1, 3])
def test_a_rewrite_that_is_cut_short_by_a_crash_loses_nothing(ends):
    """The crash comes after any operation of the rewrite, and then a second time."""
    for steps in range(1, 30, 4):
        node = start()
        ids = fill(node, 14)
        acknowledge(node, ids[::2])
        for _ in range(ends):
            node.ask("BGREWRITEAOF")
            for _ in range(steps):
                node.tick()
                node.work()
            node.check_folder(at_least=node.promised)
            node.folder.cut_power()
            node.check_folder(at_least=node.promised)
            node = node.restart()
            node.recount()
            assert node.broker.job_count == 7
        acknowledge(node, [job_id for shard in node.broker.shards for job_id in shard])
        node.ask("BGREWRITEAOF")
        node.settle(2_000)
        assert node.restart().broker.job_count == 0


def test_a_job_that_ends_in_the_turn_in_which_it_is_moved_does_not_come_back():
    """Its base is not written again, and the old one exists until the segment is dropped."""
    node = start()
    job_id, *_ = fill(node, 14)
    node.driver.begin()
    job = node.broker.find(job_id)
    journaling.rebase(node.broker, job)
    node.put("FASTACK", job_id)
    node.end_turn()
    node.settle()
    node.folder.kill()
    assert job_id not in node.check_states()


def add_large(node, count=1):
    ids = [job_id for _ in range(count) for job_id in node.ask("ADDJOB", "q", b"x" * 20_000, 0)]
    node.settle()
    return ids + node.taken()


def rewrite_what_is_mostly_dead(node):
    node.ask("CONFIG", "SET", "auto-aof-rewrite-min-size", 0)
    node.ask("CONFIG", "SET", "auto-aof-rewrite-percentage", 1)
    node.settle(1_000)
    node.ask("CONFIG", "SET", "auto-aof-rewrite-percentage", 0)
    node.settle()
    node.taken()


def test_a_job_that_came_back_and_was_moved_does_not_come_again():
    """A repeated GONE moves the job that came back. Its former base stays in another segment."""
    node = start(segment_bytes=1 << 20)
    rotate = node.journal_service.journal.rotate
    (job_id,) = fill(node, 1)
    first = add_large(node)
    rotate()
    acknowledge(node, [job_id, *add_large(node)])
    rotate()
    node.driver.begin()
    client_acks.dummy_ack(node.broker, job_id)
    node.end_turn()
    kept = add_large(node)
    rotate()
    node.settle()
    rewrite_what_is_mostly_dead(node)
    assert [number for number in (1, 2, 3) if node.journal_service.journal.parts_of(number)] == [1, 3]
    acknowledge(node, first)
    acknowledge(node, add_large(node))
    rotate()
    node.driver.begin()
    lifecycle.forget(node.broker, node.broker.find(job_id))
    node.end_turn()
    acknowledge(node, add_large(node))
    rotate()
    node.settle()
    rewrite_what_is_mostly_dead(node)
    node.folder.kill()
    assert set(node.check_states()) == set(kept)


def test_flushall_while_all_jobs_are_being_recorded_leaves_nothing():
    node = start(appendonly=False)
    fill(node, 1_200)
    node.ask("CONFIG", "SET", "appendonly", "yes")
    while not (node.driver.compaction is not None and node.broker.journal.live_bytes):
        node.work()
        node.tick()
    node.ask("DEBUG", "FLUSHALL")
    node.settle(1_000)
    assert node.restart(appendonly=True).broker.job_count == 0


def test_flushall_during_a_rewrite_ends_it():
    node = start()
    fill(node, 30)
    node.ask("BGREWRITEAOF")
    node.tick()
    node.ask("DEBUG", "FLUSHALL")
    node.settle(1_000)
    assert (node.driver.compaction.is_running, node.broker.journal.live_bytes) == (False, {}) or not any(
        node.broker.journal.live_bytes.values()
    )
    node.check_folder(at_least=node.promised)


def test_a_segment_that_cannot_be_removed_is_not_dropped_again_at_once():
    """Each try costs a record: one that fails five times a second would fill the disk it fails on."""
    node = start(segment_bytes=1_500)
    acknowledge(node, fill(node, 30))
    node.folder.fail("remove", errno.EIO, times=-1)
    node.settle(1_000)
    size = node.journal_service.journal.size
    node.settle(8_000)
    assert node.journal_service.journal.size == size
    node.folder.heal()
    node.settle(11_000)
    assert len(segments(node)) < 3
