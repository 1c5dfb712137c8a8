"""session.py: printed replies, repeated commands, and commands without a single reply."""

from __future__ import annotations

import io

import pytest

from disque_py.cli.address import Target
from disque_py.cli.connection import ConnectionLostError
from disque_py.cli.shell.formats import Style
from disque_py.cli.shell.session import Session
from disque_py.client import Address


@pytest.fixture
def session_to():
    sessions = []

    def make(node):
        sessions.append(Session(Target(Address("127.0.0.1", node.port)), Style(), io.BytesIO()))
        return sessions[-1]

    yield make
    for session in sessions:
        session.drop()


def output(session):
    return session._out.getvalue()


def test_a_reply_is_printed(scripted, session_to):
    session = session_to(scripted({"QLEN": b":3\r\n"}))
    assert session.run([b"QLEN", b"q"])
    assert output(session) == b"3\n"


def test_an_error_reply_is_printed_and_returned_as_failure(scripted, session_to):
    session = session_to(scripted({}))
    assert not session.run([b"NOPE"])
    assert output(session) == b"ERR unknown command 'NOPE'\n\n"


def test_one_error_among_repetitions_is_enough(scripted, session_to):
    replies = iter([b":1\r\n", b"-ERR x\r\n", b":2\r\n"])
    session = session_to(scripted({"QLEN": lambda words: next(replies)}))
    assert not session.run_repeatedly([b"QLEN", b"q"], 3, 0)
    assert output(session) == b"1\nERR x\n\n2\n"


def test_on_a_connection_that_died_unseen_a_command_is_sent_again(scripted, session_to):
    """The connection was open before, so a restart or a time-out explains the loss."""
    answers = iter([b"+PONG\r\n", None, b"+PONG\r\n"])
    node = scripted({"PING": lambda words: next(answers)})
    session = session_to(node)
    assert session.run([b"PING"])
    assert session.run([b"PING"])
    assert len(node.requests) == 3


def test_on_a_fresh_connection_nothing_is_sent_twice(scripted, session_to):
    """The command may have run: an ADDJOB that is repeated would add a second job."""
    node = scripted({"ADDJOB": lambda words: None})
    session = session_to(node)
    with pytest.raises(ConnectionLostError):
        session.run([b"ADDJOB", b"q", b"b", b"0"])
    assert len(node.requests) == 1


def test_shutdown_is_answered_by_the_closed_connection(scripted, session_to):
    session = session_to(scripted({"SHUTDOWN": lambda words: None}))
    assert session.run([b"shutdown"])
    assert output(session) == b""


def test_monitor_streams_until_interrupted(scripted, session_to, monkeypatch):
    session = session_to(scripted({"MONITOR": b"+OK\r\n+1.0 [c] PING\r\n"}))
    printed = session._print

    def interrupt_at_the_second(words, reply):
        printed(words, reply)
        if b"PING" in reply.text:
            raise KeyboardInterrupt

    monkeypatch.setattr(session, "_print", interrupt_at_the_second)
    assert session.run([b"MONITOR"])
    assert output(session) == b"OK\n1.0 [c] PING\n"
    assert session.connection is None


def test_a_silenced_connection_is_not_waited_for(scripted, session_to):
    session = session_to(
        scripted({"CLIENT REPLY OFF": b"", "CLIENT REPLY SKIP": b"", "PING": b"", "CLIENT REPLY ON": b"+OK\r\n"})
    )
    for words in ([b"CLIENT", b"REPLY", b"SKIP"], [b"PING"], [b"CLIENT", b"REPLY", b"OFF"], [b"PING"]):
        assert session.run(words)
    assert session.run([b"CLIENT", b"REPLY", b"ON"])
    assert output(session) == b"OK\n"


def test_after_a_move_commands_go_to_the_other_server(scripted, session_to):
    first, second = scripted({"PING": b"+one\r\n"}), scripted({"PING": b"+two\r\n"})
    session = session_to(first)
    session.run([b"PING"])
    session.move(Address("127.0.0.1", second.port))
    session.run([b"PING"])
    assert output(session) == b"one\ntwo\n"


def test_a_misspelled_command_is_followed_by_the_one_that_was_meant(scripted, session_to, capsys):
    assert not session_to(scripted({})).run([b"QLENN", b"q"])
    assert capsys.readouterr().err == "Did you mean 'QLEN'?\n"
