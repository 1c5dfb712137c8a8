"""disque_py/cli/bench/processes.py with real processes."""

from __future__ import annotations

import socket
import sys
from contextlib import suppress

import pytest

from disque_py.cli.bench.contestants import Contestant, floor, ours
from disque_py.cli.bench.dialects import DISQUE, FLOOR
from disque_py.cli.bench.processes import Line, Running, ServerError, Servers, info
from disque_py.loopback_ports import free_port


def is_listening(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_servers_end_with_their_context():
    with Servers() as servers:
        running = servers.start(floor())
        assert is_listening(running.ports[0])
        assert running.cpu_s() is not None
    assert not is_listening(running.ports[0])


def test_servers_end_with_their_context_when_it_fails():
    with suppress(KeyboardInterrupt), Servers() as servers:
        running = servers.start(floor())
        raise KeyboardInterrupt
    assert not is_listening(running.ports[0])


def test_several_nodes_are_joined_and_report_their_messages():
    with Servers() as servers:
        running = servers.start(ours(1 << 26), 2)
        assert [info(port)["cluster_linked_nodes"] for port in running.ports] == [1, 1]
        assert running.bus()[0] > 0
        assert running.version.startswith("0.")


def test_a_running_server_is_measured_and_left_alone(server):
    """It is not flushed and not stopped. The server itself reports its process id."""
    server.command("ADDJOB", "q", "body", 0)
    with Servers() as servers:
        running = servers.start(Contestant("there", DISQUE, port=server.port))
        assert running.pids == [server.pid]
        running.flush()
    assert server.command("QLEN", "q") == 1


def test_a_server_that_was_started_is_emptied():
    with Servers() as servers:
        running = servers.start(ours(1 << 26))
        with Line(running.ports[0]) as line:
            line.ask("ADDJOB", "q", "body", 0)
            running.flush()
            assert line.ask("QLEN", "q") == 0


def test_a_server_that_ends_at_once_is_reported_with_its_output():
    contestant = Contestant("bad", FLOOR, (sys.executable, "-c", "raise SystemExit('no room')", "{port}"))
    with Servers() as servers, pytest.raises(ServerError, match=r"^START bad ended with status 1(.|\n)*no room"):
        servers.start(contestant)


def test_a_port_without_a_listener_is_reported():
    contestant = Contestant("there", DISQUE, port=free_port())
    with Servers() as servers, pytest.raises(ServerError, match=r"^CONNECT there does not answer at port"):
        servers.start(contestant)


def test_without_processes_there_are_no_process_figures():
    assert Running(floor()).cpu_s() is None
    assert Running(floor()).resident() is None
