"""The generator for rates: connections that each send a batch, wait for its replies, and send the next.

A Flow determines the requests that the connections of a measurement send. It ends when its time is over or its jobs are
used up. Each connection then waits for its outstanding replies, so every request is counted. The generator's own CPU
time is measured, too.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from disque_py.cli.bench.dialects import Dialect, Request

HOST: Final = "127.0.0.1"
# A server that answers nothing for this time, in addition to the measurement's own time, is stuck.
PATIENCE_S: Final = 60.0
# Connections are opened in groups that fit into every server's listen backlog.
OPENED_AT_ONCE: Final = 100


class LoadError(Exception):
    """A server refused, hung up or stopped answering; the text gives the server and the reason."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of a flow: operations answered, seconds, and the generator's CPU seconds."""

    count: int
    seconds: float
    generator_cpu_s: float

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.count / self.seconds

    @property
    def generator_share(self) -> float:
        """The part of a core that the generator needed."""
        return self.generator_cpu_s / self.seconds


class LoadConnection(asyncio.Protocol):
    """One connection. It counts the line feeds of replies down to zero, then asks its flow for more.

    stage, ids   belong to the flow
    """

    def __init__(self, dialect: Dialect) -> None:
        self.number = 0
        self.stage = 0
        self.ids: Sequence[bytes] = ()
        self.flow: Flow | None = None
        self._trouble = dialect.trouble
        self._owed = 0
        self._is_fresh = False
        self._is_kept = False
        self._kept: list[bytes] = []
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail, unless the measurement is over."""
        self._transport = None
        if self.flow is not None:
            self.flow.fail(f"LOST the server hung up: {exc or 'without a reason'}")

    def send(self, data: bytes, marks: int, *, is_kept: bool = False) -> None:
        """Send a batch whose replies have `marks` line feeds. If `is_kept`, keep the replies for `take_replies`."""
        self._owed = marks
        self._is_fresh = True
        self._is_kept = is_kept
        if self._transport is not None:
            self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        """Count line feeds. At zero the batch is answered."""
        if self._trouble in data or (self._is_fresh and data.startswith(b"-")):
            self._refused(data)
            return
        self._is_fresh = False
        if self._is_kept:
            self._kept.append(data)
        self._owed -= data.count(b"\n")
        if self._owed == 0 and self.flow is not None:
            self.flow.answered(self)
        elif self._owed < 0 and self.flow is not None:
            self.flow.fail(f"UNEXPECTED reply of another shape: {data[:200]!r}")

    def take_replies(self) -> bytes:
        """Return the kept replies and forget them."""
        data = b"".join(self._kept)
        self._kept.clear()
        return data

    def _refused(self, data: bytes) -> None:
        lines = [line for line in data.split(b"\r\n") if self._trouble.strip() in line]
        line = (lines or [data])[0].decode(errors="replace")
        if self.flow is not None:
            self.flow.fail(f"REFUSED the server answered: {line[:200]}")

    def close(self) -> None:
        """Close the connection without waiting: the loop may end before the server answers TLS's notice of the end."""
        self.flow = None
        if self._transport is not None:
            self._transport.abort()


class Flow:
    """Requests for connections: subclasses send in `step` and count in `answered`."""

    def __init__(self) -> None:
        self.count = 0
        self.is_over = False
        self._active = 0
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, connections: Sequence[LoadConnection], seconds: float | None) -> Loaded:
        """Keep the connections busy for `seconds`, or until everything is sent. Raises LoadError."""
        self._active = len(connections)
        timer = None
        if seconds is not None:
            timer = asyncio.get_running_loop().call_later(seconds, self._stop)
        before_cpu_s, before_s = time.process_time(), time.perf_counter()
        try:
            for number, connection in enumerate(connections):
                connection.flow = self
                connection.number = number
                connection.stage = 0
                self.step(connection)
            await self._wait((seconds or 0) + PATIENCE_S)
        finally:
            if timer is not None:
                timer.cancel()
            for connection in connections:
                connection.flow = None
        return Loaded(self.count, time.perf_counter() - before_s, time.process_time() - before_cpu_s)

    async def _wait(self, patience_s: float) -> None:
        """Wait for the end. Raises LoadError if there is no progress for `patience_s` seconds."""
        before = -1
        while not self._done.done():
            await asyncio.wait([self._done], timeout=patience_s)
            if self.count == before and not self._done.done():
                raise LoadError(f"STUCK no reply for {patience_s:g} s; use a smaller load")
            before = self.count
        self._done.result()

    def _stop(self) -> None:
        self.is_over = True

    def step(self, connection: LoadConnection) -> None:
        """Send the next batch, or `finish`."""
        self.finish(connection)

    def answered(self, connection: LoadConnection) -> None:
        """Count the answered requests and go on."""
        self.step(connection)

    def finish(self, connection: LoadConnection) -> None:
        """Leave this connection idle. The last connection ends the flow."""
        self._active -= 1
        if not self._active and not self._done.done():
            self._done.set_result(None)

    def fail(self, why: str) -> None:
        """End the flow with an error."""
        if not self._done.done():
            self._done.set_exception(LoadError(why))


