"""The supervisor of worker processes. See tests/integration/test_tasks_worker.py for real workers."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest

from disque_py.tasks.source_watch import SourceWatch
from disque_py.tasks.supervisor import Supervisor

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")

# Writes its process id. Then exits with the given status, or waits for a signal.
WORKER = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
open(os.path.join(sys.argv[1], str(os.getpid())), "w").write(os.environ["DISQUE_WORKER_PARENT"])
status = os.path.join(sys.argv[1], "status")
if os.path.exists(status): sys.exit(int(open(status).read()))
while True: time.sleep(0.05)
"""


@pytest.fixture
def command(tmp_path):
    (tmp_path / "run").mkdir()
    return [sys.executable, "-c", WORKER, str(tmp_path / "run")]


@pytest.fixture
def pids(tmp_path):
    """Return the process ids of the workers that were started."""
    return lambda: [int(path.name) for path in (tmp_path / "run").iterdir() if path.name.isdigit()]


def during(supervisor, *steps):
    """Run a supervisor, then end it and return its status. Each step is a condition to wait for, and an action."""

    def play():
        for condition, act in steps:
            until = time.monotonic() + 60
            while not condition() and time.monotonic() < until:
                time.sleep(0.02)
            act()

    thread = threading.Thread(target=play)
    thread.start()
    try:
        return supervisor.run()
    finally:
        thread.join()


def end():
    os.kill(os.getpid(), signal.SIGTERM)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_workers_end_with_the_supervisor(command, pids, tmp_path):
    assert during(Supervisor(command, 2, 5), (lambda: len(pids()) == 2, end)) == 0
    assert [pid for pid in pids() if is_alive(pid)] == []
    assert {path.read_text() for path in (tmp_path / "run").iterdir()} == {str(os.getpid())}


def test_a_worker_that_dies_is_started_again(command, pids):
    def kill():
        os.kill(pids()[0], signal.SIGKILL)

    steps = ((lambda: len(pids()) == 1, kill), (lambda: len(pids()) == 2, end))
    assert during(Supervisor(command, 1, 5), *steps) == 0


def test_a_program_that_cannot_be_imported_ends_the_supervisor(command, tmp_path):
    (tmp_path / "run/status").write_text("2")
    assert Supervisor(command, 1, 5).run() == 2


def test_with_a_watch_it_waits_for_the_next_change(command, pids, tmp_path):
    (tmp_path / "run/status").write_text("2")
    source = tmp_path / "source"
    source.mkdir()

    def mend():
        (tmp_path / "run/status").unlink()
        (source / "shop.py").write_text("")

    steps = ((lambda: len(pids()) == 1, mend), (lambda: len(pids()) == 2, end))
    assert during(Supervisor(command, 1, 5, SourceWatch([source])), *steps) == 0


def test_the_handlers_of_signals_are_put_back(command, tmp_path):
    (tmp_path / "run/status").write_text("2")
    before = signal.getsignal(signal.SIGTERM)
    Supervisor(command, 1, 5).run()
    assert signal.getsignal(signal.SIGTERM) is before
