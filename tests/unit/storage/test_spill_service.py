"""storage/spill_service.py: takes bodies out of memory and brings them back."""

from __future__ import annotations

import errno

from spilled import BODY_BYTES, SpillingNode, take_all


def test_a_batch_is_written_for_many_jobs():
    node = SpillingNode(maxmemory=3_000_000)
    for _ in range(1_950):
        node.add()
    assert node.broker.spill.writing_bytes > 20 * BODY_BYTES
    assert len(node.spill_disk.waiting) < 10
    node.settle()
    node.check()


def test_a_full_disk_keeps_bodies_in_memory_and_says_so_once():
    node = SpillingNode()
    node.spill_folder.capacity_bytes = 2_000
    ids = node.fill(30)
    assert len(node.out()) <= 4
    assert node.broker.spill.trouble == "No space left on device"
    assert sum("can't be written" in line for line in node.log) == 1
    assert [entry[1] for entry in take_all(node)] == ids
    node.check()


def test_spilling_goes_on_when_the_disk_does():
    node = SpillingNode()
    node.spill_folder.fail("write", errno.ENOSPC, times=1)
    node.fill(30)
    node.settle(3_000)
    assert node.out()
    assert node.broker.spill.trouble == ""
    assert node.log[-1] == "Bodies of jobs can be written to disk again"
    node.check()


def test_a_read_that_fails_without_free_descriptors_is_repeated():
    """The body is where it was."""
    node = SpillingNode()
    ids = node.fill(30)
    node.answer("GETJOB", "COUNT", 30, "FROM", "q")
    node.spill_folder.fail("read", errno.EMFILE, times=3)
    assert node.answer("SHOW", ids[-1])
    assert node.broker.spill.lost == 0
    node.settle(2_000)
    node.check()


def half_dead():
    """A node whose files have mostly bodies of jobs that are gone."""
    node = SpillingNode(maxmemory=200_000)
    ids = node.fill(250)
    node.answer("CONFIG", "SET", "maxmemory", 100_000)
    node.settle(2_000)
    for index, job_id in enumerate(ids):
        if index % 8:
            node.answer("DELJOB", job_id)
            del node.bodies[job_id]
    return node


def test_space_is_freed_by_copying_living_bodies():
    """Every other job ends. Files with half of their bodies dead are copied and removed."""
    node = half_dead()
    before = node.service.store.size
    for _ in range(20):
        node.settle(1_100)
    assert node.service.store.size < before // 2
    node.check()


def test_a_file_that_cannot_be_scanned_is_left_alone():
    node = half_dead()
    node.spill_folder.fail("read", errno.EIO, times=1)
    node.spill_folder.trace = []
    node.settle(3_000)
    node.check()
    read = [name for op, name, *_ in node.spill_folder.trace if op == "read"]
    assert read.count(read[0]) == 1


def test_a_restart_begins_with_an_empty_folder_and_every_body():
    node = SpillingNode(appendonly=True, appendfsync="always")
    node.settle()
    ids = node.fill(40)
    assert node.out()
    node.settle(1_000)
    node = node.restart()
    node.settle(5_000)
    node.check()
    assert {job_id for shard in node.broker.shards for job_id in shard} == set(ids)
    assert node.broker.used_memory < 30_000


def test_a_journal_that_is_larger_than_memory_is_loaded():
    """Reading waits while bodies leave memory."""
    node = SpillingNode(appendonly=True, appendfsync="always", maxmemory=200_000)
    node.settle()
    node.fill(150)
    node.settle(1_000)
    node = node.restart(maxmemory=110_000)
    assert not node.broker.is_loading
    assert node.broker.job_count == 150
    node.settle(5_000)
    assert node.broker.used_memory <= 110_000
    node.check()


def test_a_journal_that_is_switched_on_records_bodies_from_disk():
    node = SpillingNode()
    ids = node.fill(35)
    out = node.out()
    node.answer("CONFIG", "SET", "appendonly", "yes")
    node.settle(2_000)
    assert node.out() == out
    node = node.restart(appendonly=True)
    assert [entry[1:3] for entry in take_all(node)] == [[job_id, node.bodies[job_id]] for job_id in ids]


def test_a_rewrite_keeps_jobs_whose_bodies_are_on_disk():
    node = SpillingNode(appendonly=True, appendfsync="always")
    node.settle()
    ids = node.fill(35)
    reads = node.broker.spill.read
    node.answer("BGREWRITEAOF")
    node.settle(3_000)
    assert node.broker.spill.read == reads
    node.check()
    node = node.restart()
    node.settle(5_000)
    assert {job_id for shard in node.broker.shards for job_id in shard} == set(ids)
    node.check()


def test_info_shows_the_bodies_on_disk():
    node = SpillingNode()
    node.fill(30)
    text = node.answer("INFO", "memory").decode()
    fields = dict(line.split(":", 1) for line in text.split("\r\n")[1:] if line)
    out = len(node.out())
    assert (fields["spilled_jobs"], fields["spilled_bytes"]) == (str(out), str(out * BODY_BYTES))
    assert (fields["spill_enabled"], fields["spill_trouble"]) == ("1", "")
    assert int(fields["spill_file_bytes"]) >= out * BODY_BYTES


def test_outcomes_of_the_disk_in_the_turn_of_a_reset_are_dropped():
    """Bodies read or written then are not counted (found with simulator seed 31118)."""
    for is_reading in (True, False):
        node = SpillingNode()
        ids = node.fill(30)
        if is_reading:
            node.ask("SHOW", node.out()[0])
        else:
            node.put("ADDJOB", "q", b"y" * 400, 0)
            node.ask("ADDJOB", "q", b"z" * 400, 0)
        assert node.spill_disk.waiting
        node.driver.begin()
        node.put("DEBUG", "FLUSHALL", client=1)
        node.spill_disk.run()
        node.end_turn()
        node.bodies.clear()
        assert node.broker.used_memory == 0, ids
        node.check()
