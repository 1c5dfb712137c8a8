"""cluster_bus/nodes_store.py: the file has one owner and is never half written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cluster_bus.nodes_store import NodesFileLockedError, NodesFileStore, crc_of


def test_a_saved_text_is_loaded(tmp_path: Path):
    store = NodesFileStore(str(tmp_path / "nodes.conf"))
    assert store.load() is None
    store.save("one\n")
    store.save("two\n")
    assert store.load() == "two\n"
    assert os.listdir(tmp_path) == ["nodes.conf"]


def test_a_second_owner_is_refused_until_the_first_is_gone(tmp_path: Path):
    first, second = (NodesFileStore(str(tmp_path / "nodes.conf")) for _ in range(2))
    first.lock()
    with pytest.raises(NodesFileLockedError, match=r"nodes\.conf is in use"):
        second.lock()
    first.save("still locked after a rename\n")
    with pytest.raises(NodesFileLockedError):
        second.lock()
    first.close()
    second.lock()
    second.close()


def test_a_path_in_the_working_directory_needs_no_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    NodesFileStore("nodes.conf").save("x\n")
    assert (tmp_path / "nodes.conf").read_text() == "x\n"


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path):
    store = NodesFileStore(str(tmp_path / "nodes.conf"))
    store.save("old\n")
    (tmp_path / "nodes.conf.new").mkdir()
    with pytest.raises(OSError, match=r"nodes\.conf\.new"):
        store.save("new\n")
    assert store.load() == "old\n"


def test_bytes_that_are_not_text_are_loaded_and_refused_by_the_parser(tmp_path: Path):
    (tmp_path / "nodes.conf").write_bytes(b"\xff\0")
    assert NodesFileStore(str(tmp_path / "nodes.conf")).load() == "\udcff\0"


def test_a_directory_that_is_missing_is_the_systems_error(tmp_path: Path):
    store = NodesFileStore(str(tmp_path / "missing" / "nodes.conf"))
    with pytest.raises(FileNotFoundError):
        store.lock()


def test_a_later_text_is_found_beside_the_file_that_it_follows(tmp_path: Path):
    store = NodesFileStore(str(tmp_path / "nodes.conf"))
    store.save("one\n")
    store.write("two\n", [crc_of("zero\n"), crc_of("one\n")])
    assert store.load() == "one\n"
    assert store.load_latest("one\n") == "two\n"
    assert store.load_latest("restored by an operator\n") is None
    store.save("three\n")
    assert store.load_latest("three\n") is None


@pytest.mark.parametrize("data", [b"", b"\0" * 40, b"follows\n", b"follows zz\nx\n", b"\xff\n"])
def test_remains_of_a_later_text_after_a_power_cut_are_ignored(tmp_path: Path, data: bytes):
    store = NodesFileStore(str(tmp_path / "nodes.conf"))
    (tmp_path / "nodes.conf.latest").write_bytes(data)
    assert store.load_latest("one\n") is None
