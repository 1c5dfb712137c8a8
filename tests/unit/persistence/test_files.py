"""persistence/files.py: a directory has one owner, a replaced file is whole, and a failed sync stays an error."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disque_py.simulator.world.folder import SimFolder
from folder_operations import OPERATION, contents, outcome
from persistence import descriptors, window
from persistence.files import Files, JournalInUseError


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    folder = Files(str(tmp_path / "journal"))
    yield folder
    folder.close()


def test_bytes_that_were_written_are_read(files: Files):
    files.create("a", b"head")
    files.write("a", 4, [b" and", b"", b" tail"])
    files.sync("a")
    assert files.read("a", 5, 100) == b"and tail"
    assert files.read("a", 100, 1) == b""
    assert files.size("a") == 13


def test_many_pieces_are_written_in_order(files: Files):
    files.create("a", b"")
    pieces = [b"%d " % number for number in range(3000)]
    files.write("a", 0, pieces)
    assert files.read("a", 0, 1 << 20) == b"".join(pieces)


def test_many_large_pieces_are_written_in_order(files: Files):
    files.create("a", b"head")
    files.write("a", 4, [b"%d" % number * 3000 for number in range(40)])
    assert files.read("a", 4, 1 << 20) == b"".join(b"%d" % number * 3000 for number in range(40))


def test_names_are_of_files_that_belong_to_the_journal(files: Files):
    files.create("b", b"")
    files.allocate("a", 0)
    os.mkdir(f"{files.directory}/folder")
    Path(f"{files.directory}/.hidden").touch()
    assert files.names() == ["a", "b"]


def test_any_process_may_look_and_only_the_owner_write(files: Files):
    mask = os.umask(0)
    os.umask(mask)
    files.create("a", b"")
    assert os.stat(f"{files.directory}/a").st_mode & 0o777 == 0o644 & ~mask
    assert os.stat(files.directory).st_mode & 0o777 == 0o755 & ~mask


def test_writing_does_not_make_a_file(files: Files):
    """The journal creates its files with `create`, so that their names survive a power cut."""
    with pytest.raises(FileNotFoundError):
        files.write("a", 0, [b"x"])
    assert files.names() == []


def test_a_file_is_created_once(files: Files):
    files.create("a", b"first")
    with pytest.raises(FileExistsError):
        files.create("a", b"second")
    with pytest.raises(FileExistsError):
        files.allocate("a", 10)
    assert contents(files) == {"a": b"first"}


def test_replacing_is_seen_by_descriptors_that_were_open(files: Files):
    files.create("a", b"old")
    files.write("a", 0, [b"OLD"])
    files.replace("a", b"new")
    files.write("a", 3, [b"er"])
    assert files.read("a", 0, 9) == b"newer"


def test_a_renamed_file_is_written_under_its_new_name(files: Files):
    files.allocate("reserve", 5)
    files.write("reserve", 0, [b"x"])
    files.rename("reserve", "a")
    files.write("a", 1, [b"y"])
    assert contents(files) == {"a": b"xy\0\0\0"}


def test_an_allocated_file_has_its_blocks(files: Files):
    files.allocate("reserve", 1 << 20)
    assert os.stat(f"{files.directory}/reserve").st_blocks * 512 >= 1 << 20


def test_removing_a_file_twice_is_not_an_error(files: Files):
    files.create("a", b"")
    files.remove("a")
    files.remove("a")
    assert files.names() == []


def test_a_link_keeps_a_removed_file(files: Files, tmp_path: Path):
    files.create("a", b"kept")
    files.link("a", str(tmp_path / "backup"))
    files.remove("a")
    assert (tmp_path / "backup" / "a").read_bytes() == b"kept"


def test_a_copy_is_made_of_links_and_small_files_and_can_be_discarded(files: Files, tmp_path: Path):
    """Two levels of directories are made. `discard` removes the lower one only."""
    directory = str(tmp_path / "backups" / "one")
    assert files.stored(directory) == []
    files.create("a", b"kept")
    files.link("a", directory)
    files.store(directory, "note", b"old and long")
    files.store(directory, "note", b"new")
    assert files.stored(directory) == ["a", "note"]
    assert (tmp_path / "backups" / "one" / "note").read_bytes() == b"new"
    files.discard(directory)
    files.discard(directory)
    assert os.listdir(tmp_path / "backups") == []
    assert contents(files) == {"a": b"kept"}


def test_a_readonly_user_makes_no_copies(files: Files, tmp_path: Path):
    files.create("a", b"x")
    reader = Files(files.directory, readonly=True)
    for operation in (("link", "a", "/x/y"), ("store", "/x/y", "a", b""), ("discard", "/x/y")):
        assert outcome(reader, operation)[1] == errno.EROFS
    reader.close()


def test_a_file_that_is_truncated_is_cut(files: Files):
    files.create("a", b"whole torn")
    files.truncate("a", 6)
    assert contents(files) == {"a": b"whole "}


# One owner.


def test_a_second_owner_is_told_which_process_holds_the_directory(files: Files):
    with pytest.raises(JournalInUseError) as refused:
        Files(files.directory)
    assert f"the journal in {files.directory} is in use by process {os.getpid()}" in str(refused.value)
    assert "another directory" in str(refused.value)
    assert refused.value.errno == errno.EBUSY


def test_another_process_is_refused_and_the_lock_ends_with_its_holder(tmp_path: Path):
    """A killed server leaves its lock file behind, but the system has released the lock."""
    code = (
        f"import time; from persistence.files import Files; Files({str(tmp_path)!r}); print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(JournalInUseError, match=f"process {other.pid}"):
            Files(str(tmp_path))
        other.send_signal(signal.SIGKILL)
    Files(str(tmp_path)).close()


def test_a_readonly_user_needs_no_lock_and_changes_nothing(files: Files):
    files.create("a", b"x")
    looking = Files(files.directory, readonly=True)
    assert contents(looking) == {"a": b"x"}
    for operation in ("create", "b", b""), ("write", "a", 0, [b"y"]), ("truncate", "a", 0), ("remove", "a"):
        assert outcome(looking, operation) == (OSError, errno.EROFS)
    assert contents(looking) == {"a": b"x"}
    looking.close()


def test_a_readonly_user_makes_no_directory(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        Files(str(tmp_path / "missing"), readonly=True).names()
    assert os.listdir(tmp_path) == []


def test_a_directory_without_a_parent_is_not_made(tmp_path: Path):
    """So a typing error in the configuration makes no tree of directories."""
    with pytest.raises(FileNotFoundError):
        Files(str(tmp_path / "tpyo" / "journal"))


def test_a_file_in_place_of_the_directory_is_the_systems_error(tmp_path: Path):
    (tmp_path / "journal").touch()
    with pytest.raises(FileExistsError):
        Files(str(tmp_path / "journal"))


def test_a_file_that_a_crash_left_half_made_is_removed(tmp_path: Path):
    (tmp_path / ".new.a").write_bytes(b"half")
    (tmp_path / "a").write_bytes(b"whole")
    files = Files(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["a", "lock"]
    files.close()


# Errors.


def test_a_short_write_goes_on_and_ends_with_the_systems_reason(files: Files):
    """The system accepts the bytes below the limit. The next write fails with the reason."""
    files.create("a", b"")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            files.write("a", 0, [b"x" * 600, b"y" * 600])
        with pytest.raises(OSError, match="File too large"):
            files.create("b", b"z" * 1001)
        with pytest.raises(OSError, match="File too large"):
            files.replace("a", b"z" * 1001)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert contents(files) == {"a": b"x" * 600 + b"y" * 400}
    assert sorted(os.listdir(files.directory)) == ["a", "lock"]


def test_a_full_disk_is_reported_as_such(files: Files):
    os.symlink("/dev/full", f"{files.directory}/a")
    with pytest.raises(OSError, match="No space left") as full:
        files.write("a", 0, [b"x"])
    assert full.value.errno == errno.ENOSPC


def test_a_sync_that_failed_is_not_taken_for_done_when_tried_again(files: Files):
    """The second fsync of a lost page succeeds. So syncs of the file fail until its content is replaced."""
    os.symlink("/dev/full", f"{files.directory}/a")
    for _ in range(2):
        with pytest.raises(OSError, match="Invalid argument"):
            files.sync("a")
    with pytest.raises(OSError, match="an earlier sync failed"):
        files.sync("a")
    files.replace("a", b"new")
    files.sync("a")


@pytest.mark.parametrize("file_systems", [window.SYNCED_WRITES, frozenset()])
def test_a_synced_write_has_all_bytes(files: Files, monkeypatch: pytest.MonkeyPatch, file_systems: frozenset[int]):
    monkeypatch.setattr(window, "SYNCED_WRITES", file_systems)
    files.create("a", b"head")
    files.write_synced("a", 4, [b"x" * 100] * 2_000)
    assert contents(files) == {"a": b"head" + b"x" * 200_000}


@pytest.mark.skipif(not hasattr(os, "RWF_DSYNC"), reason="this C library has no synced writes")
def test_a_synced_write_that_failed_is_a_failed_sync(files: Files, monkeypatch: pytest.MonkeyPatch):
    """No one knows which of its pages are on disk, and the next fsync would succeed."""
    monkeypatch.setattr(descriptors, "may_write_synced", lambda fd: True)
    files.create("a", b"")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            files.write_synced("a", 0, [b"x" * 600, b"y" * 600])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with pytest.raises(OSError, match="an earlier sync failed"):
        files.sync("a")


def test_renaming_syncs_the_file_first(files: Files):
    """Otherwise, after a power cut, the new name could exist without the content."""
    os.symlink("/dev/full", f"{files.directory}/a")
    with pytest.raises(OSError, match="Invalid argument"):
        files.rename("a", "b")
    assert os.path.lexists(f"{files.directory}/a")


def test_writing_into_a_directory_that_is_gone_is_an_error(files: Files):
    """The open descriptor would accept all writes, and they would be lost."""
    files.create("a", b"")
    files.write("a", 0, [b"x"])
    shutil.rmtree(files.directory)
    for operation in ("write", "a", 0, [b"y"]), ("sync", "a"), ("create", "b", b""), ("replace", "a", b""), ("names",):
        assert outcome(files, operation) == (FileNotFoundError, errno.ENOENT)
    assert outcome(files, ("remove", "a")) == (FileNotFoundError, errno.ENOENT)


def test_a_file_that_was_exchanged_is_not_written_blindly(files: Files):
    files.create("a", b"")
    files.write("a", 0, [b"x"])
    os.unlink(f"{files.directory}/a")
    Path(f"{files.directory}/a").write_bytes(b"of somebody else")
    with pytest.raises(FileNotFoundError, match="another file has taken its place"):
        files.write("a", 0, [b"y"])


def test_a_directory_that_is_put_back_is_locked_again(files: Files):
    """Otherwise a second server could start in it."""
    shutil.rmtree(files.directory)
    os.mkdir(files.directory)
    files.create("a", b"")
    with pytest.raises(JournalInUseError):
        Files(files.directory)


def test_a_directory_that_another_server_took_meanwhile_is_left_to_it(files: Files):
    shutil.rmtree(files.directory)
    other = Files(files.directory)
    with pytest.raises(JournalInUseError):
        files.create("a", b"")
    assert other.names() == []
    other.close()


def test_after_closing_the_directory_is_free(files: Files):
    before = len(os.listdir("/proc/self/fd"))
    other = Files(f"{files.directory}/other")
    other.create("a", b"")
    other.write("a", 0, [b"x"])
    other.close()
    assert len(os.listdir("/proc/self/fd")) == before
    Files(f"{files.directory}/other").close()


@settings(max_examples=60, deadline=None)
@given(st.lists(OPERATION, max_size=12))
def test_the_simulated_folder_behaves_like_the_real_one(operations):
    """So the simulator's results about the journal are valid for real disks."""
    with tempfile.TemporaryDirectory() as directory:
        real, simulated = Files(directory), SimFolder(Random(1))
        for operation in operations:
            assert outcome(real, operation) == outcome(simulated, operation)
        assert contents(real) == contents(simulated)
        real.close()
