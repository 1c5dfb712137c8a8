"""persistence/backup.py: copies the journal as it is at one moment, while the node goes on writing."""

from __future__ import annotations

import errno
from random import Random

import pytest

from disque_py.simulator.world.folder import SimFolder
from journal_days import Day
from journaled import JournaledNode
from persistence.backup import (
    DESCRIPTION_NAME,
    Beside,
    Description,
    DescriptionError,
    decode_description,
    encode_description,
    is_name,
    refuse_damaged,
    refuse_incomplete,
)
from persistence.check import JobCollector, read
from persistence.disk import READING, WRITING
from persistence.recovery import DamagedJournalError, Recovery

OPTIONS = ("RETRY", 60)


def backup_of(node: JournaledNode, name: str = "one") -> SimFolder:
    """Return the content of the backup as a separate folder."""
    folder = SimFolder(Random(1))
    for file_name, file in node.folder.linked[name].items():
        folder.create(file_name, bytes(file.content))
    return folder


def jobs_in(folder: SimFolder) -> list[bytes]:
    collector = JobCollector()
    read(folder, collector)
    return sorted(facts.body for facts in collector.jobs(is_certain=True, is_whole=True))


def running_node(**settings) -> JournaledNode:
    node = JournaledNode(**settings)
    node.settle()
    return node


def add(node: JournaledNode, *bodies: str) -> None:
    for body in bodies:
        node.ask("ADDJOB", "q", body, 0, *OPTIONS)
    node.settle()
    node.taken()


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_a_backup_has_acknowledged_changes_and_no_later_ones(policy):
    node = running_node(appendfsync=policy)
    add(node, "a", "b")
    node.ask("JOURNAL", "BACKUP", "one")
    node.settle()
    assert node.taken()[0][:2] == [b"path", b"one"]
    add(node, "c")
    assert jobs_in(backup_of(node)) == [b"a", b"b"]
    assert jobs_in(node.folder) == [b"a", b"b", b"c"]


def test_a_backup_says_its_node_and_its_end():
    node = running_node()
    add(node, "a")
    node.ask("JOURNAL", "BACKUP", "one")
    node.settle()
    folder = backup_of(node)
    description = decode_description(folder.read(DESCRIPTION_NAME, 0, 10_000))
    recovery = read(folder, JobCollector())
    assert (description.node, description.position) == (node.node_id, recovery.position)
    assert recovery.is_restored
    assert folder.read("nodes.conf", 0, 100) == b"the nodes file"
    refuse_incomplete(folder, description.files)
    refuse_damaged("nodes.conf", b"the nodes file", description)


def test_a_backup_is_of_one_moment_while_segments_are_rewritten_and_dropped():
    """Segments that are dropped during the backup are removed after the links are made."""
    node = running_node()
    add(node, *(f"{number:03d}" * 50 for number in range(30)))
    node.ask("GETJOB", "NOHANG", "COUNT", 20, "FROM", "q")
    node.settle()
    node.ask("ACKJOB", *(entry[1] for entry in node.taken()[0]))
    node.settle()
    node.taken()
    left = jobs_in(node.folder)
    node.ask("BGREWRITEAOF")
    node.ask("JOURNAL", "BACKUP", "one", client=1)
    node.settle(5_000)
    assert node.taken(1)[0][0] == b"path"
    assert jobs_in(backup_of(node)) == left == jobs_in(node.folder)
    named = {part.number for part in node.journal_service.journal.files}
    assert all(int(name[:10]) in named or int(name[:10]) > max(named) for name in node.folder.names() if ".seg" in name)


@pytest.mark.parametrize("order", [(READING, WRITING), (WRITING, READING)])
def test_a_flush_meanwhile_takes_nothing_from_the_backup(order):
    """The old files are removed after the links are made, whichever lane works first."""
    node = running_node()
    add(node, "a", "b")
    node.ask("JOURNAL", "BACKUP", "one")
    node.ask("DEBUG", "FLUSHALL", client=1)
    for _ in range(20):
        for lane in order:
            while node.work(lane):
                pass
    node.settle(3_000)
    assert jobs_in(node.folder) == []
    if "one" in node.folder.linked:
        assert jobs_in(backup_of(node)) in ([b"a", b"b"], [])


def test_a_name_is_used_once():
    node = running_node()
    node.ask("JOURNAL", "BACKUP", "one")
    assert "being made" in str(node.ask("JOURNAL", "BACKUP", "one", client=1))
    node.settle()
    node.taken()
    node.ask("JOURNAL", "BACKUP", "one")
    node.settle()
    assert "already" in str(node.taken())
    assert decode_description(backup_of(node).read(DESCRIPTION_NAME, 0, 1000))


