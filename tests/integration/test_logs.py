"""The log of a real process, as lines of JSON."""

from __future__ import annotations

import json
import os
import signal
import time

import hiredis
import pytest

from servers import until


def said(server):
    """Return for each message the fields of its last line."""
    lines = [json.loads(line) for line in server.output().splitlines() if line.startswith("{")]
    return {line["message"]: line["fields"] for line in lines}


def fill(server):
    """Add jobs until one is refused."""
    while True:
        server.command("ADDJOB", "q", b"x" * 10_000, 0, "RETRY", 300)


def test_the_log_has_the_events_that_operators_need(make_server):
    server = make_server("--log-format", "json", "--loglevel", "debug", "--maxmemory", "1mb").start()
    server.command("CLUSTER", "LEAVING", "yes")
    server.command("CLUSTER", "LEAVING", "no")
    server.command("CONFIG", "SET", "maxclients", "5000")
    with pytest.raises(hiredis.ReplyError, match="OOM"):
        fill(server)
    server.command("CONFIG", "SET", "requirepass", "secret")
    with server.connect(1.0) as client, pytest.raises(hiredis.ReplyError):
        client.command("AUTH", "wrong")
    os.kill(server.pid, signal.SIGSTOP)
    time.sleep(1.5)
    os.kill(server.pid, signal.SIGCONT)
    wanted = {"leaving-began", "leaving-ended", "config-set", "memory-refused", "wrong-password", "stall", "figures"}
    until(lambda: wanted <= said(server).keys(), 20)
    messages = said(server)
    assert messages["config-set"]["directive"] == "requirepass"
    assert "secret" not in server.output()
    assert messages["stall"]["ms"] >= 1000
    assert messages["wrong-password"]["client"].startswith("127.0.0.1:")
    assert {"client-connected", "client-gone", "ready"} <= messages.keys()


def test_clients_beyond_maxclients_are_counted(make_server):
    server = make_server("--log-format", "json", "--maxclients", "1").start()
    with server.connect(1.0), server.connect(1.0):
        until(lambda: "clients-refused" in said(server), 5)
    assert said(server)["clients-refused"]["maxclients"] == 1


def test_a_fatal_signal_leaves_the_stack_in_the_log(make_server):
    """Disque writes one, too. Without it a crash of compiled code could not be explained."""
    server = make_server().start()
    with pytest.raises(EOFError):
        server.command("DEBUG", "SEGFAULT")
    assert server.wait_ended() == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in server.output()
    assert "in crash" in server.output()


def test_the_stack_is_in_the_file_that_logrotate_made_room_for(make_server):
    server = make_server("--logfile", "log").start()
    path = server.folder / "log"
    path.rename(server.folder / "log.1")
    server.command("CONFIG", "SET", "loglevel", "debug")
    with pytest.raises(EOFError):
        server.command("DEBUG", "ASSERT")
    assert server.wait_ended() == -signal.SIGABRT
    assert "Fatal Python error: Aborted" in path.read_text()
