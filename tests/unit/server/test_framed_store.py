"""server/framed_store.py: a file of frames on a real disk."""

from __future__ import annotations

import os
import shutil

import pytest

from disque_py.server import framed_store
from disque_py.server.framed_store import FramedStore
from disque_py.server.start_error import StartError
from disque_py.storage.framed_file import frame
from disque_py.storage.queue_settings_file import QUEUE_SETTINGS

A = b"a" * 20


def item(queue, counter=1):
    return (queue, b"lease", b"%d" % counter, counter, A)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "nodes.conf.queues")


def store_of(path, lines=None):
    log = (lines if lines is not None else []).append
    return FramedStore(path, QUEUE_SETTINGS, "queue-settings-torn", "Or move it away", lambda level, text: log(text))


def contents(path):
    with open(path, "rb") as file:
        return QUEUE_SETTINGS.parse(file.read()).items


def test_settings_are_there_after_a_restart(path):
    """Spec QS3."""
    store = store_of(path)
    assert store.load() == []
    store.write([item(b"a")], is_void=False)
    store.write([item(b"b")], is_void=False)
    assert store_of(path).load() == [item(b"a"), item(b"b")]


def test_a_torn_end_is_reported_and_overwritten(path):
    store = store_of(path)
    store.write([item(b"a")], is_void=False)
    with open(path, "ab") as file:
        file.write(frame([item(b"b")])[:-3])
    lines = []
    again = store_of(path, lines)
    assert again.load() == [item(b"a")]
    assert "were not written completely" in lines[0]
    again.write([item(b"c")], is_void=False)
    assert contents(path) == [item(b"a"), item(b"c")]


def test_a_damaged_file_prevents_the_start_with_advice(path):
    with open(path, "wb") as file:
        file.write(QUEUE_SETTINGS.head + frame([item(b"a")])[:-1] + b"x" + frame([item(b"b")]))
    with pytest.raises(StartError, match=r"can't be used: the checksum .* move it away"):
        store_of(path).load()


def test_a_file_that_cannot_be_read_prevents_the_start(path):
    os.mkdir(path)
    with pytest.raises(StartError, match="can't read the queue settings"):
        store_of(path).load()


def test_a_file_that_has_grown_is_rewritten(path, monkeypatch):
    monkeypatch.setattr(framed_store, "REWRITE_BYTES", 200)
    store = store_of(path)
    for counter in range(1, 50):
        store.write([item(b"a", counter)], is_void=False)
    assert os.path.getsize(path) < 400
    assert store_of(path).load()[-1] == item(b"a", 49)


def test_after_a_reset_the_file_has_no_earlier_settings(path):
    store = store_of(path)
    store.write([item(b"a")], is_void=False)
    store.write([], is_void=True)
    store.write([item(b"b")], is_void=False)
    assert contents(path) == [item(b"b")]


def test_after_a_failed_write_the_next_one_makes_a_new_file(path, monkeypatch):
    """A full disk may have left part of a frame in the old file, so the store does not append to it."""
    store = store_of(path)
    store.write([item(b"a")], is_void=False)

    def take_half(fd, chunks, offset, flags):
        real_write(fd, (chunks[0][: len(chunks[0]) // 2],), offset)
        raise OSError(28, "No space left on device")

    real_write = os.pwritev
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", take_half)
        with pytest.raises(OSError, match="No space"):
            store.write([item(b"b")], is_void=False)
    assert contents(path) == [item(b"a")]
    store.write([item(b"b"), item(b"c")], is_void=False)
    assert contents(path) == [item(b"a"), item(b"b"), item(b"c")]


def test_a_rewrite_that_a_full_disk_ends_leaves_the_room_to_others(path, monkeypatch):
    """A large part of a new file would keep the journal from being written again."""
    store = store_of(path)
    store.write([item(b"a")], is_void=False)

    def fail(fd):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space"):
            store.write([item(b"b")], is_void=True)
    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]
    assert contents(path) == [item(b"a")]


def test_only_the_user_of_the_node_can_read_the_file(path):
    """The file may contain password hashes of users. Spec US9."""
    store = store_of(path)
    store.load()
    store.write([item(b"q")], is_void=False)
    os.chmod(path, 0o644)
    store.write([item(b"q", 2)], is_void=False)
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_nothing_is_added_to_a_file_that_another_one_has_replaced(path):
    """A volume may come back with an older file. A frame at a wrong place would damage it."""
    store = store_of(path)
    store.write([item(b"a")], is_void=False)
    shutil.copy(path, path + ".old")
    store.write([item(b"b")], is_void=False)
    os.replace(path + ".old", path)
    for _ in range(2):
        with pytest.raises(FileNotFoundError, match="another file"):
            store.write([item(b"c")], is_void=False)
    assert contents(path) == [item(b"a")]
    store.write([item(b"a"), item(b"b"), item(b"c")], is_void=True)
    assert store_of(path).load() == [item(b"a"), item(b"b"), item(b"c")]


def test_nothing_is_added_to_a_file_that_was_cut_off(path):
    store = store_of(path)
    store.write([item(b"a")], is_void=False)
    os.truncate(path, 30)
    with pytest.raises(FileNotFoundError, match="another file"):
        store.write([item(b"b")], is_void=False)


def test_a_file_that_was_moved_away_can_be_replaced_by_the_whole_contents(path):
    """core/voting.py and core/settings_sync.py do this."""
    store = store_of(path)
    store.write([item(b"a")], is_void=False)
    os.rename(path, path + ".old")
    with pytest.raises(FileNotFoundError):
        store.write([item(b"b")], is_void=False)
    store.write([item(b"a"), item(b"b")], is_void=True)
    store.write([item(b"c")], is_void=False)
    assert contents(path) == [item(b"a"), item(b"b"), item(b"c")]
