"""upkeep.py: an index stays small, and its readers notice nothing."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler

from disque_py.spark.delta_store import Store
from disque_py.spark.options import OptionError, Options
from disque_py.spark.upkeep import Retention, maintain, old_parts, retention_of, tidy
from index_events import TS, batch, event, index, rows

DAY_S = 86_400


def test_jobs_that_ended_long_ago_leave_current_and_old_days_leave_history(tmp_path):
    later = TS + 10 * DAY_S * 1000
    index(
        tmp_path,
        batch(
            event(1, "old", 1, to_state="completed"),
            event(2, "waiting"),
            event(3, "new", 1, to_state="completed", ts=later),
        ),
    )
    done = tidy(Store(str(tmp_path)), Retention(0, 7 * DAY_S, 5 * DAY_S), later / 1000)
    assert (done["jobs"], done["days"]) == (1, 1)
    assert [row["job_id"] for row in rows(tmp_path, "current")] == ["new", "waiting"]
    assert [row["job_id"] for row in rows(tmp_path, "history")] == ["new"]


def test_small_files_are_merged_and_every_row_stays(tmp_path):
    for seq in range(1, 6):
        index(tmp_path, batch(event(seq, f"D-{seq}")))
    assert tidy(Store(str(tmp_path)), Retention(), TS / 1000)["files_merged"] >= 5
    assert len(DeltaTable(str(tmp_path / "history")).file_uris()) == 1
    assert [row["seq"] for row in rows(tmp_path, "history")] == [1, 2, 3, 4, 5]
    index(tmp_path, batch(event(5, "D-5"), event(6, "D-6")))
    assert len(rows(tmp_path, "history")) == 6


def test_staged_files_of_crashed_batches_are_removed_after_a_day(tmp_path):
    """Those of a running batch stay, and so do files that are not ours."""
    index(tmp_path, batch(event(1, "a")))
    staging = tmp_path / "_staging"
    for name, age_s in (("part-old.arrow", 2 * DAY_S), ("part-new.arrow", 60), ("mine", 2 * DAY_S)):
        (staging / name).write_bytes(b"x")
        os.utime(staging / name, (TS / 1000 - age_s,) * 2)
    # delta-rs opens the files of an object store; a folder stands for one here.
    bucket = pafs.PyFileSystem(DeltaStorageHandler(f"file://{staging}"))
    assert old_parts(bucket, TS / 1000 - DAY_S) == ["part-old.arrow"]
    tidy(Store(str(tmp_path)), Retention(), TS / 1000)
    assert sorted(path.name for path in staging.iterdir()) == ["mine", "part-new.arrow"]


def test_upkeep_runs_every_compact_every_batches(tmp_path, monkeypatch):
    turns = []
    monkeypatch.setattr("disque_py.spark.upkeep.tidy", lambda *_: turns.append(1))
    for number in range(10):
        maintain(Store(str(tmp_path)), Retention(compact_every=4), number)
    assert len(turns) == 2
    assert maintain(Store(str(tmp_path)), Retention(compact_every=0), 3) == 0


def test_spans_are_read_and_refused():
    known = ("compactEvery", "currentRetention", "historyRetention")
    options = Options("disque-index", {"currentRetention": "7 days", "historyRetention": "12h"}, known)
    assert retention_of(options) == Retention(50, 7 * DAY_S, 43_200)
    with pytest.raises(OptionError, match="currentRetention must be a span such as 7 days or 12h, not 'soon'"):
        retention_of(Options("disque-index", {"currentRetention": "soon"}, known))
    # The first round of upkeep would end the query: there is no such day.
    with pytest.raises(OptionError, match="historyRetention is at most 36500 days, not '1000000 days'"):
        retention_of(Options("disque-index", {"historyRetention": "1000000 days"}, known))


def test_changes_wait_for_a_minute_unless_merge_every_says_otherwise():
    def merge_every(**given: str) -> int:
        return retention_of(Options("disque-index", given, ("compactEvery", "mergeEvery"))).merge_every_s

    assert merge_every() == 60
    assert [merge_every(mergeEvery=text) for text in ("0s", "90 seconds", "5 minutes")] == [0, 90, 300]
