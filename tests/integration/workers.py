"""Threads that work with real nodes during a test, and queries that tests send to nodes."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import hiredis


@contextmanager
def running(*functions):
    """Run functions in threads, each with an event that ends it. Their exceptions are raised at the end."""
    over = threading.Event()
    with ThreadPoolExecutor(len(functions)) as pool:
        futures = [pool.submit(function, over) for function in functions]
        try:
            yield
        finally:
            over.set()
    for future in futures:
        future.result()


def producer(server, queue, added, *options, pause_s=0.001, body="body"):
    """Return a function that adds jobs until its event is set. Ids in replies go to `added`. Dead nodes are retried."""

    def produce(over):
        while not over.is_set():
            try:
                with server.connect(5) as client:
                    while not over.is_set():
                        client.send("ADDJOB", queue, body, 2000, *options)
                        reply = client.read()
                        if not isinstance(reply, hiredis.ReplyError):
                            added.append(str(reply) if isinstance(reply, str) else reply.decode())
                        time.sleep(pause_s)
            except (OSError, EOFError):
                time.sleep(0.05)

    return produce


def consumer(server, queue, got, *, acks=True):
    """Return a function that takes jobs until its event is set, and counts deliveries in `got`, its own Counter."""

    def consume(over):
        while not over.is_set():
            try:
                with server.connect(5) as client:
                    while not over.is_set():
                        jobs = client.command("GETJOB", "TIMEOUT", 200, "COUNT", 50, "FROM", queue) or []
                        ids = [job[1].decode() for job in jobs]
                        got.update(ids)
                        if ids and acks:
                            client.command("ACKJOB", *ids)
            except (OSError, EOFError):
                time.sleep(0.05)

    return consume


def jobs_of(server):
    """Return the number of jobs that a node knows."""
    return int(server.info("jobs")["registered_jobs"])


def knows(server, job_id):
    """Return whether a node has this job."""
    return server.command("SHOW", job_id) is not None


def flags_of(observer, node_id):
    """Return a node's flags for another node; empty if that is unknown."""
    return observer.nodes().get(node_id, ["", ""])[1]


def take(server, queue, timeout_ms=8000):
    """Fetch and acknowledge the next job of a queue, and return its body; None if there is none in time."""
    with server.connect(timeout_ms / 1000 + 5) as client:
        jobs = client.command("GETJOB", "TIMEOUT", timeout_ms, "FROM", queue)
        if not jobs:
            return None
        client.command("ACKJOB", jobs[0][1])
        return jobs[0][2].decode()


def is_refused(server, *words):
    """Return the error reply to a command; None if it succeeds."""
    try:
        server.command(*words)
    except hiredis.ReplyError as error:
        return str(error)
    return None


def worst_ping_s(server, over):
    """Send PINGs until `over()` is true, and return the longest time that one took."""
    worst = 0.0
    with server.connect() as client:
        while not over():
            begun = time.monotonic()
            assert client.command("PING") == b"PONG"
            worst = max(worst, time.monotonic() - begun)
            time.sleep(0.005)
    return worst


def rss_of(server):
    """Return a process's resident memory in bytes."""
    return int(server.info("memory")["used_memory_rss"])
