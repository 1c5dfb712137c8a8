"""Timestone's published load on one node: 30,000 polls a second, of which one in 25 finds a job.

Netflix published these figures of its priority queue: 30,000 dequeue requests a second with a 99th percentile of 45 ms,
1,200 enqueues a second at 25 ms, and often ten million pending messages. So there are 25 dequeues per enqueue, and 24
of them find nothing. Here the pending jobs are in one queue, with random deadlines as priorities. One poll in 25 asks
this queue and gets the earliest job, which is acknowledged immediately. The other polls ask a hundred empty queues.

The loop is open: each request has a planned moment, and its latency counts from that moment, even if it was sent later
(disque_py/cli/bench/schedule.py). A request without an answer at the end counts as if it had waited until then. An ack
is planned for the moment at which its job arrived. The generator is one process. The output shows the share of the
latency that the generator caused by sending late. If that is most of the 99th percentile, the generator was the limit,
and the figures say little about the node.
"""

from __future__ import annotations

import gc
import select
import socket
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from time import perf_counter, process_time
from typing import Any

import hiredis

from disque_py.cli.bench.schedule import Schedule
from figures import Benchmark, Column, Row, percentile
from load import HOST, LoadError, packed, run_load
from nodes import started
from plan import Plan

PENDING = (1_000_000, 2_000)  # full, quick; --jobs 10000000 is the published number
SECONDS = (30.0, 1.0)
ENQUEUES_PER_S = (1_200, 40)
# In each cycle of requests, one is an enqueue, one is a dequeue that finds a job, and the others find nothing.
DEQUEUES_PER_ENQUEUE = 25
CYCLE = DEQUEUES_PER_ENQUEUE + 1
FINDS_AT, ENQUEUES_AT = CYCLE // 2, CYCLE - 1
GOALS_MS = {"dequeue": 45.0, "enqueue": 25.0}

QUEUE = "pending"
EMPTY_QUEUES = 100
BODY = "x" * 100
# Deadlines are Unix milliseconds within a week from this moment, as is usual for Timestone.
FIRST_DEADLINE_MS = 1_661_990_400_000
DEADLINES_MS = 7 * 86_400_000
WORKERS, PRODUCERS = 46, 4  # Connections.
FILLERS, PIPELINE = 10, 1_000
# How long to wait for the answers to the last requests.
PATIENCE_S = 10.0
# When many requests are late: how many are sent before answers are read.
BURST = 64
# The first request is due this long after the start, because the first look at all sockets takes time.
SETTLE_S = 0.01
RECEIVE_BYTES = 1 << 16

NOTHING, FOUND, ENQUEUE, ACK = "dequeue, nothing there", "dequeue, a job", "enqueue", "ack"
DEQUEUE = "dequeue"


class Tally:
    """Latencies of the requests by kind, and how late they were sent, all in milliseconds. Moments are in seconds."""

    def __init__(self) -> None:
        self._latencies = {kind: array("d") for kind in (NOTHING, FOUND, ENQUEUE, ACK)}
        self._lateness = array("d")
        self.unanswered = 0

    def sent(self, planned: float, now: float) -> None:
        """Note that a request was sent at this moment."""
        self._lateness.append((now - planned) * 1000)

    def answered(self, kind: str, planned: float, now: float) -> None:
        """Note an answer. Its latency counts from the planned moment."""
        self._latencies[kind].append((now - planned) * 1000)

    def abandoned(self, kind: str, planned: float, now: float) -> None:
        """Note a request without an answer at the end: it has waited at least until now."""
        self.unanswered += 1
        self.answered(kind, planned, now)

    def ordered(self, kind: str) -> list[float]:
        """Return the latencies of a kind in order. DEQUEUE has both kinds of polls."""
        kinds = (NOTHING, FOUND) if kind == DEQUEUE else (kind,)
        return sorted(latency for kind in kinds for latency in self._latencies[kind])

    def late_p99_ms(self) -> float:
        """Return the 99th percentile of the lateness of all requests that were planned."""
        return percentile(sorted(self._lateness), 99)

    def is_generator_the_limit(self) -> bool:
        """Return whether most of the 99th percentile of the dequeues comes from sending late."""
        return self.late_p99_ms() > percentile(self.ordered(DEQUEUE), 99) / 2


