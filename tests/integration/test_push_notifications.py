"""The worked example docs/examples/push_notifications: killed processes and a killed node lose nothing."""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from servers import HOST, Cluster

PROGRAM = Path(__file__).resolve().parents[2] / "docs/examples/push_notifications/push_notifications.py"
SECONDS = 60


def load():
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("push_notifications", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


push = load()


@pytest.fixture
def three(tmp_path):
    """Three nodes, all of them voters."""
    with Cluster(tmp_path / "nodes", 3, ["--cluster-node-timeout", "1000"]) as cluster:
        cluster[0].command("CLUSTER", "VOTERS", "INIT", *(server.node_id for server in cluster.servers))
        yield cluster


class Farm:
    """Two processes of each phase."""

    def __init__(self, cluster, folder):
        self._nodes = [f"{HOST}:{server.port}" for server in cluster.servers]
        self._folder = folder
        folder.mkdir()
        self.processes = {phase: [self._start(phase) for _ in range(2)] for phase in ("generate", "target", "deliver")}

    def _start(self, phase):
        command = [sys.executable, str(PROGRAM), phase, *self._nodes, "--dir", str(self._folder)]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pair in self.processes.values():
            for process in pair:
                process.kill()
                process.wait()

    def kill(self, phase):
        """Kill the process that was started first."""
        self.processes[phase][0].kill()

    def wait_for(self, count):
        """Wait until so many notifications were delivered; return all of them."""
        gateway, until = push.Gateway(self._folder), time.monotonic() + SECONDS
        while len(rows := gateway.rows()) < count and time.monotonic() < until:
            time.sleep(0.05)
        return rows


def expected(users, count):
    return {
        f"user{user}-{number}>{follower}" for user in range(users) for number in range(count) for follower in range(5)
    }


def test_every_notification_is_sent_once_and_soon(three, tmp_path, capsys):
    """Nothing is killed, so all locks hold, and the gateway hears of nothing twice."""
    folder = tmp_path / "push"
    with Farm(three, folder) as farm:
        push.publish(folder, "user0", 0)
        farm.wait_for(5)
        began = time.monotonic()
        for number in range(1, 100):
            for user in range(4):
                push.publish(folder, f"user{user}", number)
        for user in range(1, 4):
            push.publish(folder, f"user{user}", 0)
        rows = farm.wait_for(2_000)
        took = time.monotonic() - began
        time.sleep(1)
        rows = farm.wait_for(2_000)
    assert {row[0] for row in rows} == expected(4, 100)
    assert [row for row in rows if row[4] != 1] == []
    late = sorted(delivered - happened for _, happened, delivered, _, _ in rows)
    with capsys.disabled():
        print(
            f"\n{len(rows) / took:.0f} notifications a second; from event to delivery"
            f" {statistics.median(late) * 1000:.0f} ms (median), {late[-len(late) // 100] * 1000:.0f} ms (p99)"
        )


@pytest.mark.parametrize("victim", ["generate", "target", "deliver", "node"])
def test_a_kill_loses_no_notification(three, tmp_path, victim):
    """The backup goes on. Notifications without their ack may be sent again, and the gateway shows each once."""
    folder = tmp_path / "push"
    with Farm(three, folder) as farm:
        for number in range(60):
            push.publish(folder, "user0", number)
            time.sleep(0.02)
            if number == 30:
                if victim == "node":
                    three[2].kill()
                else:
                    farm.kill(victim)
        rows = farm.wait_for(300)
    assert {row[0] for row in rows} == expected(1, 60)
    again = [row for row in rows if row[4] > 1]
    # The deliverers have their locks all the time if another phase is killed.
    assert len(again) <= (0 if victim in ("generate", "target") else push.BATCH)
