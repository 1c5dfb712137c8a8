"""Threads that work with real nodes during a test, and the questions that tests ask nodes."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import hiredis


@contextmanager
def running(*functions):
    """Functions in threads, each called with an event that ends them; what they raise is raised at the end."""
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
    """Adds jobs until it is over; the ids that were acknowledged go to `added`. A dead node is asked again."""

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
    """Takes jobs until it is over and counts each delivery in `got`, a Counter of its own."""

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
    """Jobs that a node knows."""
    return int(server.info("jobs")["registered_jobs"])


def knows(server, job_id):
    """Whether a node has this job."""
    return server.command("SHOW", job_id) is not None


def flags_of(observer, node_id):
    """Return a node's flags for another node; nothing if it is unknown."""
    return observer.nodes().get(node_id, ["", ""])[1]


def take(server, queue, timeout_ms=8000):
    """The body of the next job of a queue, acknowledged; None if there is none in time."""
    with server.connect(timeout_ms / 1000 + 5) as client:
        jobs = client.command("GETJOB", "TIMEOUT", timeout_ms, "FROM", queue)
        if not jobs:
            return None
        client.command("ACKJOB", jobs[0][1])
        return jobs[0][2].decode()


def is_refused(server, *words):
    """The error a command is answered with; None if it is not."""
    try:
        server.command(*words)
    except hiredis.ReplyError as error:
        return str(error)
    return None


def worst_ping_s(server, over):
    """The longest time a PING took until it is over."""
    worst = 0.0
    with server.connect() as client:
        while not over():
            begun = time.monotonic()
            assert client.command("PING") == b"PONG"
            worst = max(worst, time.monotonic() - begun)
            time.sleep(0.005)
    return worst


def rss_of(server):
    """Resident memory, bytes."""
    return int(server.info("memory")["used_memory_rss"])
