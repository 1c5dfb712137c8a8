"""server/probes.py: whether a file, a directory or an address could be opened, without making or changing it."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from disque_py.server import probes


def error_of(probe, *arguments):
    """Return the number of the error that a probe raises; 0: none."""
    try:
        probe(*arguments)
    except OSError as error:
        return error.errno
    return 0


def append(path):
    """Open a file for appending, as the start does."""
    with open(path, "a"):
        pass


@pytest.mark.parametrize("path", ["log", "no/log", "folder", "file", "file/log", "n" * 300, "/dev/null"])
def test_a_file_can_be_written_if_it_can_be_opened_for_appending(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    found = error_of(probes.writable, path)
    assert sorted(os.listdir()) == ["file", "folder"]
    assert found == error_of(append, path)


def test_a_link_to_a_missing_file_is_judged_by_the_place_of_the_file(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "no" / "file")
    assert error_of(probes.writable, str(tmp_path / "link")) == errno.ENOENT
    (tmp_path / "no").mkdir()
    assert error_of(probes.writable, str(tmp_path / "link")) == 0


def test_a_read_only_file_system_is_told_from_missing_rights(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert error_of(probes.writable, str(tmp_path / "log")) == errno.EACCES
    real = os.statvfs(tmp_path)
    flags = os.statvfs_result((*real[:8], os.ST_RDONLY, real[9]))
    monkeypatch.setattr(os, "statvfs", lambda path: flags)
    assert error_of(probes.writable, str(tmp_path / "log")) == errno.EROFS


def test_a_pipe_without_a_reader_does_not_stop_a_probe(tmp_path):
    os.mkfifo(tmp_path / "log")
    assert error_of(probes.writable, str(tmp_path / "log")) == 0


def test_a_directory_with_a_lock_can_be_owned(tmp_path):
    assert error_of(probes.ownable, str(tmp_path)) == 0
    (tmp_path / "lock").write_text("")
    assert error_of(probes.ownable, str(tmp_path)) == 0
    assert error_of(probes.ownable, str(tmp_path / "lock")) == errno.EEXIST
    assert error_of(probes.ownable, str(tmp_path / "no" / "journal")) == errno.ENOENT


def test_a_port_in_use_can_be_bound_and_a_foreign_address_can_not():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert error_of(probes.bindable, socket.AF_INET, taken.getsockname()) == 0
    assert error_of(probes.bindable, socket.AF_INET, ("198.51.100.1", 7711)) == errno.EADDRNOTAVAIL


def test_the_path_of_a_unix_socket_has_a_limit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for size in (probes.UNIX_PATH_BYTES - 1, probes.UNIX_PATH_BYTES):
        path = "s" * size
        with socket.socket(socket.AF_UNIX) as sock:
            assert error_of(probes.bindable_socket_file, path) == error_of(sock.bind, path)
