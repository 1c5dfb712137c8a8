"""Run published clients of Disque and Redis against a node of this checkout: `make compat`.

    python3 tests/compat/run.py [word …]     only the clients whose name contains one of the words

Each client is installed from its registry into a folder of its own under .compat/ (kept for the next
run) and taken through its basic tour, a program in tours/ that ends with status 0 or says what went wrong;
the node is its own, so that it finds the queues and figures it has made. One line per client and
version; exit status 1 when any failed. What can't be tried because a tool is missing here (npm,
redis-cli) is said, not hidden.

Standard library only, so that no client meets packages which are ours.
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
class Guest:
    """A client: its name in the report, what to install, its tour, and words for that behind the port."""

    name: str
    packages: tuple[str, ...]
    tour: str
    words: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where it is installed; another choice of packages is another folder."""
        return SCRATCH / "-".join(word.translate(str.maketrans("<>=[],@/", "________")) for word in self.packages)


GUESTS = (
    # pydisque asks for any redis-py: the one of its time, and today's, which speaks RESP3.
    Guest("pydisque 0.1.5, redis-py 2", ("pydisque==0.1.5", "redis>=2.10,<3"), "pydisque_tour.py"),
    Guest("pydisque 0.1.5, redis-py 8", ("pydisque==0.1.5", "redis>=8,<9"), "pydisque_tour.py"),
    # RESP2 is the default up to 7, RESP3 from 8 on.
    Guest("redis-py 5, RESP2", ("redis>=5,<6",), "redis_tour.py", ("2",)),
    Guest("redis-py 5, RESP3", ("redis>=5,<6",), "redis_tour.py", ("3",)),
    Guest("redis-py 6, RESP2", ("redis>=6,<7",), "redis_tour.py", ("2",)),
    Guest("redis-py 6, RESP3", ("redis>=6,<7",), "redis_tour.py", ("3",)),
    Guest("redis-py 7, RESP2", ("redis>=7,<8",), "redis_tour.py", ("2",)),
    Guest("redis-py 7, RESP3", ("redis>=7,<8",), "redis_tour.py", ("3",)),
    Guest("redis-py 8, RESP2", ("redis>=8,<9",), "redis_tour.py", ("2",)),
    Guest("redis-py 8, RESP3", ("redis>=8,<9",), "redis_tour.py", ("3",)),
    Guest("redis-py 8 with hiredis, RESP2", ("redis[hiredis]>=8,<9",), "redis_tour.py", ("2", "hiredis")),
    Guest("redis-py 8 with hiredis, RESP3", ("redis[hiredis]>=8,<9",), "redis_tour.py", ("3", "hiredis")),
    # With what it declares (redis-py 3.5), and two bounds that it should have declared: it imports
    # pkg_resources, dropped by setuptools 81, and django.utils.baseconv, dropped by Django 5.
    Guest("django-q 1.3.9", ("django-q==1.3.9", "django<5", "setuptools<81"), "django_q_tour.py"),
    Guest("dwq 0.1.0", ("dwq==0.1.0",), "dwq_tour.py"),
    Guest("disqueue-node 2.0.2", ("disqueue-node@2.0.2",), "disqueue-node.js"),
    Guest("thunk-disque 0.5.13", ("thunk-disque@0.5.13",), "thunk-disque.js"),
    Guest("redis-cli", ("redis-cli",), "redis-cli.sh"),
    Guest("redis-benchmark", ("redis-benchmark", "redis-cli"), "redis-benchmark.sh"),
)


class CannotTryError(Exception):
    """A tool that the tour needs is not on this machine."""


def main(words: list[str]) -> int:
    """Take every guest on its tour; the exit status."""
    guests = [guest for guest in GUESTS if not words or any(word in guest.name for word in words)]
    SCRATCH.mkdir(exist_ok=True)
    passed = failed = 0
    python = subprocess.run([ROOT / "bin" / "prepare"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    for guest in guests:
        began = time.monotonic()
        try:
            fault = take(guest, python)
            verdict = f"FAIL  {guest.name}: {fault}" if fault else f"OK    {guest.name}"
            failed += bool(fault)
            passed += not fault
        except CannotTryError as error:
            verdict = f"--    {guest.name}: not tried, {error}"
        print(f"{verdict}  ({time.monotonic() - began:.1f} s)", flush=True)
    print(f"{passed} passed, {failed} failed, {len(guests) - passed - failed} not tried")
    return 1 if failed or not guests else 0


def take(guest: Guest, python: str) -> str:
    """Install a client and run its tour on a new node; what went wrong, or nothing."""
    try:
        command, environment = prepared(guest)
        with node(python) as port:
            done = subprocess.run(
                [*command, str(port), *guest.words], env={**os.environ, **environment}, timeout=TOUR_SECONDS,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            )  # fmt: skip
    except subprocess.CalledProcessError as error:
        return f"installation failed: {last_line(error.output)}"
    except subprocess.TimeoutExpired:
        return f"no end within {TOUR_SECONDS} s"
    if done.returncode == 0:
        return ""
    (SCRATCH / f"{guest.folder.name}.log").write_text(done.stdout)
    return f"{last_line(done.stdout)} (more in .compat/{guest.folder.name}.log)"


def last_line(text: str | None) -> str:
    """Return the last line, which is usually the most informative."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def prepared(guest: Guest) -> tuple[list[str], dict[str, str]]:
    """The command that runs the tour, and its environment; installs what is missing."""
    tour = str(TOURS / guest.tour)
    stamp = guest.folder / "installed"
    if guest.tour.endswith(".sh"):
        require(*guest.packages)
        return ["sh", tour], {}
    if guest.tour.endswith(".js"):
        require("npm", "node")
        install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(guest.folder)]
        command, environment = ["node", tour], {"NODE_PATH": str(guest.folder / "node_modules")}
    else:
        install = [sys.executable, "-m", "pip", "install", "-qq", "--upgrade", "--target", str(guest.folder)]
        # -S: nothing but the standard library and the client's folder.
        command, environment = [sys.executable, "-S", tour], {"PYTHONPATH": str(guest.folder)}
    if not stamp.exists():
        guest.folder.mkdir(exist_ok=True)
        run_quietly([*install, *guest.packages])
        stamp.touch()
    return command, environment


def require(*programs: str) -> None:
    """CannotTryError if one of the programs is not on the path."""
    for program in programs:
        if shutil.which(program) is None:
            raise CannotTryError(f"there is no {program} here")


def run_quietly(command: list[str]) -> None:
    """Run a command; its output is in the CalledProcessError if it fails."""
    subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=SCRATCH)


@contextlib.contextmanager
def node(python: str) -> Iterator[int]:
    """A node on a free port, run by this interpreter; the port."""
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
    """Return when the node accepts connections. SystemExit when it does not."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        time.sleep(0.05)
    raise SystemExit("the node did not start")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
