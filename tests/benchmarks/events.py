"""The cost of the event log for a job's whole life: ADDJOB, GETJOB, ACKJOB.

There are three nodes: without events, with events, and with events and a reader that keeps up. They take turns, one
round each, so that noise of the machine affects all of them equally. Each round's CPU time per job is divided by that
of the node without events in the same round. The median of these ratios is the result. The reader runs in a separate
process, and so does the making of lines, so the node's CPU time includes neither.

To start a reader of a node yourself: python tests/benchmarks/events.py --port 7711
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hiredis

from figures import Benchmark, Column, Row
from load import Each, Repeated, packed, run_load
from nodes import NodeCluster, options_for
from plan import Plan

CLIENTS = 50
PIPELINES = (1, 16, 100)
ROUNDS = (15, 3)  # full, quick
JOBS = {1: (3_000, 300), 16: (10_000, 1_000), 100: (20_000, 2_000)}
QUEUE = "benchmark"
BODY = "x" * 100
MODES = ("without events", "with events", "with events and a reader")
# How long a reader may need for the remaining events when the rounds are over.
CATCH_UP_SECONDS = 10.0


def run(plan: Plan) -> Iterator[Row]:
    """Measure each batch size on fresh nodes."""
    for pipeline in PIPELINES:
        count = plan.count(*JOBS[pipeline])
        rounds = ROUNDS[1] if plan.is_quick else ROUNDS[0]
        plan.say(f"events: -P {pipeline}, {rounds} rounds of {count} jobs on each of three nodes")
        with tempfile.TemporaryDirectory(prefix="disque-benchmark.") as folder, contextlib.ExitStack() as stack:
            clusters = [
                stack.enter_context(NodeCluster(Path(folder) / name, 1, (*options_for(plan, 3), "--events", value)))
                for name, value in (("off", "no"), ("on", "yes"), ("read", "yes"))
            ]
            nodes = [cluster.nodes[0] for cluster in clusters]
            # This program, whose folder must be an import path also for a Python with PYTHONSAFEPATH.
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            reader = subprocess.Popen([sys.executable, __file__, "--port", str(nodes[2].port)], env=environment)
            stack.callback(reader.wait)
            stack.callback(reader.terminate)
            measured = [[_round(node, count, pipeline) for node in nodes] for _ in range(rounds)]
            lag = _lag(nodes[2])
        for number, mode in enumerate(MODES):
            cpu = [each[number][0] for each in measured]
            rate = [each[number][1] for each in measured]
            yield Row(
                f"-P {pipeline}, {mode}",
                {
                    "jobs": count * rounds,
                    "per_s": statistics.median(rate),
                    "node_us": statistics.median(cpu),
                    "of_cpu": statistics.median(each[number][0] / each[0][0] for each in measured),
                    "of_rate": statistics.median(each[number][1] / each[0][1] for each in measured),
                    "lag": lag if number == 2 else 0,
                },
            )


def _round(node: Any, count: int, pipeline: int) -> tuple[float, float]:
    """Return (microseconds of the node's CPU per job, jobs per second) for the whole life of the jobs."""
    ids: list[bytes] = []

    def keep(replies: list[Any]) -> None:
        ids.extend(jobs[0][1] for jobs in replies if jobs)

    before_s = node.cpu_s()
    took_s = count / run_load([node.port], Repeated(packed("ADDJOB", QUEUE, BODY, "0"), count, pipeline), CLIENTS).per_s
    get = Repeated(packed("GETJOB", "NOHANG", "FROM", QUEUE), count, pipeline, keep)
    took_s += count / run_load([node.port], get, CLIENTS).per_s
    acks = Each([packed("ACKJOB", job_id) for job_id in ids], pipeline)
    took_s += count / run_load([node.port], acks, CLIENTS).per_s
    return (node.cpu_s() - before_s) / count * 1e6, count / took_s


def _lag(node: Any) -> int:
    """Return how far the reader is behind after a moment."""
    deadline_s = time.monotonic() + CATCH_UP_SECONDS
    lag = None
    while lag != 0 and time.monotonic() < deadline_s:
        fields = node.info("events").get("events_reader_benchmark")
        if fields is not None:
            lag = int(dict(part.split("=") for part in fields.split(","))["lag"])
        time.sleep(0.05)
    if lag is None:
        raise RuntimeError("the node has seen no reader of its events; the reader's error is printed above")
    return lag


EVENTS = Benchmark(
    "events",
    f"The log of events, {CLIENTS} connections, bodies of {len(BODY)} bytes",
    "batch, node",
    (
        Column("jobs", "jobs"),
        Column("per_s", "jobs per second"),
        Column("node_us", "node's CPU µs per job", 2),
        Column("of_cpu", "× CPU without", 3),
        Column("of_rate", "× rate without", 3),
        Column("lag", "events the reader is behind at the end"),
    ),
    "of_cpu",
    run,
)


def follow(port: int) -> None:
    """Read a node's log from its current end on, for ever, as fast as it grows."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        replies = hiredis.Reader()
        known = _ask(connection, replies, "EVENTS", "INFO")
        log, seq = known[1], known[5]
        while True:
            lines = _ask(
                connection,
                replies,
                "EVENTS",
                "READ",
                log,
                seq,
                "MAXBYTES",
                4 << 20,
                "BLOCK",
                1000,
                "READER",
                "benchmark",
            )
            seq += lines.count(b"\n")


def _ask(connection: socket.socket, replies: Any, *words: Any) -> Any:
    connection.sendall(packed(*words))
    while (reply := replies.gets()) is False:
        received = connection.recv(1 << 20)
        if not received:
            raise SystemExit(0)
        replies.feed(received)
    if isinstance(reply, hiredis.ReplyError):
        raise SystemExit(str(reply))
    return reply


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--port", type=int, required=True)
    follow(arguments.parse_args().port)
