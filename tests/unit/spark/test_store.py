"""store.py: where tables are, and whether they can be written."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

from disque_py.spark.index_commit import IndexCommit
from disque_py.spark.index_writing import IndexTask
from disque_py.spark.store import Store, TableError
from index_events import batch, event, rows


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


def test_a_folder_into_which_this_user_may_not_look_is_not_taken_for_a_missing_one(tmp_path):
    """Tests may run as root, which may look anywhere. The system refuses a name that is too long in the same way."""
    path = str(tmp_path / ("x" * 300) / "index")
    with pytest.raises(TableError, match=r"x/index can't be read \(File name too long\); check the path"):
        Store(path).exists()
    with pytest.raises(TableError, match=r"x can't be written \(File name too long\); name another path"):
        Store(str(tmp_path / ("x" * 300))).check_writable()


@pytest.mark.parametrize("uri", ["file:{}", "file://{}"])
def test_a_table_under_the_uri_of_a_file_is_in_one_folder(tmp_path, uri):
    """delta-rs decodes the URI for the log, and the files must be in the same folder."""
    store = Store(f"{uri.format(tmp_path)}/my%20index")
    part = IndexTask(store).write_all([batch(event(1, "a"))])
    IndexCommit(store, batch(event(1, "a")).schema, may_gap=False).commit([part])
    assert [row["seq"] for row in rows(tmp_path / "my index", "history")] == [1]


def test_the_text_of_a_store_has_no_secret():
    """It is part of error messages and of Spark's plans."""
    assert "secret" not in repr(Store("s3://a/b", {"aws_secret_access_key": "secret"}))


def test_a_damaged_log_of_a_table_is_one_sentence(tmp_path):
    folder = tmp_path / "_delta_log"
    folder.mkdir()
    (folder / f"{0:020d}.json").write_text("garbage")
    with pytest.raises(TableError) as caught:
        Store(str(tmp_path)).table()
    assert "\n" not in str(caught.value)
