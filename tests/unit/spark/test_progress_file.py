"""progress_file.py: a note beside the tables."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

from disque_py.spark.delta_store import Store
from disque_py.spark.progress_file import last_note, note_batch


def test_the_last_note_is_read_again(tmp_path):
    store = Store(str(tmp_path))
    assert last_note(store) == {}
    note_batch(store, 3, {"rows": 7})
    assert {name: value for name, value in last_note(store).items() if name != "at_ms"} == {"batch": 3, "rows": 7}


def test_an_invalid_or_remote_note_is_ignored(tmp_path):
    (tmp_path / "_progress.json").write_text("{")
    assert last_note(Store(str(tmp_path))) == {}
    note_batch(Store("s3://bucket/x"), 1, {})
    assert last_note(Store("s3://bucket/x")) == {}


def test_a_note_that_can_not_be_written_does_not_fail_the_batch(tmp_path):
    (tmp_path / "_progress.json").mkdir()
    note_batch(Store(str(tmp_path)), 1, {})
    assert last_note(Store(str(tmp_path))) == {}
