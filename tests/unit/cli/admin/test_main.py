"""main.py: the program disque-admin."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from disque_py.cli.admin.main import main
from disque_py.cli.shell.main import main as cli
from scripted_queues import NIL, answers


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_every_shell(shell):
    assert "_DISQUE_ADMIN_COMPLETE" in CliRunner().invoke(main, ["completion", shell]).output


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("--cacert ca.pem queue list", "--cacert, --cert, --key and --insecure need --tls"),
        ("--tls --key k.pem queue list", "--key needs --cert"),
        ("-u nonsense queue list", "-u: "),
    ],
)
def test_options_that_make_no_sense_are_refused(line, text):
    result = CliRunner().invoke(main, line.split())
    assert (result.exit_code, text in result.output) == (2, True)


@pytest.mark.parametrize("option", ["-p", "--user"])
def test_an_option_of_the_connection_behind_the_command_gets_advice(option):
    result = CliRunner().invoke(main, ["queue", "list", option, "7"], prog_name="disque-admin")
    assert result.exit_code == 2
    assert f"Put it before the command: disque-admin {option} … queue list" in result.output
    assert "Put it" not in CliRunner().invoke(main, ["queue", "list", "--nosuch"]).output


def test_the_password_comes_from_the_environment_of_disque_cli(scripted, monkeypatch):
    monkeypatch.setenv("DISQUECLI_AUTH", "secret")
    node = scripted(answers(AUTH=b"+OK\r\n"))
    assert CliRunner().invoke(main, ["-p", str(node.port), "queue", "list"]).exit_code == 0
    assert [b"AUTH", b"secret"] in node.requests


def test_the_first_word_of_disque_cli_is_a_command_of_the_server(scripted, capsys):
    """Spec X5: `queue get` has no second meaning in disque-cli."""
    node = scripted({"QUEUE GET": b"$-1\r\n"})
    assert cli(["-p", str(node.port), "queue", "get", "x"]) == 0
    assert node.requests == [[b"queue", b"get", b"x"]]


@pytest.mark.parametrize("command", ["queue list", "queue list --json", "queue show mail"])
@pytest.mark.parametrize(
    ("output", "status", "told"),
    [("> /dev/full", 1, "Error: the output can't be written: No space left on device\n"), (">&-", 0, "")],
)
def test_output_that_can_not_be_written_is_no_traceback(scripted, command, output, status, told):
    program = f"{sys.executable} -m disque_py.cli.admin.main -p {scripted(answers()).port}"
    done = subprocess.run(f"{program} {command} {output}", shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, told)


ODD = "q\x1b[2J\x9b"


@pytest.mark.parametrize(
    "line",
    [
        "queue pause {}",
        "queue resume {}",
        "queue set {} attempts=5",
        "queue reset {}",
        "queue show {}",
        "queue purge {}",
        "job peek {}",
        "job move D-x --to {}",
        "schedule pause {}",
        "schedule delete {} --yes",
        "schedule show {}",
        "task show {}",
        "task cancel {}",
        "{}",
    ],
)
def test_a_name_in_a_message_shows_its_control_characters_as_escapes(admin, line):
    """A script may pass names that it got from the node, and a terminal would obey them."""
    replies = {"PAUSE": b"+all\r\n", "QLEN": b":5\r\n", "QPEEK": b"*0\r\n", "QSTAT": NIL, "QUEUE_GET": NIL}
    replies |= {
        "MOVEJOB": b":1\r\n",
        "SCHEDULE_GET": NIL,
        "SCHEDULE_PAUSE": b":1\r\n",
        "SCHEDULE_DEL": b":1\r\n",
        "SCHEDULE_NEXT": b"*0\r\n",
    }
    replies |= {"QTASK_SHOW": NIL, "QTASK_CANCEL": b":0\r\n"}
    result = admin(line.format(ODD), **replies)
    assert "\x1b" not in result.output
    assert "\x9b" not in result.output
    assert "x1b[2J" in result.output
