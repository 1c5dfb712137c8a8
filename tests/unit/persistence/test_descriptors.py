"""persistence/descriptors.py: descriptors are kept, limited in number, and never closed while a call uses them."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from persistence.descriptors import READERS_MAX, WRITERS_MAX, Descriptors


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def path_of(folder: Path, name: str) -> str:
    (folder / name).touch()
    return str(folder / name)


def test_a_descriptor_is_kept_for_the_next_call(tmp_path: Path):
    descriptors, path = Descriptors(), path_of(tmp_path, "a")
    first = descriptors.take_for_writing("a", path)
    descriptors.give_back(first)
    assert descriptors.take_for_writing("a", path) is first
    assert descriptors.take_for_reading("a", path) is first
    descriptors.forget_all()
    for _ in range(2):
        descriptors.give_back(first)


def test_reading_opens_a_file_for_reading_only(tmp_path: Path):
    """Reading must still work on a file system that has turned read-only."""
    descriptors = Descriptors()
    file = descriptors.take_for_reading("a", path_of(tmp_path, "a"))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(file.fd, b"x")
    descriptors.give_back(file)
    descriptors.forget_all()


def test_a_forgotten_descriptor_is_closed_by_its_last_user(tmp_path: Path):
    """If it were closed earlier, another file could get its number before the call is made."""
    descriptors, path = Descriptors(), path_of(tmp_path, "a")
    one, two = descriptors.take_for_writing("a", path), descriptors.take_for_writing("a", path)
    descriptors.forget("a")
    descriptors.give_back(one)
    assert is_open(two.fd)
    descriptors.give_back(two)
    assert not is_open(two.fd)


def test_the_oldest_descriptors_are_closed_first(tmp_path: Path):
    descriptors = Descriptors()
    before = len(os.listdir("/proc/self/fd"))
    for number in range(2 * READERS_MAX):
        path = path_of(tmp_path, str(number))
        descriptors.give_back(descriptors.take_for_writing(str(number), path))
        descriptors.give_back(descriptors.take_for_reading(f"r{number}", path))
    assert len(os.listdir("/proc/self/fd")) == before + WRITERS_MAX + READERS_MAX
    descriptors.forget_all()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_descriptor_in_use_is_closed_when_its_user_is_done(tmp_path: Path):
    descriptors = Descriptors()
    used = descriptors.take_for_writing("a", path_of(tmp_path, "a"))
    for number in range(WRITERS_MAX):
        descriptors.give_back(descriptors.take_for_writing(str(number), path_of(tmp_path, str(number))))
    assert is_open(used.fd)
    descriptors.give_back(used)
    assert not is_open(used.fd)
    descriptors.forget_all()


def test_of_two_that_open_at_once_one_is_kept_and_the_other_closed_after_use(tmp_path: Path):
    """The file is a pipe. Opening it for reading waits for a writer, so both threads open it at the same time."""
    descriptors, path = Descriptors(), str(tmp_path / "pipe")
    os.mkfifo(path)
    before = len(os.listdir("/proc/self/fd"))
    with ThreadPoolExecutor(2) as threads:
        opening = [threads.submit(descriptors.take_for_reading, "pipe", path) for _ in range(2)]
        time.sleep(0.2)
        writer = os.open(path, os.O_WRONLY)
        one, two = (each.result(10) for each in opening)
        os.close(writer)
    assert one is not two
    for file in (one, two):
        descriptors.give_back(file)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    descriptors.forget_all()
    assert len(os.listdir("/proc/self/fd")) == before


def test_forgetting_an_unknown_name_does_nothing():
    Descriptors().forget("a")
