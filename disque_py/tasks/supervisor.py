"""The supervisor: several worker processes, and their restart after a crash or a change of the program.

`disque-worker --processes 4` starts four workers, each in its own process. The supervisor never imports the program, so
it need not restart itself when the program's files change (`--reload`).

* A worker that ends by itself is started again, after a pause that doubles up to half a minute. The jobs of a crashed
  worker come back after their leases.
* A worker that can't import the program ends with status 2. Then the supervisor stops, or with `--reload` waits for the
  next change.
* SIGTERM and SIGINT are passed on to the workers, which stop gracefully. A second signal ends their grace period. A
  worker that does not stop in time is killed.
* The workers have their own sessions, so Ctrl-C reaches them only through the supervisor. A worker ends when its
  supervisor is gone (PARENT_VARIABLE).
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from disque_py.tasks.source_watch import SourceWatch

# The environment variable with the id of the supervisor. A worker ends when that process is gone.
PARENT_VARIABLE: Final = "DISQUE_WORKER_PARENT"
# The interval at which the supervisor checks the workers and the files.
TICK_S: Final = 0.25
# The pause before a worker that ended by itself is started again.
PAUSE_S_MIN: Final = 0.5
PAUSE_S_MAX: Final = 30.0
# After a worker has run for this time, its pauses begin with the shortest again.
STEADY_S: Final = 60.0
# The time that a worker has after the grace period for its last acknowledgements.
LAST_S: Final = 10.0
# The exit status of a worker that can't import the program.
USAGE_STATUS: Final = 2

_log: Final = logging.getLogger("disque_py.tasks")


class Slot:
    """The place of one worker: its process now, and the moment of the next start."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.pause_s = PAUSE_S_MIN
        self.started_at = 0.0
        self.start_at: float | None = 0.0


class Supervisor:
    """Worker processes, as long as `run` lasts.

    command   the command that starts one worker
    count     number of workers
    grace_s   seconds that a worker's running tasks may go on
    watch     the files whose changes restart the workers; None: no files
    """

    def __init__(self, command: Sequence[str], count: int, grace_s: float, watch: SourceWatch | None = None) -> None:
        self._command = list(command)
        self._grace_s = grace_s
        self._watch = watch
        self._slots = [Slot() for _ in range(count)]
        self._signals = 0

    def run(self) -> int:
        """Keep the workers running until a signal → the exit status."""
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            return self._run()
        finally:
            self._kill()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1  # A lock could deadlock here, because the interrupted main thread may hold it.

    def _run(self) -> int:
        while not self._signals:
            status = self._look(time.monotonic())
            if status is not None:
                self._stop()
                return status
            if self._watch is not None and (changed := self._watch.changed()):
                _log.info("%s changed: restarting the workers", ", ".join(Path(path).name for path in changed[:3]))
                self._stop()
                for slot in self._slots:
                    slot.start_at, slot.pause_s = 0.0, PAUSE_S_MIN
                continue
            time.sleep(TICK_S)
        self._stop()
        return 0

    def _look(self, now: float) -> int | None:
        """Start workers that are due, and note those that ended → the exit status of the supervisor, if it is done."""
        for slot in self._slots:
            process = slot.process
            if process is None:
                if slot.start_at is not None and slot.start_at <= now:
                    self._start(slot, now)
                continue
            status = process.poll()
            if status is None:
                continue
            slot.process = None
            if status == USAGE_STATUS:
                if self._watch is None:
                    return status
                slot.start_at = None  # The next change starts it.
                continue
            if now - slot.started_at >= STEADY_S:
                slot.pause_s = PAUSE_S_MIN
            _log.error("worker %d ended with status %d: restarting it", process.pid, status)
            slot.start_at, slot.pause_s = now + slot.pause_s, min(PAUSE_S_MAX, 2 * slot.pause_s)
        return None

    def _start(self, slot: Slot, now: float) -> None:
        environment = {**os.environ, PARENT_VARIABLE: str(os.getpid())}
        slot.process = subprocess.Popen(
            self._command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
        )
        slot.started_at = now

    def _stop(self) -> None:
        """Stop all workers gracefully."""
        self._send(signal.SIGTERM)
        told, until = max(1, self._signals), time.monotonic() + self._grace_s + LAST_S
        while self._running() and time.monotonic() < until:
            if self._signals > told:
                told = self._signals
                self._send(signal.SIGTERM)
            time.sleep(TICK_S / 5)
        self._kill()

    def _running(self) -> list[subprocess.Popen[bytes]]:
        return [slot.process for slot in self._slots if slot.process is not None and slot.process.poll() is None]

    def _send(self, number: int) -> None:
        for process in self._running():
            process.send_signal(number)

    def _kill(self) -> None:
        for process in self._running():
            process.kill()
        for slot in self._slots:
            if slot.process is not None:
                slot.process.wait()
                slot.process = None
