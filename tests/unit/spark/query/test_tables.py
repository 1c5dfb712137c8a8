"""query/tables.py: an index as views of a DuckDB connection."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")
pytest.importorskip("duckdb", reason="the extra disque-py[spark] is not installed")

import pyarrow as pa
from deltalake import DeltaTable

from disque_py.spark.delta_store import Store, TableError
from disque_py.spark.event_schema import ARROW_SCHEMA
from disque_py.spark.index_schema import open_tables
from disque_py.spark.index_tables import WIDENED
from disque_py.spark.query.tables import open_index
from index_events import batch, event, index


def test_views_have_all_rows_also_of_files_that_lack_a_column(tmp_path):
    index(tmp_path, batch(event(1, "a")))
    index(tmp_path, batch(event(2, "b")).append_column("tenant", pa.array(["t"])))
    with open_index(str(tmp_path)) as db:
        assert db.execute("SELECT job_id, tenant FROM history ORDER BY 1").fetchall() == [("a", None), ("b", "t")]
        assert db.execute("SELECT count(*) FROM current").fetchall() == [(2,)]


def test_footers_are_all_read_only_while_a_file_may_lack_a_column(tmp_path):
    def views() -> int:
        with open_index(str(tmp_path)) as db:
            sql = db.execute("SELECT sql FROM duckdb_views() WHERE NOT internal").fetchall()
        return sum("union_by_name" in one for (one,) in sql)

    index(tmp_path, batch(event(1, "a")))
    assert views() == 0
    index(tmp_path, batch(event(2, "b")).append_column("tenant", pa.array(["t"])))
    assert views() == 1  # The file of `current` was written anew, with all columns.
    DeltaTable(str(tmp_path / "history")).alter.set_table_properties({WIDENED: "0"}, raise_if_not_exists=False)
    assert views() == 0


@pytest.mark.parametrize("name", ["a b", "ü", "a#b?", "[1]*"])
def test_a_folder_may_have_any_name(tmp_path, name):
    """A URI would encode the name."""
    index(tmp_path / name, batch(event(1, "a")))
    with open_index(str(tmp_path / name)) as db:
        assert db.execute("SELECT job_id FROM history JOIN current USING (job_id)").fetchall() == [("a",)]


@pytest.mark.parametrize("name", ["queue=other", "day=2020-01-01"])
def test_a_folder_above_the_index_is_no_column(tmp_path, name):
    """Folders of data lakes are named like partitions."""
    index(tmp_path / name / "index", batch(event(1, "a")), batch(event(1, "b"), node="n2"))
    with open_index(str(tmp_path / name / "index")) as db:
        found = db.execute("SELECT DISTINCT queue, CAST(day AS VARCHAR) FROM history").fetchall()
        assert found == [("q", "2023-11-14")]
        assert db.execute("SELECT DISTINCT queue FROM current").fetchall() == [("q",)]


def test_an_index_without_rows_has_its_columns(tmp_path):
    open_tables(Store(str(tmp_path)), ARROW_SCHEMA)
    with open_index(str(tmp_path)) as db:
        assert db.execute("SELECT job_id, meta FROM history").fetchall() == []


def test_the_error_for_a_missing_index_is_one_sentence(tmp_path):
    with pytest.raises(TableError, match="has no table history; check the path, or run the index pipeline"):
        open_index(str(tmp_path))
