"""main.py: a command line goes in, output and exit status come out."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from client_node import SILENCE, Node
from disque_py import __version__
from disque_py.cli.shell import main as disque_cli_main
from disque_py.cli.shell.main import main


@pytest.fixture
def run(scripted, capfdbinary, monkeypatch):
    """Runs disque-cli against a node with these answers. Returns the status, output, errors and requests."""
    monkeypatch.delenv("FAKETTY", raising=False)

    def run(answers, *arguments, stdin=b""):
        node = scripted(answers)
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin), isatty=lambda: False))
        status = main(["-p", str(node.port), *arguments])
        out, err = capfdbinary.readouterr()
        return SimpleNamespace(status=status, out=out, err=err, requests=node.requests)

    return run


def test_a_reply_is_printed_raw_into_a_pipe(run):
    result = run({"QLEN": b":3\r\n"}, "QLEN", "q")
    assert (result.status, result.out) == (0, b"3\n")


def test_faketty_formats_as_on_a_terminal(run, monkeypatch):
    monkeypatch.setenv("FAKETTY", "1")
    assert run({"QLEN": b":3\r\n"}, "QLEN", "q").out == b"(integer) 3\n"


def test_an_error_reply_is_exit_status_1(run):
    result = run({}, "NOPE")
    assert (result.status, result.out) == (1, b"ERR unknown command 'NOPE'\n\n")


def test_a_misspelled_follow_gets_a_suggestion(run):
    result = run({}, "events", "--folow")
    assert (result.status, result.err) == (1, b"events has no option '--folow'. Did you mean '--follow'?\n")


def test_words_behind_follow_are_refused(run):
    result = run({}, "events", "--follow", "-p", "7712")
    told = (
        b"events --follow takes no words after it, but has '-p'. If -p is an option of disque-cli, put it before the "
    )
    assert (result.status, result.err) == (1, told + b"command: disque-cli -p \xe2\x80\xa6 events --follow\n")


def test_a_command_is_repeated(run):
    assert run({"PING": b"+PONG\r\n"}, "-r", "3", "PING").out == b"PONG\n" * 3
    assert run({"PING": b"-ERR x\r\n"}, "-r", "2", "PING").status == 1


def test_the_last_argument_may_come_from_standard_input(run):
    assert run({"PING": b"+ok\r\n"}, "-x", "PING", stdin=b"a\n\0").requests == [[b"PING", b"a\n\0"]]


def test_a_body_may_come_from_standard_input(run):
    result = run({"ADDJOB": b"+D-\r\n"}, "-X", "body", "ADDJOB", "q", "body", "0", stdin=b"{}")
    assert result.requests == [[b"ADDJOB", b"q", b"{}", b"0"]]


def test_without_a_command_standard_input_is_read(run):
    result = run({"PING": b"+PONG\r\n"}, stdin=b"PING\nPING\n")
    assert (result.status, result.out) == (0, b"PONG\nPONG\n")


def test_json_asks_for_resp3_and_works_without_it(run):
    result = run({"QPEEK": b"*1\r\n*-1\r\n"}, "--json", "QPEEK", "q", "1")
    assert json.loads(result.out) == [None]
    assert result.requests[0] == [b"HELLO", b"3"]


def test_a_bad_password_is_a_warning_and_does_not_end_the_program(run):
    result = run({"AUTH": b"-ERR invalid password\r\n", "PING": b"-NOAUTH x\r\n"}, "-a", "pw", "PING")
    assert result.status == 1
    assert result.err == b"Warning: AUTH failed: ERR invalid password\n"


def test_a_lost_connection_is_exit_status_1(run):
    result = run({"PING": lambda words: None}, "PING")
    assert (result.status, result.err) == (1, b"Error: Server closed the connection (if it speaks TLS, use --tls)\n")


def test_a_dead_address_is_exit_status_1(capsys):
    assert main(["-p", "1", "PING"]) == 1
    assert capsys.readouterr().err == "Could not connect to Disque at 127.0.0.1:1: Connection refused\n"


PLACE = "If -p is an option of disque-cli, put it before the command: disque-cli -p … QLEN\n"


def test_an_option_behind_a_command_that_fails_gets_its_place(run):
    assert run({}, "QLEN", "q", "-p", "7712").err.endswith(PLACE.encode())
    assert run({"QLEN": b":1\r\n"}, "QLEN", "-p").err == b""


def test_so_does_one_behind_a_command_without_a_server(capsys):
    assert main(["-p", "1", "QLEN", "q", "-p", "7712"]) == 1
    assert capsys.readouterr().err == f"Could not connect to Disque at 127.0.0.1:1: Connection refused. {PLACE}"


def test_a_wrong_option_is_exit_status_1(capsys):
    assert main(["--nope"]) == 1
    assert capsys.readouterr().err == "Unrecognized option or bad number of args for: '--nope'\n"


def test_help_and_version_are_on_standard_output(capsys):
    assert main(["--help"]) == main(["--version"]) == 0
    out = capsys.readouterr().out
    assert "Usage: disque-cli" in out
    assert out.endswith(f"disque-cli {__version__}\n")


def test_help_needs_no_server(capsys):
    assert main(["-p", "1", "help", "addjob"]) == 0
    assert "ADDJOB queue body ms-timeout" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "meant"), [("addjb", "ADDJOB"), ("status", "disque-cluster status --help"), ("@job", "@jobs")]
)
def test_help_for_an_unknown_word_names_the_word_that_was_meant_and_fails(capsys, word, meant):
    assert main(["-p", "1", "help", word]) == 1
    told = capsys.readouterr()
    assert (told.out, told.err.partition(" Groups:")[0]) == ("", f"No help for '{word}'. Did you mean '{meant}'?")


def test_help_does_not_wait_for_a_server_that_says_nothing(monkeypatch, capsys):
    monkeypatch.setattr(disque_cli_main, "HELP_PATIENCE_S", 0.2)
    with Node(answers={"COMMAND": SILENCE}) as node:
        assert main(["-p", str(node.port), "help", "addjob"]) == 0
    assert "ADDJOB queue body ms-timeout" in capsys.readouterr().out


def test_an_unhealthy_node_is_reported_on_standard_output(run):
    result = run({"PING": b"-LOADING x\r\n"}, "--health")
    assert (result.status, result.out) == (1, b"LOADING x\n")


def test_scan_writes_names(run):
    result = run({"QSCAN": b"*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n"}, "--scan", "--pattern", "a*")
    assert (result.status, result.out) == (0, b"a\n")


QUEUE_A = b"*4\r\n$4\r\nname\r\n$1\r\na\r\n$3\r\nlen\r\n:3\r\n"


@pytest.mark.parametrize(
    ("mode", "value"),
    [
        ("--scan", "a"),
        (
            "--bigqueues",
            {"queues": [{"name": "a", "len": 3}], "queue_count": 1, "empty_count": 0, "job_count": 3},
        ),
        ("--health", {"healthy": True, "leaving": True}),
    ],
)
def test_modes_print_json_when_asked(run, bulk_reply, mode, value):
    answers = {
        "QSCAN": b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\na\r\n",
        "QSTAT": QUEUE_A,
        "PING": b"+PONG\r\n",
        "CLUSTER INFO": bulk_reply("cluster_state:ok\r\n"),
        "CLUSTER LEAVING": b"+yes\r\n",
    }
    result = run(answers, "--json", mode)
    told = json.loads(result.out)
    if mode == "--health":
        assert told.pop("address").startswith("127.0.0.1:")
    assert (result.status, told) == (0, value)


def test_health_as_json_has_the_reason(run):
    result = run({"PING": b"-LOADING x\r\n"}, "--json", "--health")
    told = json.loads(result.out)
    assert (result.status, told["healthy"], told["reason"]) == (1, False, "LOADING x")


def test_latency_as_json_has_names(run):
    told = json.loads(run({"PING": b"+PONG\r\n"}, "--json", "--latency", "-i", "0.02").out)
    assert set(told) == {"min_ms", "max_ms", "avg_ms", "samples"}


def test_bigqueues_that_are_refused_are_exit_status_1(run):
    assert run({}, "--bigqueues").status == 1


def test_stat_prints_the_lines_asked_for(run):
    result = run({"INFO": b"$17\r\nregistered_jobs:7\r\n"[:5] + b"registered_jobs:7\r\n"}, "--stat", "-r", "1")
    assert result.out.splitlines()[1].startswith(b"7 ")


def test_latency_into_a_pipe_ends(run):
    assert run({"PING": b"+PONG\r\n"}, "--latency", "-i", "0.02").status == 0


def test_pipe_counts_errors_and_replies(scripted):
    """The test starts a process, because --pipe reads the file descriptor."""
    node = scripted(
        {"PING": lambda words: b"+PONG\r\n" if len(words) == 1 else b"$%d\r\n%b\r\n" % (len(words[1]), words[1])}
    )
    command = [sys.executable, "-m", "disque_py.cli.shell.main", "-p", str(node.port), "--pipe"]
    result = subprocess.run(command, input=b"PING\nNOPE\n", capture_output=True, timeout=20, check=False)
    assert (result.returncode, result.stdout) == (1, b"errors: 1, replies: 2\n")


def test_a_closed_pipe_causes_no_traceback(scripted):
    node = scripted({"PING": b"$100000\r\n%b\r\n" % (b"x" * 100_000)})
    command = [sys.executable, "-m", "disque_py.cli.shell.main", "-p", str(node.port), "-r", "100", "PING"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        os.read(process.stdout.fileno(), 10)
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(timeout=20) == 1


def run_process(how, *words, **environment):
    """Run disque-cli as the shell starts it with these redirections."""
    command = ["sh", "-c", f'exec "$@" {how}', "sh", sys.executable, "-m", "disque_py.cli.shell.main", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=20, check=False, env={**os.environ, **environment}
    )


@pytest.mark.parametrize("how", [">&-", "<&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_cause_no_traceback(scripted, how):
    """Supervisors may start programs with closed streams."""
    node = scripted({"PING": b"+PONG\r\n"})
    result = run_process(how, "-p", str(node.port), "PING")
    assert (result.returncode, result.stderr) == (0, "")
    assert node.requests == [[b"PING"]]


def test_a_full_disk_causes_no_traceback():
    result = run_process("> /dev/full", "--version")
    assert (result.returncode, result.stderr) == (1, "Error: the output can't be written: No space left on device\n")


def test_a_character_that_the_locale_lacks_causes_no_traceback():
    result = run_process("", "-p", "1", "help", "é", PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(r"No help for '\xe9'.")
