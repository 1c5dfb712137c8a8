"""Nodes on this machine: started detached, recorded in a file, stopped again.

All files of a cluster are in one directory: `nodes.json` (ports, process ids, options), and for each node a directory
with its nodes file, its log and its output. The system may give the id of an ended process to a new one. So
`nodes.json` also has the time at which each process was started. Signals go only to a process with the same id and the
same start time.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import disque_py
from disque_py.cli.address import HOST_DEFAULT, PORT_DEFAULT, Target
from disque_py.cli.cluster.view import LoginError, patient
from disque_py.cli.connection import ConnectError
from disque_py.client import Address, DisqueError, commands
from disque_py.loopback_ports import BUS_PORT_DISTANCE, PORTS, is_free_with_bus

STATE_FILE: Final = "nodes.json"
STATE_VERSION: Final = 1
PORT_MAX: Final = 65535 - BUS_PORT_DISTANCE
FREE_PORT_TRIES: Final = 200
START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 15.0
# A node that is already running should answer immediately. It gets this much time, because it may just be starting.
ANSWER_TIMEOUT_S: Final = 5.0
LOOK_EVERY_S: Final = 0.05
# Lines of a log that are shown when a node does not start.
LOG_LINES: Final = 10


class LocalError(Exception):
    """A node can't be started or stopped here; the text is for the user."""


@dataclass(frozen=True, slots=True)
class LocalNode:
    """One node that this program started: its port, its process, and the process's start time from the system."""

    port: int
    pid: int
    started: str

    @property
    def address(self) -> Address:
        """The address at which it listens."""
        return Address(HOST_DEFAULT, self.port)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs and is still the one that was started."""
        return bool(self.started) and process_start(self.pid) == self.started


def default_directory() -> Path:
    """Return the directory of a cluster without --dir. It is in the user's state directory."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "disque-cluster"


@dataclass(frozen=True, slots=True)
class StartOptions:
    """The options of a start.

    server     options of every server
    zones      zones of the nodes in rotation, each with its data center
    with_tls   whether the ports accept only TLS
    removed    ports of nodes that were removed from the cluster, and whose files stay
    """

    server: tuple[str, ...] = ()
    zones: tuple[tuple[str, str], ...] = ()
    with_tls: bool = False
    removed: tuple[int, ...] = ()


