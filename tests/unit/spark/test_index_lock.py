"""index_lock.py: one writer of an index at a time."""

from __future__ import annotations

import tempfile
import threading

import pytest

pytest.importorskip("deltalake", reason="the extra disque-py[spark] is not installed")

from disque_py.spark.index_lock import write_lock
from disque_py.spark.store import Store


def waits(first: str, second: str) -> bool:
    """Return whether a writer of `second` waits for a writer of `first`."""
    entered = threading.Event()

    def write() -> None:
        with write_lock(Store(second)):
            entered.set()

    writer = threading.Thread(target=write)
    with write_lock(Store(first)):
        writer.start()
        is_in = entered.wait(0.1)
    writer.join()
    return not is_in


def test_a_second_writer_of_a_path_waits_for_the_first(tmp_path):
    assert waits(str(tmp_path), f"file://{tmp_path}")
    assert waits("s3://bucket/index", "s3://bucket/index/")


def test_writers_of_different_paths_do_not_wait(tmp_path):
    assert not waits(str(tmp_path), f"{tmp_path}/other")


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path, monkeypatch):
    """Anyone can put one into the folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with write_lock(Store("/data/index")):
        (lock,) = tmp_path.iterdir()
    precious = tmp_path / "precious"
    precious.write_text("text")
    lock.unlink()
    lock.symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"), write_lock(Store("/data/index")):
        pass
    assert precious.read_text() == "text"
