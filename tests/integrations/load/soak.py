"""Many tasks through real workers and a real cluster, while workers and nodes are killed.

Usage: python tests/integrations/load/soak.py FRAMEWORK [--tasks 100000] [--faults worker,node,stop] [--lease 3]

FRAMEWORK is celery, dramatiq, taskiq or django. Its extra must be installed. A program of the framework sends numbered
tasks. At its start and its end, each task records its number and its worker's process group. The faults happen while
the tasks run:

* `worker`: a worker is killed, and another one started
* `node`: a node is killed, and started again later
* `stop`: a worker is told to stop, and another one started

At the end, each task must have run. A task may run twice for two reasons: its first worker was killed, or a node was
killed about the time of the run. The exit status is 1 if a task was lost or ran twice without a reason.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from disque_py import testing

NOTE = """
import os, time
def note(kind, number):
    line = f"{kind} {number} {os.getpgid(0)} {time.time()}\\n".encode()
    file = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line)
    os.close(file)
URL, LEASE = os.environ["DISQUE_URL"], float(os.environ["LEASE"])
"""
CELERY = (
    NOTE
    + """
from celery import Celery
URL = URL.replace(",", ";disque://")
app = Celery("soak", broker=URL)
app.conf.update(task_acks_late=True, task_ignore_result=True, worker_prefetch_multiplier=4,
    broker_connection_retry_on_startup=True, broker_transport_options={"visibility_timeout": LEASE})
@app.task
def run(number, seconds):
    note("begin", number)
    time.sleep(seconds)
    note("end", number)
def send(number, seconds, delay_s):
    run.apply_async((number, seconds), countdown=delay_s or None)
"""
)
DRAMATIQ = (
    NOTE
    + """
import dramatiq
from disque_py.integrations.dramatiq import DisqueBroker
dramatiq.set_broker(DisqueBroker(url=URL, lease=LEASE, publish_once=True))
@dramatiq.actor(max_retries=0)
def run(number, seconds):
    note("begin", number)
    time.sleep(seconds)
    note("end", number)
def send(number, seconds, delay_s):
    run.send_with_options(args=(number, seconds), delay=int(1000 * delay_s) or None)
"""
)
TASKIQ = (
    NOTE
    + """
import asyncio
from disque_py.integrations.taskiq import DisqueBroker
broker = DisqueBroker(URL, lease=LEASE, publish_once=True)
@broker.task
async def run(number: int, seconds: float) -> None:
    note("begin", number)
    await asyncio.sleep(seconds)
    note("end", number)
runner = asyncio.Runner()
def send(number, seconds, delay_s):
    runner.run(run.kicker().with_labels(delay=delay_s).kiq(number, seconds))
"""
)
DJANGO = (
    NOTE
    + """
import django, datetime
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
from django.conf import settings
from django.apps import apps
if not apps.ready:
    django.setup()
try:
    from django.tasks import task
except ImportError:
    from django_tasks import task
@task
def run(number, seconds):
    note("begin", number)
    time.sleep(seconds)
    note("end", number)
def send(number, seconds, delay_s):
    after = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=delay_s) if delay_s else None
    run.using(run_after=after).enqueue(number, seconds)
