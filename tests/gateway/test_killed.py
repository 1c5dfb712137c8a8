"""Gateways and nodes are killed by SIGKILL while producers, takers and readers of events are at work.

No job is lost: each one is delivered to a taker, and none is left at the end. A reader that reconnects with its place
has seen every job.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from urllib.parse import quote

import pytest

from disque_py import testing
from disque_py.loopback_ports import HOST, free_port
from gateways import until

pytestmark = pytest.mark.timeout(900)
QUEUE = "killed"
JOBS = 240
# Long enough for a taker on a busy machine to finish a job in time, and short enough to end soon after a kill.
LEASE_MS = 5_000


class GatewayProcess:
    """A gateway that can be killed and started again at the same address."""

    def __init__(self, url, folder) -> None:
        self.port = free_port()
        words = ["--listen", f"{HOST}:{self.port}", "--grpc-listen", "", "--url", url, "--console", "no"]
        self._words = [sys.executable, "-m", "disque_py.gateway.command", *words, "--audit-log", str(folder / "log")]
        self._process = None
        self.start()

    def start(self):
        """Start the gateway, and wait until it answers."""
        self._process = subprocess.Popen(self._words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert until(lambda: self.ask("GET", "/livez") is not None, 300)

    def kill(self):
        """Kill the gateway with SIGKILL."""
        self._process.kill()
        self._process.wait()

    def ask(self, verb, path, value=None):
        """Return an answer's status and its JSON, or None if it is other text. Return None alone without an answer."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=30)
        try:
            body = None if value is None else json.dumps(value)
            connection.request(verb, path, body, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            body = answer.read()
            is_json = "json" in answer.getheader("content-type", "")
            return answer.status, json.loads(body) if is_json else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()


class Load:
    """A producer, takers and a reader of events, each in a thread, until `stop`."""

    def __init__(self, gateway) -> None:
        self.gateway = gateway
        self.added, self.taken, self.done, self.seen = {}, set(), set(), set()
        self.place = ""
        self._ended = threading.Event()
        works = (self._read, self._take, self._take, self._take, self._produce)
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]
        for each in self._threads:
            each.start()

    def stop(self):
        """End all threads."""
        self._ended.set()
        for each in self._threads:
            each.join(60)

    def _again(self, verb, path, value):
        """Repeat a request until there is an answer that is neither a server error nor 429."""
        while not self._ended.is_set():
            found = self.gateway.ask(verb, path, value)
            if found is not None and found[0] < 500 and found[0] != 429:
                return found
            time.sleep(0.05)
        return None

    def _produce(self):
        early = 0
        while not self.place and not self._ended.is_set():
            # A reader without a place gets new events only. Its first event gives it a place.
            self._again("POST", f"/v1/queues/{QUEUE}/jobs", {"body": "early", "request_id": f"early{early}"})
            early += 1
            time.sleep(0.2)
        for number in range(JOBS):
            job = {"body": str(number), "request_id": f"n{number}", "replicate": 2, "ttl_ms": 3_600_000}
            found = self._again("POST", f"/v1/queues/{QUEUE}/jobs", job)
            if found is not None:
                assert found[0] == 201, found
                self.added[number] = found[1]["id"]

    def _take(self):
        wanted = {"max": 3, "wait_ms": 300, "lease_ms": LEASE_MS}
        while not self._ended.is_set():
            found = self.gateway.ask("POST", f"/v1/queues/{QUEUE}/dequeue", wanted)
            if found is None or found[0] != 200:
                time.sleep(0.05)
                continue
            for job in found[1]["jobs"]:
                self.taken.add(job["id"])
                answer = self.gateway.ask("POST", f"/v1/jobs/{quote(job['id'], safe='')}/complete", {})
                if answer is not None and answer[0] == 200:
                    self.done.add(job["id"])

    def _read(self):
        while not self._ended.is_set():
            place = ""
            connection = http.client.HTTPConnection(HOST, self.gateway.port, timeout=5)
            try:
                headers = {"Last-Event-ID": self.place} if self.place else {}
                connection.request("GET", f"/v1/events?queue={QUEUE}&event=added", headers=headers)
                answer = connection.getresponse()
                while not self._ended.is_set():
                    line = answer.readline()
                    if not line:
                        break
                    field, _, value = line.decode().rstrip("\n").partition(": ")
                    if field == "id":
                        place = value
                    elif field == "data" and "job_id" in json.loads(value):
                        self.seen.add(json.loads(value)["job_id"])
                    elif not field and place:
                        self.place = place  # Only after a whole event.
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)
            finally:
                connection.close()


@pytest.fixture
def cluster(tmp_path):
    """Three nodes with journals."""
    with testing.cluster(3, appendonly="yes") as found:
        yield found


@pytest.fixture
def gateway(cluster, tmp_path):
    """A gateway of these nodes."""
    found = GatewayProcess(cluster.url, tmp_path)
    yield found
    found.kill()


def left(cluster):
    """Return how many jobs are left, in any status."""
    with cluster.client() as client:
        statuses = ("pending", "running", "invisible", "errored")
        return sum(client.qlen(QUEUE, status=status, cluster=True) for status in statuses)


def wait_for_the_end(load, cluster):
    """Check that each job was delivered to a taker, and that none is left."""
    assert until(lambda: len(load.added) == JOBS, 300)
    assert until(lambda: set(load.added.values()) <= load.taken, 300), len(load.taken)
    assert until(lambda: left(cluster) == 0, 300)


def test_a_gateway_that_is_killed_loses_no_job_and_no_event(cluster, gateway):
    load = Load(gateway)
    try:
        for part in (0.2, 0.4, 0.6, 0.8):
            assert until(lambda part=part: len(load.done) >= part * JOBS, 300)
            gateway.kill()
            gateway.start()
        wait_for_the_end(load, cluster)
        assert until(lambda: set(load.added.values()) <= load.seen, 120), len(load.seen)
    finally:
        load.stop()


def test_nodes_that_are_killed_lose_no_job(cluster, gateway):
    """The nodes are killed one by one, and each restarts with its journal. The gateway is killed, too."""
    load = Load(gateway)
    try:
        for number, part in enumerate((0.2, 0.45, 0.7)):
            assert until(lambda part=part: len(load.done) >= part * JOBS, 300)
            cluster.kill(number)
            if number == 1:
                gateway.kill()
                gateway.start()
            assert until(lambda part=part: len(load.done) >= (part + 0.1) * JOBS, 300)
            cluster.restart(number)
            cluster.wait_whole(300)
        wait_for_the_end(load, cluster)
    finally:
        load.stop()
