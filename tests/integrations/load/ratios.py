"""The same program on Redis and on disque-py: CPU of workers, programs and brokers, and tasks per second.

Usage: python tests/integrations/load/ratios.py [celery celery-solo dramatiq taskiq] [--tasks 5000] [--rounds 5]
           [--out FILE]
       python tests/integrations/load/ratios.py --fill FILE

It needs redis-server in the path, and the extras celery, dramatiq, taskiq and ratios. It measures the disque-py that is
installed for the Python which runs it. Rounds alternate: Redis, disque-py, Redis, disque-py. Each round starts a new
broker. A program adds tasks that only append a byte to a file. Then one worker starts. The measurement begins after a
tenth of the tasks, and ends with the last one. The table has the median of each broker's rounds, and the ratio of
disque-py to Redis.

`--out` appends the figures and the machine to a file of JSON lines. `--fill` reads such a file, and puts the newest run
of each program into docs/performance.md. Runs of fewer than ROUNDS_MIN rounds are skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disque_py import testing
from disque_py.loopback_ports import free_port

# The other benchmarks' modules write the results file, describe the machine and fill the document.
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

RUN = """
import os
URL = os.environ["BROKER"]
file = os.open(os.environ["RUNS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
"""
CELERY = (
    RUN
    + """
from celery import Celery
app = Celery("ratios", broker=URL)
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)
@app.task
def run(number):
    os.write(file, b".")
def send(count):
    for number in range(count): run.delay(number)
"""
)
DRAMATIQ = (
    RUN
    + """
import dramatiq
if URL.startswith("redis"):
    from dramatiq.brokers.redis import RedisBroker as Broker
else:
    from disque_py.integrations.dramatiq import DisqueBroker as Broker
dramatiq.set_broker(Broker(url=URL))
@dramatiq.actor
def run(number):
    os.write(file, b".")
def send(count):
    for number in range(count): run.send(number)
"""
)
TASKIQ = (
    RUN
    + """
import asyncio
if URL.startswith("redis"):
    from taskiq_redis import RedisStreamBroker as Broker
else:
    from disque_py.integrations.taskiq import DisqueBroker as Broker
broker = Broker(URL)
@broker.task
async def run(number: int) -> None:
    os.write(file, b".")
async def add(count):
    await broker.startup()
    for number in range(count): await run.kiq(number)
    await broker.shutdown()
def send(count):
    asyncio.run(add(count))
"""
)
SEND = """
import json, sys, time
import tasks
tasks.send(10)
began, cpu = time.perf_counter(), time.process_time()
tasks.send(int(sys.argv[1]) - 10)
print(json.dumps([time.perf_counter() - began, time.process_time() - cpu]))
"""


# Every process of a run is in the group of such a guard. If this program ends, the kernel sends the guard a SIGHUP
# (PR_SET_PDEATHSIG is 1), and the guard kills its group: workers ignore the end of their parent. This program may have
# ended before the guard asked for the signal, so the guard checks afterwards.
GUARD = """
import ctypes, os, signal, subprocess, sys
signal.signal(signal.SIGHUP, lambda *_: os.killpg(0, signal.SIGKILL))
ctypes.CDLL(None).prctl(1, signal.SIGHUP)
sys.exit(subprocess.call(sys.argv[2:]) if os.getppid() == int(sys.argv[1]) else 1)
"""


@dataclass(frozen=True)
class Program:
    """A program, and the words that start its worker."""

    text: str
    worker: tuple[str, ...]


CELERY_WORKER = ("celery", "-A", "tasks", "worker", "-l", "WARNING")
PROGRAMS = {
    "celery": Program(CELERY, (*CELERY_WORKER, "-c", "2")),
    "celery-solo": Program(CELERY, (*CELERY_WORKER, "-P", "solo")),
    "dramatiq": Program(DRAMATIQ, ("dramatiq", "tasks", "--processes", "1", "--threads", "8", "--skip-logging")),
    "taskiq": Program(TASKIQ, ("taskiq", "worker", "tasks:broker", "--workers", "1", "--log-level", "WARNING")),
}
FIGURES = ("worker CPU, µs per task", "tasks/s", "client CPU, µs per task", "broker CPU, µs per task")
KEYS = ("worker_cpu_us", "tasks_per_s", "client_cpu_us", "broker_cpu_us")
NAME = "libraries"
TITLES = {
    "celery": "Celery, two processes",
    "celery-solo": "Celery, `-P solo`",
    "dramatiq": "Dramatiq",
    "taskiq": "Taskiq",
}
ROUNDS_MIN = 3
# A generous limit: a task takes milliseconds, even on a busy machine.
PATIENCE_S = 300
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of_group(group: int) -> float:
    """Return the CPU seconds of a process group, including those of ended children."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[2]) == group:
            total += sum(map(int, words[11:15]))
    return total / TICKS


@contextmanager
def guarded(words: list[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Run a program in a process group of its own. Kill the group at the end, and also if this program is killed."""
    guard = [sys.executable, "-c", GUARD, str(os.getpid())]
    process = subprocess.Popen([*guard, *words], start_new_session=True, **options)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def redis_server() -> Iterator[tuple[str, int]]:
    """Run a Redis without persistence. Yield its URL and its process group."""
    port = free_port()
    words = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]
    with guarded(words, stdout=subprocess.DEVNULL) as process:
        time.sleep(0.5)
        yield f"redis://127.0.0.1:{port}/0", process.pid


@contextmanager
def disque_server() -> Iterator[tuple[str, int]]:
    """Run a node without a journal. Yield its URL and its process group."""
    with testing.node() as node:
        assert node.pid is not None
        yield node.url, node.pid


BROKERS = {"redis": redis_server, "disque-py": disque_server}


def measure(program: Program, broker: str, count: int, folder: Path) -> tuple[float, ...]:
    """Run one round. Return the figures, in the order of FIGURES."""
    runs = folder / "runs"
    runs.unlink(missing_ok=True)
    (folder / "tasks.py").write_text(program.text)
    with BROKERS[broker]() as (url, broker_group):
        environment = os.environ | {"BROKER": url, "RUNS": str(runs), "PYTHONPATH": str(folder)}
        environment |= {"PYTHONWARNINGS": "ignore"}
        broker_before = cpu_of_group(broker_group)
        sender = [sys.executable, "-c", SEND, str(count)]
        with guarded(sender, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as sending:
            said = sending.communicate()[0]
        if sending.returncode:
            raise RuntimeError(f"the program that adds tasks ended with {sending.returncode}")
        client_cpu = json.loads(said)[1]
        words = [sys.executable, "-m", *program.worker]
        with (folder / "log").open("wb") as log:
            working = guarded(words, cwd=folder, env=environment, stdout=log, stderr=log)
            try:
                with working as worker:
                    first_at, first_count = wait_for(runs, count // 10, worker)
                    cpu_before = cpu_of_group(worker.pid)
                    last_at, last_count = wait_for(runs, count, worker)
                    worker_cpu = cpu_of_group(worker.pid) - cpu_before
            except RuntimeError as error:
                raise RuntimeError(f"{error}; its log ends:\n{(folder / 'log').read_text()[-2000:]}") from None
        broker_cpu = cpu_of_group(broker_group) - broker_before
    measured = last_count - first_count
    return (
        1e6 * worker_cpu / measured,
        measured / (last_at - first_at),
        1e6 * client_cpu / (count - 10),
        1e6 * broker_cpu / count,
    )


def wait_for(runs: Path, count: int, worker: subprocess.Popen[Any]) -> tuple[float, int]:
    """Wait until at least `count` tasks have run. Return the moment and the number of tasks that have run."""
    until = time.monotonic() + PATIENCE_S
    while True:
        found = runs.stat().st_size if runs.exists() else 0
        if found >= count:
            return time.perf_counter(), found
        if worker.poll() is not None:
            raise RuntimeError(f"the worker ended with {worker.returncode}")
        if time.monotonic() > until:
            raise RuntimeError(f"{found} of {count} tasks ran in {PATIENCE_S} seconds")
        time.sleep(0.005)


def compared(found: dict[str, list[tuple[float, ...]]]) -> dict[str, Any]:
    """Return the medians of both brokers and their ratios, under the keys of the results file."""
    values: dict[str, Any] = {"rounds": len(found["redis"])}
    for at, key in enumerate(KEYS):
        theirs, ours = (statistics.median(row[at] for row in found[broker]) for broker in BROKERS)
        values |= {f"{key}_redis": round(theirs, 1), f"{key}_disque": round(ours, 1)}
        values[f"{key}_ratio"] = round(ours / theirs, 3) if theirs else None
    return values


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Return the figures of programs as a table for the document. A cell has Redis → disque-py, and the ratio."""
    lines = ["| program | " + " | ".join(FIGURES) + " |", "|---|" + "---:|" * len(FIGURES)]
    for name in (name for name in PROGRAMS if name in rows):
        values = rows[name]
        cells = [f"{values[f'{k}_redis']:,.0f} → {values[f'{k}_disque']:,.0f}: {values[f'{k}_ratio']}" for k in KEYS]
        lines.append(f"| {TITLES[name]} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def fill(results: Path, document: Path) -> None:
    """Put the newest figures of a results file into a document. ValueError if no run has enough rounds."""
    from document import replaced
    from figures import read_results

    past = read_results(results, with_quick=False)
    if NAME not in past.rows:
        raise ValueError(f"{results} has no run of {ROUNDS_MIN} rounds or more")
    text = document.read_text(encoding="utf-8")
    document.write_text(replaced(text, NAME, table(past.rows[NAME]), past.machines[NAME]), encoding="utf-8")


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("programs", nargs="*", help=f"some of {', '.join(PROGRAMS)}; all by default")
    parser.add_argument("--tasks", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="a file of JSON lines that gets the figures")
    parser.add_argument("--fill", type=Path, help="measure nothing: put the figures of such a file into the document")
    words = parser.parse_args()
    if words.fill is not None:
        from document import DOCUMENT

        fill(words.fill, DOCUMENT)
        return 0
    unknown = set(words.programs) - set(PROGRAMS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if shutil.which("redis-server") is None:
        parser.error("redis-server is not installed")
    from figures import Results, Row
    from machine import described

    results = Results(words.out, time.strftime("%Y-%m-%dT%H:%M:%S%z"))
    results.note_machine(described(), is_quick=words.rounds < ROUNDS_MIN)
    print(f"{words.tasks} tasks, {words.rounds} alternating rounds; load before: {os.getloadavg()[0]:.1f}")
    print("| program | figure | Redis | disque-py | ratio |\n|---|---|---|---|---|")
    for name in words.programs or PROGRAMS:
        found: dict[str, list[tuple[float, ...]]] = {broker: [] for broker in BROKERS}
        for _ in range(words.rounds):
            for broker, rounds in found.items():
                with tempfile.TemporaryDirectory(prefix="disque-ratios-") as folder:
                    rounds.append(measure(PROGRAMS[name], broker, words.tasks, Path(folder)))
        values = compared(found)
        results.note_row(NAME, Row(name, {"tasks": words.tasks, **values}))
        for figure, key in zip(FIGURES, KEYS, strict=True):
            theirs, ours, ratio = (values[f"{key}_{part}"] for part in ("redis", "disque", "ratio"))
            print(f"| {name} | {figure} | {theirs:.0f} | {ours:.0f} | {ratio} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
