"""testing/child.py: a node ends with the test process."""

from __future__ import annotations

import os
import subprocess
import sys

from servers import INSTALLED, until

CHILD = """
import sys, time
from disque_py import testing
with testing.node() as node:
    print(node.pid, node.folder, flush=True)
    time.sleep(60)
"""


def environment(**more):
    path = os.pathsep.join(filter(None, (str(INSTALLED), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path, **more}


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_node_ends_with_a_test_process_that_is_killed():
    process = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True, env=environment())
    pid, folder = process.stdout.readline().split()
    process.kill()
    process.communicate()
    until(lambda: not os.path.exists(folder))
    until(lambda: not is_alive(int(pid)))
