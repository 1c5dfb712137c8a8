"""--scan and --bigqueues: walks over the queues of one node with QSCAN.

QSCAN names every queue that exists during the whole walk, some of them twice; both modes show each of them once.
Lengths are those of this node, because each node counts its own jobs of a queue.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from disque_py.cli.connection import Connection, ConnectionLostError
from disque_py.cli.counting import counted
from disque_py.cli.shell.formats import json_text, json_value, quoted
from disque_py.cli.shell.replies import Reply
from disque_py.resp.glob import matches

NAMES_PER_STEP: Final = 500
BIGGEST_COUNT: Final = 10
BAR_WIDTH: Final = 30


class RefusedError(Exception):
    """The server replied with an error; the text is the server's."""


def _accepted(reply: Reply) -> Reply:
    if reply.is_error:
        raise RefusedError(reply.text.decode(errors="replace"))
    return reply


def queue_names(connection: Connection, pattern: str, pause_s: float) -> Iterator[list[bytes]]:
    """Yield the names that match, in portions, each name once. Raises RefusedError if QSCAN is refused."""
    seen: set[bytes] = set()
    cursor = b"0"
    while True:
        reply = _accepted(connection.call(b"QSCAN", cursor, b"COUNT", str(NAMES_PER_STEP)))
        if len(reply.items) != 2:
            raise ConnectionLostError("QSCAN did not answer with a cursor and names")
        cursor = reply.items[0].text
        names = [name for name in dict.fromkeys(reply.items[1].texts()) if name not in seen and _fits(pattern, name)]
        seen.update(names)
        yield names
        if cursor == b"0":
            return
        time.sleep(pause_s)


def _fits(pattern: str, name: bytes) -> bool:
    return matches(pattern, name.decode("utf-8", "surrogateescape"))


def scan(
    connection: Connection,
    pattern: str,
    pause_s: float,
    *,
    show: Callable[[bytes], bytes],
    write: Callable[[bytes], object],
) -> None:
    """Write the names of queues, one per line, in the form that `show` gives them."""
    for names in queue_names(connection, pattern, pause_s):
        write(b"".join(show(name) + b"\n" for name in names))


@dataclass(frozen=True, slots=True)
class BigQueues:
    """The report of --bigqueues: the longest queues with their length, name and QSTAT, and the totals."""

    longest: list[tuple[int, bytes, dict[bytes, Reply]]]
    queue_count: int
    job_count: int
    empty_count: int

    def lines(self) -> list[str]:
        """Return the report for people."""
        return [*_table(self.longest), *_summary(self.queue_count, self.job_count, self.empty_count)]

    def as_object(self) -> dict[str, Any]:
        """Return the report for programs. Each queue is an object with the names and values of QSTAT."""
        return {
            "queues": [
                {json_text(field): json_value(value) for field, value in stat.items()} for _, _, stat in self.longest
            ],
            "queue_count": self.queue_count,
            "empty_count": self.empty_count,
            "job_count": self.job_count,
        }


def big_queues(connection: Connection, pattern: str, pause_s: float) -> BigQueues:
    """Walk over the queues and return the report. Raises RefusedError if a command is refused."""
    longest: list[tuple[int, bytes, dict[bytes, Reply]]] = []
    queue_count = job_count = empty_count = 0
    option = [b"RECENT"]  # Otherwise the node visits all its jobs for each queue. Disque 1.0 has no such option.
    for names in queue_names(connection, pattern, pause_s):
        replies = connection.call_many([[b"QSTAT", name, *option] for name in names])
        if option and any(reply.is_error and reply.text.startswith(b"ERR ") for reply in replies):
            option = []
            replies = connection.call_many([[b"QSTAT", name] for name in names])
        for name, reply in zip(names, replies, strict=True):
            stat = _accepted(reply).pairs()
            if b"len" not in stat:
                # The queue is gone since QSCAN named it.
                continue
            length = int(stat[b"len"].text)
            queue_count += 1
            job_count += length
            empty_count += not length
            # Names break ties, so that dictionaries are never compared.
            longest.append((length, name, stat))
        longest = heapq.nlargest(BIGGEST_COUNT, longest, key=lambda row: (row[0], row[1]))
    return BigQueues(longest, queue_count, job_count, empty_count)


def _table(longest: list[tuple[int, bytes, dict[bytes, Reply]]]) -> list[str]:
    if not longest:
        return []
    most = max(longest[0][0], 1)
    lines = [f"{'queued':>10} {'jobs in':>10} {'jobs out':>10} {'blocked':>8}  queue"]
    for length, name, stat in longest:
        inner = [_number(stat, field) for field in (b"jobs-in", b"jobs-out", b"blocked")]
        bar = "#" * round(length * BAR_WIDTH / most)
        lines.append(
            f"{length:>10} {inner[0]:>10} {inner[1]:>10} {inner[2]:>8}  {quoted(name).decode()} {bar}".rstrip()
        )
    return [*lines, ""]


def _number(stat: dict[bytes, Reply], field: bytes) -> str:
    return stat[field].text.decode() if field in stat else "-"


def _summary(queue_count: int, job_count: int, empty_count: int) -> list[str]:
    average = job_count / queue_count if queue_count else 0.0
    return [
        f"{counted(queue_count, 'queue')}, {empty_count} of them empty",
        f"{counted(job_count, 'job')} queued on this node, {average:.2f} per queue",
    ]