class Repeat(Flow):
    """The same batch repeatedly, until the time is over or `limit` operations are sent."""

    def __init__(self, request: Request, pipeline: int, limit: int | None = None) -> None:
        super().__init__()
        self._request = request
        self._pipeline = pipeline
        self._batch = request.data * pipeline
        self._left = limit

    def step(self, connection: LoadConnection) -> None:
        """Send a whole batch, or the rest of the limit."""
        size = self._pipeline
        if self._left is not None:
            size = min(size, self._left)
            self._left -= size
        if self.is_over or not size:
            self.finish(connection)
            return
        connection.stage = size
        batch = self._batch if size == self._pipeline else self._request.data * size
        connection.send(batch, self._request.marks * size)

    def answered(self, connection: LoadConnection) -> None:
        """Count the batch."""
        self.count += connection.stage
        self.step(connection)


class Fetch(Flow):
    """`count` requests for one job each; `ids` has the ids that arrived, by the number of their connection."""

    def __init__(self, dialect: Dialect, queue: str, count: int, pipeline: int) -> None:
        super().__init__()
        self.ids: dict[int, list[bytes]] = {}
        self._dialect = dialect
        self._request = dialect.get(queue)
        self._pipeline = pipeline
        self._left = count

    def step(self, connection: LoadConnection) -> None:
        """Ask for the next jobs."""
        size = min(self._pipeline, self._left)
        if not size:
            self.finish(connection)
            return
        self._left -= size
        connection.send(self._request.data * size, self._request.marks * size, is_kept=True)

    def answered(self, connection: LoadConnection) -> None:
        """Note the ids."""
        ids = self._dialect.ids(connection.take_replies())
        self.count += len(ids)
        self.ids.setdefault(connection.number, []).extend(ids)
        self.step(connection)


class Acknowledge(Flow):
    """An acknowledgement for each of these ids, by the connection that got the job, because beanstalkd requires it."""

    def __init__(
        self, dialect: Dialect, queue: str, body: bytes, ids: Mapping[int, Sequence[bytes]], pipeline: int
    ) -> None:
        super().__init__()
        self._batches: dict[int, list[tuple[bytes, int]]] = {}
        for number, own in ids.items():
            groups = [own[at : at + pipeline] for at in range(0, len(own), pipeline)]
            self._batches[number] = [(dialect.acks(queue, body, group), len(group)) for group in reversed(groups)]

    def step(self, connection: LoadConnection) -> None:
        """Send the next batch."""
        batches = self._batches.get(connection.number)
        if not batches:
            self.finish(connection)
            return
        data, connection.stage = batches.pop()
        connection.send(data, connection.stage)

    def answered(self, connection: LoadConnection) -> None:
        """Count the batch."""
        self.count += connection.stage
        self.step(connection)


