"""interactive.py: the line editor in front of the shell."""

from __future__ import annotations

import io

from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from disque_py.cli.address import Target
from disque_py.cli.shell.formats import Style
from disque_py.cli.shell.interactive import converse
from disque_py.cli.shell.lines import Shell
from disque_py.cli.shell.session import Session
from disque_py.client import Address


def test_a_conversation_goes_on_until_quit(scripted, tmp_path, monkeypatch):
    monkeypatch.setenv("DISQUECLI_HISTFILE", str(tmp_path / "history"))
    node = scripted({"PING": b"+PONG\r\n", "QLEN": b":1\r\n"})
    session = Session(Target(Address("127.0.0.1", node.port)), Style("raw"), io.BytesIO())
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("PING\nQLEN q\nquit\n")
        assert converse(session, 0.0) == 0
    session.drop()
    assert session._out.getvalue() == b"PONG\n1\n"
    assert (tmp_path / "history").read_text() == "PING\nQLEN q\nquit\n"


def test_ctrl_c_during_a_command_does_not_end_the_conversation(scripted, tmp_path, monkeypatch):
    """This includes a `connect` that waits for another server."""
    monkeypatch.setenv("DISQUECLI_HISTFILE", str(tmp_path / "history"))
    monkeypatch.setattr(Shell, "_move", interrupt)
    session = Session(Target(Address("127.0.0.1", scripted({"PING": b"+PONG\r\n"}).port)), Style("raw"), io.BytesIO())
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("connect far.away 1\nPING\nquit\n")
        assert converse(session, 0.0) == 0
    session.drop()
    assert session._out.getvalue() == b"PONG\n"


def interrupt(*_):
    raise KeyboardInterrupt
