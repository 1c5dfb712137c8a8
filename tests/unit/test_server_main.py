"""The command line of disque-server, as far as no process is needed. The rest: tests/integration/test_start.py."""

from __future__ import annotations

import os

import pytest

from disque_py import __version__
from disque_py.config.directives import BY_NAME
from disque_py.server.main import USAGE, main


@pytest.mark.parametrize("word", ["-v", "--version"])
def test_the_version_begins_as_the_originals(word, capsys):
    assert main([word]) == 0
    assert capsys.readouterr().out.startswith(f"Disque server v={__version__} build=")


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help_goes_to_standard_output(word, capsys):
    assert main([word]) == 0
    assert capsys.readouterr() == (USAGE, "")


def test_help_names_directives_that_exist():
    words = {word.removeprefix("--") for word in USAGE.split() if word.startswith("--")}
    assert words - {"help", "version", "test-config"} <= set(BY_NAME)


def test_these_options_count_as_the_first_word_only(capsys):
    assert main(["--port", "1", "--version"]) == 1
    assert "Bad directive" in capsys.readouterr().err


def test_a_config_file_that_is_missing_is_named(capsys, tmp_path):
    assert main([str(tmp_path / "nothing.conf")]) == 1
    assert "nothing.conf': No such file or directory" in capsys.readouterr().err


@pytest.fixture
def conf(tmp_path):
    """Writes a config file, and gives its path."""

    def write(*lines):
        path = tmp_path / "disque.conf"
        path.write_text("\n".join((f"dir {tmp_path}", *lines)))
        return str(path)

    return write


def test_a_configuration_that_can_be_used(conf, capsys, tmp_path):
    before = os.getcwd()
    assert main(["--test-config", conf("port 7712", "appendonly yes"), "--maxmemory", "1gb"]) == 0
    assert capsys.readouterr() == ("disque-server: the configuration can be used\n", "")
    assert (os.listdir(tmp_path), os.getcwd()) == (["disque.conf"], before)


def test_wrong_lines_are_told_with_their_numbers(conf, capsys):
    assert main(["--test-config", conf("port x", "rename-command NOSUCH x")]) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert "at line 2" in errors
    assert "at line 3\n>>> 'rename-command NOSUCH x'\n'nosuch' is no command" in errors


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("cluster-seeds 10.0.0.1:60000", "10.0.0.1:60000 needs a bus port"),
        ("cluster-announce-ip 'a b'", "'a b' is not an address"),
        ("tls-port 7713\ntls-cert-file x\ntls-key-file y\ntls-auth-clients no", "can't use tls-cert-file x"),
        ("logfile no/such/log", "logfile no/such/log: there is no directory"),
        ("unixsocket /no/such/disque.sock", "unixsocket /no/such/disque.sock: there is no directory /no/such"),
    ],
)
def test_what_a_start_would_refuse_is_told(conf, capsys, line, reason):
    assert main(["--test-config", conf(line)]) == 1
    assert capsys.readouterr().err.startswith("disque-server: ")
    main(["--test-config", conf(line)])
    assert reason in capsys.readouterr().err


def test_all_of_it_is_told_at_once(conf, capsys):
    assert main(["--test-config", conf("logfile no/log", "cluster-announce-ip 'a b'")]) == 1
    assert capsys.readouterr().err.count("disque-server: ") == 2


def test_a_log_that_can_not_be_opened_is_told_in_one_line(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["--logfile", "/no/such/log"]) == 1
    assert capsys.readouterr().err == "disque-server: can't open the log /no/such/log: No such file or directory\n"
