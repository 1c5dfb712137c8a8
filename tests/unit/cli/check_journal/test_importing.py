"""importing.py: the holders of imported jobs, and which jobs are queued."""

from __future__ import annotations

import json
import os

import pytest

from disque_py.cli.check_journal.importing import ImportOptions, Moved, MovingError, import_jobs, node_of_file
from made_journals import DAY_MS, ME, OTHER, facts, loadjob
from persistence.check import JobCollector, read
from persistence.files import Files
from persistence.items import Facts
from persistence.jobs_file import JobsFileError, Pause, job_line, origin_line, pause_line
from persistence.layouts import IS_DELIVERED

LATE = 4_000_000_000_000


def imported(source, target, **options) -> tuple[Moved, dict[bytes, Facts], bytes]:
    """Return the import's result, the jobs that a restart reads from the new journal, and the journal's node."""
    moved = import_jobs(source, str(target), ImportOptions(**options), lambda done, total: None)
    folder = Files(str(target), readonly=True)
    gathering = JobCollector()
    recovery = read(folder, gathering)
    folder.close()
    assert recovery.newest is not None
    return moved, {job.id: job for job in gathering.jobs(is_certain=False, is_whole=True)}, recovery.newest.node


@pytest.fixture
def write(tmp_path):
    def write(*lines: str):
        path = tmp_path / "jobs.jsonl"
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


def test_the_node_is_a_holder_of_all_its_jobs(write, tmp_path):
    source = write(origin_line(ME, 0), job_line(facts(1, expire_at_ms=LATE, holders=(OTHER,))))
    _, jobs, node = imported(source, tmp_path / "j")
    assert node == ME
    assert [set(job.holders) for job in jobs.values()] == [{ME, OTHER}]


def test_the_option_alone_means_that_no_other_node_is_a_holder(write, tmp_path):
    source = write(job_line(facts(1, expire_at_ms=LATE, holders=(OTHER, ME))))
    _, jobs, node = imported(source, tmp_path / "j", is_alone=True)
    assert node == bytes(20)  # The node that loads the journal replaces it by its own id.
    assert [job.holders for job in jobs.values()] == [(node,)]


@pytest.mark.parametrize(("with_once", "is_delivered"), [(False, False), (True, False), (True, True)])
def test_at_most_once_jobs_are_queued_on_request_if_none_was_delivered(write, tmp_path, with_once, is_delivered):
    flags = {"flags": IS_DELIVERED} if is_delivered else {}
    once = facts(2, expire_at_ms=LATE, retry_ms=0, **flags)
    source = write(job_line(once), job_line(facts(1, expire_at_ms=LATE)))
    moved, jobs, _ = imported(source, tmp_path / "j", with_once=with_once)
    assert (jobs[once.id].state == "queued") == (with_once and not is_delivered)
    assert moved.once == (0 if with_once and not is_delivered else 1)


def test_expired_jobs_stay_behind_and_pauses_come_along(write, tmp_path):
    source = write(job_line(facts(1, expire_at_ms=DAY_MS)), pause_line(Pause(b"q", 2, 0, b"")))
    moved, jobs, _ = imported(source, tmp_path / "j")
    assert (moved.expired, moved.pauses, jobs) == (1, 1, {})


def test_a_job_may_stand_in_a_file_once(write, tmp_path):
    line = job_line(facts(1, expire_at_ms=LATE))
    with pytest.raises(JobsFileError, match="line 2: an earlier line has the same job"):
        imported(write(line, line), tmp_path / "j")
    assert os.listdir(tmp_path) == ["jobs.jsonl"]


def test_an_old_file_with_a_torn_end_never_queues_at_most_once_jobs(tmp_path):
    """The torn part may have contained the DELJOB of any of them."""
    source = tmp_path / "disque.aof"
    source.write_bytes(loadjob(1, expire=LATE // 1000, retry=0) + loadjob(2)[:50])
    with pytest.raises(MovingError, match="in the middle of a record"):
        imported(source, tmp_path / "j", with_once=True)
    moved, jobs, _ = imported(source, tmp_path / "j")
    assert (moved.torn_bytes, moved.once, [job.state for job in jobs.values()]) == (50, 1, ["active"])


def test_at_most_once_jobs_of_a_whole_old_file_can_be_queued(tmp_path):
    source = tmp_path / "disque.aof"
    source.write_bytes(loadjob(1, expire=LATE // 1000, retry=0))
    assert [job.state for job in imported(source, tmp_path / "j", with_once=True)[1].values()] == ["queued"]


def test_an_empty_file_is_an_empty_journal(tmp_path):
    source = tmp_path / "disque.aof"
    source.touch()
    moved, jobs, _ = imported(source, tmp_path / "j")
    assert (moved.jobs, jobs) == (0, {})


def test_a_file_that_is_not_a_nodes_file_is_refused(tmp_path):
    (tmp_path / "nodes.conf").write_text("what\n")
    with pytest.raises(MovingError, match="line 1: 6 fields"):
        node_of_file(tmp_path / "nodes.conf")


def test_progress_is_reported(write, tmp_path):
    source = write(*(job_line(facts(number, expire_at_ms=LATE)) for number in range(2500)))
    told: list[tuple[int, int]] = []
    import_jobs(source, str(tmp_path / "j"), ImportOptions(), lambda done, total: told.append((done, total)))
    assert len(told) == 2
    assert told[0][1] == source.stat().st_size
    assert json.loads(source.read_text().splitlines()[0])["id"]
