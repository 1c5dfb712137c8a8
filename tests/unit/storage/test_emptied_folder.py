"""A journal whose files are removed or damaged while it is being written: all jobs are still in memory."""

from __future__ import annotations

from journaled import JournaledNode
from persistence.pages import FRESH_MS


def full(**settings) -> tuple[JournaledNode, list[bytes]]:
    """A node with some segments of journal, all of it on disk."""
    node = JournaledNode(**settings)
    node.settle()
    ids = []
    for _ in range(20):
        ids += node.ask("ADDJOB", "q", "x" * 200, 0, "RETRY", 5)
        node.settle(100)
        ids += node.taken()
    node.ask("PAUSE", "paused", "in")
    node.settle(3_000)
    node.taken()
    assert len(node.journal_service.journal.files) > 1
    return node, ids


def add(node: JournaledNode) -> list[bytes]:
    node.settle(3_000)
    got = node.ask("ADDJOB", "q", "y", 0)
    node.settle(3_000)
    return got + node.taken()


def test_an_empty_folder_in_the_place_of_the_old_one_gets_all_jobs_again():
    for policy in ("always", "everysec", "no"):
        node, ids = full(appendfsync=policy)
        node.folder.vanish()
        ids += node.ask("ADDJOB", "q", "meanwhile", 0, client=1)
        node.settle(2_000)
        if policy == "no":  # Nothing is synced, and what lies ready is written to for a while.
            node.settle(FRESH_MS)
            ids += node.ask("ADDJOB", "q", "then", 0, client=1)
            node.settle(2_000)
        assert node.broker.journal.disk_level
        node.folder.appear(is_empty=True)
        ids += add(node) + node.taken(1)
        assert (node.broker.journal.disk_level, node.journal_service.refusal()) == (0, "")
        assert sum("recorded again" in str(call) for call in node.broker.host.calls) == 1
        node.recount()
        node.folder.kill()
        again = node.restart()
        assert (again.failed, sorted(again.memory())) == ("", sorted(ids))
        assert again.broker.queues[b"paused"].paused


def test_a_removed_segment_is_missed_when_the_next_begins():
    node, ids = full()
    node.folder.remove("0000000001.seg")
    for _ in range(10):
        ids += add(node)
    assert sum("recorded again" in str(call) for call in node.broker.host.calls) == 1
    node.recount()
    node.folder.kill()
    assert sorted(node.restart().memory()) == sorted(ids)


def test_a_segment_that_is_found_damaged_is_written_anew_with_all_others():
    """A restart would be refused."""
    node, ids = full()
    node.ask("ACKJOB", *ids[::2])
    del ids[::2]
    node.folder._files["0000000002.seg"].content[700] ^= 1
    node.ask("BGREWRITEAOF")
    node.settle(3_000)
    assert sum("recorded again" in str(call) for call in node.broker.host.calls) == 1
    node.taken()
    ids += add(node)
    node.recount()
    node.folder.kill()
    assert sorted(node.restart().memory()) == sorted(ids)


def test_a_folder_that_comes_back_as_it_was_is_written_on():
    node, ids = full()
    node.folder.vanish()
    node.ask("ADDJOB", "q", "meanwhile", 0, client=1)
    node.settle(2_000)
    node.folder.appear()
    ids += add(node) + node.taken(1)
    assert not any("recorded again" in str(call) for call in node.broker.host.calls)
    assert sorted(node.restart().memory()) == sorted(ids)


def test_a_rewrite_under_way_ends_with_an_error_and_everything_is_there():
    node, ids = full()
    node.ask("BGREWRITEAOF")
    node.work()
    node.folder.remove("0000000001.seg")
    ids += add(node)
    node.settle(3_000)
    ids += add(node)
    node.ask("BGREWRITEAOF")
    node.settle(3_000)
    node.recount()
    node.folder.kill()
    assert sorted(node.restart().memory()) == sorted(ids)
