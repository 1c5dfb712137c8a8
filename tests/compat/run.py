"""Run published clients of Disque and Redis against a node of this checkout: `make compat`.

    python3 tests/compat/run.py [word …]     only the clients whose name contains one of the words

Each client is installed from its registry into a folder of its own under .compat/, which is kept for the next run. Then
it runs its tour, a program in tours/ that ends with status 0 or prints the failure. Each client has a node of its own,
so it finds only its own queues and figures. The report has one line per client and version. The exit status is 1 if any
failed. Clients that can't be tried because a tool is missing (npm, redis-cli) are reported as such.

This program uses the standard library only, so that no client meets packages of this project.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOURS = Path(__file__).resolve().parent / "tours"
SCRATCH = ROOT / ".compat"
TOUR_SECONDS = 60
START_SECONDS = 15


@dataclass(frozen=True)
class PublishedClient:
    """A client: its name in the report, the packages to install, its tour, and the tour's arguments after the port."""

    name: str
    packages: tuple[str, ...]
    tour: str
    words: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of its installation. Another choice of packages has another folder."""
        return SCRATCH / "-".join(word.translate(str.maketrans("<>=[],@/", "________")) for word in self.packages)


CLIENTS = (
    # pydisque accepts any redis-py. Run it with the version of its time, and with today's, which uses RESP3.
    PublishedClient("pydisque 0.1.5, redis-py 2", ("pydisque==0.1.5", "redis>=2.10,<3"), "pydisque_tour.py"),
    PublishedClient("pydisque 0.1.5, redis-py 8", ("pydisque==0.1.5", "redis>=8,<9"), "pydisque_tour.py"),
    # RESP2 is the default up to 7, RESP3 from 8 on.
    PublishedClient("redis-py 5, RESP2", ("redis>=5,<6",), "redis_tour.py", ("2",)),
    PublishedClient("redis-py 5, RESP3", ("redis>=5,<6",), "redis_tour.py", ("3",)),
    PublishedClient("redis-py 6, RESP2", ("redis>=6,<7",), "redis_tour.py", ("2",)),
    PublishedClient("redis-py 6, RESP3", ("redis>=6,<7",), "redis_tour.py", ("3",)),
    PublishedClient("redis-py 7, RESP2", ("redis>=7,<8",), "redis_tour.py", ("2",)),
    PublishedClient("redis-py 7, RESP3", ("redis>=7,<8",), "redis_tour.py", ("3",)),
    PublishedClient("redis-py 8, RESP2", ("redis>=8,<9",), "redis_tour.py", ("2",)),
    PublishedClient("redis-py 8, RESP3", ("redis>=8,<9",), "redis_tour.py", ("3",)),
    PublishedClient("redis-py 8 with hiredis, RESP2", ("redis[hiredis]>=8,<9",), "redis_tour.py", ("2", "hiredis")),
    PublishedClient("redis-py 8 with hiredis, RESP3", ("redis[hiredis]>=8,<9",), "redis_tour.py", ("3", "hiredis")),
    # With the redis-py that it declares (3.5), and with two bounds that it should declare: it imports pkg_resources,
    # which setuptools 81 dropped, and django.utils.baseconv, which Django 5 dropped.
    PublishedClient("django-q 1.3.9", ("django-q==1.3.9", "django<5", "setuptools<81"), "django_q_tour.py"),
    PublishedClient("dwq 0.1.0", ("dwq==0.1.0",), "dwq_tour.py"),
    PublishedClient("disqueue-node 2.0.2", ("disqueue-node@2.0.2",), "disqueue-node.js"),
    PublishedClient("thunk-disque 0.5.13", ("thunk-disque@0.5.13",), "thunk-disque.js"),
    PublishedClient("redis-cli", ("redis-cli",), "redis-cli.sh"),
    PublishedClient("redis-benchmark", ("redis-benchmark", "redis-cli"), "redis-benchmark.sh"),
)


class CannotTryError(Exception):
    """A tool that the tour needs is not on this machine."""


def main(words: list[str]) -> int:
    """Run the tour of every client. Return the exit status."""
    clients = [client for client in CLIENTS if not words or any(word in client.name for word in words)]
    SCRATCH.mkdir(exist_ok=True)
    passed = failed = 0
    python = subprocess.run([ROOT / "bin" / "prepare"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    for client in clients:
        began = time.monotonic()
        try:
            fault = take(client, python)
            verdict = f"FAIL  {client.name}: {fault}" if fault else f"OK    {client.name}"
            failed += bool(fault)
            passed += not fault
        except CannotTryError as error:
            verdict = f"--    {client.name}: not tried, {error}"
        print(f"{verdict}  ({time.monotonic() - began:.1f} s)", flush=True)
    print(f"{passed} passed, {failed} failed, {len(clients) - passed - failed} not tried")
    return 1 if failed or not clients else 0


def take(client: PublishedClient, python: str) -> str:
    """Install a client and run its tour on a new node. Return the failure, or an empty string."""
    try:
        command, environment = prepared(client)
        with node(python) as port:
            done = subprocess.run(
                [*command, str(port), *client.words], env={**os.environ, **environment}, timeout=TOUR_SECONDS,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            )  # fmt: skip
    except subprocess.CalledProcessError as error:
        return f"installation failed: {last_line(error.output)}"
    except subprocess.TimeoutExpired:
        return f"no end within {TOUR_SECONDS} s"
    if done.returncode == 0:
        return ""
    (SCRATCH / f"{client.folder.name}.log").write_text(done.stdout)
    return f"{last_line(done.stdout)} (more in .compat/{client.folder.name}.log)"


def last_line(text: str | None) -> str:
    """Return the last line, which is usually the most informative."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def prepared(client: PublishedClient) -> tuple[list[str], dict[str, str]]:
    """Return the command that runs the tour, and its environment. Install the client first if it is missing."""
    tour = str(TOURS / client.tour)
    stamp = client.folder / "installed"
    if client.tour.endswith(".sh"):
        require(*client.packages)
        return ["sh", tour], {}
    if client.tour.endswith(".js"):
        require("npm", "node")
        install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(client.folder)]
        command, environment = ["node", tour], {"NODE_PATH": str(client.folder / "node_modules")}
    else:
        install = [sys.executable, "-m", "pip", "install", "-qq", "--upgrade", "--target", str(client.folder)]
        # -S: import only from the standard library and the client's folder.
        command, environment = [sys.executable, "-S", tour], {"PYTHONPATH": str(client.folder)}
    if not stamp.exists():
        client.folder.mkdir(exist_ok=True)
        run_quietly([*install, *client.packages])
        stamp.touch()
    return command, environment


def require(*programs: str) -> None:
    """Raise CannotTryError if one of the programs is not on the path."""
    for program in programs:
        if shutil.which(program) is None:
            raise CannotTryError(f"there is no {program} here")


def run_quietly(command: list[str]) -> None:
    """Run a command; its output is in the CalledProcessError if it fails."""
    subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=SCRATCH)


@contextlib.contextmanager
def node(python: str) -> Iterator[int]:
    """Run a node on a free port with this interpreter. Yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as probe:
        bus_port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="disque-compat-") as folder:
        process = subprocess.Popen(
            [
                *(python, "-m", "disque_py.server.main", "--port", str(port), "--cluster-port", str(bus_port)),
                *("--bind", "127.0.0.1", "--dir", folder, "--logfile", f"{folder}/log"),
            ]
        )
        try:
            wait_listening(port, process)
            yield port
        finally:
            process.terminate()
            process.wait(10)


def wait_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return when the node accepts connections. Raise SystemExit if it does not."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        time.sleep(0.05)
    raise SystemExit("the node did not start")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
