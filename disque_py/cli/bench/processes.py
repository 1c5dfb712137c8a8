"""Servers as processes: started on free loopback ports, asked, joined, and always stopped.

`Servers` is a context. Its end stops every server that it started. On Linux the kernel also kills them when this
program is killed. A server that was running before is never stopped and never emptied.
"""

from __future__ import annotations

import errno
import importlib.metadata
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import hiredis

import disque_py
from disque_py.cli import connection
from disque_py.cli.bench import proc
from disque_py.cli.bench.contestants import Contestant
from disque_py.cli.bench.dialects import Dialect, Request, packed
from disque_py.cli.bench.load import HOST
from disque_py.client import results
from disque_py.loopback_ports import free_port

START_S: Final = 20.0
STOP_S: Final = 10.0
REPLY_S: Final = 10.0
LOOK_AGAIN_S: Final = 0.02
# The time that a server which has closed its connections gets to end.
ENDING_S: Final = 0.2
OUTPUT_LINES: Final = 6
# The child asks the kernel for a SIGKILL when its parent ends (PR_SET_PDEATHSIG is 1), then becomes the server. The
# parent may have ended before the child asked, so the child checks afterwards.
WITH_PARENT: Final = (
    "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL); "
    "os.getppid() == int(sys.argv[1]) or sys.exit(1); os.execvp(sys.argv[2], sys.argv[2:])"
)
_BUS_BYTES: Final = re.compile(r"(?:cluster_stats_|bus_|cluster_bus_)(?:bytes_sent|\w*_bytes_sent)")


class ServerError(Exception):
    """A server can't be started or joined; the text is for the user."""


class LoginError(OSError):
    """A server refused a login; the text is its reply."""


class GoneError(ServerError):
    """A server has ended, or does not answer any more, so nothing else can be measured with it."""


class Line:
    """A blocking connection for questions, encrypted and logged in as the protocol says. Raises OSError, EOFError."""

    def __init__(self, port: int, dialect: Dialect | None = None) -> None:
        self.sock: socket.socket = socket.create_connection((HOST, port), REPLY_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()
        if dialect is not None:
            try:
                self._prepare(dialect)
            except BaseException:
                self.sock.close()
                raise

    def _prepare(self, dialect: Dialect) -> None:
        """Encrypt the connection, and log in."""
        if dialect.tls is not None:
            self.sock = dialect.tls.context.wrap_socket(self.sock, server_hostname=dialect.tls.server_name)
            # The server sends tickets after the handshake. `select` must not take them for a reply (paced.py).
            self.request(dialect.ping())
        if dialect.login is not None:
            reply = self.request(dialect.login)
            if reply.startswith(b"-"):
                raise LoginError(errno.EACCES, reply[1:].decode(errors="replace").strip())

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def ask(self, *words: bytes | str | int) -> Any:
        """Return the reply to a command in RESP, also an error reply. Raises OSError, EOFError."""
        self.sock.sendall(packed(*words))
        while (reply := self._reader.gets()) is False:
            data = self.sock.recv(1 << 16)
            if not data:
                raise EOFError("the server hung up")
            self._reader.feed(data)
        return reply

    def request(self, request: Request) -> bytes:
        """Return the bytes that answer a request. Raises OSError, EOFError."""
        self.sock.sendall(request.data)
        data = b""
        while data.count(b"\n") < request.marks and not data.startswith(b"-"):
            more = self.sock.recv(1 << 16)
            if not more:
                raise EOFError("the server hung up")
            data += more
        return data


@dataclass(slots=True)
class Running:
    """A running contestant: its ports (several for a cluster), its processes, its version as text.

    nodes   the processes that this program started, and their directories
    """

    contestant: Contestant
    ports: list[int] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)
    version: str = ""
    nodes: list[tuple[subprocess.Popen[bytes], Path]] = field(default_factory=list)

    def cpu_s(self) -> float | None:
        """Return the CPU seconds of all its processes so far, children included."""
        return proc.cpu_seconds(self.pids)

    def resident(self) -> float | None:
        """Return the resident bytes of all its processes."""
        return proc.resident_bytes(self.pids)

    def bus(self) -> tuple[int, int | None]:
        """Return the messages that its nodes have sent each other, and the bytes if the nodes count them."""
        messages, sizes = 0, list[int]()
        for port in self.ports:
            fields = info(port, self.contestant.dialect)
            messages += int(fields.get("cluster_stats_messages_sent", 0))
            sizes += [int(value) for name, value in fields.items() if _BUS_BYTES.fullmatch(name)]
        return messages, sum(sizes) if sizes else None

    def check(self) -> None:
        """Raise GoneError if one of its nodes has ended, or does not answer a PING."""
        name = self.contestant.name
        for process, folder in self.nodes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(ENDING_S)  # Its sockets are closed a moment before its process ends.
            if process.returncode is not None:
                raise GoneError(f"{name} {_state(process)}. Its output:\n{_last_words(folder)}")
        for port in self.ports:
            try:
                with Line(port, self.contestant.dialect) as line:
                    line.request(self.contestant.dialect.ping())
            except (OSError, EOFError) as error:
                raise GoneError(f"{name} does not answer at port {port}: {reason_of(error)}") from error

    def flush(self) -> None:
        """Remove all jobs of servers that this program started."""
        if self.contestant.is_started and self.contestant.dialect.name != "beanstalkd":
            words = ("DEBUG", "FLUSHALL") if self.contestant.dialect.is_disque else ("FLUSHALL",)
            for port in self.ports if self.contestant.dialect.has_jobs else ():
                with Line(port) as line:
                    line.ask(*words)


