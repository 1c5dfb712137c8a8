"""The process of the Spark program: its start, orders to it, its answers, and its end in every case.

It gets its own session. So Ctrl-C in a terminal reaches only this program, and all processes of the session, Java
included, can be ended together. Its Java ends by itself when its Python is gone, also if this program is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any, Final

STOP_SECONDS: Final = 5.0
LINES_SHOWN: Final = 15
OUR_ERROR: Final = re.compile(r"disque_py\.[\w.]+Error: ")
MODULE: Final = "disque_py.cli.demo_spark.flights_job"


class SparkError(Exception):
    """The Spark program ended too early; the text has its last output."""


class SparkProcess:
    """The program; use it as a context.

    version   of Spark, once it is ready
    indexed   events that are in the index
    """

    def __init__(self, nodes: str, flights: Path, index: Path, log: Path) -> None:
        self.version = ""
        self.indexed = 0
        self._words = [sys.executable, "-m", MODULE, nodes, str(flights), str(index)]
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._heard = {kind: asyncio.Event() for kind in ("ready", "produced", "indexed")}

    async def __aenter__(self) -> SparkProcess:
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                # A killed Spark leaves files, which are removed with the scratch files of this program.
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": sys.executable,
                    "SPARK_LOCAL_DIRS": str(self._log.parent / "spark"),
                },
                start_new_session=True,
            )
        self._reader = asyncio.ensure_future(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._reader is not None
        if self._process.returncode is None:
            assert self._process.stdin is not None
            # Spark is asked to end first, so that Java removes its scratch files.
            self._process.stdin.close()
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    def tell(self, word: str) -> None:
        """Send the next order to the program."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())

    async def heard(self, kind: str) -> None:
        """Wait until the program reports this. Raises SparkError when it ends instead."""
        assert self._reader is not None
        waiting = asyncio.ensure_future(self._heard[kind].wait())
        await asyncio.wait([waiting, self._reader], return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            raise SparkError(f"the Spark program ended before it was {kind}:\n{self.last_words()}")

    async def ended(self) -> None:
        """Wait until the program has ended as ordered."""
        assert self._process is not None
        await self._process.wait()

    def last_words(self) -> str:
        """Return the Python error in the program's log if there is one, else the log's end without Java's trace."""
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        ours = [line.strip() for line in lines if OUR_ERROR.match(line.strip())]
        if ours:
            return ours[-1].partition(": ")[2]
        kept = [line for line in lines if line.strip() and not line.lstrip().startswith(("at ", "... "))]
        return "\n".join(line[:300] for line in kept[-LINES_SHOWN:])

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._hear(json.loads(line))

    def _hear(self, said: dict[str, Any]) -> None:
        if said["kind"] == "batch":
            self.indexed = said["indexed"]
            return
        self.version = said.get("version", self.version)
        self._heard[said["kind"]].set()
