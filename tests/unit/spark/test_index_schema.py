"""index_schema.py: tables are made, widened, and left alone when a newer version wrote them."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

import pyarrow as pa
from deltalake import DeltaTable

from disque_py.spark.delta_store import Store, TableError
from disque_py.spark.event_schema import ARROW_SCHEMA
from disque_py.spark.index_schema import (
    IndexSchemaError,
    arrow_schema,
    check_columns,
    current_schema,
    history_schema,
    open_existing,
    open_tables,
)


def test_tables_have_the_columns_of_events_and_their_own(tmp_path):
    history, current = open_tables(Store(str(tmp_path)), ARROW_SCHEMA)
    assert arrow_schema(history) == history_schema()
    assert arrow_schema(current) == current_schema()


def test_the_error_for_a_path_without_a_table_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(TableError, match=r"file/history can't be reached or written: .*; check the option path"):
        open_tables(Store(str(tmp_path / "file")), ARROW_SCHEMA)


def test_further_columns_are_added_once(tmp_path):
    wide = ARROW_SCHEMA.append(pa.field("tenant", pa.string()))
    for schema in (ARROW_SCHEMA, wide, wide, ARROW_SCHEMA):
        history, _ = open_tables(Store(str(tmp_path)), schema)
    assert "tenant" in arrow_schema(history).names
    assert history.version() == 2  # One version for the property, one for the column.


def test_a_table_of_a_newer_version_is_left_alone(tmp_path):
    DeltaTable.create(str(tmp_path / "history"), history_schema(), description="disque-py index, format 2")
    with pytest.raises(TableError, match=r"has format 2, written by a newer version; .* update disque-py"):
        open_tables(Store(str(tmp_path)), ARROW_SCHEMA)


def test_the_error_for_a_missing_table_says_what_to_run(tmp_path):
    with pytest.raises(TableError, match="run the index pipeline first"):
        open_existing(Store(str(tmp_path)), "current")


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (ARROW_SCHEMA.remove(0), "the column node is missing"),
        (ARROW_SCHEMA.append(pa.field("final", pa.int32())), "the index itself adds the column final"),
        (ARROW_SCHEMA.append(pa.field("Day", pa.date32())), "the index itself adds the column day"),
        (ARROW_SCHEMA.append(pa.field("QUEUE", pa.string())), "there are two columns queue"),
        (
            ARROW_SCHEMA.append(pa.field("took", pa.duration("us"))),
            r"column took is duration\[us\], which no table can",
        ),
        (ARROW_SCHEMA.set(2, pa.field("seq", pa.string())), "column seq is string, but must be int64"),
    ],
)
def test_columns_that_do_not_fit_are_named(schema, text):
    with pytest.raises(IndexSchemaError, match=text):
        check_columns(schema)
