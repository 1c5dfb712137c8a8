"""Real nodes for integration tests: processes on free loopback ports, each with its own folder.

    with Cluster(tmp_path, 3) as cluster:
        a, b, c = cluster.servers
        job_id = a.command("ADDJOB", "q", "body", 1000)
        a.kill()
        a.restart()
        cluster.wait_whole()

`Server` is one process: start, stop, kill, restart, pause (SIGSTOP), resume. `command` sends one command and returns
the reply as hiredis reads it (bytes, int, list, None). Error replies are raised as hiredis.ReplyError. `connect`
returns a separate connection, for blocking commands, pipelines and raw bytes.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import hiredis

import disque_py
from disque_py.loopback_ports import HOST, free_port

ROOT = Path(__file__).resolve().parents[2]
# The folder of the package under test: an installed wheel, or the checkout.
INSTALLED = Path(disque_py.__file__).resolve().parents[1]
PORT_TRIES = 5
PORT_TAKEN = os.strerror(errno.EADDRINUSE)  # Its words depend on the C library.

START_SECONDS = 20.0
STOP_SECONDS = 10.0
REPLY_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 0.02

Word = bytes | str | int | float


class Connection:
    """A blocking client connection; use it as a context."""

    def __init__(self, sock: socket.socket, timeout_s: float = REPLY_SECONDS) -> None:
        self.sock = sock
        sock.settimeout(timeout_s)
        self._reader = hiredis.Reader()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def command(self, *words: Word) -> Any:
        """Send one command and return its reply. Raises hiredis.ReplyError for an error."""
        self.send(*words)
        reply = self.read()
        if isinstance(reply, hiredis.ReplyError):
            raise reply
        return reply

    def send(self, *words: Word) -> None:
        """Send a command, without waiting for the reply."""
        self.send_raw(hiredis.pack_command(cast(Any, words)))

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.sock.sendall(data)

    def read(self) -> Any:
        """Return the next reply, perhaps an error reply. Raises EOFError if the node hangs up, and TimeoutError."""
        while (reply := self._reader.gets()) is False:
            data = self.sock.recv(1 << 16)
            if not data:
                raise EOFError("the node closed the connection")
            self._reader.feed(data)
        return reply

    def is_closed(self, seconds: float = REPLY_SECONDS) -> bool:
        """Return whether the node hangs up within this time. Earlier replies are dropped."""
        self.sock.settimeout(seconds)
        try:
            while self.sock.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()


class Server:
    """One node.

    folder    the working directory; the file `output` in it gets the printed text, including the log
    port      the port for clients; the port of the bus is BUS_PORT_DISTANCE above it
    options   further words of the command line, `--name value …`
    config    lines of the config file `disque.conf` in the folder; without lines there is no file
    environment   variables of the process, in addition to those of this process
    host      the address
    prefix    words before the command line (namespaces.py)
    """

    def __init__(
        self, folder: Path, port: int | None = None, options: Sequence[Word] = (), config: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self.port = free_port() if port is None else port
        self.options = [str(word) for word in options]
        self.environment: dict[str, str] = {}
        self.host = HOST
        self.prefix: list[str] = []
        self.process: subprocess.Popen[bytes] | None = None
        self._may_move = port is None
        self._connection: Connection | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.config_path = folder / "disque.conf"
        if config:
            self.config_path.write_text("\n".join([*config, ""]))

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the process ------------------------------------------------------------------------------

    @property
    def words(self) -> list[str]:
        """Return the command line. The node listens on `host`, with its folder as `dir`, unless `options` differ."""
        words = [*self.prefix, sys.executable, "-m", "disque_py.server.main"]
        if self.config_path.exists():
            words.append(str(self.config_path))
        return [*words, "--port", str(self.port), "--bind", self.host, "--dir", str(self.folder), *self.options]

    @property
    def pid(self) -> int:
        """Return the id of the running process."""
        assert self.process is not None
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Return whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> Server:
        """Start the process, and wait until it answers. Raises AssertionError with its output if it doesn't."""
        self.launch()
        return self.wait_started()

    def wait_started(self) -> Server:
        """Wait until it answers. If another program has taken the port meanwhile, try the next one."""
        for _ in range(PORT_TRIES):
            if self._comes_up():
                return self
            if not self._may_move or PORT_TAKEN not in self.output():
                break
            self.port = free_port()
            self.launch()
        raise AssertionError(f"the node on port {self.port} did not start:\n{self.output()}")

    def launch(self) -> None:
        """Start the process, without waiting for it."""
        assert not self.is_running
        path = os.pathsep.join(filter(None, (str(INSTALLED), os.environ.get("PYTHONPATH", ""))))
        with (self.folder / "output").open("ab") as output:
            self.process = subprocess.Popen(
                self.words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": path, **self.environment},
                cwd=self.folder,
                start_new_session=True,
            )

    def _comes_up(self) -> bool:
        deadline = time.monotonic() + START_SECONDS
        while self.is_running and time.monotonic() < deadline:
            if self.answers() and self._is_ours():
                return True
            time.sleep(LOOK_AGAIN_SECONDS)
        self.kill()
        return False

    def stop(self) -> int:
        """Send SIGTERM and wait. Return the exit status. Raises AssertionError if it doesn't end in time."""
        assert self.process is not None
        self._hang_up()
        self.process.terminate()
        return self.wait_ended()

    def wait_ended(self, seconds: float = STOP_SECONDS) -> int:
        """Wait for the end of the process. Return its exit status, -n for a signal."""
        assert self.process is not None
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the node on port {self.port} did not end:\n{self.output()}") from None

    def kill(self) -> None:
        """Send SIGKILL: the process ends immediately."""
        self._hang_up()
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def restart(self) -> Server:
        """Start again with the same port and folder. Stop the process first if it runs."""
        if self.is_running:
            self.stop()
        self._may_move = False  # Other nodes know this port.
        return self.start()

    def pause(self) -> None:
        """Send SIGSTOP, as if the machine hung: sockets stay open, and nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End the process, whatever its state."""
        self.kill()

    def output(self) -> str:
        """Return its output over all its runs."""
        path = self.folder / "output"
        return path.read_text(errors="replace") if path.exists() else ""

    # -- talking to it ----------------------------------------------------------------------------

    def command(self, *words: Word) -> Any:
        """Send one command on a kept connection. Raises hiredis.ReplyError. Don't use it after CLIENT REPLY OFF."""
        if self._connection is None:
            self._connection = self.connect()
        try:
            return self._connection.command(*words)
        except (OSError, EOFError):
            self._hang_up()
            raise

    def connect(self, timeout_s: float = REPLY_SECONDS, tls: ssl.SSLContext | None = None) -> Connection:
        """Return a new connection. Raises OSError."""
        sock = socket.create_connection((self.host, self.port), timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            return Connection(sock if tls is None else tls.wrap_socket(sock, server_hostname=self.host), timeout_s)
        except OSError:
            sock.close()
            raise

    def answers(self) -> bool:
        """Return whether the node serves clients: it has read its journal, and replies to PING (perhaps -NOAUTH)."""
        try:
            with self.connect(1.0) as connection:
                connection.send("PING")
                return not str(connection.read()).startswith("LOADING")
        except (OSError, EOFError):
            return False

    def _is_ours(self) -> bool:
        """Return whether our process answers. The node of another test may have the port, and ours is about to end."""
        if self.prefix:
            return True  # The port is free in its own network.
        try:
            with self.connect(1.0) as connection:
                return f"process_id:{self.pid}\r\n".encode() in connection.command("INFO", "server")
        except hiredis.ReplyError:
            return True  # It wants a login.
        except (OSError, EOFError):
            return False

    def info(self, section: str = "all") -> dict[str, str]:
        """Return the fields of INFO."""
        lines = self.command("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    @property
    def node_id(self) -> str:
        """Return the node's id, 40 hexadecimal characters."""
        return str(self.command("CLUSTER", "MYID").decode())

    def nodes(self) -> dict[str, list[str]]:
        """Return CLUSTER NODES: id -> the other fields (address, flags, ping, pong, link)."""
        lines = self.command("CLUSTER", "NODES").decode().splitlines()
        return {line.split()[0]: line.split()[1:] for line in lines}

    def meet(self, other: Server) -> None:
        """Send CLUSTER MEET."""
        self.command("CLUSTER", "MEET", other.host, other.port)

    def sees_well(self, count: int) -> bool:
        """Return whether it knows `count` nodes, including itself, all of them linked and neither suspected nor failed.

        Handshakes in progress don't count.
        """
        rows = [row for row in self.nodes().values() if row[1] != "handshake"]
        good = [row for row in rows if row[1] in ("myself", "noflags") and row[4] == "connected"]
        return len(rows) == len(good) == count

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class Cluster:
    """Several nodes, started and joined; use it as a context.

    options   further words of each node's command line
    """

    def __init__(self, folder: Path, count: int = 3, options: Sequence[Word] = ()) -> None:
        self.servers: list[Server] = []
        for number in range(1, count + 1):
            self.servers.append(Server(folder / f"node-{number}", None, options))

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, index: int) -> Server:
        return self.servers[index]

    def start(self) -> Cluster:
        """Start all nodes and join them."""
        try:
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.wait_started()
            self.join()
        except BaseException:
            self.close()
            raise
        return self

    def join(self) -> None:
        """Introduce the first node to all others, and wait until each sees all."""
        for other in self.servers[1:]:
            self.servers[0].meet(other)
        self.wait_whole()

    def wait_whole(self, seconds: float = START_SECONDS) -> None:
        """Wait until every running node is linked to every node of the cluster, and suspects none."""
        count = len(self.servers)
        until(lambda: all(server.sees_well(count) for server in self.servers if server.is_running), seconds)

    def close(self) -> None:
        """End all nodes."""
        for server in self.servers:
            server.close()


def until(condition: Callable[[], object], seconds: float = START_SECONDS) -> None:
    """Check the condition repeatedly until it is true. Raises AssertionError after the time limit."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(LOOK_AGAIN_SECONDS)
