"""The log of events of real nodes: killed, read by several, followed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from servers import ROOT, Server, until


def position(server: Server) -> tuple[str, int, int]:
    """Return log id, first and next number."""
    reply = server.command("EVENTS", "INFO")
    return reply[1].decode(), reply[3], reply[5]


def events(server: Server, count: int) -> list[dict[str, Any]]:
    """Return `count` events of jobs, once they are on disk."""
    log_id, seq, _ = position(server)
    found: list[dict[str, Any]] = []
    while len(found) < count:
        lines = server.command("EVENTS", "READ", log_id, seq, "BLOCK", 5_000).splitlines()
        assert lines
        seq += len(lines)
        found += [event for event in map(json.loads, lines) if event["job_id"]]
    return found


def test_a_killed_process_has_lost_no_event_of_what_it_answered(make_server):
    """It is killed right after its replies, long before a sync. The same log goes on after the restart."""
    server = make_server().start()
    log_id, *_ = position(server)
    with server.connect() as connection:
        for _ in range(500):
            connection.send("ADDJOB", "q", "body", 0)
        ids = [connection.read().decode() for _ in range(500)]
    server.kill()
    server.restart()
    assert position(server)[0] == log_id
    assert [event["job_id"] for event in events(server, 500)] == ids


def test_the_logs_of_three_nodes_form_one_history(make_cluster):
    """Each transition is in the log of the node that made it, in the order of versions, and in no other."""
    cluster = make_cluster(3)
    a, b, _ = cluster.servers
    job_id = a.command("ADDJOB", "q", "body", 5_000, "REPLICATE", 3)
    assert b.command("GETJOB", "TIMEOUT", 10_000, "FROM", "q")[0][1] == job_id
    b.command("NACK", job_id)
    assert b.command("GETJOB", "TIMEOUT", 10_000, "FROM", "q")[0][1] == job_id
    b.command("ACKJOB", job_id)
    story: list[tuple[int, str]] = []

    def is_whole() -> bool:
        story.clear()
        for server in cluster.servers:
            log_id, seq, end = position(server)
            while seq < end:
                lines = server.command("EVENTS", "READ", log_id, seq).splitlines()
                seq += len(lines)
                told = [json.loads(line) for line in lines]
                story.extend((event["version"], event["event"]) for event in told if event["job_id"])
        return len(story) >= 5

    until(is_whole)
    assert sorted(story) == [(1, "added"), (2, "delivered"), (3, "nacked"), (4, "delivered"), (5, "acked")]


def test_many_events_are_read_through_the_process_that_formats_lines(make_server):
    server = make_server().start()
    with server.connect() as connection:
        for _ in range(20_000):
            connection.send("ADDJOB", "q", "body", 0)
        for _ in range(20_000):
            connection.read()
    found = events(server, 20_000)
    assert [event["seq"] for event in found] == list(range(found[0]["seq"], found[0]["seq"] + 20_000))
    assert "The process that makes lines" not in server.output()


def test_a_node_that_cannot_write_its_log_serves(make_server, tmp_path):
    server = make_server()
    server.folder.mkdir(parents=True, exist_ok=True)
    (server.folder / "nodes.conf.events").write_text("in the way")
    server.start()
    assert server.command("ADDJOB", "q", "body", 0)
    assert server.info("events")["events_state"] == "closed"
    assert "Events are not written" in server.output()


def test_nodes_without_journals_may_share_a_directory_and_have_separate_logs(make_server, tmp_path):
    """The nodes of conf/cluster share one. When a node is gone for good, the other one does not take over its log."""
    one, two = (make_server("--dir", tmp_path, "--cluster-config-file", f"{name}.conf").start() for name in "ab")
    logs = [position(server)[0] for server in (one, two)]
    assert logs[0] != logs[1]
    one.kill()
    two.stop()
    two.start()
    assert position(two)[0] == logs[1]
    assert (tmp_path / "a.conf.events/open").read_text().strip() == logs[0]
    assert "Events are not written" not in one.output() + two.output()


def test_a_node_whose_nodes_file_was_moved_away_begins_its_own_log(server):
    old, *_ = position(server)
    server.stop()
    (server.folder / "nodes.conf").rename(server.folder / "old")
    server.start()
    assert position(server)[0] != old
    assert "a new one begins" in server.output()


def follows(server):
    """Return whether a client follows the events."""
    info = server.info("events")
    return int(info["events_tails"]) + int(info["events_readers_waiting"])


@pytest.mark.parametrize("words", [("events", "--follow")])
def test_the_command_line_client_follows_events(make_server, words):
    server = make_server().start()
    command = [sys.executable, str(ROOT / "bin/disque-cli"), "-p", str(server.port), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        until(lambda: follows(server), 30)
        server.command("ADDJOB", "q", "body", 0)
        event = json.loads(follower.stdout.readline())
        while event["event"] != "added":
            event = json.loads(follower.stdout.readline())
        follower.send_signal(signal.SIGINT)
        assert follower.wait(10) == 0
