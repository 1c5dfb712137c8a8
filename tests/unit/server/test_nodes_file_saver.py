"""The nodes file of a running node."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from cluster_bus.node import MYSELF, Node
from cluster_bus.nodes_file import parse
from disque_py.server import nodes_file_saver
from disque_py.server.file_writer import FileWriter
from disque_py.server.nodes_file_saver import NodesFileSaver
from disque_py.server.start_error import StartError


@pytest.fixture
def lines():
    """Return the logged lines."""
    return []


@pytest.fixture
def file_writer():
    file_writer = FileWriter()
    yield file_writer
    file_writer.close()


@pytest.fixture
def saver(tmp_path, file_writer, lines):
    """The saver of a node that knows no other nodes. Its file is open and empty."""
    saver = NodesFileSaver(str(tmp_path / "nodes.conf"), file_writer, lambda level, text: lines.append(text))
    me = Node(b"m" * 20, "127.0.0.1", 1, 2, MYSELF)
    saver.nodes = lambda: [me]
    saver.me = me
    assert saver.open() == []
    yield saver
    saver.close()


def saved_port(saver):
    """Return the node's port from the file."""
    with open(saver.path) as file:
        return parse(file.read())[0].port


def test_a_saved_table_is_there_at_the_next_start(saver, file_writer):
    saver.save_now()
    saver.close()
    again = NodesFileSaver(saver.path, file_writer, print)
    assert [line.id for line in again.open()] == [b"m" * 20]
    again.close()


def test_a_file_in_use_is_refused(saver, file_writer):
    with pytest.raises(StartError, match=r"nodes\.conf is in use by another node"):
        NodesFileSaver(saver.path, file_writer, print).open()


def test_a_damaged_file_is_refused_with_the_place_and_what_to_do(tmp_path, file_writer):
    (tmp_path / "nodes.conf").write_text("version 1\nnonsense\n")
    saver = NodesFileSaver(str(tmp_path / "nodes.conf"), file_writer, print)
    for _ in range(2):  # The second attempt shows that the lock was released.
        with pytest.raises(StartError, match="can't be used: line 3: the checksum line is missing"):
            saver.open()


def test_a_directory_that_is_missing_is_refused(tmp_path, file_writer):
    with pytest.raises(StartError, match="No such file or directory"):
        NodesFileSaver(str(tmp_path / "no" / "nodes.conf"), file_writer, print).open()


def test_a_lock_that_cannot_be_opened_is_named(tmp_path, file_writer):
    """Example: root once started the node, so root owns the lock file."""
    (tmp_path / "nodes.conf.lock").mkdir()
    with pytest.raises(StartError, match=r"can't open the nodes file .*/nodes.conf.lock: Is a directory"):
        NodesFileSaver(str(tmp_path / "nodes.conf"), file_writer, lambda level, text: None).open()


def test_a_change_is_written_by_a_thread_and_later_ones_once_more(saver):
    """All changes made while the first save runs lead to one more save, with the latest state."""
    writers = []
    gate = threading.Event()
    save = saver._store.save

    def slow_save(text):
        writers.append(threading.current_thread())
        gate.wait(5)
        save(text)

    saver._store.save = slow_save

    async def main():
        for port in (1, 2, 3, 4):
            saver.me.port = port
            saver.save()
        gate.set()
        while len(writers) < 2 or saver._is_busy:
            await asyncio.sleep(0.01)

    asyncio.run(main())
    assert len(writers) == 2
    assert threading.main_thread() not in writers
    assert saved_port(saver) == 4


def test_an_older_text_never_replaces_a_newer_one(saver):
    """A thread may start its save after a newer save that could not wait."""
    saver._write(2, "newer")
    saver._write(1, "older")
    with open(saver.path) as file:
        assert file.read() == "newer"


def test_a_caller_is_called_back_when_the_file_is_on_disk(saver):
    """This also applies if another save is running. The file then has the table as it was at the call."""

    async def main():
        ends = []
        for port in (7, 8):
            saver.me.port = port
            saver.save_then(lambda failure: ends.append((failure, saved_port(saver))))
        saver.me.port = 9
        while len(ends) < 2:
            await asyncio.sleep(0.01)
        return ends

    assert [failure for failure, _ in asyncio.run(main())] == [None, None]
    assert saved_port(saver) == 8


def test_a_save_that_fails_is_reported_once_and_tried_again(saver, lines, monkeypatch):
    monkeypatch.setattr(nodes_file_saver, "RETRY_SECONDS", 0.05)
    os.mkdir(saver.path)  # A file can't replace a directory.

    async def main():
        saver.save()
        await asyncio.sleep(0.3)
        assert len(lines) == 1
        os.rmdir(saver.path)
        while len(lines) < 2:
            await asyncio.sleep(0.01)

    asyncio.run(main())
    assert "trying again: Is a directory" in lines[0]
    assert "could be written again" in lines[1]
    assert saved_port(saver) == 1


def test_the_caller_of_a_save_learns_that_it_failed(saver):
    os.mkdir(saver.path)
    with pytest.raises(OSError, match="Is a directory"):
        saver.save_now()

    async def main():
        end = asyncio.get_running_loop().create_future()
        saver.save_then(end.set_result)
        return await end

    assert asyncio.run(main()).strerror == "Is a directory"


def port_at_start(saver, file_writer):
    """Return the node's port as the next process reads it."""
    saver.close()
    again = NodesFileSaver(saver.path, file_writer, print)
    (line,) = again.open()
    again.close()
    return line.port


def test_a_written_table_survives_the_process_although_no_save_was_done(saver, file_writer):
    saver.save_now()
    saver.me.port = 7
    saver.write()
    assert saved_port(saver) == 1
    assert port_at_start(saver, file_writer) == 7


def test_a_save_that_comes_after_a_write_counts(saver, file_writer):
    saver.save_now()
    saver.me.port = 7
    saver.write()
    saver.me.port = 8
    saver.save_now()
    assert port_at_start(saver, file_writer) == 8


def test_a_save_that_was_asked_for_before_a_write_does_not_undo_it(saver, file_writer):
    """The thread is slow: it starts its save after the loop has written a newer text."""
    saver.save_now()
    older = saver._prepared_write()
    saver.me.port = 7
    saver.write()
    older()
    assert port_at_start(saver, file_writer) == 7


def test_a_file_that_was_moved_away_is_not_brought_back(saver, file_writer):
    saver.save_now()
    saver.write()
    saver.close()
    os.remove(saver.path)
    again = NodesFileSaver(saver.path, file_writer, print)
    assert again.open() == []
    again.close()


def test_a_written_text_that_a_power_cut_damaged_is_ignored(saver, file_writer, lines):
    saver.save_now()
    saver.me.port = 7
    saver.write()
    with open(f"{saver.path}.latest", "r+b") as file:
        file.seek(-5, os.SEEK_END)
        file.write(b"\0\0\0\0\0")
    assert port_at_start(saver, file_writer) == 1


def test_a_write_that_fails_is_reported_and_stops_nothing(saver, lines):
    saver.save_now()
    os.mkdir(f"{saver.path}.latest.new")
    saver.write()
    assert "can't write the nodes file" in lines[0]
    assert saver.trouble == "Is a directory"
