"""The process of a node: `python -m disque_py.testing.child <folder> <words of the server>`.

Its standard input is a pipe, and the test process has the other end. The system closes that end when the test process
ends, even by SIGKILL. Then this process removes its folder and kills itself. This works on all systems with pipes, and
in whatever thread the test started the node.
"""

from __future__ import annotations

import os
import runpy
import shutil
import signal
import sys
import threading
from typing import Final

STANDARD_INPUT: Final = 0
# The node may write a file while its folder is removed.
REMOVAL_TRIES: Final = 3


def end_with_parent(folder: str) -> None:
    """Wait for the end of the test process. Then remove the folder and kill this process."""
    while os.read(STANDARD_INPUT, 1):
        pass  # Nothing is ever written.
    for _ in range(REMOVAL_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run a node until it ends, or until the test process ends."""
    folder = sys.argv.pop(1)
    threading.Thread(target=end_with_parent, args=(folder,), daemon=True).start()
    runpy.run_module("disque_py.server.main", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
