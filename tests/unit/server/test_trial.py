"""server/trial.py: disque-server --test-config reports problems that would prevent a start, without starting a node."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from pathlib import Path

import pytest

from certificates import self_signed
from disque_py.config.kinds import Seed
from disque_py.config.settings import Settings
from disque_py.server import trial
from disque_py.server.main import main
from disque_py.server.node_lifecycle import NodeLifecycle
from disque_py.server.settings_file import Configuration
from disque_py.server.start_error import StartError


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


@pytest.mark.parametrize("place", [0, 1, 3])
def test_the_option_may_stand_anywhere(conf, capsys, place):
    words = [conf(), "--port", "7712"]
    words.insert(place, "--test-config")
    assert main(words) == 0
    assert capsys.readouterr().out == "disque-server: the configuration can be used\n"


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
        ("logfile no/such/log", "can't open the log no/such/log: No such file or directory. Create the missing"),
        ("logfile .", "can't open the log .: Is a directory"),
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


# -- as a start ------------------------------------------------------------------------------------


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Settings of a node on free loopback ports. Afterwards the state of the process is restored."""
    monkeypatch.chdir(tmp_path)
    settings = Settings()
    settings.dir = str(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as client, socket.create_server(("127.0.0.1", 0)) as bus:
        settings.port = client.getsockname()[1]
        settings.cluster_port = bus.getsockname()[1]
    settings.bind = ("127.0.0.1",)
    hangup = signal.getsignal(signal.SIGHUP)
    yield settings
    signal.signal(signal.SIGHUP, hangup)
    gc.enable()
    gc.unfreeze()


def failure_of_start(settings):
    """Return the reason why a node can't start."""
    node = NodeLifecycle(Configuration(settings), may_restart=False)
    with pytest.raises(StartError) as refused:
        asyncio.run(asyncio.wait_for(node.run(), 30))
    return str(refused.value)


def entries(folder):
    """Return path, size and time of the last change of all files and directories."""
    found = [folder, *folder.rglob("*")]
    return sorted((str(path), path.lstat().st_size, path.lstat().st_mtime_ns) for path in found)


WRONG = {
    "aclfile: a missing directory": ({"aclfile": "no/users.acl"}, ""),
    "aclfile: a directory": ({"aclfile": "users.acl"}, "users.acl/"),
    "aclfile: wrong rules": ({"aclfile": "users.acl"}, "users.acl"),
    "audit-log: a missing directory": ({"audit_log": "no/audit.log"}, ""),
    "audit-log: a directory": ({"audit_log": "audit.log"}, "audit.log/"),
    "journal: a file": ({"appendonly": True}, "disque.aof.d"),
    "journal: a directory as its lock": ({"appendonly": True}, "disque.aof.d/lock/"),
    "journal: another format": ({"appendonly": True}, "disque.aof.d/0000000001.seg"),
    "journal: a name too long": ({"appendonly": True, "appendfilename": "a" * 254}, ""),
    "journal: one of Disque": ({"appendonly": True}, "disque.aof"),
    "journal: queued jobs wanted": ({"aof_enqueue_jobs_once": True}, "disque.aof.d"),
    "journal: queued jobs wanted, and none there": ({"aof_enqueue_jobs_once": True}, ""),
    "spill: a file": ({"maxmemory_spill": True}, "disque.aof.spill"),
    "nodes file: a missing directory": ({"cluster_config_file": "no/nodes.conf"}, ""),
    "nodes file: a directory": ({}, "nodes.conf/"),
    "nodes file: damaged": ({}, "nodes.conf"),
    "nodes file: a directory as its lock": ({}, "nodes.conf.lock/"),
    "nodes file: a directory in the way of a save": ({}, "nodes.conf.new/"),
    "queue settings: damaged": ({}, "nodes.conf.queues"),
    "votes: a directory": ({}, "nodes.conf.votes/"),
    "unixsocket: a missing directory": ({"unixsocket": "no/disque.sock"}, ""),
    "unixsocket: a file": ({"unixsocket": "disque.sock"}, "disque.sock"),
    "unixsocket: a name too long": ({"unixsocket": "s" * 200}, ""),
    "bind: another machine's address": ({"bind": ("198.51.100.1",)}, ""),
    "bind: no name": ({"bind": ("a" * 70 + ".example",)}, ""),
    "bus: another machine's address": ({"bind": ("198.51.100.1",), "port": 0, "cluster_secret": "s"}, ""),
    "cluster-announce-ip": ({"cluster_announce_ip": "a b"}, ""),
    "cluster-seeds": ({"cluster_seeds": (Seed("10.0.0.1", 60_000, 0),)}, ""),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_trial_gives_the_reason_of_a_failed_start_and_changes_nothing(settings, tmp_path, name):
    values, in_the_way = WRONG[name]
    for attribute, value in values.items():
        setattr(settings, attribute, value)
    if in_the_way:
        path = tmp_path / in_the_way
        path.parent.mkdir(exist_ok=True)
        if in_the_way.endswith("/"):
            path.mkdir()
        else:
            path.write_text("x" * 9000)
    before = entries(tmp_path)
    problems = trial.look(settings).problems
    assert entries(tmp_path) == before
    assert problems == [failure_of_start(settings)]


@pytest.mark.parametrize("directive", ["tls_cert_file", "tls_key_file", "tls_ca_cert_file"])
@pytest.mark.parametrize("content", [None, "no PEM"])
def test_a_trial_gives_the_reason_of_a_tls_file_that_can_not_be_used(settings, tmp_path, directive, content):
    certificate, key = self_signed(tmp_path)
    settings.tls_cluster = True
    settings.tls_cert_file = settings.tls_ca_cert_file = str(certificate)
    settings.tls_key_file = str(key)
    setattr(settings, directive, str(tmp_path / "wrong.pem"))
    if content is not None:
        (tmp_path / "wrong.pem").write_text(content)
    assert trial.look(settings).problems == [failure_of_start(settings)]


def test_files_without_which_a_node_runs_are_warnings(settings, tmp_path):
    (tmp_path / "nodes.conf.events").write_text("")
    settings.daemonize, settings.pidfile, settings.aclfile = True, "no/pid", "users.acl"
    found = trial.look(settings)
    assert found.problems == []
    assert [text.partition(":")[0] for text in found.warnings] == [
        f"can't write the pid file {tmp_path}/no/pid",
        "there is no ACL file users.acl yet",
        "Events are not written",
    ]


def test_warnings_leave_the_status_at_zero(conf, capsys):
    assert main(["--test-config", conf("aclfile users.acl")]) == 0
    assert capsys.readouterr().err.startswith("disque-server: there is no ACL file users.acl yet")


def test_a_trial_reads_nothing_from_pipes_and_devices(settings, tmp_path):
    os.mkfifo(tmp_path / "log")
    settings.logfile, settings.audit_log = "log", "/dev/null"
    assert trial.look(settings).problems == []


def test_ports_in_use_are_no_problem(settings, tmp_path):
    """A node may be running with this configuration."""
    settings.unixsocket = "disque.sock"
    with socket.create_server(("127.0.0.1", settings.port)), socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "disque.sock"))
        assert trial.look(settings).problems == []
    assert Path("disque.sock").exists()