"""
)
SETTINGS = """
import os
SECRET_KEY = "soak"
USE_TZ = True
TIME_ZONE = "UTC"
INSTALLED_APPS = ["disque_py.integrations.django"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
OPTIONS = {"url": os.environ["DISQUE_URL"], "lease": float(os.environ["LEASE"]), "publish_once": True}
TASKS = {"default": {"BACKEND": "disque_py.integrations.django.backend.DisqueBackend", "OPTIONS": OPTIONS}}
"""
SEND = "import sys, tasks\nfor n in range(int(sys.argv[1])): tasks.send(n, float(sys.argv[2]), float(sys.argv[3]))"


@dataclass(frozen=True)
class Framework:
    """The program of a framework, the arguments that start a worker with two or four slots, and the queue."""

    program: str
    words: tuple[str, ...]
    queue: str


FRAMEWORKS = {
    "celery": Framework(CELERY, ("celery", "-A", "tasks", "worker", "-c", "2", "-l", "WARNING"), "celery"),
    "dramatiq": Framework(
        DRAMATIQ, ("dramatiq", "tasks", "--processes", "1", "--threads", "4", "--skip-logging"), "dramatiq.default"
    ),
    "taskiq": Framework(
        TASKIQ, ("taskiq", "worker", "tasks:broker", "--workers", "1", "--max-async-tasks", "4"), "taskiq"
    ),
    "django": Framework(
        DJANGO, ("django", "disque_worker", "--settings", "settings", "--pythonpath", "."), "django.default"
    ),
}


@dataclass
class Run:
    """One run of a task: the process group of its worker, and the moments of its start and its end."""

    group: int
    begin: float
    end: float | None = None


@dataclass
class Soak:
    """A cluster, workers and a sender of one framework, in a folder.

    killed_workers   the moment of the kill, by the worker's process group
    killed_nodes     the moments of the kills
    """

    framework: str
    folder: Path
    url: str
    lease_s: float = 3.0
    killed_workers: dict[int, float] = field(default_factory=dict)
    killed_nodes: list[float] = field(default_factory=list)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _runs: dict[int, list[Run]] = field(default_factory=lambda: defaultdict(list))
    _ended: set[int] = field(default_factory=set)
    _read_bytes: int = 0

    def __post_init__(self) -> None:
        self.notes = self.folder / "notes"
        (self.folder / "tasks.py").write_text(FRAMEWORKS[self.framework].program)
        (self.folder / "settings.py").write_text(SETTINGS)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a Python program in the folder, in a separate process group."""
        environment = os.environ | {
            "DISQUE_URL": self.url,
            "LEASE": str(self.lease_s),
            "NOTES": str(self.notes),
            "PYTHONPATH": str(self.folder),
            "PYTHONWARNINGS": "ignore",
        }
        with (self.folder / f"{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def worker(self) -> subprocess.Popen[bytes]:
        """Start a worker."""
        number = f"w{len(self.processes)}@soak"
        words = FRAMEWORKS[self.framework].words
        return self.start("-m", *words, *(("-n", number) if self.framework == "celery" else ()))

    def send(self, count: int, seconds: float = 0.0, delay_s: float = 0.0) -> subprocess.Popen[bytes]:
        """Start a program that sends `count` tasks, which take `seconds` each and are delayed by `delay_s`."""
        return self.start("-c", SEND, str(count), str(seconds), str(delay_s))

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """Kill a worker with all its processes."""
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        self.killed_workers[worker.pid] = time.time()

    def close(self) -> None:
        """Kill all processes that still run."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def runs(self) -> dict[int, list[Run]]:
        """Return the runs of each task, in order. Only new records are read."""
        if self.notes.exists():
            with self.notes.open("rb") as notes:
                notes.seek(self._read_bytes)
                lines = notes.read()
            lines = lines[: lines.rfind(b"\n") + 1]
            self._read_bytes += len(lines)
            for line in lines.decode().splitlines():
                kind, number, group, moment = line.split()
                runs = self._runs[int(number)]
                if kind == "begin":
                    runs.append(Run(int(group), float(moment)))
                else:
                    next(run for run in runs if run.group == int(group) and run.end is None).end = float(moment)
                    self._ended.add(int(number))
        return self._runs

    def ended(self) -> int:
        """Return how many tasks have ended at least once."""
        self.runs()
        return len(self._ended)

    def has_reason(self, run: Run) -> bool:
        """Return whether the task may have run again after this run, because its worker or a node was killed."""
        if run.group in self.killed_workers:  # If the run had ended, its acknowledgement may be unsent.
            return True
        end = run.end if run.end is not None else time.time()
        return any(run.begin - self.lease_s <= moment <= end + self.lease_s for moment in self.killed_nodes)

    def wait(self, condition, what: str, seconds: float = 60) -> None:
        """Wait until a condition is true. TimeoutError with the logs if no task starts or ends for `seconds`."""
        seen, until = -1, time.monotonic() + seconds
        while not condition():
            size = self.notes.stat().st_size if self.notes.exists() else 0
            if size != seen:
                seen, until = size, time.monotonic() + seconds
            if time.monotonic() > until:
                logs = "\n".join(path.read_text()[-1500:] for path in sorted(self.folder.glob("*.log")))
                raise TimeoutError(f"{what} did not happen; {self.ended()} tasks have ended\n{logs}")
            time.sleep(0.05)

    def verdict(self, count: int) -> tuple[list[int], list[int], list[int]]:
        """Return the tasks that were lost, the tasks that ran twice, and those that ran twice without a reason."""
        runs = self.runs()
        lost = [number for number in range(count) if all(run.end is None for run in runs.get(number, ()))]
        twice = [number for number, each in runs.items() if len(each) > 1]
        unexplained = [number for number in twice if not all(map(self.has_reason, runs[number][:-1]))]
        return lost, twice, unexplained


def waiting_jobs(url: str, queue: str) -> int:
    """Return how many jobs of a queue are queued, delayed or running."""
    from disque_py.client import Disque

    with Disque.from_url(url) as client:
        stat = client.qstat(queue, cluster=True)
        return 0 if stat is None else stat.len + stat.invisible + stat.running


def soak(
    framework: str,
    folder: Path,
    tasks: int,
    faults: tuple[str, ...],
    workers: int = 2,
    lease_s: float = 3.0,
    seconds: float = 0.0,
) -> tuple[list[int], list[int], list[int]]:
    """Run tasks through a cluster of three nodes with faults. Return the verdict on the tasks."""
    with testing.cluster(3, appendonly=True, cluster_node_timeout=2000) as cluster:
        story = Soak(framework, folder, cluster.url, lease_s)
        try:
            running = [story.worker() for _ in range(workers)]
            sender = story.send(tasks, seconds)

            def reach(percent: int) -> None:
                story.wait(lambda: story.ended() >= tasks * percent // 100, f"{percent} % of the tasks")

            if "worker" in faults:
                reach(10)
                story.kill(running.pop(0))
                running.append(story.worker())
            if "node" in faults:
                reach(30)
                story.killed_nodes.append(time.time())
                cluster.kill(0)
                reach(50)
                cluster.restart(0)
            if "stop" in faults:
                reach(70)
                running.pop(0).terminate()
                running.append(story.worker())
            reach(100)
            assert sender.wait(30) == 0, "the sender failed"
            queue = FRAMEWORKS[framework].queue
            story.wait(lambda: waiting_jobs(cluster.url, queue) == 0, "the end of all jobs")
            return story.verdict(tasks)
        finally:
            story.close()


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("framework", choices=FRAMEWORKS)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--faults", default="worker,node,stop", help="with commas: worker, node, stop; none: empty")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lease", type=float, default=3.0, help="seconds")
    words = parser.parse_args()
    faults = tuple(filter(None, words.faults.split(",")))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="disque-soak-") as folder:
        lost, twice, unexplained = soak(words.framework, Path(folder), words.tasks, faults, words.workers, words.lease)
    took_s = time.monotonic() - began
    print(f"{words.framework}: {words.tasks} tasks in {took_s:.0f} s, {len(lost)} lost, {len(twice)} twice,", end=" ")
    print(f"{len(unexplained)} of these without a reason {unexplained[:10] or ''}")
    return 1 if lost or unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
