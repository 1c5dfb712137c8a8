"""Worker processes of Celery for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
START_SECONDS = 90


class CeleryWorker:
    """A `celery worker` in a separate process group, with its log in a file."""

    def __init__(self, folder: Path, url: str, *words: str, name: str = "w", **environment: str) -> None:
        self.log = folder / f"{name}.log"
        self.runs = folder / "runs"
        self.runs.touch()
        self.environment = os.environ | {"DISQUE_URL": url, "RUNS": str(self.runs), **environment}
        self.words = ("-n", f"{name}@test", *words)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> CeleryWorker:
        """Start the worker, and wait until it is ready."""
        with self.log.open("ab") as log:
            command = (sys.executable, "-m", "celery", "-A", "celery_program", "worker", "-l", "INFO", *self.words)
            self.process = subprocess.Popen(
                command, cwd=HERE, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        until = time.monotonic() + START_SECONDS
        while " ready." not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.05)
        return self

    def lines(self, word: str) -> list[list[str]]:
        """Return the recorded runs that begin with this word, each as word, process and time."""
        return [line.split() for line in self.runs.read_text().splitlines() if line.split()[0] == word]

    def kill(self) -> None:
        """Kill the worker and its pool, as a crash of the machine does."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self, seconds: float = 45) -> None:
        """Stop the worker as an operator does. billiard may wait 30 s for the result of a task."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
