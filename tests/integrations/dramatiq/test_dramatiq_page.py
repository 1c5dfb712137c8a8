"""The program of docs/integrations/dramatiq.md, with Dramatiq's own command, and workers and nodes that are killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from disque_py import testing

PAGE = Path(__file__).parents[3] / "docs/integrations/dramatiq.md"
PROGRAM = """
import os, time, dramatiq
from disque_py.integrations.dramatiq import DisqueBroker
dramatiq.set_broker(DisqueBroker(url=os.environ["DISQUE_URL"], lease=2))
@dramatiq.actor
def note(number, pause=0.05):
    with open(os.environ["NOTES"], "a") as file: file.write(f"{number}\\n")
    time.sleep(pause)
"""


@pytest.fixture
def run(tmp_path):
    """Starts a program in the test's folder; it ends with the test."""
    started = []

    def run(url, *words):
        environment = {**os.environ, "DISQUE_URL": url, "NOTES": str(tmp_path / "notes"), "PYTHONWARNINGS": "ignore"}
        with open(tmp_path / f"{len(started)}.log", "wb") as log:
            started.append(
                subprocess.Popen(
                    [sys.executable, *words],
                    cwd=tmp_path,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                )
            )
        return started[-1]

    yield run
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def notes(folder):
    """Return the numbers of the tasks that began."""
    path = folder / "notes"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def wait_for(condition, seconds=30):
    """Wait until a condition holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)


WORKER = ("-m", "dramatiq", "tasks", "--processes", "1", "--threads", "4", "--skip-logging")


def test_the_program_of_the_page(run, tmp_path, shared_node):
    text = PAGE.read_text(encoding="utf-8")
    (tmp_path / "tasks.py").write_text(re.search(r"```python\n(# tasks.py\n.+?)```", text, re.DOTALL)[1])
    run(shared_node.url, *WORKER)
    out, _ = run(shared_node.url, "tasks.py").communicate(timeout=30)
    assert out == b"42\n"


@pytest.mark.timeout(120)
def test_no_message_is_lost_when_workers_and_nodes_are_killed(run, tmp_path):
    (tmp_path / "tasks.py").write_text(PROGRAM)
    with testing.cluster() as cluster:
        sender = "import tasks\nfor number in range(300): tasks.note.send(number)"
        assert run(cluster.url, "-c", sender).wait(30) == 0
        first = run(cluster.url, *WORKER)
        run(cluster.url, *WORKER)
        wait_for(lambda: len(notes(tmp_path)) > 40)
        os.killpg(first.pid, signal.SIGKILL)
        wait_for(lambda: len(notes(tmp_path)) > 100)
        cluster.kill(0)
        wait_for(lambda: set(notes(tmp_path)) == set(range(300)))
