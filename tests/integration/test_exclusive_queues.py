"""Exclusive queues at three real nodes: a node that is stopped while it has a claim, and a history of many workers."""

from __future__ import annotations

import threading
import time

import pytest
from hiredis import ReplyError

from histories import Held, overlaps
from servers import Cluster

WORKERS = 6
SECONDS = 6
VALUES = 3


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Three nodes, all of them voters, and the exclusive queue `q`."""
    with Cluster(tmp_path_factory.mktemp("exclusive"), 3) as cluster:
        cluster[0].command("CLUSTER", "VOTERS", "INIT", *(server.node_id for server in cluster.servers))
        cluster[0].command("QUEUE", "SET", "q", "type", "exclusive", "exclusive-by", "user")
        yield cluster


def add(server, user, retry_ms=2_000):
    return server.command("ADDJOB", "q", user, 2_000, "RETRYMS", retry_ms, "REPLICATE", 2, "META", "user", user)


def get(server, timeout_ms):
    """Fetch a job, and return id, value, milliseconds of the lease and fence; None if there is no job."""
    reply = server.command("GETJOB", "TIMEOUT", timeout_ms, "WITHLEASE", "FROM", "q")
    return None if reply is None else (reply[0][1], reply[0][2], reply[0][4], reply[0][8])


def test_a_node_that_is_stopped_beyond_its_lease_is_fenced(three):
    """Spec EX3, EX6: SIGSTOP of the node that delivered."""
    a, b, _ = three.servers
    job_id = add(a, "ann")
    before = time.monotonic()
    first = get(a, 2_000)
    assert first is not None
    assert first[0] == job_id
    a.pause()
    try:
        again = get(b, 20_000)
        assert again is not None
        assert time.monotonic() - before >= 0.98 * first[2] / 1_000
        assert (again[0], again[3] > first[3]) == (job_id, True)
    finally:
        a.resume()
    three.wait_whole()
    with pytest.raises(ReplyError, match="FENCED"):
        b.command("ACKJOB", job_id, "FENCE", first[3])
    assert b.command("ACKJOB", job_id, "FENCE", again[3]) == 1


def test_no_two_workers_have_jobs_of_one_value(three):
    """Spec EX3: a history of workers at three nodes, one of which is stopped for longer than a lease."""
    history = []
    until = time.monotonic() + SECONDS
    is_stopped = threading.Event()

    def work(number):
        server = three.servers[number % 3]
        with server.connect() as connection:
            while time.monotonic() < until:
                asked = time.monotonic()
                reply = connection.command("GETJOB", "TIMEOUT", 500, "WITHLEASE", "FROM", "q")
                began = time.monotonic()
                if not reply:
                    continue
                _, job_id, value, _, lease_ms, _, _, _, fence = reply[0]
                lease_ends = asked + lease_ms / 1_000
                time.sleep(0.005)
                done = time.monotonic()
                if min(done, lease_ends) > began:
                    history.append(Held(value, fence, began, min(done, lease_ends)))
                connection.command("ACKJOB", job_id)

    def produce():
        number = 0
        while time.monotonic() < until:
            server = three.servers[number % 3 if not is_stopped.is_set() else 1 + number % 2]
            add(server, f"u{number % VALUES}", 700)
            number += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(WORKERS)]
    threads.append(threading.Thread(target=produce))
    for thread in threads:
        thread.start()
    time.sleep(2)
    is_stopped.set()
    three.servers[0].pause()
    time.sleep(1.5)
    three.servers[0].resume()
    for thread in threads:
        thread.join()
    assert len(history) > WORKERS
    assert overlaps(history) == []
