"""Loading a journal that was installed from a backup, or cut, or whose node has another id now."""

from __future__ import annotations

import errno
from random import Random

import journal_files
from disque_py.simulator.world.folder import SimFolder
from journaled import JournaledNode
from persistence.check import Tally, read
from persistence.recovery import RESTORED_NAME, Recovery


def node_with_jobs() -> JournaledNode:
    node = JournaledNode()
    node.settle()
    node.ask("ADDJOB", "q", "again", 0, "RETRY", 60)
    node.ask("ADDJOB", "q", "once", 0, "RETRY", 0)
    node.settle()
    node.taken()
    return node


def bodies(node: JournaledNode, span_ms: int = 0) -> list[bytes]:
    node.settle(span_ms)
    node.taken()
    node.ask("GETJOB", "NOHANG", "COUNT", 10, "FROM", "q")
    node.settle()
    return [entry[2] for entry in node.taken()[0] or []]


def test_from_a_restored_backup_at_most_once_jobs_are_not_queued():
    """A clean stop, `always`: nothing else would keep them back."""
    node = node_with_jobs()
    node.stop()
    node.folder.create(RESTORED_NAME, b"")
    node = node.restart()
    assert node.broker.stats.once_lost_in_restart == 1
    assert bodies(node, 61_000) == [b"again"]


def test_the_mark_of_a_restored_backup_counts_once():
    """New at-most-once jobs are as safe as ever. Old ones are never queued again."""
    node = node_with_jobs()
    node.stop()
    node.folder.create(RESTORED_NAME, b"")
    node = node.restart()
    assert RESTORED_NAME not in node.folder.names()
    node.ask("ADDJOB", "q", "new", 0, "RETRY", 0)
    node.settle()
    node.stop()
    assert b"new" in (got := bodies(node.restart()))
    assert b"once" not in got


def test_the_mark_stays_until_its_consequences_are_on_disk():
    node = node_with_jobs()
    node.stop()
    node.folder.create(RESTORED_NAME, b"")
    node.folder.fail("sync", errno.EIO, times=-1, when=lambda name: name.endswith(".seg"))
    broken = JournaledNode(node.folder)
    broken.settle(3_000)
    assert not broken.is_ready
    assert RESTORED_NAME in node.folder.names()
    node.folder.heal()
    node.folder.kill()
    assert bodies(JournaledNode(node.folder), 61_000) == [b"again"]


def test_a_mark_that_cannot_be_removed_keeps_the_node_from_starting():
    node = node_with_jobs()
    node.stop()
    node.folder.create(RESTORED_NAME, b"")
    node.folder.fail("remove", errno.EROFS, when=lambda name: name == RESTORED_NAME)
    again = JournaledNode(node.folder)
    again.settle()
    assert not again.is_ready
    assert "Read-only" in again.failed


def test_a_torn_journal_does_not_look_whole_once_it_is_cut():
    """The process dies after the cut and before anything is recorded: the next one must be as careful."""
    node = node_with_jobs()
    name = max(name for name in node.folder.names() if ".seg" in name)
    node.folder.write(name, journal_files.cut_zeros(node.folder, name), [b"torn"])
    recovery = read(node.folder, Tally())
    assert recovery.torn is not None
    recovery.repair()
    again = read(node.folder, Tally())
    assert again.torn is None
    assert again.position == recovery.position
    node = node.restart()
    assert node.broker.stats.once_lost_in_restart == 1


def test_a_cut_that_is_cut_short_is_still_torn():
    """The block that says so comes before the cut."""
    node = node_with_jobs()
    name = max(name for name in node.folder.names() if ".seg" in name)
    node.folder.write(name, journal_files.cut_zeros(node.folder, name), [b"torn" * 30])
    recovery = read(node.folder, Tally())
    node.folder.fail("truncate", errno.EIO)
    try:
        recovery.repair()
    except OSError:
        pass
    assert read(node.folder, Tally()).torn is not None


def test_a_node_knows_itself_by_every_id_it_had():
    """Its nodes file was lost twice: bases written under the first id are its own still."""
    node = node_with_jobs()
    node.stop()
    for node_id in (b"\x77" * 20, b"\x78" * 20):
        node.node_id = node_id
        node = node.restart()
        assert {job.holders for shard in node.broker.shards for job in shard.values()} == {node.broker.sets.mine}
        node.stop()


def test_an_empty_backup_is_an_empty_journal():
    folder = SimFolder(Random(1))
    folder.create(RESTORED_NAME, b"")
    assert Recovery(folder).newest is None
    node = JournaledNode(folder)
    node.settle()
    assert node.is_ready
    assert RESTORED_NAME not in folder.names()
