"""lines.py: the effect of a line typed at the prompt."""

from __future__ import annotations

import io
import re

import pytest

from disque_py.cli.address import Target
from disque_py.cli.shell import lines as shell_module
from disque_py.cli.shell import session as session_module
from disque_py.cli.shell.formats import FORMATTED, Style
from disque_py.cli.shell.lines import Shell, obey
from disque_py.cli.shell.session import Session
from disque_py.client import Address


@pytest.fixture
def shell_to():
    shells = []

    def make(port, style="raw"):
        shells.append(Shell(Session(Target(Address("127.0.0.1", port)), Style(style), io.BytesIO()), 0.0))
        return shells[-1]

    yield make
    for shell in shells:
        shell.session.drop()


def output(shell):
    return shell.session._out.getvalue()


def test_a_line_is_a_command(scripted, shell_to):
    node = scripted({"ADDJOB": b"+D-1\r\n"})
    shell = shell_to(node.port)
    assert shell.line('ADDJOB q "two words" 0')
    assert node.requests == [[b"ADDJOB", b"q", b"two words", b"0"]]
    assert output(shell) == b"D-1\n"


def test_a_number_repeats_it(scripted, shell_to):
    shell = shell_to(scripted({"PING": b"+PONG\r\n"}).port)
    shell.line("3 PING")
    assert output(shell) == b"PONG\n" * 3


def test_quit_and_exit_leave(shell_to):
    assert not shell_to(1).line("quit")
    assert not shell_to(1).line("EXIT")


def test_unbalanced_quotes_are_refused_and_nothing_is_sent(shell_to, capsys):
    """Spec X3."""
    shell = shell_to(1)
    assert shell.line('PING "x')
    assert capsys.readouterr().err == "Invalid argument(s)\n"


def test_the_prompt_shows_the_node(scripted, shell_to, capsys):
    node = scripted({})
    shell = shell_to(node.port)
    assert shell.prompt == "not connected> "
    shell.connect()
    assert shell.prompt == f"127.0.0.1:{node.port}> "
    shell.line("connect 127.0.0.1 1")
    assert shell.prompt == "not connected> "
    assert "Connection refused" in capsys.readouterr().err


def test_the_prompt_shows_the_user(scripted, shell_to):
    users = [b"$3\r\nann\r\n", b"$7\r\ndefault\r\n"]
    node = scripted({"ACL": lambda words: users.pop(0), "AUTH": b"+OK\r\n"})
    shell = shell_to(node.port)
    shell.connect()
    assert shell.prompt == f"ann@127.0.0.1:{node.port}> "
    shell.line("AUTH x")
    assert shell.prompt == f"127.0.0.1:{node.port}> "


def test_connect_goes_to_another_node_and_learns_its_commands(scripted, shell_to):
    shell = shell_to(1)
    node = scripted(
        {"COMMAND DOCS": b"*2\r\n$4\r\nspin\r\n*4\r\n$4\r\nSpin\r\n$1\r\n9\r\n$4\r\njobs\r\n$4\r\nSPIN\r\n"}
    )
    shell.line(f"connect 127.0.0.1 {node.port}")
    assert list(shell.docs) == ["SPIN"]


@pytest.mark.parametrize("line", ["connect", "connect x", "connect h x"])
def test_connect_needs_host_and_port(shell_to, capsys, line):
    assert shell_to(1).line(line)
    assert capsys.readouterr().err


def test_help_is_local(shell_to, capsys):
    shell_to(1).line("help qlen")
    assert "QLEN queue" in capsys.readouterr().out


def test_help_for_an_unknown_word_is_a_failed_line(shell_to, capsys):
    shell = shell_to(1)
    assert shell.line("help addjb")
    assert shell.failed
    assert "Did you mean 'ADDJOB'?" in capsys.readouterr().err


def test_slow_commands_show_their_time_to_people(scripted, shell_to, capsys, monkeypatch):
    monkeypatch.setattr(shell_module, "SLOW_S", 0.0)
    node = scripted({"PING": b"+PONG\r\n"})
    shell_to(node.port, FORMATTED).line("PING")
    assert re.fullmatch(r"\(\d\.\d\ds\)\n", capsys.readouterr().out)
    shell_to(node.port).line("PING")
    assert capsys.readouterr().out == ""


def test_commands_from_a_pipe_end_with_status_1_if_one_failed(scripted, shell_to):
    node = scripted({"PING": b"+PONG\r\n"})
    assert obey(shell_to(node.port).session, [b"PING\n", b"\n", b"PING\n"], 0.0) == 0
    assert obey(shell_to(node.port).session, [b"NOPE\n", b"PING\n"], 0.0) == 1
    assert obey(shell_to(1).session, [b"PING\n"], 0.0) == 1


def test_ctrl_c_ends_commands_from_a_file(scripted, shell_to, monkeypatch):
    """The next line must not run as if nothing had happened."""
    node = scripted({"PING": b"+PONG\r\n"})
    session = shell_to(node.port).session
    monkeypatch.setattr(session, "_print", interrupt)
    with pytest.raises(KeyboardInterrupt):
        obey(session, [b"PING\n", b"ADDJOB q x 0\n"], 0.0)
    assert node.requests == [[b"PING"]]


def test_ctrl_c_at_the_prompt_gives_up_the_command(scripted, shell_to, monkeypatch, capsys):
    """A new connection can't mistake its reply for another one. If no server answers there, the prompt says so."""
    node = scripted({"PING": b"+PONG\r\n"})
    shell = shell_to(node.port)
    shell.connect()
    before = shell.session.connection
    shell.interrupted()
    assert shell.session.connection not in (None, before)
    monkeypatch.setattr(session_module, "docs_of", interrupt)
    shell.interrupted()
    assert shell.prompt == "not connected> "
    assert capsys.readouterr().err == "(interrupted)\n" * 2


def interrupt(*_):
    raise KeyboardInterrupt


def test_clear_empties_the_screen(shell_to, capsys):
    assert shell_to(1).line("clear")
    assert capsys.readouterr().out == "\x1b[2J\x1b[H"
