"""store.py: where tables are, and whether they can be written."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

from disque_py.spark.store import Store, TableError


def test_a_folder_that_could_be_made_is_accepted_and_not_made(tmp_path):
    Store(str(tmp_path / "a" / "b")).check_writable()
    Store("s3://bucket/index").check_writable()  # Object stores are not checked.
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(TableError, match=f"{file} is not a folder, so {file}/index can't be written"):
        Store(f"{file}/index").check_writable()
    with pytest.raises(TableError, match="/proc can't be written"):
        Store("/proc/index").check_writable()