def info(port: int, dialect: Dialect | None = None) -> dict[str, str | int | float]:
    """Return the fields of INFO; none if the server does not know it."""
    with Line(port, dialect) as line:
        reply = line.ask("INFO")
    return results.info(reply) if isinstance(reply, bytes) else {}


class Servers:
    """The servers of a test; use it as a context."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._folders: list[Path] = []

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, contestant: Contestant, count: int = 1) -> Running:
        """Start a contestant, or find the running one. Join several nodes. Raises ServerError."""
        running = Running(contestant)
        if not contestant.is_started:
            running.ports = [contestant.port]
            self._await(running, contestant.port, None, Path())
            has_info = contestant.dialect.name != "beanstalkd"
            pid = info(contestant.port, contestant.dialect).get("process_id") if has_info else None
            running.pids = [pid] if isinstance(pid, int) else []
        for _ in range(count if contestant.is_started else 0):
            try:
                port = free_port()
            except OSError as error:
                raise ServerError(f"START {error}") from None
            process, folder = self._launch(contestant, port)
            running.ports.append(port)
            running.pids.append(process.pid)
            running.nodes.append((process, folder))
            self._await(running, port, process, folder)
        if count > 1:
            _join(running.ports)
        running.version = _version(running)
        return running

    def close(self) -> None:
        """End all servers that were started here, and remove their directories."""
        for process in self._processes:
            _signal(process, signal.SIGTERM)
        deadline_s = time.monotonic() + STOP_S
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline_s - time.monotonic()))
            _signal(process, signal.SIGKILL)
            process.wait()
        self._processes.clear()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)
        self._folders.clear()

    def _launch(self, contestant: Contestant, port: int) -> tuple[subprocess.Popen[bytes], Path]:
        folder = Path(tempfile.mkdtemp(prefix="disque-bench."))
        self._folders.append(folder)
        words = contestant.words(port, str(folder))
        # The server runs in its scratch directory, so a relative path of the program would not be found there.
        words[0] = shutil.which(words[0]) or words[0]
        words[0] = str(Path(words[0]).absolute())
        if sys.platform == "linux":
            words = [sys.executable, "-c", WITH_PARENT, str(os.getpid()), *words]
        # From a checkout that is not installed, the server is found in the same place as this module.
        root = str(Path(disque_py.__file__).resolve().parents[1])
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DISQUE_")}
        if contestant.command[:2] == (sys.executable, "-m"):
            kept["PYTHONPATH"] = os.pathsep.join(filter(None, (root, kept.get("PYTHONPATH", ""))))
        with (folder / "output.log").open("wb") as output:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=kept,
                start_new_session=True,  # Ctrl-C is for this program, which first closes its connections.
            )
        self._processes.append(process)
        return process, folder

    def _await(self, running: Running, port: int, process: subprocess.Popen[bytes] | None, folder: Path) -> None:
        """Wait for the answer to a PING. Raises ServerError, with the last lines of the output."""
        deadline_s = time.monotonic() + START_S
        name = running.contestant.name
        while True:
            try:
                with Line(port, running.contestant.dialect) as line:
                    line.request(running.contestant.dialect.ping())
                return
            except (OSError, EOFError) as error:
                failure = error
            if process is None:
                raise ServerError(f"CONNECT {name} does not answer at port {port}: {failure}")
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise ServerError(f"START {name} {_state(process)}. Its output:\n{_last_words(folder)}")
            time.sleep(LOOK_AGAIN_S)


def _state(process: subprocess.Popen[bytes]) -> str:
    number = process.returncode
    if number is None:
        return "does not answer"
    return f"ended with status {number}" if number >= 0 else f"was ended by signal {-number}"


def _last_words(folder: Path) -> str:
    text = (folder / "output.log").read_text(errors="replace")
    return "\n".join(f"  {line}" for line in text.splitlines()[-OUTPUT_LINES:]) or "  (nothing)"


def reason_of(error: OSError | EOFError) -> str:
    """Return the reason of a failed connection, without the number of the error."""
    return connection.reason_of(error) if isinstance(error, OSError) else str(error)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a server and its children, which share a process group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _join(ports: list[int]) -> None:
    """Make one cluster of Disque nodes and wait until each sees all others. Raises ServerError."""
    for port in ports[1:]:
        with Line(ports[0]) as line:
            reply = line.ask("CLUSTER", "MEET", HOST, port)
            if isinstance(reply, hiredis.ReplyError):
                raise ServerError(f"JOIN CLUSTER MEET was refused: {reply}")
    deadline_s = time.monotonic() + START_S
    while not all(_linked_nodes(port) == len(ports) - 1 for port in ports):
        if time.monotonic() > deadline_s:
            raise ServerError(f"JOIN the {len(ports)} nodes did not find each other in {START_S:g} s")
        time.sleep(LOOK_AGAIN_S)


def _linked_nodes(port: int) -> int:
    """Return the number of other nodes that a node can use; from the size of the cluster in servers without it."""
    fields = info(port)
    linked = fields.get("cluster_linked_nodes")
    return int(linked) if linked is not None else int(fields.get("cluster_size", 1)) - 1


def _version(running: Running) -> str:
    """Return version and build as the server reports them; empty parts are left out."""
    if running.contestant.dialect.name == "floor":
        return f"uvloop {importlib.metadata.version('uvloop')}"
    if running.contestant.dialect.name == "beanstalkd":
        return _beanstalkd_version(running.ports[0])
    fields = info(running.ports[0], running.contestant.dialect)
    version = fields.get("disque_version") or fields.get("redis_version") or ""
    return " ".join(filter(None, (str(version), str(fields.get("build", "")))))


def _beanstalkd_version(port: int) -> str:
    """Return the version in the reply to `stats`, which is YAML and comes in one piece; empty if it does not."""
    with Line(port) as line:
        text = line.request(Request(b"stats\r\n", 2)).decode(errors="replace")
    found = re.search(r"^version: \"?([^\s\"]+)", text, re.MULTILINE)
    return found[1] if found else ""
