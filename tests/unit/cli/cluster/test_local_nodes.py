"""local_nodes.py: it acts only on processes that the program started."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys

import pytest

from disque_py.cli.cluster import local_nodes
from disque_py.cli.cluster.local_nodes import (
    LocalError,
    LocalNode,
    StartOptions,
    changed_options,
    choose_ports,
    default_directory,
    failure_text,
    kept_names,
    load_nodes,
    load_options,
    node_directory,
    process_start,
    save_nodes,
    stop_nodes,
)
from disque_py.loopback_ports import PORTS


@pytest.fixture
def sleeper():
    """Starts a process that stands in for a node and runs the given code."""
    processes = []

    def start(code="import time; print('up', flush=True); time.sleep(60)"):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        processes.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return LocalNode(1, process.pid, process_start(process.pid) or "")

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def test_saved_nodes_are_loaded(tmp_path):
    nodes = [LocalNode(7801, 12, "345"), LocalNode(7802, 13, "346")]
    save_nodes(tmp_path, nodes)
    assert load_nodes(tmp_path) == nodes
    assert [path.name for path in tmp_path.iterdir()] == ["nodes.json"]


def test_saved_options_are_loaded_and_only_the_owner_can_read_them(tmp_path):
    (tmp_path / "nodes.json").touch(mode=0o644)
    options = StartOptions(("--requirepass", "secret"), (("dc", "a"), ("", "b")), with_tls=True)
    save_nodes(tmp_path, [], options)
    assert load_options(tmp_path) == options
    assert (tmp_path / "nodes.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("words", "options", "kept"),
    [
        ("", "--appendonly yes --bind a b", ["--appendonly", "--bind"]),
        ("--loglevel debug", "--appendonly yes --bind a b --loglevel debug", ["--appendonly", "--bind"]),
        ("--APPENDONLY no", "--bind a b --APPENDONLY no", ["--bind"]),
        ("--bind c --bind d --appendonly yes", "--bind c --bind d --appendonly yes", []),
    ],
)
def test_options_of_a_start_change_those_of_the_last_one(words, options, kept):
    before = ["--appendonly", "yes", "--bind", "a", "b"]
    assert changed_options(before, words.split()) == tuple(options.split())
    assert kept_names(before, words.split()) == kept


def test_without_a_saved_file_there_are_no_nodes(tmp_path):
    assert (load_nodes(tmp_path), load_options(tmp_path)) == ([], StartOptions())


def test_a_file_of_an_older_version_has_no_options(tmp_path):
    (tmp_path / "nodes.json").write_text(json.dumps({"version": 1, "nodes": []}))
    assert load_options(tmp_path) == StartOptions()


@pytest.mark.parametrize("text", ["{", "[]", json.dumps({"version": 99, "nodes": []})])
def test_a_damaged_or_foreign_file_is_refused(tmp_path, text):
    (tmp_path / "nodes.json").write_text(text)
    with pytest.raises(LocalError, match=r"nodes\.json"):
        load_nodes(tmp_path)


def test_a_process_is_known_by_number_and_moment(sleeper):
    node = sleeper()
    assert node.is_alive
    assert not LocalNode(1, node.pid, "another moment").is_alive


def test_a_process_that_does_not_exist_is_never_alive():
    assert not LocalNode(1, 2**22 + 1, "").is_alive
    assert process_start(2**22 + 1) is None


def test_stopping_asks_first(sleeper):
    node = sleeper()
    assert stop_nodes([node], 10.0) == []
    assert not node.is_alive


def test_a_node_that_ignores_the_request_is_killed(sleeper):
    node = sleeper("import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)")
    assert stop_nodes([node], 0.2) == [node]


def test_another_process_with_the_same_number_is_left_alone(sleeper):
    node = sleeper()
    assert stop_nodes([LocalNode(1, node.pid, "another moment")], 0.1) == []
    assert node.is_alive


@pytest.fixture
def _no_default_port(monkeypatch):
    """A real node may be using the default port."""
    monkeypatch.setattr(local_nodes, "PORT_DEFAULT", random.choice(PORTS))


@pytest.mark.usefixtures("_no_default_port")
def test_a_busy_port_or_bus_port_is_refused_by_name():
    (free,) = choose_ports(None, 1)
    with socket.create_server(("127.0.0.1", free + 10_000)), pytest.raises(LocalError, match=f"Port {free}"):
        choose_ports(free, 1)


@pytest.mark.usefixtures("_no_default_port")
def test_free_ports_are_consecutive():
    first, second, third = choose_ports(None, 3)
    assert (second, third) == (first + 1, first + 2)


def test_ports_whose_bus_ports_do_not_exist_are_refused():
    with pytest.raises(LocalError, match="above 65535"):
        choose_ports(55_534, 3)


def test_a_failed_node_is_reported_with_the_end_of_its_logs(tmp_path):
    home = node_directory(tmp_path, 7801)
    home.mkdir()
    assert "printed nothing" in failure_text(tmp_path, 7801)
    (home / "disque.log").write_text("".join(f"line {number}\n" for number in range(100)))
    assert failure_text(tmp_path, 7801).splitlines()[-1] == "  line 99"


def test_the_default_directory_is_the_users_state(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "disque-cluster"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_directory() == tmp_path / ".local" / "state" / "disque-cluster"


def test_nodes_that_are_started_here_do_not_share_settings_of_the_environment():
    environ = {"DISQUE_CLUSTER_PORT": "17711", "DISQUECLI_AUTH": "x", "PATH": "/bin"}
    assert local_nodes.without_settings(environ) == {"DISQUECLI_AUTH": "x", "PATH": "/bin"}
