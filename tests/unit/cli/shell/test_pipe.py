"""pipe.py: sends bytes, counts replies, and recognizes the end."""

from __future__ import annotations

import contextlib
import os

import pytest

from disque_py.cli.address import Target
from disque_py.cli.connection import Connection, ConnectionLostError
from disque_py.cli.shell.pipe import Feed
from disque_py.cli.shell.replies import encode
from disque_py.client import Address


@pytest.fixture
def feed(scripted, tmp_path):
    """Feeds `data` to a node with `answers`. Returns whether all succeeded, the Feed, and the reported lines."""

    def run(answers, data, timeout_s=2.0):
        node = scripted({"PING": pong, **answers})
        path = tmp_path / "input"
        path.write_bytes(data)
        lines = []
        with contextlib.closing(Connection.open(Target(Address("127.0.0.1", node.port)))) as connection:
            fed = Feed(connection, lines.append)
            fd = os.open(path, os.O_RDONLY)
            try:
                return fed.run(fd, timeout_s), fed, lines
            finally:
                os.close(fd)

    return run


def pong(words):
    return b"+PONG\r\n" if len(words) == 1 else b"$%d\r\n%b\r\n" % (len(words[1]), words[1])


def test_every_reply_before_the_end_mark_is_counted(feed):
    data = b"".join(encode([b"QLEN", b"q"]) for _ in range(1000))
    is_good, fed, _ = feed({"QLEN": b":1\r\n"}, data)
    assert is_good
    assert (fed.errors, fed.replies) == (0, 1000)


def test_inline_commands_are_fed_too_and_the_last_needs_no_line_end(feed):
    is_good, fed, _ = feed({"QLEN": b":1\r\n"}, b"QLEN a\nQLEN b")
    assert is_good
    assert fed.replies == 2


def test_errors_are_counted_and_reported(feed):
    is_good, fed, lines = feed({"QLEN": b":1\r\n"}, b"QLEN a\nNOPE\n")
    assert not is_good
    assert (fed.errors, fed.replies) == (1, 2)
    assert lines == ["ERR unknown command 'NOPE'"]


def test_without_ping_the_end_could_not_be_seen(feed):
    is_good, _, lines = feed({"PING": b"-NOAUTH Authentication required.\r\n"}, b"QLEN a\n")
    assert not is_good
    assert lines == ["The server refuses PING, which marks the end of the input: NOAUTH Authentication required."]


def test_silence_ends_the_pipe_after_the_given_time(feed):
    is_good, fed, lines = feed(
        {"GETJOB": b"", "PING": lambda words: pong(words) if len(words) == 1 else b""}, b"GETJOB FROM q\n", 0.2
    )
    assert not is_good
    assert fed.errors == 1
    assert lines == ["No replies for 0.2 seconds: exiting."]


def test_a_server_that_goes_away_is_reported(feed):
    with pytest.raises(ConnectionLostError):
        feed({"QLEN": lambda words: None}, b"QLEN a\n")
