"""index_tables.py: the error for a table that can't be used is one sentence."""

from __future__ import annotations

import shutil

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

from disque_py.spark.index_tables import check_not_lost, open_existing
from disque_py.spark.store import Store, TableError
from index_events import batch, event, index


def test_a_missing_table_is_distinguished_from_a_lost_one(tmp_path):
    store = Store(str(tmp_path))
    with pytest.raises(TableError, match="has no table current; check the path, or run the index pipeline"):
        open_existing(store, "current")
    index(tmp_path, batch(event(1, "a")))
    check_not_lost(store)
    assert open_existing(store, "current").version() > 0
    shutil.rmtree(tmp_path / "current")
    with pytest.raises(TableError, match="no table current; a new table would lack"):
        open_existing(store, "current")


def test_a_lost_history_is_not_reported_as_a_lost_current(tmp_path):
    index(tmp_path, batch(event(1, "a")))
    shutil.rmtree(tmp_path / "history")
    check_not_lost(Store(str(tmp_path)))
