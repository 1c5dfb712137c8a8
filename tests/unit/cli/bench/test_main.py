"""disque_py/cli/bench/main.py: the command line."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from certificates import self_signed
from disque_py import __version__
from disque_py.cli.bench import contestants
from disque_py.cli.bench.contestants import Contestant
from disque_py.cli.bench.dialects import DISQUE, Encryption
from disque_py.cli.bench.main import main, write_whole
from disque_py.cli.bench.measures import TESTS
from disque_py.cli.bench.processes import Servers
from disque_py.client.tls import trusting
from disque_py.loopback_ports import free_port


def run(*words, **environment):
    """Return the status and the output of a command line."""
    result = CliRunner().invoke(main, words, prog_name="disque-bench", env=environment)
    return result.exit_code, result.output


def test_the_list_names_all_tests_and_the_contestants_that_are_here():
    status, output = run("--list", PATH="/nowhere")
    assert status == 0
    assert [line.split()[0] for line in output.splitlines()[: len(TESTS)]] == list(TESTS)
    assert "Contestants: disque-py, floor\nNot installed: redis-server, beanstalkd\n" in output


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path):
    status, output = run("ping", "--only", "floor", "--json", str(tmp_path / "none" / "x"))
    assert (status, "none is missing, or can't be written" in output, "per second" in output) == (1, True, False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pong"], "Error: there is no test 'pong'. Did you mean 'ping'? The tests are ping, add"),
        (["-P", "1,x"], "'1,x' is not a list of numbers from 1 to 1,000"),
        (["-c", "0"], "'0' is not a list of numbers from 1 to 20,000"),
        (["--only", "x"], "there is no contestant 'x' here"),
        (["--user", "ann"], "--user is for servers of --connect"),
        (["--tls"], "--tls is for servers of --connect"),
        (["--connect", "7711", "--cacert", "ca.crt"], "--cacert, --cert, --key and --insecure need --tls"),
        (["--server", "disque-server"], "needs {port}"),
        (["--connect", "10.0.0.1:7711"], "is not this machine"),
        (
            ["--only", "floor", "--reference", "disque-py"],
            "--reference disque-py is not one of the servers that are measured",
        ),
        (["--only", "floor", "--without", "floor"], "no contestant is left"),
        (["--jobs", "10000001"], "is not in the range 100<=x<=10000000"),
    ],
)
def test_bad_usage_is_reported_and_nothing_is_measured(words, message):
    status, output = run(*words)
    assert status == 2
    assert message in output.replace("\n", " ")


def test_a_running_server_that_does_not_answer_ends_the_run_at_once(monkeypatch):
    monkeypatch.setattr("disque_py.cli.bench.main.Bench.measure", lambda bench, tests: pytest.fail("measured"))
    port = free_port()
    status, output = run("ping", "--connect", f"127.0.0.1:{port}")
    assert status == 1
    assert f"no server answers at port {port}: Connection refused" in output


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (b"-NOAUTH Authentication required.\r\n", "wants a login: NOAUTH Authentication required. Pass the password"),
        (b"-NOPERM no\r\n", "refuses this user: NOPERM no. Name another one with --user"),
        (b"HTTP/1.1 400 Bad Request\r\n", "does not speak the protocol disque: it answered 'HTTP/1.1 400 Bad Request'"),
        (b"", "can't be measured: the server hung up (if it speaks TLS, use --tls)"),
    ],
)
def test_a_running_server_that_cannot_be_measured_ends_the_run_at_once(monkeypatch, reply, message):
    monkeypatch.setattr("disque_py.cli.bench.main.Bench.measure", lambda bench, tests: pytest.fail("measured"))

    def answer(listener):
        sock, _ = listener.accept()
        with sock:
            sock.recv(100)
            sock.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        status, output = run("ping", "--connect", str(listener.getsockname()[1]))
    assert status == 1
    assert message in output


def quick(port):
    """The words for a quick test of a running server alone."""
    return ("--quick", "--seconds", "0.05", "-c", "2", "--connect", str(port), "--only", f"disque:{port}")


@pytest.fixture(scope="module")
def with_password():
    """The port of a node with a password."""
    options = "--port {port} --bind 127.0.0.1 --dir {dir} --requirepass secret"
    with Servers() as servers:
        command = (sys.executable, "-m", "disque_py.server.main", *options.split())
        yield servers.start(Contestant("closed", DISQUE, command)).ports[0]


@pytest.mark.parametrize("words", [["-a", "secret"], ["--user", "default", "--password", "secret"]])
def test_a_running_server_with_a_password_is_measured(with_password, words):
    """These tests use the generator, the blocking connections, and INFO."""
    status, output = run("cycle", "wakeup", *quick(with_password), *words)
    assert (status, "Not measured" in output) == (0, False), output
    assert f"disque:{with_password} {__version__}" in output


def test_the_password_comes_from_the_environment_of_disque_cli(with_password):
    assert run("ping", *quick(with_password), DISQUECLI_AUTH="secret")[0] == 0


def test_a_refused_login_ends_the_run_at_once(with_password):
    status, output = run("ping", *quick(with_password), "--user", "ann", "-a", "x")
    assert status == 1
    assert f"the server at port {with_password} refused the login: WRONGPASS invalid username-password pair" in output
    assert "Check --user, -a and the environment variable DISQUECLI_AUTH" in output


def test_a_server_without_a_password_is_measured_without_a_login():
    """The password may be for another server."""
    with Servers() as servers:
        port = servers.start(contestants.ours(1 << 28)).ports[0]
        status, output = run("ping", *quick(port), "-a", "secret")
    assert (status, "Not measured" in output) == (0, False), output


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path):
    """A lone surrogate stands for any error in the middle of the file."""
    file = tmp_path / "found.json"
    write_whole(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(file, "new" * 10_000 + "\udc80")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("found.json", "old")]


def test_a_device_is_not_replaced(tmp_path):
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        write_whole(Path("/dev/full"), "new")


def test_help_has_examples():
    status, output = run("--help")
    assert status == 0
    assert "disque-bench --quick  " in output


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_a_script_for_completion_is_printed(shell):
    status, output = run("--completion", shell)
    assert status == 0
    assert "_DISQUE_BENCH_COMPLETE" in output


def test_tab_completes_tests():
    output = run(_DISQUE_BENCH_COMPLETE="zsh_complete", COMP_WORDS="disque-bench wak", COMP_CWORD="1")[1]
    assert "wakeup-far" in output


def test_a_server_that_does_not_start_is_reported_with_its_output():
    """Other contestants would still be measured. The exit status says that one is missing."""
    command = "bad=python3 -c \"raise SystemExit('no room')\" {port}"
    status, output = run("ping", "--quick", "--server", command, "--only", "bad", "--markdown")
    assert status == 1
    assert "Not measured: ping: START bad ended with status 1. Its output:\n  no room" in output


@pytest.fixture(scope="module")
def with_tls(tmp_path_factory):
    """The port of a node for TLS alone, and its certificate, which names localhost only."""
    cert, key = self_signed(tmp_path_factory.mktemp("tls"), names="DNS:localhost")
    files = f"--tls-cert-file {cert} --tls-key-file {key} --tls-auth-clients no"
    options = f"--port 0 --tls-port {{port}} --bind 127.0.0.1 --dir {{dir}} {files}"
    command = (sys.executable, "-m", "disque_py.server.main", *options.split())
    dialect = DISQUE.with_tls(Encryption(trusting(str(cert)), "localhost"))
    with Servers() as servers:
        yield servers.start(Contestant("encrypted", dialect, command)).ports[0], cert


def test_a_running_server_is_measured_over_tls(with_tls):
    """These tests use the generator, the blocking connections, waits for sockets, and INFO."""
    port, cert = with_tls
    place = ("--connect", f"localhost:{port}", "--only", f"disque:{port}")
    words = ("--quick", "--seconds", "0.05", "-c", "2", *place, "--tls", "--cacert", str(cert))
    status, output = run("cycle", "wakeup", "latency", *words)
    assert (status, "Not measured" in output) == (0, False), output
    assert f"disque:{port} {__version__}" in output


@pytest.mark.parametrize(
    ("host", "words", "message"),
    [
        ("localhost", [], "(if it speaks TLS, use --tls)"),
        ("localhost", ["--tls"], "(name the authority of its certificate with --cacert)"),
        ("localhost", ["--tls", "--cacert", "/nowhere"], "Can't use --cacert /nowhere: No such file or directory"),
        ("127.0.0.1", ["--tls", "--cacert", "{cert}"], "IP address mismatch"),
    ],
)
def test_a_running_server_that_cannot_be_reached_over_tls_ends_the_run_at_once(with_tls, host, words, message):
    port, cert = with_tls
    status, output = run("ping", "--connect", f"{host}:{port}", *(word.format(cert=cert) for word in words))
    assert status == 1
    assert message in output


def test_a_port_without_tls_is_recognized(with_password):
    status, output = run("ping", "--connect", f"{with_password}", "--tls", "--insecure")
    assert (status, "(the port may not speak TLS)" in output) == (1, True)
