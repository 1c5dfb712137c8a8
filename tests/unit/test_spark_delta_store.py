"""delta_store.py: files first, a table later."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

import pyarrow as pa
from deltalake import DeltaTable

from disque_py.spark.delta_store import Store, TableError, delete_files, read_file, stats_of, write_file

ROWS = pa.table({"job_id": ["b", "a"], "seq": [1, 2]})


def test_a_file_is_written_into_the_folder_of_its_partition_and_read_again(tmp_path):
    store = Store(str(tmp_path)).under("t")
    file = write_file(store, ROWS, {"day": "2024-01-01"})
    path = tmp_path / "t" / file.path
    assert path.parent.name == "day=2024-01-01"
    assert (path.stat().st_size, file.rows) == (file.size, 2)
    assert read_file(store, file.path).select(["job_id", "seq"]) == ROWS


def test_a_file_becomes_rows_of_a_table_by_its_action(tmp_path):
    store = Store(f"file://{tmp_path}")
    table = DeltaTable.create(store.path, ROWS.schema)
    table.create_write_transaction([write_file(store, ROWS).add_action()], "append", ROWS.schema)
    assert sorted(store.table().to_pyarrow_table()["seq"].to_pylist()) == [1, 2]


def test_statistics_are_what_delta_keeps():
    stats = json.loads(stats_of(ROWS.append_column("ts", pa.array([0, 1_001_000], pa.timestamp("us", "UTC")))))
    assert stats["numRecords"] == 2
    assert stats["minValues"] == {"ts": "1970-01-01T00:00:00.000Z", "seq": 1, "job_id": "a"}
    assert stats["maxValues"]["ts"] == "1970-01-01T00:00:01.001Z"


def test_removing_what_is_gone_does_no_harm_and_no_table_is_one_sentence(tmp_path):
    store = Store(str(tmp_path))
    delete_files(store, ["nothing.parquet"])
    assert not store.exists()
    with pytest.raises(TableError, match="can't be opened as a Delta table"):
        store.table()
