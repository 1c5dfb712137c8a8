"""cli/cluster/starting.py: a start that is interrupted."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

import pytest

from disque_py.cli.cluster.local_nodes import load_nodes, node_directory, stop_nodes
from disque_py.cli.cluster.starting import Interrupts, MadeDirectories
from disque_py.loopback_ports import PORTS, is_free_with_bus


def two_ports():
    """Return the first of two free ports."""
    return next(port for port in random.sample(PORTS, 100) if is_free_with_bus(port) and is_free_with_bus(port + 1))


def interrupted_start(directory, port, number):
    """Start two nodes, and interrupt it when the first one is recorded. Return its status and its texts."""
    words = ["start", "-n", "2", "--port", str(port), "--dir", str(directory)]
    command = [sys.executable, "-m", "disque_py.cli.cluster.main", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not (nodes := load_nodes(directory)):
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(number)
        output, errors = process.communicate(timeout=30)
    left = [node for node in nodes if node.is_alive]
    stop_nodes(left)
    assert not left
    return process.returncode, output, errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_start_leaves_no_process_and_no_file(tmp_path, number):
    directory = tmp_path / "new" / "cluster"
    status, output, errors = interrupted_start(directory, two_ports(), number)
    assert (status, output) == (130, "")
    assert errors == "Interrupted: the nodes that were started are stopped again, and their files were removed\n"
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_start_keeps_the_files_that_it_found(tmp_path):
    port = two_ports()
    found = node_directory(tmp_path, port) / "users.acl"
    found.parent.mkdir()
    found.touch()
    assert interrupted_start(tmp_path, port, signal.SIGTERM)[0] == 130
    assert found.exists()
    assert [path.name for path in tmp_path.iterdir()] == [found.parent.name]


def test_made_directories_keep_a_parent_in_which_other_files_lie(tmp_path):
    directory = tmp_path / "a" / "b"
    made = MadeDirectories(directory, [7711])
    node_directory(directory, 7711).mkdir(parents=True)
    (tmp_path / "a" / "other").touch()
    made.remove()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["other"]


def test_a_signal_waits_while_it_is_held():
    interrupts = Interrupts()
    steps = []

    def step():
        with interrupts.held():
            signal.raise_signal(signal.SIGTERM)
            steps.append("done")

    with interrupts.caught(), pytest.raises(KeyboardInterrupt):
        step()
    assert steps == ["done"]


def test_a_signal_that_the_program_ignores_stays_ignored():
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts().caught():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
