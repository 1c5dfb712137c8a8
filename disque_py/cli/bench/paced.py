"""Single times, measured with plain sockets: latency at a fixed rate, wake-ups of a blocked consumer, delayed jobs.

An event loop has timers of a millisecond, and does other work between a socket and a callback. `select` waits with
microsecond precision, so a plain loop around it disturbs these figures least.
"""

from __future__ import annotations

import select
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from disque_py.cli.bench.dialects import Dialect, Request
from disque_py.cli.bench.load import PATIENCE_S, LoadError
from disque_py.cli.bench.processes import Line
from disque_py.cli.bench.schedule import Schedule

# After a consumer has asked, it takes a moment until its node, or the other nodes, know of it.
SETTLE_S: Final = 0.005
SETTLE_ELSEWHERE_S: Final = 0.02
RECEIVE_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Paced:
    """Latencies in milliseconds, and the part of a core that the generator needed."""

    latencies_ms: list[float]
    generator_share: float
    achieved_rate: float


def open_line(port: int, dialect: Dialect, queue: str) -> Line:
    """Return a connection that is ready for a queue. Raises LoadError."""
    try:
        line = Line(port, dialect)
        hello = dialect.hello(queue)
        if hello is not None:
            line.request(hello)
    except (OSError, EOFError) as error:
        raise LoadError(f"CONNECT port {port}: {error}") from error
    return line


def fixed_rate(lines: list[Line], request: Request, rate: float, seconds: float) -> Paced:
    """Send at a fixed rate, over the lines in turn. Latencies count from the intended times. Raises LoadError."""
    sockets = {line.sock: number for number, line in enumerate(lines)}
    waiting: list[deque[int]] = [deque() for _ in lines]
    marks = [0] * len(lines)
    count = max(1, int(rate * seconds))
    cpu_s = time.process_time()
    begin = time.perf_counter()
    schedule = Schedule(begin + SETTLE_S, rate, count)
    latencies: list[float] = []
    last = begin
    while len(latencies) < count:
        now = time.perf_counter()
        for number in schedule.due(now):
            at = number % len(lines)
            waiting[at].append(number)
            lines[at].sock.sendall(request.data)
        wait = schedule.wait(time.perf_counter())
        readable, _, _ = select.select(sockets, (), (), PATIENCE_S if wait is None else wait)
        if not readable and wait is None:
            raise LoadError(f"STUCK no reply for {PATIENCE_S:g} s; use a lower --rate")
        for sock in readable:
            at = sockets[sock]
            data = sock.recv(RECEIVE_BYTES)
            last = time.perf_counter()
            _refuse(data, is_first=not marks[at])
            marks[at] += data.count(b"\n")
            answered, marks[at] = divmod(marks[at], request.marks)
            numbers = (waiting[at].popleft() for _ in range(answered))
            latencies.extend((last - schedule.intended(number)) * 1000 for number in numbers)
    elapsed = time.perf_counter() - begin
    return Paced(latencies, (time.process_time() - cpu_s) / elapsed, count / max(1e-9, last - schedule.start))


def wakeups(producer: Line, consumer: Line, dialect: Dialect, queue: str, body: bytes, count: int) -> list[float]:
    """Return the milliseconds from sending each add to the job's arrival at a waiting consumer. Raises LoadError."""
    is_elsewhere = producer.sock.getpeername() != consumer.sock.getpeername()
    add, get = dialect.add(queue, body), dialect.get(queue, is_blocking=True)
    found: list[float] = []
    try:
        for _ in range(count):
            consumer.sock.sendall(get.data)
            time.sleep(SETTLE_ELSEWHERE_S if is_elsewhere else SETTLE_S)
            sent = time.perf_counter()
            producer.sock.sendall(add.data)
            data = b""
            while data.count(b"\n") < get.marks:
                more = consumer.sock.recv(RECEIVE_BYTES)
                _refuse(more, is_first=not data)
                data += more
            found.append((time.perf_counter() - sent) * 1000)
            _read(producer, add.marks)
            consumer.request(Request(dialect.acks(queue, body, dialect.ids(data)), 1))
    except TimeoutError as error:
        raise LoadError(f"STUCK a job did not arrive at a waiting consumer: {error}") from error
    return found


def _read(line: Line, marks: int) -> None:
    got = 0
    while got < marks:
        data = line.sock.recv(RECEIVE_BYTES)
        _refuse(data, is_first=not got)
        got += data.count(b"\n")


def _refuse(data: bytes, *, is_first: bool) -> None:
    """Raise LoadError for the end of a connection, and for an error at the beginning of a reply."""
    if not data:
        raise LoadError("LOST the server hung up")
    if is_first and data.startswith(b"-"):
        raise LoadError(f"REFUSED the server answered: {data[:200].decode(errors='replace').strip()}")


def timers(
    producer: Line, consumer: Line, dialect: Dialect, queue: str, body: bytes, delays: list[int], span_s: float
) -> list[float]:
    """Return how many milliseconds after its time each delayed job came; negative if early. Raises LoadError.

    The jobs are added evenly over the span, so that they become due at as many different times. A job's time is the
    sending of its add plus its delay. The body carries the number of the job.
    """
    due: dict[int, float] = {}
    late: list[float] = []
    get = dialect.get(queue, is_blocking=True)
    schedule = Schedule(time.perf_counter(), len(delays) / span_s, len(delays))
    consumer.sock.sendall(get.data)
    data = b""
    deadline = time.perf_counter() + span_s + max(delays) + PATIENCE_S
    while len(late) < len(delays):
        now = time.perf_counter()
        for number in schedule.due(now):
            add = dialect.add(queue, b"%09d" % number + body, delay_s=delays[number])
            due[number] = time.perf_counter() + delays[number]
            producer.sock.sendall(add.data)
        if now > deadline:
            raise LoadError(f"STUCK {len(delays) - len(late)} of {len(delays)} delayed jobs did not come")
        wait = schedule.wait(time.perf_counter())
        readable, _, _ = select.select((producer.sock, consumer.sock), (), (), 1.0 if wait is None else wait)
        if producer.sock in readable:
            _refuse(producer.sock.recv(RECEIVE_BYTES), is_first=True)
        if consumer.sock in readable:
            more = consumer.sock.recv(RECEIVE_BYTES)
            _refuse(more, is_first=not data)
            data += more
            if data.count(b"\n") >= get.marks:
                number = int(data.rstrip().rpartition(b"\n")[2][:9])
                late.append((time.perf_counter() - due[number]) * 1000)
                # The acknowledgement is sent before the next request; its reply is one line.
                consumer.request(Request(dialect.acks(queue, body, dialect.ids(data)), 1))
                consumer.sock.sendall(get.data)
                data = b""
    return late
