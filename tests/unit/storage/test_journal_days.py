"""Random days with a journal: wherever it is cut, the restored state is one that a client could have seen.

Each seed is a day of a node. A failing one is run alone with `-k` and its number. JOURNAL_DAYS=500 runs more of them.
"""

from __future__ import annotations

import os
from random import Random

import pytest

import journal_files
from disque_py.simulator.world.disk_errors import CrashError
from disque_py.simulator.world.folder import SimFolder
from journal_days import POLICIES, Day
from journaled import JournaledNode
from persistence.records import NewerFormatError
from persistence.recovery import DamagedJournalError, Recovery

SEEDS = range(int(os.environ.get("JOURNAL_DAYS", "12")))


def begin(seed: int, policy: str = "") -> tuple[JournaledNode, Random]:
    rng = Random(seed)
    node = JournaledNode(SimFolder(Random(seed)), appendfsync=policy or rng.choice(POLICIES))
    node.settle()
    return node, rng


@pytest.mark.parametrize("seed", SEEDS)
def test_memory_is_what_a_reader_of_the_journal_finds(seed):
    """All fields of every job, at any moment, as far as the disk has come."""
    node, rng = begin(seed)
    day = Day(node, rng)
    for _ in range(120):
        day.step()
        node.recount()
        if rng.random() < 0.1:
            node.check_folder(at_least=node.promised)
    node.settle()
    assert node.journal_service.journal is not None
    assert node.check_folder() == node.journal_service.journal.position


@pytest.mark.parametrize("seed", SEEDS)
def test_under_always_a_power_cut_loses_nothing_that_was_confirmed(seed):
    """Any sectors that were not synced may be lost, at any moment."""
    node, rng = begin(seed, "always")
    day = Day(node, rng, without=("set_policy",))
    for _ in range(100):
        day.step()
        if rng.random() < 0.2:
            folder = node.folder.copy(rng)
            folder.cut_power()
            node.check_folder(folder, at_least=node.promised)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_journal_that_is_cut_at_any_byte_is_read_up_to_there_or_refused(seed):
    """The last file may end anywhere; one that was closed may not, and says where it is broken."""
    node, rng = begin(seed, "always")
    day = Day(node, rng)
    for _ in range(60):
        day.step()
    node.settle()
    *closed, last = [name for name in node.folder.names() if name.endswith(".seg")]
    size = journal_files.cut_zeros(node.folder, last)
    cuts = sorted({512, size, *rng.sample(range(512, size + 1), min(25, size - 512))})
    readable = [can_be_read(node, rng, last, cut) for cut in cuts]
    # A cut before the record that dropped a removed segment is refused; no later cut is.
    assert readable == sorted(readable)
    assert readable[0] or node.read_folder()[0].missing
    assert readable[-1]
    for name in closed:
        for cut in rng.sample(range(node.folder.size(name)), 5):
            folder = node.folder.copy(rng)
            folder.truncate(name, cut)
            assert is_refused(folder, name)


def can_be_read(node: JournaledNode, rng: Random, name: str, cut: int) -> bool:
    """Return whether a start reads the journal with this cut; the result must be a state that memory had."""
    folder = node.folder.copy(rng)
    folder.truncate(name, cut)
    try:
        node.check_folder(folder)
    except DamagedJournalError as refusal:
        if "is missing" in str(refusal):
            return False
        raise
    return True


def is_refused(folder: SimFolder, name: str) -> bool:
    """Return whether reading says that this file is damaged. A file outside the chain is not read at all."""
    try:
        recovery = Recovery(folder)
        while not recovery.is_finished:
            recovery.step()
    except (DamagedJournalError, NewerFormatError) as refusal:
        return name in str(refusal)
    return name in recovery.leftovers


@pytest.mark.parametrize("seed", SEEDS)
def test_no_at_most_once_job_is_delivered_twice_in_any_sequence_of_lives(seed):
    """Kills, power cuts, clean stops, deaths in an operation; policies, FLUSHALL, LOADAOF, appendonly no and yes."""
    node, rng = begin(seed)
    for _ in range(5):
        day = Day(node, rng)
        day.deeds += rng.choice(([], ["flush", "reload"], ["switch"] * 3))
        if rng.random() < 0.3:
            node.folder.crash_in(rng.randrange(200))
        try:
            for _ in range(rng.randrange(10, 70)):
                day.step()
            if rng.random() < 0.5:
                node.settle()
                assert node.stop() is None
        except CrashError:
            pass
        if rng.random() < 0.5:
            node.folder.cut_power()
        else:
            node.folder.kill()
        node = node.restart(
            away_ms=rng.choice((0, 500, 100_000)),
            appendonly=True,
            appendfsync=rng.choice(POLICIES),
            aof_enqueue_jobs_once=rng.random() < 0.1,
        )
        assert node.is_ready, node.failed
        node.recount()
        node.check_folder()