@dataclass(frozen=True, slots=True)
class Spent:
    """The run: pending jobs at the start, its length in seconds, and the CPU shares of node and generator."""

    pending: int
    seconds: float
    node_share: float
    generator_share: float


def rows(tally: Tally, spent: Spent) -> Iterator[Row]:
    """Return one row per kind of request."""
    for kind in (DEQUEUE, NOTHING, FOUND, ENQUEUE, ACK):
        ordered = tally.ordered(kind)
        values = {
            "pending": spent.pending,
            "requests": len(ordered),
            "per_s": len(ordered) / spent.seconds,
            "p50_ms": percentile(ordered, 50),
            "p99_ms": percentile(ordered, 99),
            "worst_ms": ordered[-1] if ordered else None,
            "late_p99_ms": tally.late_p99_ms(),
            "generator_limits": "yes" if tally.is_generator_the_limit() else "no",
            "node_cpu": spent.node_share * 100,
            "generator_cpu": spent.generator_share * 100,
            "unanswered": tally.unanswered,
        }
        yield Row(kind, values, {"p99_ms": GOALS_MS[kind]} if kind in GOALS_MS else {})


class Channel:
    """A connection with its unanswered requests in order: the kind and the planned moment of each."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection((HOST, port), PATIENCE_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.owed: deque[tuple[str, float]] = deque()
        self._reader = hiredis.Reader()

    def send(self, kind: str, planned: float, data: bytes) -> None:
        """Send a request, whether or not the one before was answered."""
        self.owed.append((kind, planned))
        self.sock.sendall(data)

    def receive(self) -> list[Any]:
        """Return the replies that have come. Raises LoadError for an error reply, or if the node hung up."""
        data = self.sock.recv(RECEIVE_BYTES)
        if not data:
            raise LoadError("the node hung up")
        self._reader.feed(data)
        replies = []
        while (reply := self._reader.gets()) is not False:
            if isinstance(reply, hiredis.ReplyError):
                raise LoadError(str(reply))
            replies.append(reply)
        return replies


class Requests:
    """The bytes of all requests, by their number in the schedule. The bytes of polls are made before the start."""

    def __init__(self) -> None:
        self._rng = Random(1)
        self._find = packed("GETJOB", "NOHANG", "FROM", QUEUE)
        self._polls = [packed("GETJOB", "NOHANG", "FROM", f"empty-{number}") for number in range(EMPTY_QUEUES)]

    def make(self, number: int) -> tuple[str, bytes]:
        """Return the kind and the bytes of a request."""
        cycle, at = divmod(number, CYCLE)
        if at == ENQUEUES_AT:
            return ENQUEUE, self.enqueue()
        if at == FINDS_AT:
            return FOUND, self._find
        return NOTHING, self._polls[(cycle * CYCLE + at) % EMPTY_QUEUES]

    def enqueue(self) -> bytes:
        """Return an ADDJOB with a random deadline."""
        deadline_ms = FIRST_DEADLINE_MS + self._rng.randrange(DEADLINES_MS)
        return packed("ADDJOB", QUEUE, BODY, 0, "PRIORITY", deadline_ms)


class Filling:
    """The source of the pending jobs (load.py)."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._requests = Requests()

    def take(self) -> tuple[bytes, int]:
        count = min(self._left, PIPELINE)
        self._left -= count
        return b"".join(self._requests.enqueue() for _ in range(count)), count

    def answered(self, replies: list[Any]) -> None:
        """Do nothing: the jobs are fetched by priority, not by id."""


