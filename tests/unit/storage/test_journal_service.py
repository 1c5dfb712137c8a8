"""storage/journal_service.py: a node's journal from start to end, as directives and commands ask for it."""

from __future__ import annotations

import errno
from random import Random

import hiredis
import pytest

from cluster_bus.codec import Decoder
from cluster_bus.messages import HINT, NEEDJOBS, YOURJOBS
from disque_py.core.job import ACTIVE, QUEUED
from disque_py.simulator.world.folder import SimFolder
from journaled import RESERVE_BYTES, JournaledNode


def start(**settings):
    node = JournaledNode(**settings)
    node.settle()
    return node


def add(node, count=1, *, retry=5):
    ids = []
    for _ in range(count):
        ids += node.ask("ADDJOB", "q", "x", 0, "RETRY", retry)
        node.settle()
        ids += node.taken()
    return ids


def test_without_a_journal_a_node_is_ready_at_once():
    node = start(appendonly=False)
    assert (node.is_ready, node.folder.names(), node.journal_service.journal) == (True, [], None)
    assert dict(node.journal_service.fields())["aof_enabled"] == 0


def test_a_node_that_was_stopped_has_its_queues_again():
    node = start(appendfsync="everysec")
    ids = add(node, 2) + add(node, retry=0)
    assert node.stop() is None
    again = node.restart()
    assert [again.broker.find(job_id).state for job_id in ids] == [QUEUED] * 3
    assert "clean" not in again.folder.names()


def test_a_node_that_was_killed_does_not_queue_at_most_once_jobs_again():
    """Spec O4."""
    node = start(appendfsync="everysec")
    (job_id,) = add(node, retry=0)
    node.folder.kill()
    again = node.restart()
    assert (again.broker.find(job_id).state, again.journal_service.last_load.lost) == (ACTIVE, 1)
    assert again.stop() is None
    assert again.restart().broker.find(job_id).state == ACTIVE  # A clean stop later does not revive it.


@pytest.mark.parametrize("is_before", [True, False])
def test_with_the_mark_on_disk_no_job_is_handed_over(is_before):
    """The mark says that nothing came after it.

    An at-most-once job that is handed over after the mark would be in its queue again after the restart, and be
    delivered on both nodes. The other node may ask in the turn in which this node learns of the mark, or later.

    Spec O3.
    """
    node = start(appendfsync="no")
    other = node.other()
    node.settle()
    (job_id,) = add(node, retry=0)
    asked = [NEEDJOBS, [b"q", 1, 0]]
    outcome = []
    node._turn(lambda: node.journal_service.close(outcome.append))
    assert len(node.disk.waiting) == 1
    if is_before:
        node.driver.begin()
        node.driver.receive(other, [asked])
    node.work()
    assert outcome == [None]
    node.say(other, *asked)
    frames = [runs for _, frame in node.frames for runs in Decoder().feed(frame)]
    assert YOURJOBS not in [run[0] for runs in frames for run in runs]
    assert node.restart().broker.find(job_id).state == QUEUED


def test_with_the_mark_on_disk_the_end_of_the_turn_sends_nothing():
    """A pull that stands is served at the end of a turn. Spec O3."""
    node = start(appendfsync="no")
    node.other()
    node.settle()
    node.frames.clear()
    linked = node.broker.cluster.linked
    node._turn(lambda: node.journal_service.close(lambda _: node.broker.send(linked, HINT, (b"q", 1))))
    node.work()
    assert node.frames == []


def test_a_journal_that_is_switched_on_gets_all_jobs():
    node = start(appendonly=False)
    ids = add(node, 3)
    node.ask("CONFIG", "SET", "appendonly", "yes")
    node.settle(500)
    assert node.journal_service.refusal() == ""
    again = node.restart(appendonly=True)
    assert sorted(again.memory()) == sorted(ids)