def test_remains_of_a_backup_that_was_cut_short_are_cleared_away():
    node = running_node()
    add(node, "a")
    node.folder.store("one", "0000000009.seg", b"half")
    node.ask("JOURNAL", "BACKUP", "one")
    node.settle()
    assert "0000000009.seg" not in node.folder.stored("one")
    assert jobs_in(backup_of(node)) == [b"a"]


@pytest.mark.parametrize("nth", range(1, 6))
def test_a_backup_that_fails_leaves_nothing_behind(nth):
    """If any link or file fails, the node goes on, and the next backup works."""
    node = running_node()
    add(node, "a")
    node.folder.fail("link store stored", errno.EIO, nth=nth)
    node.ask("JOURNAL", "BACKUP", "one")
    node.settle()
    assert "No backup was made" in str(node.taken()[0])
    assert node.folder.stored("one") == []
    add(node, "b")
    node.ask("JOURNAL", "BACKUP", "two")
    node.settle()
    assert jobs_in(backup_of(node, "two")) == [b"a", b"b"]


def test_there_is_no_backup_without_a_journal():
    node = running_node(appendonly=False)
    assert "there is no journal" in str(node.ask("JOURNAL", "BACKUP", "one"))


def test_a_failing_disk_makes_no_backup():
    node = running_node()
    node.folder.fail("write", errno.EIO, times=-1)
    node.ask("ADDJOB", "q", "x", 0)
    node.settle()
    assert "can't be written" in str(node.ask("JOURNAL", "BACKUP", "one", client=1))


def test_an_error_while_the_segment_is_closed_ends_the_backup():
    node = running_node()
    add(node, "a")
    node.folder.fail("create", errno.EIO, times=3)
    node.ask("JOURNAL", "BACKUP", "one")
    node.settle(10_000)
    assert "No backup was made" in str(node.taken()[0])
    assert node.folder.stored("one") == []
    assert jobs_in(node.folder) == [b"a"]


def test_a_node_that_stops_meanwhile_says_so():
    node = running_node()
    add(node, "a")
    node.ask("JOURNAL", "BACKUP", "one")
    node.work(READING)
    assert node.stop() is None
    assert Recovery(node.folder).is_clean or read(node.folder, JobCollector()).is_clean


def test_names_are_plain():
    assert all(map(is_name, ("a", "2024-01-31", "a_b.c", "A" * 100)))
    assert not any(map(is_name, ("", ".", "..", "a/b", ".a", "-a", "a b", "ä", "A" * 101)))


def test_a_description_survives_writing_and_reading():
    description = Description(b"n" * 20, 1_700_000_000_000, {"0000000001.seg": 512}, 77, {"nodes.conf": Beside(40, 5)})
    assert decode_description(encode_description(description)) == description


def test_a_description_of_an_older_version_names_only_files_of_the_journal():
    data = b'{"format": 1, "node": "00", "made_at_ms": 5, "position": 7, "files": {"0000000001.seg": 512}}'
    assert decode_description(data) == Description(b"\0", 5, {"0000000001.seg": 512}, 7)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"format": 2}', b'{"format": 1, "files": {"a": "b"}}'])
def test_a_malformed_description_is_refused(data):
    with pytest.raises(DescriptionError):
        decode_description(data)


def test_an_incomplete_copy_is_refused():
    folder = SimFolder(Random(1))
    folder.create("a", b"12")
    refuse_incomplete(folder, {"a": 2})
    for files in ({"a": 3}, {"a": 2, "b": 0}):
        with pytest.raises(DamagedJournalError):
            refuse_incomplete(folder, files)


@pytest.mark.parametrize("seed", range(12))
def test_on_any_day_a_backup_has_what_the_node_promised_at_one_moment(seed):
    """A day has jobs of both kinds, other nodes, rewrites, changes of policy, FLUSHALL, and failures of the disk.

    The moment is not before the request for the backup. So the backup contains everything that a client has read by
    then.
    """
    rng = Random(seed)
    node = running_node(segment_bytes=rng.choice((600, 1500, 6000)))
    day = Day(node, rng)
    checked = 0
    for number in range(120):
        day.step()
        if number % 15 == 7 and node.journal_service.journal is not None and not node.driver.loading:
            made: list[object] = []
            name = f"backup-{number}"
            promised = node.promised
            node._turn(lambda made=made, name=name: node.journal_service.backup(name, {}, made.append))
            for _ in range(rng.randrange(4)):
                day.step()
            node.settle(rng.randrange(50))
            if made and not isinstance(made[0], OSError):
                node.check_folder(backup_of(node, name), at_least=min(promised, node.promised))
                checked += 1
    assert checked
