"""One node of a test: a process, its folder and its port.

The process ends when its standard input is closed (child.py). So this object keeps the other end of that pipe open
while the node runs. The folder is removed by `close`, or by the process when the test process is gone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Unpack
from urllib.parse import quote

import disque_py
from disque_py.loopback_ports import HOST, free_port
from disque_py.testing.directives import Value, words_of

if TYPE_CHECKING:
    from disque_py.client import AsyncDisque, ClientSettings, Disque
    from disque_py.client.one_node import OneNode

START_SECONDS: Final = 20.0
STOP_SECONDS: Final = 10.0
LOOK_AGAIN_SECONDS: Final = 0.01
# While a node reads its journal, commands wait for up to two seconds.
ANSWER_SECONDS: Final = 5.0
PORT_TRIES: Final = 5
PORT_TAKEN: Final = "Address already in use"
# Lines of a log in an error, and in the report of a failed test.
LOG_LINES: Final = 40


class NodeError(Exception):
    """A node did not start, stop, or find the others. The text has the end of its log."""


class Node:
    """A node of a test. `disque_py.testing.node` makes one and starts it.

    port       its port on 127.0.0.1
    folder     its directory, with its journal if it has one
    password   its `requirepass`; empty if it has none
    """

    def __init__(self, directives: Mapping[str, Value]) -> None:
        self.port = free_port()
        self.password = str(directives.get("requirepass", ""))
        self._words = words_of(directives)
        self.folder = Path(tempfile.mkdtemp(prefix="disque-test-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._has_answered = False

    def __repr__(self) -> str:
        return f"<Node {self.address}>"

    @property
    def address(self) -> str:
        """The node's address, `host:port`."""
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """The node's URL for clients, with its password if it has one."""
        return f"disque://{login(self.password)}{self.address}"

    @property
    def pid(self) -> int | None:
        """The id of the node's process; None while it does not run."""
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """The output of the node over all its runs, its log included."""
        try:
            return self._log_path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    @property
    def log_tail(self) -> str:
        """The last lines of the log, with a headline."""
        lines = self.log.splitlines()[-LOG_LINES:]
        return "\n".join((f"log of the node at {self.address}:", *lines))

    def client(self, **settings: Unpack[ClientSettings]) -> Disque:
        """Return a new blocking client of this node. Close it, or use it as a context.

        settings   the settings of a client, for example `decode="utf-8"`
        """
        from disque_py.client import Disque  # pytest loads this package even if no test needs a client.

        return Disque.from_url(self.url, **settings)

    def async_client(self, **settings: Unpack[ClientSettings]) -> AsyncDisque:
        """Return a new asyncio client of this node. Close it, or use it as a context.

        settings   the settings of a client, for example `decode="utf-8"`
        """
        from disque_py.client import AsyncDisque

        return AsyncDisque.from_url(self.url, **settings)

    # The process.

    def start(self) -> None:
        """Start the process and wait until it answers. A running node stays as it is. Raises NodeError."""
        if not self.is_running:
            self.launch()
            self.wait_started()

    def stop(self) -> None:
        """Send SIGTERM and wait for the orderly end. A stopped node stays as it is. Raises NodeError."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise NodeError(f"{self!r} did not end within {STOP_SECONDS:g} s\n{self.log_tail}") from None
        self._forget()

    def kill(self) -> None:
        """Send SIGKILL: the process ends immediately, as in a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def restart(self) -> None:
        """Stop the node if it runs, and start it again with its port and its folder. Raises NodeError.

        Its jobs come back if it has a journal (`appendonly=True`).
        """
        self.stop()
        self.start()

    def close(self) -> None:
        """End the process and remove the folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def launch(self) -> None:
        """Start the process, and don't wait. `wait_started` waits."""
        self.folder.mkdir(exist_ok=True)
        root = str(Path(disque_py.__file__).resolve().parent.parent)
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
        # Several nodes can't share one DISQUE_PORT of the environment.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DISQUE_")}
        command = [sys.executable, "-m", "disque_py.testing.child", str(self.folder)]
        command += ["--port", str(self.port), "--bind", HOST, "--dir", str(self.folder), *self._words]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**kept, "PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C in a terminal is for the test process.
            )

    def wait_started(self) -> None:
        """Wait until a launched node answers. Raises NodeError if it ends or takes too long.

        A new node takes another port if a program has taken the first one meanwhile.
        """
        for _ in range(PORT_TRIES):
            deadline = time.monotonic() + START_SECONDS
            while self.is_running and time.monotonic() < deadline:
                if self._answers():
                    self._has_answered = True
                    return
                time.sleep(LOOK_AGAIN_SECONDS)
            was_running = self.is_running
            self.kill()
            if was_running or self._has_answered or PORT_TAKEN not in self.log_tail:
                break  # A node that has run before keeps its port, because other nodes know it.
            self.port = free_port()
            self.launch()
        raise NodeError(f"{self!r} did not start\n{self.log_tail}")

    @property
    def _log_path(self) -> Path:
        return self.folder / "output.log"

    def connect(self) -> OneNode:
        """Return a connection to this node, and never to another. Raises DisqueError."""
        from disque_py.client import Address, ClientOptions
        from disque_py.client.one_node import OneNode

        options = ClientOptions(password=self.password or None, connect_timeout=ANSWER_SECONDS, timeout=ANSWER_SECONDS)
        return OneNode(Address(HOST, self.port), options)

    def _answers(self) -> bool:
        """Return whether this process answers, and not another one on its port, and has read its journal."""
        from disque_py.client import DisqueError, ReplyError, commands

        with suppress(DisqueError), self.connect() as connection:
            connection.run(commands.ping())
            try:
                return connection.run(commands.info("server"))["process_id"] == self.pid
            except ReplyError:
                return True  # The node's directives forbid INFO.
        return False

    def _forget(self) -> None:
        assert self._process is not None
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None


def login(password: str) -> str:
    """Return the part of a URL that logs in with a password; empty without one."""
    return f":{quote(password, safe='')}@" if password else ""
