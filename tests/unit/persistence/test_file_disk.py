"""persistence/file_disk.py: work on a folder, with results in the loop's thread. test_lanes.py tests the threads."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from disque_py.simulator.world.folder import SimFolder
from persistence.disk import READING, WRITING, Folder
from persistence.file_disk import FileDisk
from persistence.files import Files


def test_work_gets_the_folder_and_the_caller_its_result():
    heard: list[Any] = []
    disk = FileDisk(SimFolder(Random(1)), lambda call: None)
    disk.start(WRITING, lambda folder: folder.create("a", b"text"), heard.append)
    disk.start(WRITING, lambda folder: folder.names(), heard.append)
    assert disk.close()
    assert heard == [None, ["a"]]


def test_an_error_of_the_system_is_a_result():
    heard: list[Any] = []
    disk = FileDisk(SimFolder(Random(1)), lambda call: None)
    disk.start(READING, lambda folder: folder.read("missing", 0, 1), heard.append)
    assert disk.close()
    assert isinstance(heard[0], FileNotFoundError)
    assert heard[0].__traceback__ is None


def test_a_wait_hands_over_the_work_of_its_lane():
    heard: list[Any] = []
    disk = FileDisk(SimFolder(Random(1)), lambda call: None)
    for _ in range(100):  # A busy machine may not run the thread in time.
        disk.start(WRITING, lambda folder: folder.names(), heard.append)
        disk.wait(WRITING)
        if heard:
            break
    assert heard[:1] == [[]]
    assert disk.close()


def test_lanes_may_use_real_files_at_once(tmp_path: Path):
    """One lane writes and syncs while another one removes. No descriptor is closed while a call uses it."""
    files = Files(str(tmp_path))
    heard: list[Any] = []
    disk = FileDisk(files, lambda call: None)

    def write(folder: Folder, name: str) -> None:
        folder.create(name, b"")
        folder.write(name, 0, [b"x" * 100])
        folder.sync(name)

    for number in range(20):
        disk.start(WRITING, lambda folder, name=f"w{number}": write(folder, name), heard.append)
        disk.start(READING, lambda folder, name=f"r{number}": write(folder, name), heard.append)
        disk.start(READING, lambda folder, name=f"r{number}": folder.remove(name), heard.append)
    assert disk.close()
    assert heard == [None] * 60
    assert files.names() == sorted(f"w{number}" for number in range(20))
    files.close()