def play(port: int, enqueues_per_s: float, seconds: float) -> Tally:
    """Send the load. It ends at most PATIENCE_S after its time. Raises LoadError, OSError."""
    workers = [Channel(port) for _ in range(WORKERS)]
    producers = [Channel(port) for _ in range(PRODUCERS)]
    try:
        return _play(workers, producers, enqueues_per_s * CYCLE, seconds)
    finally:
        for channel in (*workers, *producers):
            channel.sock.close()


def _play(workers: list[Channel], producers: list[Channel], per_s: float, seconds: float) -> Tally:
    tally, requests = Tally(), Requests()
    by_socket = {channel.sock: channel for channel in (*workers, *producers)}
    schedule = Schedule(perf_counter() + SETTLE_S, per_s, max(CYCLE, int(per_s * seconds)))
    end = schedule.start + seconds + PATIENCE_S
    # Requests from `unsent` up to `due` are due and not sent yet. `owed` is the number of missing answers.
    unsent = due = owed = 0
    while (now := perf_counter()) < end and (unsent < schedule.count or owed):
        due += len(schedule.due(now))
        for number in range(unsent, min(due, unsent + BURST)):
            kind, data = requests.make(number)
            channels = producers if kind == ENQUEUE else workers
            planned = schedule.intended(number)
            tally.sent(planned, perf_counter())
            # With a step of CYCLE + 1, every channel gets all kinds, even the kinds that come once in a cycle.
            channels[(number + number // CYCLE) % len(channels)].send(kind, planned, data)
            unsent = number + 1
            owed += 1
        wait = 0.0 if unsent < due else schedule.wait(perf_counter())
        readable, _, _ = select.select(by_socket, (), (), end - now if wait is None else wait)
        for sock in readable:
            channel = by_socket[sock]
            replies = channel.receive()
            now = perf_counter()
            for reply in replies:
                kind, planned = channel.owed.popleft()
                tally.answered(kind, planned, now)
                owed -= 1
                if kind == FOUND:
                    if not reply:
                        raise LoadError("the queue of pending jobs is empty")
                    channel.send(ACK, now, packed("ACKJOB", reply[0][1]))
                    owed += 1
    for channel in by_socket.values():
        for kind, planned in channel.owed:
            tally.abandoned(kind, planned, end)
    for number in range(unsent, schedule.count):
        tally.sent(schedule.intended(number), end)
        tally.abandoned(requests.make(number)[0], schedule.intended(number), end)
    return tally


def run(plan: Plan) -> Iterator[Row]:
    """Fill a node, then play the load."""
    pending = plan.count(*PENDING)
    seconds = plan.span_s(*SECONDS)
    full, quick = ENQUEUES_PER_S
    with started(plan) as (node,):
        plan.say(f"timestone: {pending:,} pending jobs")
        run_load([node.port], Filling(pending), FILLERS)
        plan.say(f"timestone: {seconds:g} s of load")
        gc.collect()
        gc.disable()
        try:
            before_s, node_before_s, here_before_s = perf_counter(), node.cpu_s(), process_time()
            tally = play(node.port, quick if plan.is_quick else full, seconds)
            spent_s = perf_counter() - before_s
            shares = (node.cpu_s() - node_before_s) / spent_s, (process_time() - here_before_s) / spent_s
        finally:
            gc.enable()
    yield from rows(tally, Spent(pending, spent_s, *shares))


TIMESTONE = Benchmark(
    "timestone",
    "Timestone's published load: 25 dequeues to an enqueue, one of them finds a job",
    "request",
    (
        Column("pending", "pending"),
        Column("per_s", "per second"),
        Column("p50_ms", "p50 ms", 2),
        Column("p99_ms", "p99 ms", 2),
        Column("worst_ms", "worst ms", 2),
        Column("late_p99_ms", "sent late p99", 2),
        Column("generator_limits", "generator limits"),
        Column("node_cpu", "node %"),
        Column("generator_cpu", "gen. %"),
        Column("unanswered", "unanswered"),
    ),
    "p99_ms",
    run,
)