def changed_options(before: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
    """Return the options of the last start, changed by those of this one.

    A directive of `words` takes the place of the same one before, with all its values. The others stay: without
    `--appendonly yes`, for example, the nodes would not read the jobs of their journals.
    """
    changed = {name for name, _ in _directives(words)}
    kept = [word for name, group in _directives(before) if name not in changed for word in group]
    return (*kept, *words)


def kept_names(before: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the names of the directives of the last start that `words` don't change, without their values."""
    changed = {name for name, _ in _directives(words)}
    return list(dict.fromkeys(name for name, _ in _directives(before) if name not in changed))


def _directives(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the directives of a server's command line: the name, and the words with it."""
    groups: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith("--") and len(word) > 2:
            groups.append((word.lower(), [word]))
        elif groups:
            groups[-1][1].append(word)
        else:  # The server refuses it, and says why.
            groups.append(("", [word]))
    return groups


def process_start(pid: int) -> str | None:
    """Return the start time of a process as the system gives it; None if it does not run (or is a zombie)."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            # The name in parentheses may contain anything. The state is the first field after it, the start time the
            # 20th.
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] == "Z" else fields[19]
    told = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, start = told.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else start.strip()


def load_nodes(directory: Path) -> list[LocalNode]:
    """Return the nodes that were started in a directory, if any. Raises LocalError if the file is damaged."""
    return [LocalNode(row["port"], row["pid"], row["started"]) for row in _load(directory).get("nodes", ())]


def load_options(directory: Path) -> StartOptions:
    """Return the options of the last start in a directory. Raises LocalError if the file is damaged."""
    state = _load(directory)
    zones = tuple((str(datacenter), str(name)) for datacenter, name in state.get("zones", ()))
    words = tuple(str(word) for word in state.get("options", ()))
    return StartOptions(words, zones, bool(state.get("tls")), tuple(state.get("removed", ())))


def _load(directory: Path) -> dict[str, Any]:
    try:
        state = json.loads((directory / STATE_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise LocalError(f"{directory / STATE_FILE} can't be read: {error}") from error
    if not isinstance(state, dict) or state.get("version") != STATE_VERSION:
        raise LocalError(f"{directory / STATE_FILE} was written by another version of disque-cluster")
    return state


def save_nodes(directory: Path, nodes: Sequence[LocalNode], options: StartOptions | None = None) -> None:
    """Replace the file, so that a reader finds the old or the new one, and never a part.

    Only its owner may read it, because the options of the servers may contain a password.
    """
    options = options or StartOptions()
    state = {
        "version": STATE_VERSION,
        "nodes": [asdict(node) for node in nodes],
        "options": options.server,
        "zones": options.zones,
        "tls": options.with_tls,
        "removed": options.removed,
    }
    fresh = directory / (STATE_FILE + ".new")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    fresh.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
    fresh.replace(directory / STATE_FILE)


def leave_out(directory: Path, address: Address) -> Path | None:
    """Forget a node that was removed from its cluster, so that the next start does not start and join it again.

    Return the directory of its files, which stay. None: the node was not started in this directory.
    """
    nodes = load_nodes(directory)
    rest = [node for node in nodes if node.address != address]
    if len(rest) == len(nodes):
        return None
    options = load_options(directory)
    save_nodes(directory, rest, replace(options, removed=(*options.removed, address.port)))
    return node_directory(directory, address.port)


def check_free(ports: Sequence[int]) -> None:
    """Raise LocalError if a process listens on one of these ports or their bus ports."""
    busy = [port for port in ports if not is_free_with_bus(port)]
    if busy:
        raise LocalError(f"Port {busy[0]}, or its bus port {busy[0] + BUS_PORT_DISTANCE}, is in use")


def choose_ports(base: int | None, count: int) -> list[int]:
    """Return `count` consecutive ports with free bus ports: from `base`, or from 7711, or from any free place."""
    if base is not None:
        ports = _ports(base, count)
        check_free(ports)
        return ports
    for start in (PORT_DEFAULT, *(random.choice(PORTS) for _ in range(FREE_PORT_TRIES))):
        ports = _ports(start, count)
        if all(map(is_free_with_bus, ports)):
            return ports
    raise LocalError(f"Found no {count} free consecutive ports; name the first one with --port")


def _ports(base: int, count: int) -> list[int]:
    if not 0 < base <= PORT_MAX - count + 1:
        raise LocalError(f"{count} ports from {base} on need bus ports above 65535; use a lower --port")
    return list(range(base, base + count))


def node_directory(directory: Path, port: int) -> Path:
    """Return the directory in which the node of a port keeps its files."""
    return directory / f"node-{port}"


def without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the servers' settings, because several nodes can't share one DISQUE_PORT."""
    return {name: value for name, value in environ.items() if not name.startswith("DISQUE_")}


def launch(directory: Path, port: int, server_options: Sequence[str], *, with_tls: bool = False) -> LocalNode:
    """Start one node, detached from this terminal, with a plain port or one for TLS.

    It may still fail; `await_ready` finds that out.
    """
    home = node_directory(directory, port).resolve()
    home.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "disque_py.server.main"]
    command += ["--port", "0", "--tls-port", str(port)] if with_tls else ["--port", str(port)]
    command += ["--bind", HOST_DEFAULT, "--dir", str(home)]
    command += ["--cluster-config-file", "nodes.conf", "--logfile", str(home / "disque.log"), *server_options]
    # From a checkout that is not installed, the server is found in the same place as this module.
    root = str(Path(disque_py.__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    with (home / "output.log").open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=home,
            env={**without_settings(os.environ), "PYTHONPATH": path},
            start_new_session=True,
        )
    started = process_start(process.pid) or ""
    # The node is meant to outlive this program. Without this line the interpreter warns that it still runs.
    process.returncode = 0
    return LocalNode(port, process.pid, started)


def await_ready(access: Target, directory: Path, nodes: Sequence[LocalNode]) -> None:
    """Wait until all nodes answer. Raises LocalError.

    That error has the log of the first node that ends or takes too long, or the reason why a node refuses the login.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    for node in nodes:
        while (failure := _failure_to_answer(access.at(node.address))) is not None:
            if isinstance(failure, LoginError):  # It will not accept it later either.
                raise LocalError(str(failure)) from failure
            if not node.is_alive or time.monotonic() > deadline:
                state = f"does not answer ({failure})" if node.is_alive else "ended immediately"
                said = failure_text(directory, node.port)
                raise LocalError(f"The node on port {node.port} {state}. Its output:\n{said}")
            time.sleep(LOOK_EVERY_S)


def silent_nodes(access: Target, nodes: Sequence[LocalNode]) -> dict[LocalNode, str]:
    """Return the running nodes that don't answer in time, each with the reason."""
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    silent: dict[LocalNode, str] = {}
    for node in nodes:
        while (failure := _failure_to_answer(access.at(node.address))) is not None:
            if isinstance(failure, LoginError) or time.monotonic() > deadline:
                silent[node] = str(failure)
                break
            time.sleep(LOOK_EVERY_S)
    return silent


def _failure_to_answer(target: Target) -> Exception | None:
    """Return the reason why a node does not answer; None if it answers."""
    try:
        with patient(target) as node:
            node.run(commands.ping())
    except (ConnectError, DisqueError) as error:
        return error
    return None


def failure_text(directory: Path, port: int) -> str:
    """Return the last lines of a node's output and log, for a user whose node did not start."""
    lines: list[str] = []
    for name in ("output.log", "disque.log"):
        try:
            text = (node_directory(directory, port) / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        lines += text.splitlines()[-LOG_LINES:]
    return "\n".join(f"  {line}" for line in lines) or "  (it printed nothing)"


def stop_nodes(nodes: Sequence[LocalNode], timeout_s: float = STOP_TIMEOUT_S) -> list[LocalNode]:
    """Ask the running nodes to stop, and kill those that don't in time. Return the killed ones."""
    alive = [node for node in nodes if node.is_alive]
    for node in alive:
        _signal(node, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while (alive := [node for node in alive if node.is_alive]) and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_S)
    for node in alive:
        _signal(node, signal.SIGKILL)
    return alive


def _signal(node: LocalNode, number: signal.Signals) -> None:
    try:
        os.kill(node.pid, number)
    except ProcessLookupError:
        # It ended between the look and the signal, which is fine.
        return
