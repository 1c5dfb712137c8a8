"""The nodes file of a running node."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from cluster_bus.node import MYSELF, Node
from cluster_bus.nodes_file import parse
from disque_py.server import nodes_keeper
from disque_py.server.nodes_keeper import NodesKeeper
from disque_py.server.scribe import Scribe
from disque_py.server.start_error import StartError


@pytest.fixture
def lines():
    """What was logged."""
    return []


@pytest.fixture
def scribe():
    scribe = Scribe()
    yield scribe
    scribe.close()


@pytest.fixture
def keeper(tmp_path, scribe, lines):
    """Of a node that knows nobody; its file is open and empty."""
    keeper = NodesKeeper(str(tmp_path / "nodes.conf"), scribe, lambda level, text: lines.append(text))
    me = Node(b"m" * 20, "127.0.0.1", 1, 2, MYSELF)
    keeper.nodes = lambda: [me]
    keeper.me = me
    assert keeper.open() == []
    yield keeper
    keeper.close()


def saved_port(keeper):
    """The port of the node as the file has it."""
    with open(keeper.path) as file:
        return parse(file.read())[0].port


def test_what_was_saved_is_there_at_the_next_start(keeper, scribe):
    keeper.save_now()
    keeper.close()
    again = NodesKeeper(keeper.path, scribe, print)
    assert [line.id for line in again.open()] == [b"m" * 20]
    again.close()


def test_a_file_in_use_is_refused(keeper, scribe):
    with pytest.raises(StartError, match=r"nodes\.conf is in use by another node"):
        NodesKeeper(keeper.path, scribe, print).open()


def test_a_damaged_file_is_refused_with_the_place_and_what_to_do(tmp_path, scribe):
    (tmp_path / "nodes.conf").write_text("version 1\nnonsense\n")
    keeper = NodesKeeper(str(tmp_path / "nodes.conf"), scribe, print)
    for _ in range(2):  # The lock was given back.
        with pytest.raises(StartError, match="can't be used: line 3: the checksum line is missing"):
            keeper.open()


def test_a_directory_that_is_missing_is_refused(tmp_path, scribe):
    with pytest.raises(StartError, match="No such file or directory"):
        NodesKeeper(str(tmp_path / "no" / "nodes.conf"), scribe, print).open()


def test_a_lock_that_can_not_be_opened_is_named(tmp_path, scribe):
    """As of a node that was started by root once."""
    (tmp_path / "nodes.conf.lock").mkdir()
    with pytest.raises(StartError, match=r"can't open the nodes file .*/nodes.conf.lock: Is a directory"):
        NodesKeeper(str(tmp_path / "nodes.conf"), scribe, lambda level, text: None).open()


def test_a_change_is_written_by_a_thread_and_later_ones_once_more(keeper):
    """While the first save is under way any number of changes costs one more, with the last state."""
    writers = []
    gate = threading.Event()
    save = keeper._store.save

    def slow_save(text):
        writers.append(threading.current_thread())
        gate.wait(5)
        save(text)

    keeper._store.save = slow_save

    async def main():
        for port in (1, 2, 3, 4):
            keeper.me.port = port
            keeper.save()
        gate.set()
        while len(writers) < 2 or keeper._is_busy:
            await asyncio.sleep(0.01)

    asyncio.run(main())
    assert len(writers) == 2
    assert threading.main_thread() not in writers
    assert saved_port(keeper) == 4


def test_an_older_text_never_replaces_a_newer_one(keeper):
    """A save by a thread may get its turn after one that could not wait."""
    keeper._write(2, "newer")
    keeper._write(1, "older")
    with open(keeper.path) as file:
        assert file.read() == "newer"


def test_who_must_know_that_it_is_on_disk_is_called_then(keeper):
    """Also behind a save that is under way, and with the table as it was when asked for."""

    async def main():
        ends = []
        for port in (7, 8):
            keeper.me.port = port
            keeper.save_then(lambda failure: ends.append((failure, saved_port(keeper))))
        keeper.me.port = 9
        while len(ends) < 2:
            await asyncio.sleep(0.01)
        return ends

    assert [failure for failure, _ in asyncio.run(main())] == [None, None]
    assert saved_port(keeper) == 8


def test_a_save_that_fails_is_told_once_and_tried_again(keeper, lines, monkeypatch):
    monkeypatch.setattr(nodes_keeper, "RETRY_SECONDS", 0.05)
    os.mkdir(keeper.path)  # A file can't take its place.

    async def main():
        keeper.save()
        await asyncio.sleep(0.3)
        assert len(lines) == 1
        os.rmdir(keeper.path)
        while len(lines) < 2:
            await asyncio.sleep(0.01)

    asyncio.run(main())
    assert "trying again: Is a directory" in lines[0]
    assert "could be written again" in lines[1]
    assert saved_port(keeper) == 1


def test_who_asks_for_a_save_hears_that_it_failed(keeper):
    os.mkdir(keeper.path)
    with pytest.raises(OSError, match="Is a directory"):
        keeper.save_now()

    async def main():
        end = asyncio.get_running_loop().create_future()
        keeper.save_then(end.set_result)
        return await end

    assert asyncio.run(main()).strerror == "Is a directory"


def port_at_start(keeper, scribe):
    """Of the node, as the next process finds it."""
    keeper.close()
    again = NodesKeeper(keeper.path, scribe, print)
    (line,) = again.open()
    again.close()
    return line.port


def test_what_was_written_survives_the_process_although_no_save_was_done(keeper, scribe):
    keeper.save_now()
    keeper.me.port = 7
    keeper.write()
    assert saved_port(keeper) == 1
    assert port_at_start(keeper, scribe) == 7


def test_a_save_that_comes_after_a_write_counts(keeper, scribe):
    keeper.save_now()
    keeper.me.port = 7
    keeper.write()
    keeper.me.port = 8
    keeper.save_now()
    assert port_at_start(keeper, scribe) == 8


def test_a_save_that_was_asked_for_before_a_write_does_not_undo_it(keeper, scribe):
    """The thread is slow: it does the save when the loop has written a newer text."""
    keeper.save_now()
    older = keeper._deed()
    keeper.me.port = 7
    keeper.write()
    older()
    assert port_at_start(keeper, scribe) == 7


def test_a_file_that_was_moved_away_is_not_brought_back(keeper, scribe):
    keeper.save_now()
    keeper.write()
    keeper.close()
    os.remove(keeper.path)
    again = NodesKeeper(keeper.path, scribe, print)
    assert again.open() == []
    again.close()


def test_a_written_text_that_a_power_cut_damaged_is_passed_over(keeper, scribe, lines):
    keeper.save_now()
    keeper.me.port = 7
    keeper.write()
    with open(f"{keeper.path}.latest", "r+b") as file:
        file.seek(-5, os.SEEK_END)
        file.write(b"\0\0\0\0\0")
    assert port_at_start(keeper, scribe) == 1


def test_a_write_that_fails_is_told_and_stops_nothing(keeper, lines):
    keeper.save_now()
    os.mkdir(f"{keeper.path}.latest.new")
    keeper.write()
    assert "can't write the nodes file" in lines[0]
