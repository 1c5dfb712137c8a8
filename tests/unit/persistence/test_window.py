"""persistence/window.py: bytes that are put into a mapped file are in the file, whose length was prepared."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from persistence import window as window_module
from persistence.files import Files
from persistence.window import FileWindow, file_system

SIZE = 64 * 1024
PROC = 0x9FA0  # The type of the file system /proc, from statfs(2).

KILLED = """
import os, sys
from persistence.files import Files
files = Files(sys.argv[1])
files.create("b", b"")
window = files.map("b", 8192)
files.prepare("b", window, 0, 8192)
window.put(3, b"left behind")
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    folder = Files(str(tmp_path / "log"))
    folder.create("a", b"head")
    yield folder
    folder.close()


def window_on(files: Files) -> FileWindow:
    window = files.map("a", SIZE)
    if window is None:
        pytest.skip("this system has no windows")
    try:
        files.prepare("a", window, 0, 8192)
    except OSError as error:
        pytest.skip(f"this system can't prepare pages: {error}")
    return window


def test_bytes_put_are_read_and_the_file_is_as_long_as_the_prepared_bytes(files: Files):
    window = window_on(files)
    assert (window.size, files.size("a")) == (SIZE, 8192)
    window.put(4, b" and tail")
    files.sync_window("a", window, 0, 13)
    files.prepare("a", window, 0, 8192)
    assert files.read("a", 0, 20) == b"head and tail" + bytes(7)


def test_more_is_prepared_and_earlier_bytes_stay(files: Files):
    window = window_on(files)
    window.put(8000, b"x" * 192)
    files.prepare("a", window, 8192, 3 * SIZE)
    window.put(8192, b"y" * 100)
    assert files.size("a") == SIZE
    assert files.read("a", 8190, 4) == b"xxyy"


def test_a_window_lets_go_of_what_it_has_synced_without_losing_it(files: Files):
    window = window_on(files)
    window.put(0, b"z" * 8192)
    files.sync_window("a", window, 0, 8192)
    window.put(4096, b"again")
    assert files.read("a", 4090, 12) == b"zzzzzzagainz"


def test_a_file_is_cut_to_its_length_when_it_is_done(files: Files):
    window = window_on(files)
    window.put(4, b"!")
    files.truncate("a", 5)
    assert files.read("a", 0, 99) == b"head!"


def test_a_file_system_that_does_not_write_in_place_has_no_windows(files: Files, monkeypatch: pytest.MonkeyPatch):
    window_on(files)
    monkeypatch.setattr(window_module, "IN_PLACE", frozenset())
    assert files.map("a", SIZE) is None
    assert files.read("a", 0, 4) == b"head"


def test_the_type_of_a_file_system_is_read_from_the_system():
    with open("/proc/self/stat", "rb") as file:
        assert file_system(file.fileno()) == PROC


def test_a_missing_file_can_be_neither_prepared_nor_synced(files: Files):
    window = window_on(files)
    Path(f"{files.directory}/a").unlink()
    with pytest.raises(FileNotFoundError):
        files.prepare("a", window, 0, SIZE)
    with pytest.raises(FileNotFoundError):
        files.sync_window("a", window, 0, 10)


def test_bytes_put_by_a_killed_process_are_there(files: Files, tmp_path: Path):
    window_on(files)
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "other")], check=False, timeout=60)
    assert (tmp_path / "other/b").read_bytes()[:14] == bytes(3) + b"left behind"