class Cycle(Flow):
    """Whole cycles of jobs: each connection adds a batch, gets as many jobs, and acknowledges them.

    With several queues, a connection begins with the queues of its own number, one for each job of a batch, and goes on
    to the others.
    """

    def __init__(self, dialect: Dialect, queues: Sequence[str], body: bytes, pipeline: int, connections: int) -> None:
        super().__init__()
        self._dialect = dialect
        self._queue = queues[0]
        self._body = body
        self._pipeline = pipeline
        adds = [dialect.add(queue, body) for queue in queues]
        gets = [dialect.get(queue) for queue in queues]
        self._add_marks, self._get_marks = adds[0].marks * pipeline, gets[0].marks * pipeline
        self._batches: list[list[tuple[bytes, bytes]]] = []
        for number in range(connections):
            own = range(number % len(queues), len(queues), connections) or range(number % len(queues), len(queues))
            rounds = max(1, len(own) // pipeline) if len(queues) > 1 else 1
            chosen = [[own[(at * pipeline + i) % len(own)] for i in range(pipeline)] for at in range(rounds)]
            self._batches.append(
                [(b"".join(adds[q].data for q in each), b"".join(gets[q].data for q in each)) for each in chosen]
            )
        self._at = [0] * connections

    def step(self, connection: LoadConnection) -> None:
        """Begin with the next batch of adds."""
        if self.is_over:
            self.finish(connection)
            return
        connection.stage = 0
        batches = self._batches[connection.number]
        self._at[connection.number] = (self._at[connection.number] + 1) % len(batches)
        connection.send(batches[self._at[connection.number]][0], self._add_marks)

    def answered(self, connection: LoadConnection) -> None:
        """Continue with the gets, then with the acknowledgements."""
        if connection.stage == 0:
            connection.stage = 1
            get = self._batches[connection.number][self._at[connection.number]][1]
            connection.send(get, self._get_marks, is_kept=True)
        elif connection.stage == 1:
            connection.stage = 2
            ids = self._dialect.ids(connection.take_replies())
            if not ids:
                self.fail("UNEXPECTED replies without a job")
                return
            connection.ids = ids
            connection.send(self._dialect.acks(self._queue, self._body, ids), len(ids))
        else:
            self.count += len(connection.ids)
            self.step(connection)


class TwoServers(Flow):
    """Producers on one server, consumers on another: the first half of the connections adds, the second half gets.

    It is over when the added jobs have been acknowledged, except those of incomplete batches. A producer pauses while
    `window` jobs are in flight, so that no backlog grows.
    """

    def __init__(self, dialect: Dialect, queue: str, body: bytes, pipeline: int, pairs: int, window: int) -> None:
        super().__init__()
        self._dialect = dialect
        self._body = body
        self._queue = queue
        self._pairs = pairs
        self._window = window
        self._pipeline = pipeline
        # One copy, so that jobs are handed over: with two the consumers' node would have each job already.
        add = dialect.add(queue, body, replicate=1)
        self._add = add.data * pipeline
        self._add_marks = add.marks * pipeline
        self._get = dialect.get(queue, is_blocking=True)
        self._added = 0
        self._resting: list[LoadConnection] = []

    def step(self, connection: LoadConnection) -> None:
        """Add, if this is a producer; else wait for a job."""
        if connection.number >= self._pairs:
            connection.stage = 1
            connection.send(self._get.data * self._pipeline, self._get.marks * self._pipeline, is_kept=True)
        elif not self.is_over and self._added - self.count < self._window:
            self._added += self._pipeline
            connection.send(self._add, self._add_marks)
        else:
            self._resting.append(connection)
            self._end_if_all_is_done()

    def answered(self, connection: LoadConnection) -> None:
        """Acknowledge the jobs that arrived, and wake producers that pause."""
        if connection.number < self._pairs:
            self.step(connection)
        elif connection.stage == 1:
            connection.stage = 2
            connection.ids = self._dialect.ids(connection.take_replies())
            connection.send(self._dialect.acks(self._queue, self._body, connection.ids), len(connection.ids))
        else:
            self.count += len(connection.ids)
            resting, self._resting = self._resting, []
            for producer in resting:
                self.step(producer)
            self.step(connection)

    def _end_if_all_is_done(self) -> None:
        # A consumer's last batch of gets may stay incomplete, and its jobs unacknowledged.
        half_full = (self._pipeline - 1) * self._pairs
        if self.is_over and len(self._resting) == self._pairs and self._added - self.count <= half_full:
            self._active = 1
            self.finish(self._resting[0])


async def connected(ports: Sequence[int], dialect: Dialect, count: int, queue: str) -> list[LoadConnection]:
    """Return `count` open connections, spread over the ports and ready to use the queue. Raises LoadError."""
    loop = asyncio.get_running_loop()
    made: list[LoadConnection] = []
    hello = dialect.hello(queue)
    tls = dialect.tls
    encrypted: dict[str, Any] = {"ssl": tls.context, "server_hostname": tls.server_name} if tls is not None else {}

    async def one(number: int) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, (HOST, ports[number % len(ports)]))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _, connection = await loop.create_connection(lambda: LoadConnection(dialect), sock=sock, **encrypted)
        except BaseException:  # Also when this task is cancelled.
            sock.close()
            raise
        made.append(connection)

    try:
        for start in range(0, count, OPENED_AT_ONCE):
            await asyncio.gather(*(one(number) for number in range(start, min(count, start + OPENED_AT_ONCE))))
        for request in filter(None, (dialect.login, hello)):
            await Repeat(request, 1, limit=count).run(made, None)
    except OSError as error:
        close_all(made)
        raise LoadError(f"CONNECT {count} connections can't be opened: {error.strerror or error}") from error
    except BaseException:  # An interrupt, too, must leave no socket open.
        close_all(made)
        raise
    return made


def close_all(connections: Sequence[LoadConnection]) -> None:
    """Close all connections."""
    for connection in connections:
        connection.close()
