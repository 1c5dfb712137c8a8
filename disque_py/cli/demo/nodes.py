"""Three nodes as child processes of the demonstration.

They have free ports on the loopback interface and one scratch folder, which is removed at the end. No node outlives
this process: leaving the context ends them. On Linux the kernel kills a node when its parent is gone, however the
parent ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from disque_py.cli.cluster.local_nodes import without_settings
from disque_py.cli.demo.link import LinkLostError, ask
from disque_py.client import ReplyError, results
from disque_py.loopback_ports import free_port

NAMES: Final = ("a", "b", "c")
START_SECONDS: Final = 20.0
STOP_SECONDS: Final = 3.0
LOOK_AGAIN_SECONDS: Final = 0.05
# Linux: before the child becomes a node, it asks the kernel for a SIGKILL when its parent is gone (PR_SET_PDEATHSIG is
# 1). This is a separate program, because this process has threads when it forks.
DIE_WITH_PARENT: Final = (
    "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL); os.execv(sys.argv[1], sys.argv[1:])"
)


class NodesError(Exception):
    """A node does not start, answer or join; the text names the node and the reason."""


class NodeProcess:
    """One node: its name in the display, its port, its folder, and the process while there is one."""

    def __init__(self, name: str, port: int, folder: Path) -> None:
        self.name = name
        self.port = port
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process. It takes a moment until the node answers."""
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "stderr").open("ab") as errors:
            self._process = subprocess.Popen(
                [
                    *server_command(),
                    *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)),
                    *("--cluster-config-file", "nodes.conf", "--logfile", str(self.log)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=without_settings(os.environ),
                # Ctrl-C in a terminal is for this program, which stops the nodes in order.
                start_new_session=True,
            )

    @property
    def log(self) -> Path:
        """The path of the node's log."""
        return self.folder / "log"

    def kill(self) -> None:
        """Send SIGKILL, which leaves the node no time for an orderly end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> None:
        """Ask the node to stop."""
        if self._process is not None and self.is_running:
            self._process.terminate()

    def wait_stopped(self, seconds: float) -> None:
        """Wait for the end of the process. Kill it when the time is over."""
        if self._process is None:
            return
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def why_it_ended(self) -> str:
        """Return the last lines of the node's output and log."""
        said = [path.read_text(errors="replace") for path in (self.folder / "stderr", self.log) if path.exists()]
        return "\n".join(said)[-2000:]


class Nodes:
    """The cluster of the demonstration; use it as a context. `scratch` is removed at the end."""

    def __init__(self) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="disque-demo-"))
        try:
            self.all = [NodeProcess(name, free_port(), self.scratch / name) for name in NAMES]
        except OSError as error:
            raise NodesError(str(error)) from None

    def __enter__(self) -> Nodes:
        for node in self.all:
            node.start()
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.all:
            node.terminate()
        for node in self.all:
            node.wait_stopped(STOP_SECONDS)
        shutil.rmtree(self.scratch, ignore_errors=True)

    async def join(self) -> None:
        """Introduce the nodes to each other, and wait until each can reach all. Raises NodesError."""
        for node in self.all:
            await self.wait_answering(node)
        for other in self.all[1:]:
            await ask(self.all[0].port, b"CLUSTER", b"MEET", b"127.0.0.1", b"%d" % other.port)
        await self._until(self.is_whole, "the nodes did not find each other")

    async def is_whole(self) -> bool:
        """Return whether every node reports that it reaches every other."""
        return all([await sees_all(node.port, len(self.all)) for node in self.all])

    async def wait_answering(self, node: NodeProcess) -> None:
        """Wait until a started node answers. Raises NodesError if it ends instead."""

        async def answers() -> bool:
            if not node.is_running:
                raise NodesError(f"node {node.name} ended:\n{node.why_it_ended()}")
            return bool(await ask(node.port, b"PING") == b"PONG")

        await self._until(answers, f"node {node.name} did not answer")

    async def registered_jobs(self) -> int:
        """Return the number of jobs that nodes still have, also acknowledged ones. Raises OSError, LinkLostError."""
        infos = [await ask(node.port, b"INFO", b"jobs") for node in self.all]
        return sum(info_number(info, "registered_jobs") for info in infos)

    async def _until(self, is_so: Any, complaint: str) -> None:
        try:
            async with asyncio.timeout(START_SECONDS):
                while True:
                    with contextlib.suppress(OSError, TimeoutError, LinkLostError):
                        if await is_so():
                            return
                    await asyncio.sleep(LOOK_AGAIN_SECONDS)
        except TimeoutError:
            raise NodesError(f"{complaint} within {START_SECONDS:g} s") from None


async def sees_all(port: int, count: int) -> bool:
    """Return whether HELLO lists `count` nodes, all with the priority of a linked and healthy node."""
    reply = await ask(port, b"HELLO")
    if isinstance(reply, ReplyError):
        return False
    nodes = results.hello(reply).nodes
    return len(nodes) == count and all(node.priority == 1 for node in nodes)


def info_number(info: Any, field: str) -> int:
    """Return the value of a whole-number field of INFO; 0 when it is missing."""
    value = results.info(info).get(field) if isinstance(info, bytes) else None
    return value if isinstance(value, int) else 0


def server_command() -> list[str]:
    """Return the words that start a node, without its options."""
    server = [sys.executable, "-m", "disque_py.server.main"]
    return [sys.executable, "-c", DIE_WITH_PARENT, *server] if sys.platform == "linux" else server
