"""The worked example docs/examples/encoding_farm: one job per project, deadlines, kinds, and late writers."""

from __future__ import annotations

import importlib.util
import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from disque_py.client import Disque
from servers import HOST, Cluster, until

PROGRAM = Path(__file__).resolve().parents[2] / "docs/examples/encoding_farm/encoding_farm.py"
SECONDS = 60
DEADLINE = 1_800_000_000_000


def load():
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("encoding_farm", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


farm = load()


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Three nodes, all of them voters, with the queue of the farm."""
    with Cluster(tmp_path_factory.mktemp("farm"), 3, ["--cluster-node-timeout", "1000"]) as cluster:
        cluster[0].command("CLUSTER", "VOTERS", "INIT", *(server.node_id for server in cluster.servers))
        with client_of(cluster) as client:
            farm.prepare(client)
        yield cluster


def client_of(cluster):
    """Return a client that adds its jobs at the first node."""
    return Disque(f"{HOST}:{cluster[0].port}", *nodes_of(cluster)[1:], follow=False)


def nodes_of(cluster):
    return [f"{HOST}:{server.port}" for server in cluster.servers]


class Workers:
    """Worker processes of the given kinds."""

    def __init__(self, cluster, folder, kinds):
        self.folder = folder
        self.storage = farm.Storage(folder)
        self.processes = {}
        for number, kind in enumerate(kinds):
            nodes = nodes_of(cluster)[number % 3 :] + nodes_of(cluster)[: number % 3]
            command = [sys.executable, str(PROGRAM), "work", *nodes, "--dir", str(folder), "--kind", kind]
            process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            self.processes[process.pid] = (process, kind)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process, _ in self.processes.values():
            process.kill()
            process.wait()
        self.storage.close()

    def kind_of(self, event):
        return self.processes[event.worker][1]


def submit_by_program(cluster, wanted):
    lines = "".join(json.dumps(each._asdict()) + "\n" for each in wanted)
    command = [sys.executable, str(PROGRAM), "submit", *nodes_of(cluster)]
    return subprocess.run(command, input=lines, capture_output=True, text=True, check=True).stdout.split()


def outcomes(client, ids):
    return [client.wait(job_id, timeout=SECONDS) for job_id in ids]


def gone_back(history):
    """Return the accepted events of a project with an older fence than the event before: then two jobs ran."""
    newest, found = {}, []
    for event in history:
        if event.fence < newest.get(event.project, 0):
            found.append(event)
        newest[event.project] = event.fence
    return found


def begun_while_busy(history):
    """Return the events of jobs that began before another job of their project had ended."""
    busy, found = set(), []
    for event in history:
        if event.what == "begin":
            if event.project in busy:
                found.append(event)
            busy.add(event.project)
        elif event.what == "end":
            busy.discard(event.project)
    return found


def begun(history, kind):
    return [event.title for event in history if event.what == "begin" and event.kind == kind]


def test_the_checks_of_a_history_find_two_running_jobs():
    first, second = (farm.Event("begin", "p", title, "cpu", 1, fence) for title, fence in (("a", 1), ("b", 2)))
    late = first._replace(what="segment")
    ended = first._replace(what="end")
    assert (gone_back([first, late, ended, second]), begun_while_busy([first, late, ended, second])) == ([], [])
    assert gone_back([first, second, late]) == [late]
    assert begun_while_busy([first, late, second]) == [second]


def test_the_earliest_deadline_is_first_for_each_kind(three, tmp_path):
    """All projects are free, and there is one worker of each kind. It takes the jobs of its kind by deadline."""
    wanted = [farm.Encoding(f"p{n}", f"edf-{n}", farm.KINDS[n % 2], DEADLINE + n, 1) for n in range(20)]
    with client_of(three) as client:
        ids = submit_by_program(three, random.Random(4).sample(wanted, len(wanted)))
        with Workers(three, tmp_path, farm.KINDS) as workers:
            assert {each.status for each in outcomes(client, ids)} == {"completed"}
            history = workers.storage.history()
    for kind in farm.KINDS:
        assert begun(history, kind) == [each.title for each in wanted if each.kind == kind]


def test_a_job_of_a_busy_project_lets_later_deadlines_pass(three, tmp_path):
    """The project with the earliest deadline has a running job here, so the worker takes all others.

    A deadline of another node may come a little later than it should (spec F8).
    """
    running = farm.Encoding("s0", "running", "cpu", DEADLINE, 1)
    wanted = [farm.Encoding(f"s{n}", f"passed-{n}", "cpu", DEADLINE + n, 1) for n in range(6)]
    with client_of(three) as client:
        farm.submit(client, [running])
        job = client.get_job(farm.QUEUE, withlease=True, lease=30, where={"kind": "cpu"}, timeout_ms=5_000)
        first, *others = farm.submit(client, wanted)
        with Workers(three, tmp_path, ["cpu"]) as workers:
            outcomes(client, others)
            assert sorted(begun(workers.storage.history(), "cpu")) == [each.title for each in wanted[1:]]
            client.ack(job)
            assert client.wait(first, timeout=SECONDS).status == "completed"


def test_a_project_has_one_running_job_and_a_worker_gets_its_kind(three, tmp_path):
    """There are two workers of each kind, four projects, and an unreadable source, whose job becomes errored."""
    wanted = [
        farm.Encoding(f"q{project}", f"busy-{project}-{n}", farm.KINDS[n % 2], DEADLINE + 10 * project + n)
        for project in range(4)
        for n in range(6)
    ]
    broken = farm.Encoding("q0", "broken", "cpu", DEADLINE, 3, True)
    with client_of(three) as client, Workers(three, tmp_path, farm.KINDS * 2) as workers:
        ids = farm.submit(client, [*wanted, broken])
        *ended, errored = outcomes(client, ids)
        history = workers.storage.history()
        assert {each.status for each in ended} == {"completed"}
        assert [json.loads(each.result)["segments"] for each in ended] == [3] * len(wanted)
        assert (errored.status, "can't be read" in errored.error) == ("errored", True)
        assert begun(history, "cpu").count("broken") == farm.ATTEMPTS
        assert workers.storage.segments() == {(each.project, each.title): [0, 1, 2] for each in wanted}
        assert [event for event in history if workers.kind_of(event) != event.kind] == []
    assert (gone_back(history), begun_while_busy(history)) == ([], [])
    assert [event for event in history if event.what == "refused"] == []


@pytest.mark.parametrize("victim", ["killed", "stopped", "node"])
def test_a_failure_loses_no_encoding_and_a_late_write_is_refused(three, tmp_path, victim):
    """A worker gets SIGKILL, another SIGSTOP beyond its lease, and the node that has the queue is killed."""
    wanted = [
        farm.Encoding(f"r{n % 4}", f"{victim}-{n}", farm.KINDS[n // 4 % 2], DEADLINE + n, 12 if n < 4 else 3)
        for n in range(12)
    ]
    with client_of(three) as client, Workers(three, tmp_path, farm.KINDS * 2) as workers:
        ids = farm.submit(client, wanted)
        storage = workers.storage
        until(lambda: any(event.what == "segment" for event in storage.history()))
        late = next(event for event in storage.history() if event.what == "segment")
        if victim == "node":
            three[0].kill()
        else:
            workers.processes[late.worker][0].send_signal(signal.SIGKILL if victim == "killed" else signal.SIGSTOP)
        until(lambda: set(storage.segments()) == {(each.project, each.title) for each in wanted}, SECONDS)
        until(lambda: ended_titles(storage) == {each.title for each in wanted}, SECONDS)
        if victim == "killed":
            # The network delivers now a write that the dead worker had sent before its end.
            with pytest.raises(farm.OlderFenceError):
                storage.note(late, (0, "late"))
        elif victim == "stopped":
            workers.processes[late.worker][0].send_signal(signal.SIGCONT)
            until(lambda: any(event.what == "refused" for event in storage.history()))
        history = storage.history()
        assert storage.segments() == {(each.project, each.title): list(range(each.segments)) for each in wanted}
        refused = {(event.worker, event.fence) for event in history if event.what == "refused"}
        assert victim == "node" or (late.worker, late.fence) in refused
        assert gone_back(event for event in history if event.what != "refused") == []
        assert {each.status for each in outcomes(client, ids)} == {"completed"}
    if victim == "node":
        three[0].restart()
        three.wait_whole()


def ended_titles(storage):
    return {event.title for event in storage.history() if event.what == "end"}
