"""The program of docs/integrations/taskiq.md, with Taskiq's own command, and workers and nodes that are killed."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from disque_py import testing

PAGE = Path(__file__).parents[3] / "docs/integrations/taskiq.md"
PROGRAM = """
import asyncio, os
from disque_py.integrations.taskiq import DisqueBroker
broker = DisqueBroker(os.environ["DISQUE_URL"], lease=2)
@broker.task
async def note(number: int) -> None:
    with open(os.environ["NOTES"], "a") as file: file.write(f"{number}\\n")
    await asyncio.sleep(0.1)
async def send():
    for number in range(300): await note.kiq(number)
    await broker.shutdown()
"""
WORKER = ("-m", "taskiq", "worker", "tasks:broker", "--workers", "1", "--max-async-tasks", "5")


def test_the_program_of_the_page(run, tmp_path, shared_node):
    text = PAGE.read_text(encoding="utf-8")
    (tmp_path / "tasks.py").write_text(re.search(r"```python\n(# tasks.py\n.+?)```", text, re.DOTALL)[1])
    run(shared_node.url, *WORKER)
    out, _ = run(shared_node.url, "tasks.py").communicate(timeout=30)
    assert out == b"42\n"


@pytest.mark.timeout(120)
def test_no_message_is_lost_when_workers_and_nodes_are_killed(run, notes, wait_for, tmp_path):
    (tmp_path / "tasks.py").write_text(PROGRAM)
    with testing.cluster() as cluster:
        assert run(cluster.url, "-c", "import asyncio, tasks; asyncio.run(tasks.send())").wait(30) == 0
        first = run(cluster.url, *WORKER)
        run(cluster.url, *WORKER)
        wait_for(lambda: len(notes()) > 40)
        os.killpg(first.pid, signal.SIGKILL)
        wait_for(lambda: len(notes()) > 100)
        cluster.kill(0)
        wait_for(lambda: set(notes()) == set(range(300)))
