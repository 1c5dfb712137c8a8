"""disque-worker as a process, on real nodes: crashes, signals, leases, schedules and changes of its program.

The tasks append lines to a file. Each line is one write, so several processes can share the file.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import disque_py
from disque_py import testing
from disque_py.client import Disque
from disque_py.tasks import App, TaskFailedError

PROGRAM = """
import asyncio, os, time
from disque_py.tasks import App, current, tick_of

app = App(queue="work", lease=5, attempts=20, backoff="fixed:100:100:0")

def write(*words):
    with open(os.environ["NOTES"], "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

def is_told(name):
    return os.path.exists(name)

@app.task
def note(number): write(number)

@app.task(lease=60)
async def note_slowly(number):
    await asyncio.sleep(0.02)
    write(number)

@app.task
def hold(name):
    write(name, "begins", os.getpid(), current().attempt)
    while not is_told("go"): time.sleep(0.02)
    write(name, "ends", os.getpid(), current().attempt)

@app.task
async def hold_async(name):
    write(name, "begins", os.getpid(), current().attempt)
    while not is_told("go"): await asyncio.sleep(0.02)
    write(name, "ends", os.getpid(), current().attempt)

@app.task(lease=5)
def long_run(seconds):
    write("long", current().attempt)
    time.sleep(seconds)

@app.task(lease=5)
async def long_run_async(seconds):
    write("long", current().attempt)
    await asyncio.sleep(seconds)
"""
RAISING = """
import builtins

@app.task(attempts=2)
async def fail(name): raise getattr(builtins, name)

@app.task(attempts=2)
def fail_in_thread(name): raise getattr(builtins, name)
"""
TICKING = """
@app.schedule("* * * * * *")
@app.task
def tick(): write(round(1000 * tick_of(current().meta).timestamp()))
"""


@pytest.fixture
def folder(tmp_path):
    """The folder of the program."""
    (tmp_path / "shop.py").write_text(PROGRAM)
    return tmp_path


@pytest.fixture
def start(folder):
    """Start a worker of the program. It ends with the test."""
    started = []

    def start(url, *words):
        home = str(Path(disque_py.__file__).parents[1])
        environment = {**os.environ, "DISQUE_URL": url, "NOTES": str(folder / "notes")}
        environment.pop("PYTHONUNBUFFERED", None)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
        with open(folder / f"{len(started)}.log", "wb") as log:
            command = [sys.executable, "-m", "disque_py.tasks.command", "shop", *words]
            started.append(
                subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
            )
        return started[-1]

    yield start
    for number, process in enumerate(started):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        print((folder / f"{number}.log").read_text())  # If the test fails, pytest shows the logs.


@pytest.fixture
def notes(folder):
    """Return the lines that the tasks wrote."""
    path = folder / "notes"
    return lambda: path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def node():
    with testing.node() as node:
        yield node


@pytest.fixture
def shop(node):
    """The app of the test, which adds tasks by their names."""
    with app_of(node.url) as app:
        yield app


def app_of(url):
    """Return the program's app, as the test sees it: functions without bodies."""
    app = App(url, queue="work", lease=5, attempts=20, backoff="fixed:100:100:0")
    for name in ("hold", "hold_async", "long_run", "long_run_async", "version", "whoami", "unknown"):
        app.task(name=name)(lambda *args: None)
    app.task(name="note")(_note)
    app.task(name="note_slowly", lease=60)(_note)
    return app


def _note(number): ...


def until(ask, seconds=60):
    """Repeat a question until the answer is true, and return the answer."""
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.05)
    return answer


@pytest.mark.timeout(180)
def test_of_2000_tasks_none_is_lost_and_none_runs_twice(start, notes):
    """Workers come and go meanwhile, gracefully."""
    with testing.cluster() as cluster, app_of(cluster.url) as app:
        task = app.tasks["note_slowly"]
        first = start(cluster.url, "-c", "20")
        handles = app.add_many([task.call(number) for number in range(2000)])
        assert len({handle.id for handle in handles}) == 2000
        until(lambda: len(notes()) > 100)
        start(cluster.url, "-c", "20", "--processes", "2")
        until(lambda: len(notes()) > 300)
        first.terminate()
        assert first.wait(60) == 0
        until(lambda: len(notes()) >= 2000, 120)
        assert Counter(map(int, notes())) == Counter(range(2000))


@pytest.mark.timeout(180)
def test_tasks_survive_a_worker_and_a_node_that_are_killed(start, notes):
    with testing.cluster() as cluster, app_of(cluster.url) as app:
        app.add_many([app.tasks["note"].call(number) for number in range(500)])
        first = start(cluster.url, "-c", "2")
        start(cluster.url, "-c", "2")
        until(lambda: len(notes()) > 20)
        first.kill()
        cluster.kill(0)
        until(lambda: {int(line) for line in notes()} == set(range(500)), 120)


def test_a_worker_that_is_killed_gives_its_tasks_back(start, notes, node, shop, folder):
    handles = [shop.tasks["hold"].add("a"), shop.tasks["hold_async"].add("b")]
    first = start(node.url)
    until(lambda: len(notes()) == 2)
    first.kill()
    (folder / "go").touch()
    start(node.url)
    for handle in handles:
        handle.wait(60)
    assert sorted(line.split()[0] + line.split()[3] for line in notes() if "ends" in line) == ["a2", "b2"]


