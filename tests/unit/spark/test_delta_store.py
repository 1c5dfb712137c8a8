"""delta_store.py: files are written first, and committed to a table later."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from disque_py.spark.delta_store import (
    HAS_FILTERS,
    PACKED_CODEC,
    Store,
    TableError,
    delete_files,
    read_file,
    read_staged,
    stats_of,
    write_file,
    write_staged,
)

ROWS = pa.table({"job_id": ["b", "a"], "seq": [1, 2]})


def test_a_file_is_written_into_the_folder_of_its_partition_and_read_again(tmp_path):
    store = Store(str(tmp_path)).under("t")
    file = write_file(store, ROWS, {"day": "2024-01-01"})
    path = tmp_path / "t" / file.path
    assert path.parent.name == "day=2024-01-01"
    assert (path.stat().st_size, file.rows) == (file.size, 2)
    assert read_file(store, file.path).select(["job_id", "seq"]) == ROWS


@pytest.mark.skipif(not HAS_FILTERS, reason="this pyarrow writes no Bloom filters")
def test_a_file_has_a_filter_of_its_jobs(tmp_path):
    """Ids are random, so the smallest and largest values of a small file rule nothing out."""
    duckdb = pytest.importorskip("duckdb")
    file = write_file(Store(str(tmp_path)), ROWS)
    found = duckdb.execute(
        "SELECT path_in_schema FROM parquet_metadata(?) WHERE bloom_filter_offset IS NOT NULL",
        [f"{tmp_path}/{file.path}"],
    )
    assert found.fetchall() == [("job_id",)]


def test_a_file_becomes_rows_of_a_table_by_its_action(tmp_path):
    store = Store(f"file://{tmp_path}")
    table = DeltaTable.create(store.path, ROWS.schema)
    table.create_write_transaction([write_file(store, ROWS).add_action()], "append", ROWS.schema)
    assert sorted(store.table().to_pyarrow_table()["seq"].to_pylist()) == [1, 2]


def test_staged_rows_come_back_as_they_were_and_are_gone_once_deleted(tmp_path):
    store = Store(str(tmp_path)).under("_staging")
    file = write_staged(store, ROWS)
    assert read_staged(store, file.path) == ROWS
    delete_files(store, [file.path])
    with pytest.raises(FileNotFoundError):
        read_staged(store, file.path)


def test_a_file_keeps_types_and_has_bounds_only_where_readers_use_them(tmp_path):
    kinds = {"ts": pa.timestamp("us", "UTC"), "meta": pa.map_(pa.string(), pa.string()), "queue": pa.string()}
    rows = pa.table({"ts": [1_000], "meta": [[("k", "v")]], "queue": ["q"]}, pa.schema(list(kinds.items())))
    file = write_file(Store(str(tmp_path)), rows, codec=PACKED_CODEC)
    assert read_file(Store(str(tmp_path)), file.path).schema.types == rows.schema.types
    group = pq.ParquetFile(tmp_path / file.path).metadata.row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    assert (columns["ts"].is_stats_set, columns["queue"].is_stats_set) == (True, False)
    assert {column.compression for column in columns.values()} == {"ZSTD"}


def test_statistics_have_the_format_of_delta():
    stats = json.loads(stats_of(ROWS.append_column("ts", pa.array([0, 1_001_000], pa.timestamp("us", "UTC")))))
    assert stats["numRecords"] == 2
    assert stats["minValues"] == {"ts": "1970-01-01T00:00:00.000Z", "seq": 1, "job_id": "a"}
    assert stats["maxValues"]["ts"] == "1970-01-01T00:00:01.001Z"


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", None])
def test_times_in_statistics_are_utc_under_any_of_its_names(zone):
    """Readers skip files by these times."""
    ts = pa.array([1_769_900_400_000_000], pa.timestamp("us", tz=zone))
    assert json.loads(stats_of(pa.table({"ts": ts})))["maxValues"]["ts"] == "2026-01-31T23:00:00.000Z"


def test_removing_missing_files_does_no_harm_and_a_missing_table_is_one_sentence(tmp_path):
    store = Store(str(tmp_path))
    delete_files(store, ["nothing.parquet"])
    assert not store.exists()
    with pytest.raises(TableError, match="can't be opened as a Delta table"):
        store.table()
