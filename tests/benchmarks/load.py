"""A load generator: connections that keep a node busy with pipelined commands.

Each of C connections sends P commands in one write, waits for the P replies, and sends the next P, like
`redis-benchmark -c C -P P`. Unlike that program, it can send different commands and read the replies, so it can
acknowledge jobs that it has fetched.

On the command line: python tests/benchmarks/load.py --port 7711 -c 50 -P 16 -n 100000 ADDJOB q body 0
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import hiredis
import uvloop

from disque_py.cli.bench.dialects import packed as packed

HOST = "127.0.0.1"
LIMIT_SECONDS = 600.0


class LoadError(Exception):
    """The node answered with an error or hung up, so figures would mean nothing."""


class Source(Protocol):
    """A source of commands for connections."""

    def take(self) -> tuple[bytes, int]:
        """Return the next commands as bytes, and their number; 0: there are no more."""
        ...

    def answered(self, replies: list[Any]) -> None:
        """Take the replies to one batch."""
        ...


class Repeated:
    """A source of one repeated command. `keep` gets the replies."""

    def __init__(
        self, command: bytes, count: int, pipeline: int, keep: Callable[[list[Any]], None] | None = None
    ) -> None:
        self._batch = command * pipeline
        self._command_bytes = len(command)
        self._left = count
        self._pipeline = pipeline
        self._keep = keep

    def take(self) -> tuple[bytes, int]:
        count = min(self._left, self._pipeline)
        self._left -= count
        return (self._batch if count == self._pipeline else self._batch[: count * self._command_bytes]), count

    def answered(self, replies: list[Any]) -> None:
        if self._keep is not None:
            self._keep(replies)


class Each:
    """A source of the given commands, each once."""

    def __init__(self, commands: Sequence[bytes], pipeline: int) -> None:
        self._commands = commands
        self._pipeline = pipeline
        self._at = 0

    def take(self) -> tuple[bytes, int]:
        batch = self._commands[self._at : self._at + self._pipeline]
        self._at += len(batch)
        return b"".join(batch), len(batch)

    def answered(self, replies: list[Any]) -> None:
        """Ignore the replies."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of a load: answered commands, time, this process's CPU time, and sorted round trips of batches."""

    count: int
    seconds: float
    cpu_seconds: float
    round_trips_ms: Sequence[float]

    @property
    def per_s(self) -> float:
        """Return the commands per second."""
        return self.count / self.seconds if self.seconds else 0.0


class LoadConnection(asyncio.Protocol):
    """One connection. `over` is called at its end, with the error if there was one."""

    def __init__(self, source: Source, round_trips_ms: array[float], over: Callable[[str], None]) -> None:
        self.count = 0
        self._source = source
        self._round_trips_ms = round_trips_ms
        self._over = over
        self._reader = hiredis.Reader()
        self._replies: list[Any] = []
        self._owed = 0
        self._sent_at = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self) -> None:
        """Send the next batch, or report the end."""
        assert self._transport is not None
        batch, self._owed = self._source.take()
        if self._owed:
            self._sent_at = time.perf_counter()
            self._transport.write(batch)
        else:
            self.end("")

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        reader.feed(data)
        replies = self._replies
        while (reply := reader.gets()) is not False:
            if type(reply) is hiredis.ReplyError:
                self.end(str(reply))
                return
            replies.append(reply)
        if replies and len(replies) == self._owed:
            self._round_trips_ms.append((time.perf_counter() - self._sent_at) * 1000)
            self.count += self._owed
            self._replies = []
            self._source.answered(replies)
            self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end("the node hung up")

    def end(self, why: str) -> None:
        """Close the connection, and report the reason if there are commands left."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
            self._over(why)


async def load(ports: Sequence[int], source: Source, clients: int, limit_s: float = LIMIT_SECONDS) -> LoadResult:
    """Send all commands of the source, over `clients` connections spread over the ports.

    Raises LoadError, TimeoutError.
    """
    loop = asyncio.get_running_loop()
    round_trips_ms = array("d")
    done = loop.create_future()
    left = clients

    def over(why: str) -> None:
        nonlocal left
        left -= 1
        if why and not done.done():
            done.set_exception(LoadError(why))
        elif not left and not done.done():
            done.set_result(None)

    connections: list[LoadConnection] = []
    try:
        for number in range(clients):
            port = ports[number % len(ports)]
            _, connection = await loop.create_connection(
                lambda: LoadConnection(source, round_trips_ms, over), HOST, port
            )
            connections.append(connection)
        before_cpu_s = time.process_time()
        before_s = time.perf_counter()
        for connection in connections:
            connection.send()
        async with asyncio.timeout(limit_s):
            await done
        seconds = time.perf_counter() - before_s
        cpu_seconds = time.process_time() - before_cpu_s
    finally:
        done.cancel()
        for connection in connections:
            connection.end("")
    return LoadResult(sum(connection.count for connection in connections), seconds, cpu_seconds, sorted(round_trips_ms))


def run_load(ports: Sequence[int], source: Source, clients: int, limit_s: float = LIMIT_SECONDS) -> LoadResult:
    """Run `load` in a new event loop. Raises LoadError, TimeoutError."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(load(ports, source, clients, limit_s))


def main(argv: list[str]) -> int:
    """Run the generator as a program."""
    parser = argparse.ArgumentParser(prog="load.py", description="Keep a node busy with one command.")
    parser.add_argument("--port", type=int, action="append", required=True, help="several times for several nodes")
    parser.add_argument("-c", type=int, default=50, help="connections (50)")
    parser.add_argument("-P", type=int, default=1, help="commands per batch (1)")
    parser.add_argument("-n", type=int, default=100_000, help="commands in all (100000)")
    parser.add_argument("words", nargs="+", help="the command")
    options = parser.parse_args(argv)
    try:
        result = run_load(options.port, Repeated(packed(*options.words), options.n, options.P), options.c)
    except (LoadError, OSError) as error:
        print(f"load.py: {error}", file=sys.stderr)
        return 1
    worst_ms = result.round_trips_ms[-1] if result.round_trips_ms else 0.0
    print(f"{result.count} commands in {result.seconds:.2f} s: {result.per_s:.0f}/s, worst batch {worst_ms:.1f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
