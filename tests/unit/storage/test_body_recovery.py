"""storage/body_recovery.py: a body that can't be read from its spill file is taken from the journal."""

from __future__ import annotations

import errno

from persistence.disk import READING, WRITING
from spilled import BODY_BYTES, SpillingNode, take_all


def spoilt(node: SpillingNode) -> bytes:
    """The id of a job whose body on disk is not what was written."""
    job_id = node.out()[0]
    place = node.job(job_id).body
    node.spill_folder._files[f"{place.file:010}.spill"].content[place.offset + 60] ^= 1
    return job_id


def journaled(count: int = 30) -> SpillingNode:
    """A node with a journal, and bodies on disk."""
    node = SpillingNode(appendonly=True, appendfsync="everysec")
    node.settle()
    node.fill(count)
    assert node.out()
    return node


def test_a_body_that_cannot_be_read_is_recovered_from_the_journal():
    """It is delivered whole and in its order. One line in the log stands for all of them."""
    node = journaled()
    out = len(node.out())
    for name in list(node.spill_folder._files):
        del node.spill_folder._files[name]
    got = take_all(node)
    assert {entry[1]: entry[2] for entry in got} == node.bodies
    assert [entry[1] for entry in got] == list(node.bodies)
    spill = node.broker.spill
    assert (spill.rescued, spill.lost, spill.trouble) == (out, 0, "")
    assert sum(call[0] == "log" and "from the journal" in call[2] for call in node.broker.host.calls) == 1
    node.check()


def test_show_of_a_damaged_body_shows_it_from_the_journal():
    node = journaled()
    job_id = spoilt(node)
    shown = node.answer("SHOW", job_id)
    assert shown[shown.index(b"body") + 1] == node.bodies[job_id]
    assert node.job(job_id).body == node.bodies[job_id]
    node.check()


def test_a_body_is_recovered_from_a_segment_that_was_rewritten():
    node = journaled(40)
    job_id = spoilt(node)
    node.answer("BGREWRITEAOF")
    node.settle(3_000)
    assert node.answer("SHOW", job_id)
    assert node.broker.spill.rescued == 1
    node.check()


def test_a_rewrite_under_way_does_not_hide_a_body():
    """The segment is removed while it is searched: then the base is in a later one."""
    for steps in range(0, 40, 3):
        node = journaled(40)
        job_id = spoilt(node)
        node.ask("BGREWRITEAOF")
        for _ in range(steps):
            node.work() or node.tick()
        assert node.answer("SHOW", job_id)
        assert (node.broker.spill.rescued, node.broker.spill.lost) == (1, 0)
        node.settle(3_000)
        node.check()


def test_a_journal_that_cannot_be_read_for_a_moment_is_asked_again():
    node = journaled()
    job_id = spoilt(node)
    node.folder.fail("read", errno.EIO, times=2)
    assert node.answer("SHOW", job_id)
    assert (node.broker.spill.rescued, node.broker.spill.lost) == (1, 0)


def test_a_body_that_is_not_in_the_journal_either_is_lost_after_some_tries():
    node = journaled()
    job_id = spoilt(node)
    node.folder.fail("read", errno.EIO, times=-1)
    assert node.answer("SHOW", job_id) is None
    assert node.broker.find(job_id) is None
    assert node.broker.spill.lost == 1
    lost = [call[2] for call in node.broker.host.calls if call[0] == "log" and job_id.decode() in call[2]]
    assert ["nor from the journal" in line for line in lost] == [True]
    node.folder.heal()
    node.settle(2_000)
    node.check()


def test_a_search_waits_for_records_that_are_not_written_yet():
    """Its disk is full, and the base of a job that was added last is in memory still."""
    node = journaled(20)
    node.folder.fail("write create", errno.ENOSPC, times=-1)
    node.ask("ADDJOB", "q", "y" * BODY_BYTES, 0, "RETRY", 3600, client=1)
    node.settle(1_500)
    job_id = newest(node)
    node.bodies[job_id] = b"y" * BODY_BYTES
    node.answer("CONFIG", "SET", "maxmemory", 10_000)
    node.settle(5_000)
    assert job_id in node.out()
    for name in list(node.spill_folder._files):
        del node.spill_folder._files[name]
    assert node.ask("SHOW", job_id) == []
    node.settle(10_000)
    assert (node.taken(), node.broker.spill.lost) == ([], 0)
    node.folder.heal()
    node.settle(3_000)
    assert (len(node.taken()), node.broker.spill.lost, node.broker.spill.rescued) == (1, 0, 1)


def newest(node: SpillingNode) -> bytes:
    """The id of the job that came last."""
    return max((job.ctime, job.id) for shard in node.broker.shards for job in shard.values())[1]


def test_a_flushall_ends_the_search():
    node = journaled()
    job_id = spoilt(node)
    assert node.ask("SHOW", job_id, client=1) == []
    node.spill_disk.run()
    node.tick()
    node.answer("DEBUG", "FLUSHALL")
    node.bodies.clear()
    node.settle(2_000)
    assert (node.taken(1), node.broker.spill.lost, node.broker.spill.unread) == ([None], 0, {})
    node.check()


def test_with_the_journal_switched_off_during_a_search_the_job_is_lost_and_no_client_left_waiting():
    node = journaled()
    job_id = spoilt(node)
    node.folder.fail("read", errno.EIO, times=-1)
    assert node.ask("SHOW", job_id, client=1) == []
    node.settle(1_500)
    assert node.taken(1) == []
    node.answer("CONFIG", "SET", "appendonly", "no")
    node.settle(2_000)
    assert (node.taken(1), node.broker.spill.lost, node.broker.find(job_id)) == ([None], 1, None)
    node.check()


def test_a_search_ends_when_the_journal_is_switched_off():
    node = journaled()
    job_id = spoilt(node)
    assert node.ask("SHOW", job_id, client=1) == []
    node.spill_disk.run()
    node.end_turn()
    node.tick()
    assert [lane for lane, *_ in node.disk.waiting] == [READING]
    node.ask("CONFIG", "SET", "appendonly", "no")
    while node.work(WRITING):
        pass
    node.tick()
    assert (node.broker.is_journaling, node.taken(1), node.broker.spill.lost) == (False, [None], 1)
    node.settle(1_000)
    assert (node.disk.waiting, node.broker.find(job_id)) == ([], None)
    node.check()
