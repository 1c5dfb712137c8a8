"""index_compaction.py: small files of a day become large ones, in order of jobs."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

import pyarrow.parquet as pq

from disque_py.spark import index_compaction
from disque_py.spark.delta_store import Store
from disque_py.spark.index_compaction import compact, compact_history
from disque_py.spark.index_schema import CURRENT, HISTORY
from index_events import TS, batch, event, index, rows

DAY_MS = 86_400_000


def test_files_of_a_day_become_one_sorted_by_job_and_days_stay_apart(tmp_path):
    for seq, job in enumerate(("c", "a", "b"), 1):
        index(tmp_path, batch(event(seq, job)))
    index(tmp_path, batch(event(4, "x", ts=TS + DAY_MS)))
    store = Store(str(tmp_path))
    table = store.under(HISTORY).table()
    assert compact_history(store, table) == 3
    paths = sorted(file.removeprefix("file://") for file in store.under(HISTORY).table().file_uris())
    assert [pq.read_table(path)["job_id"].to_pylist() for path in paths] == [["a", "b", "c"], ["x"]]
    assert [str(row["day"]) for row in rows(tmp_path, "history")] == ["2023-11-14"] * 3 + ["2023-11-15"]
    assert compact_history(store, store.under(HISTORY).table()) == 0


def test_large_files_are_left_alone_and_groups_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(index_compaction, "FILE_ROWS", 4)
    index(tmp_path, batch(*(event(seq, f"big{seq}") for seq in range(1, 4))))
    for seq in range(4, 10):
        index(tmp_path, batch(event(seq, "small")))
    store = Store(str(tmp_path))
    assert compact(store, HISTORY, store.under(HISTORY).table()) == 6
    assert len(store.under(HISTORY).table().file_uris()) == 3
    assert [row["seq"] for row in rows(tmp_path, "history")] == list(range(1, 10))


def test_rows_that_are_large_in_memory_are_sorted_in_parts(tmp_path, monkeypatch):
    """Otherwise the upkeep of an index with long bodies would end each query: Arrow can't sort 2 GiB of text."""
    for seq, job in enumerate("dcba", 1):
        index(tmp_path, batch(event(seq, job, body="x" * 4_000)))
    monkeypatch.setattr(index_compaction, "SORTED_BYTES", 10_000)
    store = Store(str(tmp_path))
    assert compact_history(store, store.under(HISTORY).table()) == 4
    paths = [file.removeprefix("file://") for file in store.under(HISTORY).table().file_uris()]
    assert sorted(pq.read_table(path)["job_id"].to_pylist() for path in paths) == [["a", "b"], ["c", "d"]]


def test_a_file_with_many_bytes_is_left_alone(tmp_path, monkeypatch):
    for seq, job in enumerate("ab", 1):
        index(tmp_path, batch(event(seq, job)))
    store = Store(str(tmp_path))
    monkeypatch.setattr(index_compaction, "FILE_BYTES", 1_000)
    assert compact_history(store, store.under(HISTORY).table()) == 0


def test_the_marks_of_logs_survive_a_compaction(tmp_path):
    for seq in range(1, 5):
        index(tmp_path, batch(event(seq, "a", seq)))
    store = Store(str(tmp_path))
    for name in (HISTORY, CURRENT):
        compact(store, name, store.under(name).table())
    done = index(tmp_path, batch(event(3, "a", 3), event(4, "a", 4), event(5, "a", 5)))
    assert (done.rows, done.dropped) == (1, 2)
