"""index_reading.py: files of a table, and their rows with the table's columns."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

import pyarrow as pa

from disque_py.spark.delta_store import Store
from disque_py.spark.index_reading import files_of, read_rows, schema_of
from index_events import TS, batch, event, index


def read(path, table: str, **days: str) -> list[dict]:
    store = Store(str(path))
    schema = schema_of(store, table)
    return [
        row
        for file in files_of(store, table, **days)
        for rows in read_rows(store, table, file, schema)
        for row in rows.to_pylist()
    ]


def test_files_of_days_are_chosen_by_their_folder(tmp_path):
    index(tmp_path, batch(event(1, "a"), event(2, "b", ts=TS + 86_400_000)))
    assert [(row["job_id"], str(row["day"])) for row in read(tmp_path, "history", since="2023-11-15")] == [
        ("b", "2023-11-15")
    ]
    assert [row["job_id"] for row in read(tmp_path, "history", until="2023-11-14")] == ["a"]
    assert len(read(tmp_path, "current", since="2023-11-15")) == 2


def test_files_from_before_a_column_was_added_have_none_in_it(tmp_path):
    index(tmp_path, batch(event(1, "a")))
    index(tmp_path, batch(event(2, "b")).append_column("tenant", pa.array(["t"])))
    assert {row["job_id"]: row["tenant"] for row in read(tmp_path, "history")} == {"a": None, "b": "t"}
