"""disque_py/cli/demo/nodes.py: INFO, and child processes that never outlive their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from disque_py.cli.demo.nodes import DIE_WITH_PARENT, info_number


def test_a_field_of_info_is_read_as_a_number():
    """A node without the field counts as empty."""
    info = b"# Jobs\r\nregistered_jobs:12\r\n\r\n"
    assert info_number(info, "registered_jobs") == 12
    assert info_number(info, "registered_queues") == 0
    assert info_number(None, "registered_jobs") == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's word to children exists on Linux only")
def test_a_child_is_killed_when_its_parent_is():
    """A parent that gets SIGKILL can't clean up, but leaves no node behind either."""
    sleeper = "import time; print('ready', flush=True); time.sleep(60)"
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys\n"
            "child = subprocess.Popen([sys.executable, '-c', *sys.argv[1:]], stdout=subprocess.PIPE)\n"
            "child.stdout.readline(); print(child.pid, flush=True); child.wait()",
            DIE_WITH_PARENT,
            *(sys.executable, "-c", sleeper),
        ],
        stdout=subprocess.PIPE,
    )
    with parent:
        child = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    assert ended(child)


def ended(process_id):
    """Return whether a process ends within five seconds. A process that waits to be reaped has ended."""
    for _ in range(100):
        try:
            with open(f"/proc/{process_id}/stat", encoding="ascii") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.05)
    os.kill(process_id, signal.SIGKILL)
    return False
