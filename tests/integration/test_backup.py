"""Backups, restores and imports of the original's journal, with real nodes and the real programs."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from servers import ROOT, Server, until

JOURNAL = ("--appendonly", "yes", "--appendfsync", "always")
SHARED_USERS = ("--acl-cluster", "yes", "--cluster-secret", "a-secret-of-the-cluster")


def run(program: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a program of the checkout."""
    command = [sys.executable, str(ROOT / "bin" / program), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def done(program: str, *words: object) -> str:
    """Run a program that must succeed. Return its output."""
    result = run(program, *words)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


class Load(threading.Thread):
    """A thread that adds jobs until it is stopped. `acknowledged` has the jobs whose ADDJOB was answered, in order."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.acknowledged: list[bytes] = []
        self.is_over = False

    def run(self) -> None:
        with self.server.connect() as connection:
            while not self.is_over:
                body = b"job-%d" % len(self.acknowledged)
                connection.command("ADDJOB", "q", body, 1000, "RETRY", 1)
                self.acknowledged.append(body)

    def stop(self) -> None:
        self.is_over = True
        self.join()


def fetch_all(server: Server, count: int, seconds: float = 20.0) -> set[bytes]:
    """Fetch and acknowledge this many different jobs, and return their bodies."""
    found: set[bytes] = set()
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        entries = server.command("GETJOB", "TIMEOUT", 500, "COUNT", 1000, "FROM", "q") or []
        found.update(entry[2] for entry in entries)
        if entries:
            server.command("ACKJOB", *(entry[1] for entry in entries))
    return found


def test_a_running_node_under_load_is_backed_up_and_restored_elsewhere(make_server, tmp_path):
    """The backup has every job that was acknowledged before its start."""
    server = make_server(*JOURNAL).start()
    once_id = server.command("ADDJOB", "q", "once", 0, "RETRY", 0)
    load = Load(server)
    load.start()
    until(lambda: len(load.acknowledged) > 300)
    before = set(load.acknowledged)
    output = done("disque-cluster", "backup", f"127.0.0.1:{server.port}", "--to", tmp_path / "backup.tar.gz")
    until(lambda: len(load.acknowledged) > len(before) + 50)
    load.stop()
    assert "The copies are in" in output
    node_id = server.node_id
    server.kill()
    other = make_server(*JOURNAL)
    done("disque-cluster", "restore", tmp_path / "backup.tar.gz", other.folder)
    assert "whole" in done("disque-check-journal", "verify", "--json", other.folder)
    other.start()
    assert other.node_id == node_id
    assert other.info("persistence")["total_at_most_once_lost_in_restart"] == "1"
    assert before <= fetch_all(other, len(before))
    assert other.command("SHOW", once_id) is not None
    other.restart()
    left = other.command("GETJOB", "NOHANG", "COUNT", 10_000, "FROM", "q") or []
    assert once_id not in [entry[1] for entry in left]


def test_settings_schedules_topics_and_users_are_in_a_backup(make_server, tmp_path):
    server = make_server(*JOURNAL, *SHARED_USERS).start()
    for words in (
        ("QUEUE", "SET", "q", "attempts", "5"),
        ("SCHEDULE", "SET", "tick", "EVERY", "1h", "QUEUE", "q", "BODY", "b"),
        ("TOPIC", "BIND", "news", "q"),
        ("ACL", "SETUSER", "joe", "on", ">secret-of-joe"),
    ):
        assert server.command(*words) in {b"OK", 1}
    shown = [("QUEUE", "LIST"), ("QUEUE", "GET", "q"), ("SCHEDULE", "LIST"), ("TOPIC", "LIST"), ("ACL", "LIST")]
    before = [server.command(*words) for words in shown]
    done("disque-cluster", "backup", f"127.0.0.1:{server.port}", "--to", tmp_path / "backup")
    server.kill()
    other = make_server(*JOURNAL, *SHARED_USERS)
    assert "with all settings" in done("disque-cluster", "restore", tmp_path / "backup", other.folder)
    other.start()
    assert [other.command(*words) for words in shown] == before


def test_a_restored_node_drops_jobs_that_another_holder_knows_as_done(make_cluster, tmp_path):
    """In its backup the job is queued, but the other nodes have seen the ack."""
    cluster = make_cluster(2, *JOURNAL)
    a, b = cluster.servers
    job_id = a.command("ADDJOB", "q", "x", 5000, "REPLICATE", 2, "RETRY", 1)
    kept_id = a.command("ADDJOB", "kept", "y", 5000, "REPLICATE", 2, "RETRY", 30)
    done("disque-cluster", "backup", "--only", f"127.0.0.1:{a.port}", "--to", tmp_path / "backup")
    entry = a.command("GETJOB", "TIMEOUT", 2000, "FROM", "q")[0]
    assert entry[1] == job_id
    b.command("ACKJOB", job_id)
    until(lambda: b.command("SHOW", job_id) is None)
    a.stop()
    done("disque-cluster", "restore", tmp_path / "backup", a.folder, "--force")
    a.start()
    cluster.wait_whole()
    until(lambda: a.command("SHOW", job_id) is None)
    assert a.command("GETJOB", "NOHANG", "FROM", "q") is None
    assert a.command("SHOW", kept_id) is not None


def test_a_node_that_runs_is_not_restored_over(make_server, tmp_path):
    server = make_server(*JOURNAL).start()
    done("disque-cluster", "backup", f"127.0.0.1:{server.port}", "--to", tmp_path / "backup")
    result = run("disque-cluster", "restore", tmp_path / "backup", server.folder, "--force")
    assert result.returncode == 1
    assert "stop it first" in result.stderr
    assert server.command("PING") == b"PONG"


def loadjob(number: int, node: str, retry_s: int) -> bytes:
    """Return a record of the original's journal: a queued job of one holder."""
    job_id = b"D-%b-%024d-05a%d" % (node[:8].encode(), number, 1 if retry_s else 0)
    now_s = int(time.time())
    body = b"old-%d" % number
    data = struct.pack("<40sBBHIQIIHH", job_id, 2, 0, 1, now_s + 3600, now_s * 10**9, 0, retry_s, 0, 0)
    data += struct.pack("<I1sI", 1, b"q", len(body)) + body + struct.pack("<I", 1) + node.encode()
    blob = struct.pack("<I", len(data) + 4) + data
    return b"*2\r\n$7\r\nLOADJOB\r\n$%d\r\n%b\r\n" % (len(blob), blob)


@pytest.fixture
def moving(make_server) -> Server:
    """A node whose directory has the original's journal, with three jobs and an at-most-once job."""
    server: Server = make_server("--appendonly", "yes")
    records = [loadjob(number, "ab" * 20, 1) for number in range(3)] + [loadjob(7, "ab" * 20, 0)]
    (server.folder / "disque.aof").write_bytes(b"".join(records))
    return server


def test_a_node_that_finds_the_originals_journal_says_how_to_import_it(moving):
    """Starting empty would look like data loss. The command in the error text works."""
    (moving.folder / "disque.aof.d").mkdir()
    moving.launch()
    assert moving.wait_ended() == 1
    advice = next(line for line in moving.output().splitlines() if "disque-check-journal import" in line)
    words = advice.partition("`")[2].partition("`")[0].split()
    assert "4 jobs imported" in done(words[0], *words[1:])
    moving.start()
    assert fetch_all(moving, 3) == {b"old-0", b"old-1", b"old-2"}
    assert moving.info("persistence")["total_at_most_once_lost_in_restart"] == "1"


def test_with_the_queues_option_imported_jobs_are_queued_at_once(moving):
    target = moving.folder / "disque.aof.d"
    done("disque-check-journal", "import", moving.folder / "disque.aof", target, "--at-most-once-too")
    moving.options += ["--aof-enqueue-jobs-once", "yes"]
    moving.start()
    entries = moving.command("GETJOB", "NOHANG", "COUNT", 10, "FROM", "q")
    assert sorted(entry[2] for entry in entries) == [b"old-0", b"old-1", b"old-2", b"old-7"]


def test_an_import_into_a_node_that_runs_is_refused(make_server, tmp_path):
    server = make_server(*JOURNAL).start()
    (tmp_path / "old.aof").write_bytes(loadjob(1, "ab" * 20, 1))
    result = run("disque-check-journal", "import", tmp_path / "old.aof", server.folder / "disque.aof.d", "--force")
    assert result.returncode == 1
    assert "in use by process" in result.stderr
    assert server.command("PING") == b"PONG"


def test_a_live_journal_can_be_inspected(make_server):
    """The tool takes no lock, and does not report an incomplete write as damage."""
    server = make_server("--appendonly", "yes").start()
    load = Load(server)
    load.start()
    until(lambda: len(load.acknowledged) > 100)
    for _ in range(3):
        assert "a node is writing it" in done("disque-check-journal", "verify", server.folder)
    assert "in use by a running node" in done("disque-check-journal", "info", server.folder)
    load.stop()
    server.stop()
    assert "closed cleanly" in done("disque-check-journal", "info", server.folder)
    lines = Path(server.folder / "jobs.jsonl")
    assert f"{len(load.acknowledged):,} jobs" in done("disque-check-journal", "export", server.folder, lines)
    assert os.path.getsize(lines) > 0
