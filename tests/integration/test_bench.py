"""disque-bench with real servers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = (sys.executable, "-m", "disque_py.cli.bench.main")
RACE = ("--only", "disque-py", "--only", "floor")


def run(*words):
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=100, check=False)
    return done.returncode, done.stdout, done.stderr


def children_of(pid):
    """Return the processes that descend from this one."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stats[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {pid}
    while more := {child for child, parent in stats.items() if parent in found} - found:
        found |= more
    return found - {pid}


def test_a_quick_run_measures_a_real_node_in_turns(tmp_path):
    """The test checks all output: the tables, a file of samples, and the exit status."""
    json_file = tmp_path / "found.json"
    tests = ("ping", "cycle", "wakeup", "latency")
    status, output, errors = run(
        *tests, "--quick", "--runs", "2", "-P", "16", "-c", "2", *RACE, "--json", str(json_file)
    )
    assert (status, errors) == (0, "")
    assert all(f"{test}: " in output for test in tests)
    found = json.loads(json_file.read_text())
    pings = [(one["run"], one["contestant"]) for one in found["samples"] if one["test"] == "ping"]
    assert pings == [(0, "disque-py"), (0, "floor"), (1, "disque-py"), (1, "floor")]
    cycle = next(one["values"] for one in found["samples"] if one["test"] == "cycle")
    assert cycle["count"] > 100
    assert cycle["cpu"] > 0


def test_nodes_that_need_each_other_are_measured(tmp_path):
    json_file = tmp_path / "found.json"
    words = ("federation", "replicate", "wakeup-far", "--quick", "-P", "4", "--only", "disque-py")
    status, output, _ = run(*words, "--markdown", "--json", str(json_file))
    assert status == 0
    assert re.search(r"^\| p=4 \| disque-py \|", output, re.MULTILINE)
    found = {one["test"]: one["values"] for one in json.loads(json_file.read_text())["samples"]}
    # Two other nodes must confirm their copies, so each job costs messages.
    assert found["replicate"]["messages"] > 1


def test_the_tests_backlog_queues_and_chains_leave_the_right_jobs(tmp_path):
    json_file = tmp_path / "found.json"
    words = ("add", "get", "ack", "backlog", "queues", "--quick", "-P", "16", "-c", "5", "--only", "disque-py")
    assert run(*words, "--json", str(json_file))[0] == 0
    found = {one["test"]: one["values"] for one in json.loads(json_file.read_text())["samples"]}
    assert found["add"]["count"] == found["get"]["count"] == found["ack"]["count"]
    assert found["backlog"]["count"] == 10_000
    assert found["backlog"]["memory"] > 100


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_shows_its_figures_and_leaves_no_server(number):
    words = ("ping", "--seconds", "0.2", "--runs", "100", "-P", "1,2,3,4,5,6", "-c", "1", *RACE)
    with subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, text=True) as bench:
        deadline = time.monotonic() + 30
        while len(children := children_of(bench.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(3)
        bench.send_signal(number)
        output = bench.communicate(timeout=30)[0]
    assert bench.returncode == 130
    assert "Interrupted" in output
    assert len(children) >= 2
    assert [pid for pid in children if os.path.exists(f"/proc/{pid}")] == []


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG")
def test_a_killed_run_leaves_no_server():
    with subprocess.Popen([*PROGRAM, "ping", "--runs", "100", *RACE], stdout=subprocess.DEVNULL) as bench:
        deadline = time.monotonic() + 30
        while len(children := children_of(bench.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        bench.kill()
    deadline = time.monotonic() + 10
    while (left := [pid for pid in children if os.path.exists(f"/proc/{pid}")]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(children) >= 2
    assert left == []


def run_until_first_node(*words):
    """Start a run, and return it with the id of its first node."""
    bench = subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 30
    while not (nodes := [pid for pid in children_of(bench.pid) if is_node(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(2)
    return bench, min(nodes)


def is_node(pid):
    """Return whether a child is a node, and not a process that only tells its version."""
    try:
        return b"--port" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:  # It has ended.
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("test", ["cycle", "wakeup", "timers"])
def test_a_node_that_is_killed_is_reported_once_and_the_others_are_measured(test):
    """Each further cell would have its own line about a refused connection."""
    bench, node = run_until_first_node(
        test, "ping", "--only", "disque-py", "--seconds", "5", "-P", "1,2", "-c", "1", "--runs", "1", "--markdown"
    )
    with bench:
        os.kill(node, signal.SIGKILL)
        output = bench.communicate(timeout=60)[0]
    assert bench.returncode == 1
    (line,) = [line for line in output.splitlines() if "Not measured" in line]
    assert "disque-py was ended by signal 9" in line


def test_a_report_is_written_although_the_reader_of_the_figures_is_gone(tmp_path):
    """For example `disque-bench --json FILE | head -1`."""
    file = tmp_path / "found.json"
    words = ("ping", "--quick", "--only", "floor", "--json", str(file))
    with subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as bench:
        bench.stdout.close()
        assert bench.wait(60) == 1
        assert bench.stderr.read() == b""
    assert json.loads(file.read_text())["samples"]


def test_a_page_is_one_file_with_charts(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "page.html"
    assert run("ping", "--quick", "-P", "1", "-c", "1", *RACE, "--html", str(path))[0] == 0
    assert path.read_text().count("<svg") == 1
