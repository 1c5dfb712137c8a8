"""The program of docs/integrations/dramatiq.md, with Dramatiq's own command, and workers and nodes that are killed."""

from __future__ import annotations

import os
import re
import signal
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


WORKER = ("-m", "dramatiq", "tasks", "--processes", "1", "--threads", "4", "--skip-logging")


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
        sender = "import tasks\nfor number in range(300): tasks.note.send(number)"
        assert run(cluster.url, "-c", sender).wait(30) == 0
        first = run(cluster.url, *WORKER)
        run(cluster.url, *WORKER)
        wait_for(lambda: len(notes()) > 40)
        os.killpg(first.pid, signal.SIGKILL)
        wait_for(lambda: len(notes()) > 100)
        cluster.kill(0)
        wait_for(lambda: set(notes()) == set(range(300)))
