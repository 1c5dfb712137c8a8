"""server/trial.py: disque-server --test-config reports problems that would prevent a start, without starting a node."""

from __future__ import annotations

import os

import pytest

from disque_py.server.main import main


@pytest.fixture
def conf(tmp_path):
    """Writes a config file. Returns its path."""

    def write(*lines):
        path = tmp_path / "disque.conf"
        path.write_text("\n".join((f"dir {tmp_path}", *lines)))
        return str(path)

    return write


def test_a_valid_configuration_is_reported_as_valid(conf, capsys, tmp_path):
    before = os.getcwd()
    assert main(["--test-config", conf("port 7712", "appendonly yes"), "--maxmemory", "1gb"]) == 0
    assert capsys.readouterr() == ("disque-server: the configuration can be used\n", "")
    assert (os.listdir(tmp_path), os.getcwd()) == (["disque.conf"], before)


def test_wrong_lines_are_reported_with_their_numbers(conf, capsys):
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
def test_problems_of_a_start_are_reported(conf, capsys, line, reason):
    assert main(["--test-config", conf(line)]) == 1
    assert capsys.readouterr().err.startswith("disque-server: ")
    main(["--test-config", conf(line)])
    assert reason in capsys.readouterr().err


def test_all_problems_are_reported_at_once(conf, capsys):
    assert main(["--test-config", conf("logfile no/log", "cluster-announce-ip 'a b'")]) == 1
    assert capsys.readouterr().err.count("disque-server: ") == 2


def test_a_directory_that_cannot_be_entered_is_named(conf, capsys, monkeypatch, tmp_path):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    path = conf("port 7712")
    monkeypatch.setattr(os, "chdir", refuse)
    assert main(["--test-config", path]) == 1
    assert f"can't change to the directory {tmp_path}: Permission denied" in capsys.readouterr().err
