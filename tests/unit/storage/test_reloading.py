"""storage/reloading.py: all jobs are forgotten and read back from the journal (DEBUG LOADAOF)."""

from __future__ import annotations

import errno

from disque_py.core.incremental import PART
from journaled import JournaledNode
from persistence.disk import WRITING


def start(**settings) -> tuple[JournaledNode, list[bytes]]:
    """A node with three jobs."""
    node = JournaledNode(**settings)
    node.settle()
    ids = []
    for retry in (5, 5, 0):
        ids += node.ask("ADDJOB", "q", "x", 0, "RETRY", retry)
        node.settle()
        ids += node.taken()
    return node, ids


def reload(node: JournaledNode, span_ms: int = 100):
    """Send DEBUG LOADAOF, and return its reply if there is one immediately."""
    got = node.ask("DEBUG", "LOADAOF")
    node.settle(span_ms)
    return got + node.taken()


def goes_on(node: JournaledNode, ids: list[bytes]) -> None:
    """Check that the jobs exist, the journal is written, and a restart finds them."""
    assert not node.broker.is_loading
    ids += node.ask("ADDJOB", "q", "new", 0) + (node.settle() or node.taken())
    assert sorted(node.memory()) == sorted(ids)
    node.recount()
    assert node.stop() is None
    assert sorted(node.restart().memory()) == sorted(ids)


def test_after_a_reload_all_is_as_before():
    node, ids = start()
    assert reload(node) == [b"OK"]
    goes_on(node, ids)


def test_a_journal_that_is_damaged_is_seen_before_anything_is_forgotten():
    """Memory has all jobs, so the journal is written anew."""
    node, ids = start(appendfsync="everysec")
    node.folder._files["0000000001.seg"].content[600] ^= 1
    (reply,) = reload(node)
    assert "damaged at byte" in str(reply) or "was written up to" in str(reply)
    assert not node.broker.is_loading
    node.settle(1_000)
    goes_on(node, ids)


def test_a_disk_that_cannot_be_read_leaves_everything_unchanged():
    node, ids = start()
    node.folder.fail("read", errno.EIO, times=1)
    assert "Input/output error" in str(reload(node)[0])
    goes_on(node, ids)


def test_a_journal_with_disk_errors_is_not_reloaded():
    node, ids = start(appendfsync="everysec")
    node.folder.fail("prepare write create", errno.ENOSPC, times=-1)
    node.settle(6_000)  # The file that was prepared in advance exists no longer.
    node.ask("ADDJOB", "q", "in memory", 0, client=1)
    node.settle(10)
    assert "No space left" in str(reload(node)[0])
    node.folder.heal()
    node.settle(3_000)
    goes_on(node, ids + node.taken(1))


def test_a_journal_that_does_not_have_all_jobs_yet_is_not_left():
    node, ids = start(appendonly=False)
    node.ask("CONFIG", "SET", "appendonly", "yes")
    node.work()
    assert "doesn't have all jobs yet" in str(reload(node, 1_000)[0])
    node.settings["appendonly"] = True
    goes_on(node, ids)


def test_a_journal_that_is_being_closed_is_not_read():
    node, ids = start()
    node.ask("CONFIG", "SET", "appendonly", "no", client=1)
    assert "being closed" in str(reload(node)[0])
    assert not node.broker.is_loading
    assert sorted(node.memory()) == sorted(ids)


def test_a_node_that_ends_while_the_journal_is_checked_takes_no_input():
    """Its journal has the clean mark, so nothing may change after that."""
    node, ids = start()
    node.ask("DEBUG", "LOADAOF")
    outcome = []
    node._turn(lambda: node.journal_service.close(outcome.append))
    while node.work(WRITING):
        pass
    assert (outcome, node.broker.is_loading) == ([None], True)
    node.settle(100)
    assert node.broker.is_loading
    assert sorted(node.restart().memory()) == sorted(ids)


def test_a_long_command_that_is_under_way_is_refused():
    """The rest of its acks would be recorded nowhere. Spec J7."""
    node, ids = start()
    more = [node.answer("ADDJOB", "q", "x", 0) for _ in range(PART + 1)]
    node.ask("ACKJOB", *more, client=1)
    reload(node)
    assert str(node.taken(1)[0]).startswith("LOADING ")
    goes_on(node, [job_id for job_id in ids + more if job_id in node.memory()])


def test_a_disk_that_fails_before_all_is_written_leaves_everything_unchanged():
    node, ids = start()
    node.folder.fail("replace", errno.EIO, times=1)  # The mark.
    assert "Input/output error" in str(reload(node)[0])
    node.settle(3_000)
    goes_on(node, ids)


def test_a_disk_that_fails_when_memory_is_empty_is_waited_for():
    """The jobs are in the journal; INFO and the log say what is the matter."""
    for ops in ("names", "read", "remove"):
        node, ids = start()
        flushed = []
        node.ask("DEBUG", "LOADAOF")
        while node.broker.job_count and node.work():
            flushed.append(1)
        assert not node.broker.job_count
        node.folder.fail(ops, errno.EIO, times=3)
        node.settle(500)
        assert (node.taken(), node.broker.is_loading) == ([], True), ops
        assert dict(node.journal_service.fields())["loading_trouble"] == "Input/output error"
        assert sum("No client is served" in line for line in node.log) == 1
        node.settle(5_000)
        assert node.taken() == [b"OK"], ops
        goes_on(node, ids)


def test_a_disk_that_does_not_recover_ends_the_node():
    """A sync that failed once fails for as long as the process lives."""
    node, ids = start()
    node.ask("DEBUG", "LOADAOF")
    while node.broker.job_count and node.work():
        pass
    node.folder.fail("sync", errno.EIO, times=1)
    node.settle(25_000)
    assert node.taken() == []
    node.settle(10_000)
    assert "Input/output error" in str(node.taken()[0])
    assert ("shutdown",) in node.broker.host.calls
    assert sorted(node.restart().memory()) == sorted(ids)


def test_damage_that_comes_when_memory_is_empty_ends_the_node():
    node, _ = start()
    node.ask("DEBUG", "LOADAOF")
    while node.broker.job_count and node.work():
        pass
    node.folder._files["0000000001.seg"].content[600] ^= 1
    node.settle(100)
    assert "damaged at byte" in str(node.taken()[0])
    assert ("shutdown",) in node.broker.host.calls
