"""The command line of disque-gateway."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from disque_py.gateway.command import main
from disque_py.gateway.logins.access_file import parse_access
from disque_py.gateway.settings import TABLE
from disque_py.loopback_ports import free_port


def run(*words):
    return CliRunner().invoke(main, list(words))


def test_help_has_every_setting():
    text = run("--help").output
    assert [setting.name for setting in TABLE if f"--{setting.name}" not in text] == []


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--listen", "0.0.0.0:1"], "loopback"),
        (["--body-max", "x"], "body-max"),
        (["no-such.conf"], "no-such.conf"),
        (["--grant", "read"], "--new-token"),
        (["--new-token", "t", "--grant", "root"], "no role"),
        (["--new-token", ""], "needs a name"),
    ],
)
def test_bad_usage_is_named(words, complaint):
    result = run(*words)
    assert (result.exit_code, complaint in result.output) == (2, True)


def test_a_script_for_completion_is_printed():
    result = run("--completion", "bash")
    assert (result.exit_code, "_DISQUE_GATEWAY_COMPLETE=bash_complete" in result.output) == (0, True)


def test_a_new_token_comes_with_its_entry():
    text = run("--new-token", "billing", "--grant", "produce:mail-*", "--days", "3").output
    secret = text.splitlines()[0].rpartition(" ")[2]
    found = parse_access(text).token(secret, 0.0)
    assert (found.name, str(found.grants[0]), found.expires is not None) == ("billing", "produce:mail-*", True)


def test_the_gateway_serves_until_it_gets_a_signal(nodes, tmp_path):
    conf = tmp_path / "gateway.conf"
    conf.write_text(f"listen 127.0.0.1:{free_port()}\ngrpc-listen ''\nurl {nodes.url}\n")
    words = [sys.executable, "-m", "disque_py.gateway.command", str(conf)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as program:
        assert program.stderr is not None
        assert "serving http://127.0.0.1:" in program.stderr.readline()
        program.send_signal(signal.SIGTERM)
        assert program.wait(10) == 0


@pytest.mark.parametrize("name", ["access-file", "audit-log", "tls-cert"])
def test_a_file_that_is_missing_is_reported_with_its_setting(name, tmp_path):
    path = tmp_path / "no" / "file"
    result = run(f"--{name}", str(path), "--listen", f"127.0.0.1:{free_port()}")
    assert (result.exit_code, result.output) == (1, f"Error: {name} {path}: No such file or directory\n")


def test_an_invalid_access_file_is_named(tmp_path):
    path = tmp_path / "access.toml"
    path.write_text("[[tokens]]\n")
    result = run("--access-file", str(path), "--listen", f"127.0.0.1:{free_port()}")
    assert f"Error: access-file {path}: the file has no field 'tokens'" in result.output


@pytest.mark.parametrize(
    ("words", "complaint"),
    [(["--url", "disque://h?nodes=3"], "Error: url: "), (["--clusters", "us=http://h"], "Error: cluster us: ")],
)
def test_a_url_that_cannot_be_read_is_named(words, complaint):
    result = run("--listen", f"127.0.0.1:{free_port()}", *words)
    assert (result.exit_code, complaint in result.output) == (1, True)


def test_an_unknown_variable_is_a_warning_at_the_start(gateway):
    words = [sys.executable, "-m", "disque_py.gateway.command", "--listen", f"127.0.0.1:{gateway.port}"]
    environment = os.environ | {"DISQUE_GATEWAY_POLLMS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=20, env=environment)
    assert "did you mean DISQUE_GATEWAY_POLL_MS?" in done.stderr


def test_a_port_that_is_taken_is_an_error(nodes, gateway):
    words = [
        sys.executable,
        "-m",
        "disque_py.gateway.command",
        "--listen",
        f"127.0.0.1:{gateway.port}",
        "--url",
        nodes.url,
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=20)
    assert (done.returncode, "can't listen" in done.stderr) == (1, True)