def test_a_journal_that_is_switched_on_does_not_use_a_reserved_file_with_an_old_header():
    """Spec J8. The last process died when it began to use the reserved file."""
    folder = SimFolder(Random(1))
    folder.create("reserve", b"DISQUEPJ" + bytes(RESERVE_BYTES - 8))
    node = start(folder=folder, appendonly=False)
    node.ask("CONFIG", "SET", "appendonly", "yes")
    node.settle(2_000)
    assert folder.read("reserve", 0, 2 * RESERVE_BYTES) == bytes(RESERVE_BYTES)


def test_a_journal_that_is_switched_off_and_on_again_gets_all_jobs():
    """Jobs name segments of the old journal, which mean nothing any more."""
    node = start()
    ids = add(node, 3)
    node.ask("CONFIG", "SET", "appendonly", "no")
    node.settle()
    node.taken()
    node.ask("ACKJOB", ids[0])
    ids += add(node)
    node.ask("CONFIG", "SET", "appendonly", "yes")
    node.settle(500)
    node.recount()
    node.check_folder()
    assert sorted(node.restart(appendonly=True).memory()) == sorted(ids[1:])


def test_a_journal_switched_off_while_it_is_being_switched_on_is_off():
    node = start(appendonly=False)
    node.ask("CONFIG", "SET", "appendonly", "yes")
    node.ask("CONFIG", "SET", "appendonly", "no")
    node.settle(500)
    assert node.journal_service.journal is None


def test_a_directory_that_cannot_be_read_is_tried_again():
    node = start(appendonly=False)
    node.folder.fail("names", errno.EIO)
    node.ask("CONFIG", "SET", "appendonly", "yes")
    node.settle(100)
    assert (node.journal_service.journal, node.log[-1]) == (None, "The journal can't be made: Input/output error")
    node.settle(2_000)
    assert node.journal_service.journal is not None


def test_nothing_in_a_journal_that_was_switched_off_is_certain():
    """Jobs that were queued then may have been delivered since."""
    node = start()
    (job_id,) = add(node, retry=0)
    node.ask("CONFIG", "SET", "appendonly", "no")
    node.settle()
    node.folder.kill()
    assert node.restart(appendonly=True).broker.find(job_id).state == ACTIVE


def test_the_journal_can_be_switched_off_while_the_disk_fails():
    """Spec Q27. A separate file says that its at-most-once jobs are not certain."""
    node = start()
    (job_id,) = add(node, retry=0)
    node.folder.fail("write create", errno.ENOSPC, times=-1)
    node.ask("ADDJOB", "q", "y", 0)
    node.settle(10)
    assert node.broker.journal.disk_level > 0
    node.ask("CONFIG", "SET", "appendonly", "no", client=1)
    node.settle(10)
    assert (node.journal_service.journal, node.broker.journal.disk_level) == (None, 0)
    assert len(node.taken()) == 1
    node.ask("GETJOB", "FROM", "q")
    node.folder.heal()
    again = node.restart(appendonly=True)
    assert again.broker.find(job_id).state == ACTIVE
    assert again.ask("GETJOB", "NOHANG", "FROM", "q") == [None]


def test_if_the_switch_off_cannot_be_recorded_at_most_once_jobs_are_lost():
    node = start()
    (job_id,) = add(node, retry=0)
    node.folder.fail("write create replace", errno.EROFS, times=-1)
    node.ask("ADDJOB", "q", "y", 0)
    node.settle(10)
    node.ask("CONFIG", "SET", "appendonly", "no", client=1)
    node.settle(10)
    assert (node.journal_service.journal, node.broker.find(job_id).state) == (None, ACTIVE)
    assert node.broker.stats.once_lost_in_restart == 1
    node.recount()


def test_bgrewriteaof_without_a_journal_writes_one_and_ends_it():
    node = start(appendonly=False)
    ids = add(node, 2)
    node.ask("BGREWRITEAOF")
    node.settle(500)
    assert node.journal_service.journal is None
    assert sorted(node.restart(appendonly=True).memory()) == sorted(ids)


