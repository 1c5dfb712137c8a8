"""index_merge.py: a batch rewrites only the files that hold its jobs."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

import numpy as np
import pyarrow as pa

from disque_py.spark import index_merge
from disque_py.spark.delta_store import Store, write_file
from disque_py.spark.index_merge import CurrentMerge, SpanFile, bounds_of, dirty, span_files
from disque_py.spark.index_schema import CURRENT
from index_events import batch, event, index, rows


def current(path) -> list[SpanFile]:
    return span_files(Store(str(path)).under(CURRENT).table())


def jobs(first: int, after: int, seq: int, **fields):
    """One event for each job of a span; job n was created at moment n."""
    return batch(*(event(seq + at - first, f"D-{at:03d}", ctime=at, **fields) for at in range(first, after)))


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    monkeypatch.setattr(index_merge, "FILE_ROWS", 10)
    monkeypatch.setattr(index_merge, "SMALL_ROWS", 3)


def test_files_are_spans_of_creation_times(tmp_path):
    index(tmp_path, jobs(0, 40, 1))
    assert [(file.rows, file.first, file.last) for file in current(tmp_path)] == [
        (10, 0, 9), (10, 10, 19), (10, 20, 29), (10, 30, 39)
    ]  # fmt: skip


def test_a_batch_rewrites_only_the_files_its_jobs_are_in(tmp_path):
    index(tmp_path, jobs(0, 40, 1))
    before = {file.path: file.first for file in current(tmp_path)}
    index(tmp_path, batch(event(41, "D-012", 2, ctime=12, to_state="running"), event(42, "D-040", ctime=40)))
    after = {file.path for file in current(tmp_path)}
    assert sorted(before[path] for path in before if path not in after) == [10]
    assert len(rows(tmp_path, "current")) == 41
    assert [row["to_state"] for row in rows(tmp_path, "current")][12] == "running"


def test_files_whose_span_fits_but_that_lack_the_job_stay(tmp_path):
    """Spans may overlap; the job ids decide."""
    index(tmp_path, batch(*(event(1 + at, f"D-{at:03d}", ctime=at) for at in range(8))))
    store = Store(str(tmp_path))
    merge = CurrentMerge(store, store.under(CURRENT).table())
    whole = merge._read(current(tmp_path)[0])
    parts = [whole.filter(pa.array([at % 2 == odd for at in range(8)])) for odd in (0, 1)]
    files = [write_file(store.under(CURRENT), part) for part in parts]
    table = store.under(CURRENT).table()
    table.delete()
    table.create_write_transaction([file.add_action() for file in files], "append", table.schema())
    index(tmp_path, batch(event(9, "D-004", 2, ctime=4, to_state="running")))
    assert files[1].path in {file.path for file in current(tmp_path)}
    assert [row["to_state"] for row in rows(tmp_path, "current")].index("running") == 4


def test_a_job_that_is_already_there_is_changed_in_its_place(tmp_path):
    index(tmp_path, jobs(0, 40, 1, meta={"k": "v"}))
    before = {file.path: file for file in current(tmp_path)}
    changed = {"to_state": "completed", "meta": None, "worker": "w", "ctime": 12}
    index(tmp_path, batch(event(41, "D-012", 2, **changed), event(42, "D-031", 2, ctime=31, meta={"k": "w"})))
    after = {file.path: file for file in current(tmp_path)}
    assert sorted(file.first for path, file in before.items() if path not in after) == [10, 30]
    assert sorted((file.rows, file.first) for file in after.values()) == [(10, 0), (10, 10), (10, 20), (10, 30)]
    found = rows(tmp_path, "current")
    assert [row["job_id"] for row in found] == [f"D-{at:03d}" for at in range(40)]
    assert (found[12]["to_state"], found[12]["meta"], found[12]["worker"]) == ("completed", [("k", "v")], "w")
    assert (found[31]["meta"], found[11]["to_state"], found[11]["worker"]) == ([("k", "w")], "pending", None)


def test_rows_between_files_that_stay_do_not_widen_a_span():
    created = np.array([1, 2, 50, 51, 90])
    assert bounds_of(created, [10, 60]).tolist() == [50, 90]
    assert bounds_of(np.arange(25), []).tolist() == [8, 16]
    assert bounds_of(np.zeros(25, np.int64), []).tolist() == [0]


def test_files_of_unknown_span_and_small_files_are_always_considered():
    known, small = SpanFile("a", 1, 50, 0, 9), SpanFile("b", 1, 2, 20, 29)
    unknown = SpanFile("c", 1, 50, None, None)
    assert dirty([known, small, unknown], np.array([100])) == ([small, unknown], [known])
    assert dirty([known], np.array([9]))[0] == [known]
    assert dirty([known], None)[0] == [known]


@pytest.mark.parametrize("seed", range(3))
def test_jobs_without_a_creation_time_have_one_row_too(tmp_path, seed):
    rng = random.Random(seed)
    seq = 0
    for _ in range(4):
        made = []
        for _ in range(12):
            number, seq = rng.randrange(30), seq + 1
            made.append(event(seq, f"D-{number:03d}", seq, ctime=rng.choice([number, number, None])))
        index(tmp_path, batch(*made))
    found = [row["job_id"] for row in rows(tmp_path, "current")]
    assert found == sorted(set(found))


@pytest.mark.parametrize("seed", range(4))
def test_any_batches_of_new_and_old_jobs_leave_the_newest_row_of_each(tmp_path, seed):
    """This holds whether files are patched, merged or left alone."""
    rng = random.Random(seed)
    versions: dict[int, int] = {}
    seq = known = 0
    for _ in range(8):
        new = range(known, known + rng.choice([0, 0, 15]))
        known = max(known + len(new), 1)
        made = []
        for number in [*new, *(rng.randrange(known) for _ in range(rng.randrange(1, 6)))]:
            seq += 1
            version = rng.randrange(1, 50)
            versions[number] = max(versions.get(number, 0), version)
            made.append(event(seq, f"D-{number:03d}", version, ctime=number, worker=rng.choice([None, "w"])))
        index(tmp_path, batch(*made))
    assert {row["job_id"]: row["version"] for row in rows(tmp_path, "current")} == {
        f"D-{number:03d}": version for number, version in versions.items()
    }
    assert len(rows(tmp_path, "current")) == len(versions)


def test_jobs_without_a_creation_time_have_a_file_of_their_own(tmp_path):
    index(tmp_path, jobs(0, 20, 1))
    index(tmp_path, batch(event(21, "D-x", ctime=None), event(22, "D-020", ctime=20)))
    assert [(file.rows, file.first, file.last) for file in current(tmp_path)] == [
        (1, None, None), (7, 0, 6), (7, 7, 13), (7, 14, 20)
    ]  # fmt: skip


def test_small_files_are_merged(tmp_path):
    for at in range(5):
        index(tmp_path, jobs(at * 20, at * 20 + 10, at * 10 + 1))
    index(tmp_path, batch(*(event(51 + at, f"D-{200 + at}", ctime=200 + at) for at in range(2))))
    store = Store(str(tmp_path))
    assert CurrentMerge(store, store.under(CURRENT).table()).compact() == 0
    index_merge.FILE_ROWS = 60
    assert CurrentMerge(store, store.under(CURRENT).table()).compact() == 6
    assert [(file.rows, file.first, file.last) for file in current(tmp_path)] == [(52, 0, 201)]
    assert len(rows(tmp_path, "current")) == 52


def test_other_names_of_utc_are_the_same_type(tmp_path):
    """Spark names the time zone as its session does, for example Etc/UTC."""
    index(tmp_path, jobs(0, 4, 1))
    store = Store(str(tmp_path))
    merge = CurrentMerge(store, store.under(CURRENT).table())
    again = merge._read(current(tmp_path)[0])
    at = again.schema.get_field_index("ts")
    named = again.set_column(at, "ts", again["ts"].cast(pa.timestamp("us", "Etc/UTC")))
    assert merge.merge([named]) == 4
    assert len(rows(tmp_path, "current")) == 4
