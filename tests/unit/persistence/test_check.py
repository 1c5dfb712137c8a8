"""persistence/check.py: jobs are counted and collected."""

from __future__ import annotations

import pytest

from disque_py.core.changeable import unpack
from disque_py.core.queue_fields import QueueSettings
from journaled import JournaledNode
from made_journals import ME, WALL_MS, facts, folder
from persistence.check import JobCollector, RecordFeed, Tally, read
from persistence.items import base_item
from persistence.layouts import ATTRIBUTES_AT
from persistence.new_journal import FreshJournal
from persistence.recovery import DamagedJournalError


def worked_node() -> JournaledNode:
    """Return a node with three living jobs, of which one is leased, a job that is gone, and a paused queue."""
    node = JournaledNode()
    node.settle()
    for body in ("a", "b", "c"):
        node.ask("ADDJOB", "q", body, 0, "RETRY", 60)
    node.ask("ADDJOB", "q", "once", 0, "RETRY", 0)
    node.ask("GETJOB", "NOHANG", "COUNT", 2, "FROM", "q")
    node.settle()
    taken = node.taken()[-1]
    node.ask("ACKJOB", taken[0][1])
    node.ask("PAUSE", "z", "in")
    node.settle()
    return node


def test_a_tally_counts_living_and_dead_records():
    node = worked_node()
    tally = Tally()
    recovery = read(node.folder, tally)
    tally.settle()
    kinds = {kind.name: (kind.total, kind.live) for kind in tally.kinds()}
    assert kinds["job"] == (4, 3)
    assert kinds["state"][1] == 1
    assert kinds["gone"] == (1, 1)
    assert kinds["pause"] == (1, 1)
    assert tally.states() == {"queued": 2, "active": 1, "acked": 0, "delivered": 1, "at-most-once": 1}
    assert tally.bytes == recovery.position
    assert 0 < tally.live_bytes < tally.bytes


def test_a_tally_knows_the_segment_that_a_job_lives_in():
    place = folder()
    journal = FreshJournal(place, ME, WALL_MS, segment_bytes=1000)
    for number in range(4):
        journal.add(facts(number, body=bytes(1 << 20)))
    journal.finish()
    tally = Tally()
    read(place, tally)
    tally.settle()
    assert sum(segment.live_jobs for segment in tally.segments.values()) == 4
    assert all(segment.live_jobs == segment.job_count for segment in tally.segments.values())


def test_collected_jobs_are_the_jobs_of_the_node():
    node = worked_node()
    collector = JobCollector()
    read(node.folder, collector)
    found = {each.body: each for each in collector.jobs(is_certain=False, is_whole=True)}
    assert sorted(found) == [b"b", b"c", b"once"]
    assert (found[b"b"].state, found[b"c"].state) == ("active", "queued")
    assert found[b"b"].due_at_ms == node.wall + 60_000
    assert collector.pauses[b"z"][0] == 1
    assert len(collector) == 3


def test_an_at_most_once_job_is_as_certain_as_after_a_restart():
    """In a whole journal under `always`, the job is certain. With a torn tail, it may have been delivered."""
    node = worked_node()
    collector = JobCollector()
    read(node.folder, collector)
    for is_whole, state in ((True, "queued"), (False, "active")):
        once = next(job for job in collector.jobs(is_certain=False, is_whole=is_whole) if not job.retry_ms)
        assert once.state == state


def test_every_record_is_shown():
    node = worked_node()
    shown = []
    read(node.folder, RecordFeed(lambda number, block, kind, item: shown.append(kind)))
    tally = Tally()
    read(node.folder, tally)
    assert len(shown) == sum(kind.total for kind in tally.kinds())


def test_progress_comes_to_its_end():
    node = worked_node()
    told = []
    read(node.folder, Tally(), lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1]


def test_damage_is_named():
    node = worked_node()
    name = next(name for name in node.folder.names() if name.endswith(".seg"))
    node.folder.write(name, 600, [b"\xff"])
    with pytest.raises(DamagedJournalError, match=name):
        read(node.folder, Tally())


def test_a_missing_segment_is_named():
    place = folder()
    journal = FreshJournal(place, ME, WALL_MS, segment_bytes=1000)
    for number in range(3):
        journal.add(facts(number, body=bytes(1 << 20)))
    journal.finish()
    place.remove("0000000002.seg")
    with pytest.raises(DamagedJournalError, match="segment 2 of the journal is missing"):
        read(place, Tally())


def test_a_collected_job_has_its_changes():
    """The changeable part of the last state replaces that of the base. Spec Y3."""
    node = JournaledNode(appendonly=True, appendfsync="always")
    node.settle()
    rules = node.broker.queue_settings.in_force[b"doomed"] = QueueSettings()
    rules.dead_letter = b"dead"
    job_id = node.answer("ADDJOB", "doomed", "body", 0, "REPLICATE", 1)
    node.answer("GETJOB", "FROM", "doomed")
    node.settle(2_000)
    node.answer("NACK", job_id, "FINAL", "REASON", "broken")
    node.settle()
    collector = JobCollector()
    read(node.folder, collector)
    [facts] = collector.jobs(is_certain=True, is_whole=True)
    assert facts.queue == b"dead"
    attributes, part = base_item(facts, node.wall)[ATTRIBUTES_AT:]
    assert attributes is None
    assert unpack(part).history[0] == b"doomed"