def test_loadaof_reads_everything_back_and_no_client_is_left_waiting():
    node = start()
    ids = add(node, 2)
    node.ask("ADDJOB", "q", "z", 0)
    node.ask("DEBUG", "LOADAOF", client=1)
    assert isinstance(node.ask("ADDJOB", "q", "no", 0)[0:1] or [hiredis.ReplyError()], list)
    node.settle(500)
    assert node.taken(1) == [b"OK"]
    added, refused = node.taken()
    assert str(refused).startswith("LOADING")
    assert sorted(node.memory()) == sorted([*ids, added])
    node.recount()


@pytest.mark.parametrize(
    ("words", "reply"),
    [
        ("BGREWRITEAOF", "b'Background append only file rewriting started'"),
        ("SHUTDOWN REWRITE-AOF", "ERR Errors trying to SHUTDOWN. Check logs."),
    ],
)
def test_a_journal_that_is_written_once_is_given_up_on_a_full_disk(words, reply):
    """Otherwise a node without a journal would refuse writes until the disk has room."""
    node = start(appendonly=False)
    add(node, 3)
    node.folder.fail("write create allocate", errno.ENOSPC, times=-1)
    replies = node.ask(*words.split())
    node.settle(2_000)
    assert [str(each) for each in replies + node.taken()] == [reply]
    fields = dict(node.journal_service.fields())
    assert (fields["aof_state"], fields["aof_last_bgrewrite_status"]) == ("off", "err")
    assert ("shutdown",) not in node.broker.host.calls
    assert add(node)


def test_loadaof_needs_a_journal():
    node = start(appendonly=False)
    assert "there is no journal" in str(node.ask("DEBUG", "LOADAOF")[0])


def test_the_controlled_restart_works_without_a_journal_too():
    """SHUTDOWN REWRITE-AOF, then aof-enqueue-jobs-once."""
    node = start(appendonly=False)
    ids = add(node, 2) + add(node, retry=0)
    node.ask("SHUTDOWN", "REWRITE-AOF")
    node.settle(500)
    assert ("shutdown",) in node.broker.host.calls
    assert node.stop() is None
    again = node.restart(aof_enqueue_jobs_once=True)
    again.settle(100)
    assert [again.broker.find(job_id).state for job_id in ids] == [QUEUED] * 3
    assert again.journal_service.journal is None


def test_aof_enqueue_jobs_once_is_spent_before_clients_are_served():
    """A crash right after the first delivery must not bring the queues back a second time."""
    node = start()
    add(node)
    node.stop()
    again = JournaledNode(node.folder, run=2, aof_enqueue_jobs_once=True)
    host = again.broker.host
    host.is_slow = True
    again.settle(100)
    assert (again.is_ready, again.broker.is_loading, len(host.writing)) == (False, True, 1)
    assert not again.broker.settings.aof_enqueue_jobs_once
    again._turn(host.writing.pop())
    assert (again.is_ready, again.broker.is_loading, again.log[1:]) == (True, False, [])


def test_a_config_file_that_cannot_be_written_is_reported():
    node = start(appendonly=False)
    again = JournaledNode(node.folder, run=2, aof_enqueue_jobs_once=True)
    again.broker.host.failures["rewrite_config"] = OSError(errno.EROFS, "Read-only file system")
    again.settle(100)
    assert again.is_ready
    assert "could not be set to no in the config file" in again.log[0]


def test_a_journal_that_just_began_is_not_enough_for_a_shutdown():
    node = start(appendonly=False)
    add(node)
    node.ask("CONFIG", "SET", "appendonly", "yes")
    node.work()
    assert "doesn't have all jobs yet" in node.journal_service.refusal()


def test_info_shows_the_pending_work():
    node = start()
    node.ask("ADDJOB", "q", "x", 0)
    fields = dict(node.journal_service.fields())
    assert (fields["aof_enabled"], fields["aof_state"], fields["aof_last_write_status"]) == (1, "on", "ok")
    assert fields["aof_unsynced_bytes"] > 0
    node.settle()
    assert dict(node.journal_service.fields())["aof_unsynced_bytes"] == 0
