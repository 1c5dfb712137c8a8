"""persistence/new_journal.py: writes a whole journal in one step."""

from __future__ import annotations

from journaled import JournaledNode
from made_journals import ME, WALL_MS, facts, folder
from persistence.check import JobCollector, Tally, read
from persistence.new_journal import FreshJournal


def test_added_jobs_are_read_back():
    """The journal is a chain of several segments."""
    place = folder()
    journal = FreshJournal(place, ME, WALL_MS, segment_bytes=1000)
    said = [facts(number, body=bytes(400_000)) for number in range(9)]
    for each in said:
        journal.add(each)
    journal.finish()
    collector = JobCollector()
    recovery = read(place, collector)
    assert list(collector.jobs(is_certain=True, is_whole=True)) == said
    assert len(recovery.files) > 2
    assert recovery.newest is not None
    assert recovery.newest.node == ME


def test_an_empty_journal_can_be_read():
    place = folder()
    FreshJournal(place, ME, WALL_MS).finish()
    tally = Tally()
    assert read(place, tally).newest is not None
    assert tally.job_count == 0


def loaded(place, **settings) -> JournaledNode:
    node = JournaledNode(place, wall_ms=WALL_MS, **settings)
    node.settle()
    return node


def test_at_most_once_jobs_are_queued_only_on_request():
    """Spec O5."""
    place = folder()
    journal = FreshJournal(place, ME, WALL_MS)
    journal.add(facts(1))
    journal.add(facts(2, retry_ms=0))
    journal.add(facts(3, retry_ms=0), is_certain=True)
    journal.finish()
    node = loaded(place)
    got = node.ask("GETJOB", "NOHANG", "COUNT", 9, "FROM", "q")
    node.settle()
    assert [entry[2] for entry in (got or node.taken())[0]] == [b"body-3"]
    assert node.broker.stats.once_lost_in_restart == 1


def test_queued_jobs_are_queued_at_once_when_the_operator_asks_for_it():
    """With aof-enqueue-jobs-once, imported jobs don't wait for their RETRY."""
    place = folder()
    journal = FreshJournal(place, ME, WALL_MS)
    journal.add(facts(1))
    journal.finish()
    assert loaded(place, aof_enqueue_jobs_once=True).broker.queues[b"q"].length == 1


def test_pauses_are_imported():
    place = folder()
    journal = FreshJournal(place, ME, WALL_MS)
    journal.pause(b"q", 1, 0, b"")
    journal.finish()
    assert loaded(place).broker.queues[b"q"].paused == 1