def test_no_error_of_a_task_ends_its_worker(start, node, shop, folder):
    """Otherwise one task could end all workers, one after the other."""
    (folder / "shop.py").write_text(PROGRAM + RAISING)
    process = start(node.url)
    for name in ("fail", "fail_in_thread"):
        task = shop.task(name=name, attempts=2)(lambda error: None)
        for error in ("KeyboardInterrupt", "GeneratorExit", "SystemExit", "StopIteration"):
            with pytest.raises(TaskFailedError, match=error):
                task.add(error).wait(60)
    assert process.poll() is None


@pytest.mark.parametrize("name", ["long_run", "long_run_async"])
def test_a_task_may_take_longer_than_its_lease(start, notes, node, shop, name):
    """The worker extends the lease meanwhile."""
    start(node.url)
    shop.tasks[name].add(8).wait(60)
    assert notes() == ["long 1"]


def test_a_graceful_stop_puts_work_back_that_has_not_begun(start, notes, node, shop, folder):
    first = start(node.url, "-c", "1")
    running = shop.tasks["hold"].add("a")
    until(lambda: len(notes()) == 1)
    waiting = shop.tasks["hold"].add("b")
    first.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(0.5)
    (folder / "go").touch()
    assert first.wait(60) == 0
    running.wait(60)
    assert [line.split()[0] for line in notes()] == ["a", "a"]
    assert waiting.status() == "pending"
    start(node.url)
    waiting.wait(60)


@pytest.mark.parametrize("name", ["hold", "hold_async"])
def test_work_that_takes_longer_than_the_grace_goes_back(start, notes, node, shop, folder, name):
    """This includes work in a thread, which can't be ended. The process still ends."""
    first = start(node.url, "--grace", "0.2")
    handle = shop.tasks[name].add("a")
    until(lambda: len(notes()) == 1)
    first.terminate()
    assert first.wait(60) == 0
    until(lambda: handle.status() == "pending")
    with Disque(node.address) as client:
        assert client.show(handle.id).error == "the worker stopped"


def test_processes_share_the_work_and_are_replaced(start, notes, node, shop, folder):
    start(node.url, "--processes", "2", "-c", "1")
    for name in "abc":
        shop.tasks["hold"].add(name)
    pids = until(lambda: (found := {line.split()[2] for line in notes()}) and len(found) == 2 and found)
    os.kill(int(min(pids)), signal.SIGKILL)
    until(lambda: len({line.split()[2] for line in notes()}) == 3)
    (folder / "go").touch()
    until(lambda: {line.split()[0] for line in notes() if "ends" in line} == {"a", "b", "c"})


def test_workers_end_when_their_supervisor_is_killed(start, notes, node, shop):
    supervisor = start(node.url, "--processes", "2", "--grace", "0.1")
    shop.tasks["hold"].add("a")
    pid = int(until(notes)[0].split()[2])
    supervisor.kill()
    supervisor.wait()

    def is_gone():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        # If no process takes over orphans, a worker that ended stays as a zombie.
        stat = Path(f"/proc/{pid}/stat")
        return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"

    until(is_gone)


def test_a_process_that_a_task_starts_inherits_no_supervisor(start, notes, node, shop, folder):
    """It may be another worker, which would end because its parent is no supervisor."""
    with open(folder / "shop.py", "a") as file:
        file.write('@app.task\ndef inherited(): write(os.environ.get("DISQUE_WORKER_PARENT"))\n')
    start(node.url, "--processes", "2")
    shop.task(name="inherited")(lambda: None).add()
    assert until(notes) == ["None"]


def test_output_of_tasks_is_not_lost_if_a_thread_does_not_end(start, notes, node, shop, folder):
    """The process ends without waiting for that thread."""
    with open(folder / "shop.py", "a") as file:
        file.write('@app.task\ndef say(): print("the task said this"); write("said"); time.sleep(60)\n')
    worker = start(node.url, "--grace", "0.1")
    shop.task(name="say")(lambda: None).add()
    until(notes)
    worker.terminate()
    assert worker.wait(20) == 0
    assert "the task said this" in (folder / "0.log").read_text()


def test_each_tick_of_a_schedule_runs_once(start, notes, node, folder):
    """The number of workers that install it does not matter."""
    with open(folder / "shop.py", "a") as file:
        file.write(TICKING)
    for _ in range(2):
        start(node.url)
    until(lambda: len(notes()) >= 4)
    ticks = [int(line) for line in notes()]
    assert len(set(ticks)) == len(ticks)
    assert {tick % 1000 for tick in ticks} == {0}


def test_a_change_of_the_program_starts_the_worker_again(start, node, shop, folder):
    source = folder / "shop.py"
    source.write_text(PROGRAM + "\n@app.task\ndef version(): return 1\n")
    start(node.url, "--reload")
    version = shop.tasks["version"]
    assert version.add().wait(60) == 1
    source.write_text(PROGRAM + "\nthis is no Python\n")
    source.write_text(PROGRAM + "\n@app.task\ndef version(): return 'second'\n")
    until(lambda: version.add().wait(60) == "second")


def test_a_task_that_the_worker_does_not_know_is_not_lost(start, node, shop, folder):
    """A newer worker may know it. In the end it is errored, with the reason."""
    start(node.url)
    with pytest.raises(TaskFailedError, match="no task 'unknown'") as caught:
        shop.tasks["unknown"].options(attempts=2).add().wait(60)
    assert caught.value.type_name == "disque_py.tasks.errors.UnknownTaskError"
    later = shop.tasks["version"].options(attempts=100).add()
    (folder / "shop.py").write_text(PROGRAM + "\n@app.task\ndef version(): return 2\n")
    start(node.url)
    assert later.wait(60) == 2


def test_a_wrong_password_ends_the_worker(start):
    with testing.node(requirepass="secret") as node:
        worker = start(f"disque://:wrong@{node.address}")
        assert worker.wait(60) == 1
