"""The cost of one command at a time: each client sends a command, waits for the reply, and sends the next.

Real workers behave like this. Without batches, each command has its full cost: a read, a write, and all work between
them. The contestants answer the same load in turns, round by round, so that other work of the machine affects all of
them. The benchmark compares the CPU time of the server's process, including system time.

Two contestants give the figures a meaning. A plain uvloop protocol answers every request with `+PONG` and does nothing
else. Redis, if it is installed, runs its most similar commands: XADD, XREADGROUP and XACK on a stream.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from figures import Benchmark, Column, Row
from load import HOST, Each, Repeated, Source, packed, run_load
from nodes import cpu_s, started
from plan import Plan

CLIENTS = (1, 50, 500)
COUNTS = (30_000, 1_000)  # full, quick
ROUNDS = (5, 1)
PER = 100_000
BODY = "x" * 100
NAME = "benchmark"
READY_SECONDS = 10.0

NODE, PLAIN, REDIS = "node", "uvloop", "redis"
COMMANDS = ("PING", "ADDJOB", "GETJOB", "ACKJOB")
# Upper bounds for a compiled node with fifty clients: × the plain protocol's PING, × Redis.
PING_OF_UVLOOP = 1.35
CYCLE_OF_REDIS = 1.3

UVLOOP_SERVER = """
import asyncio, gc, sys, uvloop

class Pong(asyncio.Protocol):
    def connection_made(self, transport):
        self.write = transport.write

    def data_received(self, data):
        self.write(b"+PONG\\r\\n")

async def serve():
    server = await asyncio.get_running_loop().create_server(Pong, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()

gc.disable()
uvloop.run(serve())
"""

# The commands of one contestant: the requests, made from the ids in the third command's replies.
Calls = dict[str, Callable[[int], Source]]


@dataclass(frozen=True)
class Contestant:
    """One server: its port, its process, and the sources of each command's requests."""

    port: int
    pid: int
    calls: Calls

    def cpu_of(self, command: str, clients: int, count: int) -> float | None:
        """Return the CPU seconds per 100,000 of these commands; None: it has no such command."""
        make = self.calls.get(command)
        if make is None:
            return None
        before_s = cpu_s(self.pid)
        run_load([self.port], make(count), clients)
        return (cpu_s(self.pid) - before_s) * PER / count


def run(plan: Plan) -> Iterator[Row]:
    """Run all contestants at the same time. An idle contestant costs nothing."""
    count = plan.count(*COUNTS)
    rounds = ROUNDS[plan.is_quick]
    with ExitStack() as stack:
        (node,) = stack.enter_context(started(replace(plan, directives=("--events", "yes", *plan.directives))))
        contestants = {NODE: Contestant(node.port, node.pid, _node_calls())}
        contestants[PLAIN] = stack.enter_context(_server([sys.executable, "-c", UVLOOP_SERVER], "", _plain_calls()))
        if shutil.which("redis-server") is not None:
            words = ["redis-server", "--save", "", "--appendonly", "no", "--bind", HOST, "--port"]
            contestants[REDIS] = stack.enter_context(_server(words, "XGROUP", _redis_calls()))
        for clients in CLIENTS:
            plan.say(f"single: {clients} clients")
            spent: dict[tuple[str, str], list[float]] = {}
            for _ in range(rounds):
                for command in COMMANDS:
                    for name, contestant in contestants.items():
                        cpu = contestant.cpu_of(command, clients, count)
                        if cpu is not None:
                            spent.setdefault((name, command), []).append(cpu)
            yield from _rows(clients, {key: median(values) for key, values in spent.items()})


def _rows(clients: int, spent: dict[tuple[str, str], float]) -> Iterator[Row]:
    for command in COMMANDS:
        goals = {"of_uvloop": PING_OF_UVLOOP} if command == "PING" and clients > 1 else {}
        yield _row(clients, command, spent[NODE, command], spent[PLAIN, "PING"], spent.get((REDIS, command)), goals)
    ways = {name: sum(spent.get((name, command), 0.0) for command in COMMANDS[1:]) for name in (NODE, REDIS)}
    goals = {"of_redis": CYCLE_OF_REDIS} if clients > 1 else {}
    yield _row(clients, "ADD, GET and ACK", ways[NODE], spent[PLAIN, "PING"], ways[REDIS], goals)


def _row(
    clients: int, command: str, node_s: float, plain_s: float, redis_s: float | None, goals: dict[str, float]
) -> Row:
    values = {
        "node_s": node_s,
        "uvloop_s": plain_s,
        "redis_s": redis_s,
        "of_uvloop": node_s / plain_s,
        "of_redis": node_s / redis_s if redis_s else None,
    }
    return Row(f"{clients} clients, {command}", values, goals)


def _node_calls() -> Calls:
    ids: list[bytes] = []

    def keep_ids(replies: list[Any]) -> None:
        ids.extend(jobs[0][1] for jobs in replies if jobs)

    def acks(count: int) -> Source:
        taken, ids[:] = ids[:count], ids[count:]
        return Each([packed("ACKJOB", job_id) for job_id in taken], 1)

    return {
        "PING": lambda count: Repeated(packed("PING"), count, 1),
        "ADDJOB": lambda count: Repeated(packed("ADDJOB", NAME, BODY, "0"), count, 1),
        "GETJOB": lambda count: Repeated(packed("GETJOB", "FROM", NAME), count, 1, keep_ids),
        "ACKJOB": acks,
    }


def _plain_calls() -> Calls:
    return {"PING": lambda count: Repeated(packed("PING"), count, 1)}


def _redis_calls() -> Calls:
    ids: list[bytes] = []

    def keep_ids(replies: list[Any]) -> None:
        ids.extend(streams[0][1][0][0] for streams in replies if streams)

    def acks(count: int) -> Source:
        taken, ids[:] = ids[:count], ids[count:]
        return Each([packed("XACK", NAME, "group", entry) for entry in taken], 1)

    read = packed("XREADGROUP", "GROUP", "group", "worker", "COUNT", "1", "STREAMS", NAME, ">")
    return {
        "PING": lambda count: Repeated(packed("PING"), count, 1),
        "ADDJOB": lambda count: Repeated(packed("XADD", NAME, "*", "body", BODY), count, 1),
        "GETJOB": lambda count: Repeated(read, count, 1, keep_ids),
        "ACKJOB": acks,
    }


@contextmanager
def _server(words: Sequence[str], first: str, calls: Calls) -> Iterator[Contestant]:
    """Start another server on a free port. If `first` is XGROUP, make an empty stream with its group."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="disque-benchmark.") as folder:
        process = subprocess.Popen([*words, str(port)], cwd=folder, stdout=subprocess.DEVNULL)
        try:
            _wait_for(port)
            if first:
                run_load([port], Each([packed("XGROUP", "CREATE", NAME, "group", "$", "MKSTREAM")], 1), 1)
            yield Contestant(port, process.pid, calls)
        finally:
            process.terminate()
            process.wait()


def _wait_for(port: int) -> None:
    until_s = time.monotonic() + READY_SECONDS
    while True:
        try:
            socket.create_connection((HOST, port)).close()
            return
        except OSError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.02)


SINGLE = Benchmark(
    "single",
    "One command at a time, CPU seconds of the server per 100,000 commands",
    "clients, command",
    (
        Column("node_s", "node", 2),
        Column("uvloop_s", "plain uvloop PING", 2),
        Column("redis_s", "Redis", 2),
        Column("of_uvloop", "× uvloop", 2),
        Column("of_redis", "× Redis", 2),
    ),
    "of_uvloop",
    run,
)
