"""The event feed: the logs of all nodes as one stream, with a place at which a reader can resume.

Every node has its own log (docs/events.md), and a feed reads all of them in parallel. The place names the next event of
each log: `<log id>:<number>`, separated by commas. A reader that returns with its place misses nothing, as long as the
logs still have the events. If a log has dropped events, or a node has begun another log, the feed sends a notice and
goes on. This also holds for what has happened while the reader was away. A log that ends before the place was cut. It
is then read from its first event (docs/events.md).

A stream without a place begins with the next event of each log. If a node can't be reached at that moment, its log is
read from the first event since then. This depends on the node's clock, so a few earlier events may be in the stream.

Nodes that join are found within ten seconds. Events of one node are in order; those of two nodes are not.

A line that is not an event is left out, and so is an unexpected answer of a node. The feed logs the first one, and goes
on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from disque_py.client import (
    Address,
    AsyncDisque,
    DisqueError,
    EventLog,
    EventsTrimmedError,
    Hello,
    NoEventLogError,
    NoPermissionError,
    ReplyError,
)
from disque_py.gateway.logins.grants import Principal
from disque_py.gateway.problems import RefusedError

LOOK_FOR_NODES_S: Final = 10.0
BLOCK_MS: Final = 5_000
RETRY_S: Final = 1.0
# Clocks of nodes may be this late.
CLOCK_MS: Final = 1_000
# The broker's word for events that the caller may not see. It has the number with which the reader goes on.
HIDDEN: Final = "hidden"
# The notice that a log has dropped events, or ends before the place.
TRIMMED: Final = "trimmed"
# The notice that a node has begun another log. The place does not name the old one any more.
LOG_ENDED: Final = "log-ended"
# The most batches of lines that wait for the reader. The nodes keep the rest.
WAITING_MAX: Final = 8
COUNT: Final = 1_000
# The most logs of a place that a reader returns with, and the most characters of a log's id. Nodes make ids of 32.
LOGS_MAX: Final = 500
LOG_ID_MAX: Final = 64

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class EventFilter:
    """The events that a caller wants and may see: a pattern of queues, one job, the name of an event.

    In a long stream the principal is replaced when its rights change.
    """

    principal: Principal
    queue: str = ""
    job: str = ""
    event: str = ""

    def admits(self, found: dict[str, Any]) -> bool:
        """Return whether the event is wanted, and permitted."""
        queue = found.get("queue")
        if queue is None:
            return not (self.queue or self.job) and self._is_named(found) and self.principal.may_everywhere("bodies")
        if self.queue and not fnmatchcase(queue, self.queue):
            return False
        if self.job and found.get("job_id") != self.job:
            return False
        return self._is_named(found) and (self.principal.asks_broker or self.principal.may("bodies", queue))

    def _is_named(self, found: dict[str, Any]) -> bool:
        return not self.event or found["event"] == self.event


@dataclass(frozen=True, slots=True)
class Part:
    """Some events, or a notice, and the place after them."""

    place: str
    events: list[tuple[str, dict[str, Any]]]
    notice: str = ""
    details: dict[str, Any] | None = None


def parse_place(text: str) -> dict[str, int]:
    """Return log id → number. Raises RefusedError."""
    place: dict[str, int] = {}
    parts = [part for part in text.split(",") if part]
    if len(parts) > LOGS_MAX:
        raise RefusedError("ERR", f"the place names more than {LOGS_MAX} logs; begin a stream without a place")
    for part in parts:
        log, _, number = part.partition(":")
        is_log = log.isascii() and log.isalnum() and len(log) <= LOG_ID_MAX
        if not is_log or not number.isascii() or not number.isdigit() or len(number) > 18:
            raise RefusedError("ERR", "the place must be <log>:<number>, separated by commas; it is the id of an event")
        place[log] = int(number)
    return place


def place_text(place: dict[str, int]) -> str:
    """Return the text of a place."""
    return ",".join(f"{log}:{number}" for log, number in place.items())


def event_of(line: bytes) -> dict[str, Any] | None:
    """Return the event of a line; None if the line is not an event."""
    try:
        found = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    is_event = (
        isinstance(found, dict)
        and type(found.get("seq")) is int
        and isinstance(found.get("event"), str)
        and isinstance(found.get("queue"), str | None)
    )
    return found if is_event else None


async def nodes_of(client: AsyncDisque) -> list[tuple[str, Address]]:
    """Return id and address of the nodes that can be asked, the one that answers HELLO first. Raises DisqueError."""
    return nodes_in(await client.hello(), client)


def nodes_in(hello: Hello, client: AsyncDisque) -> list[tuple[str, Address]]:
    """Return id and address of the nodes of a HELLO that can be asked, the one that answered it first."""
    found = []
    for node in hello.nodes:
        address = Address(node.host, node.port) if node.host else client.node
        if address is not None and (node.id == hello.id or node.priority < 100):
            found.append((node.id, address))
    return sorted(found, key=lambda pair: pair[0] != hello.id)


class EventFeed:
    """The events of all nodes, from a place on. Iterate over `parts`, and close it.

    client   the client in the caller's name
    place    log id → number of the next event; other logs are read from now on
    """

    def __init__(self, client: AsyncDisque, place: dict[str, int]) -> None:
        self._client = client
        self._place = dict(place)
        # The moment when a stream without a place began; 0: it begins now.
        self._began_ms: int | None = None if place else 0
        self._queue: asyncio.Queue[tuple[str, int, list[bytes], str, dict[str, Any] | None]] = asyncio.Queue(
            WAITING_MAX
        )
        self._readers: dict[str, asyncio.Task[None]] = {}
        # The ids of all nodes; the log of each, empty if it has none; and whether the place was compared with them.
        self._nodes: set[str] = set()
        self._logs: dict[str, str] = {}
        self._is_place_checked = False
        self._finder: asyncio.Task[None] | None = None
        self._has_logged = False

    async def parts(self, wanted: EventFilter, idle_s: float) -> AsyncIterator[Part]:
        """Yield events that pass the filter; an empty part first, and after each `idle_s` seconds without any."""
        await self._find()
        self._finder = asyncio.create_task(self._keep_finding())
        yield Part(place_text(self._place), [])
        while True:
            try:
                # Not asyncio.wait_for: before Python 3.12 it loses a cancellation that comes together with an event.
                async with asyncio.timeout(idle_s):
                    log, number, lines, notice, details = await self._queue.get()
            except TimeoutError:
                yield Part(place_text(self._place), [])
                continue
            found = []
            for line in lines:
                event = event_of(line)
                if event is None:
                    self._log_once(f"a line of the log {log} is not an event: {line[:200]!r}")
                    continue
                self._place[log] = event["seq"] + 1  # Events that the caller may not see have numbers, too.
                if event["event"] != HIDDEN and wanted.admits(event):
                    found.append((place_text(self._place), event))
            if notice == LOG_ENDED:
                self._place.pop(log, None)
            elif not lines:
                self._place[log] = number
            yield Part(place_text(self._place), found, notice, details)

    async def close(self) -> None:
        """End all readers."""
        tasks = [*self._readers.values(), *([self._finder] if self._finder else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_finding(self) -> None:
        while True:
            await self._end_unknown_logs()
            await asyncio.sleep(LOOK_FOR_NODES_S)
            try:
                await self._find()
            except DisqueError:
                continue
            except Exception as error:
                self._log_once("nodes can't be found", error)

    def _log_once(self, text: str, error: Exception | None = None) -> None:
        """Log the first fault of this feed."""
        if not self._has_logged:
            self._has_logged = True
            _log.error("events: %s", text, exc_info=error)

    async def _find(self) -> None:
        hello = await self._client.hello()
        starts = []
        for node_id, address in nodes_in(hello, self._client):
            task = self._readers.get(node_id)
            if task is None or task.done():
                started = asyncio.Event()
                self._readers[node_id] = asyncio.create_task(self._read(node_id, address, started))
                starts.append(started.wait())
        # Events after the stream's first byte must be in it, so the start in each log must be known first.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * RETRY_S):
                await asyncio.gather(*starts)
        if self._began_ms == 0:
            self._began_ms = round(1000 * time.time())
        self._nodes = {node.id for node in hello.nodes}

    async def _end_unknown_logs(self) -> None:
        """Send a notice for each log of the place that no node has: its node has begun another one, or has left.

        A node that can't be asked may have it, so nothing is sent before all nodes have answered.
        """
        if self._is_place_checked or self._nodes - self._logs.keys():
            return
        self._is_place_checked = True
        for log in sorted(self._place.keys() - self._logs.values()):
            await self._queue.put((log, 0, [], LOG_ENDED, {"log": log}))

    async def _read(self, node_id: str, address: Address, started: asyncio.Event) -> None:
        log, number = "", 0
        while True:
            try:
                if not log:
                    info = await self._client.events_info(node=address)
                    number = await self._first(info, address)
                    log = self._logs[node_id] = info.log
                    if self._place.get(log, 0) > info.next:
                        await self._queue.put((log, number, [], TRIMMED, {"log": log, "first": number}))
                    elif started.is_set():
                        # Events of the node's previous log, and its notice, may still wait. The place changes in order.
                        await self._queue.put((log, number, [], "", None))
                    else:
                        self._place[log] = number
                started.set()
                found = await self._client.events_read(log, number, count=COUNT, block_ms=BLOCK_MS, node=address)
                if found.lines:
                    lines = found.lines.splitlines()
                    await self._queue.put((log, number, lines, "", None))
                    number = max(found.next, number + len(lines))  # The last line may not be an event.
            except EventsTrimmedError as error:
                await self._queue.put((log, error.first, [], TRIMMED, {"log": log, "first": error.first}))
                number = error.first
            except NoEventLogError as error:
                started.set()
                if log:
                    await self._queue.put((log, number, [], LOG_ENDED, {"log": log, "next": error.log}))
                log = self._logs[node_id] = ""
                await asyncio.sleep(RETRY_S)
            except DisqueError as error:
                started.set()
                if isinstance(error, ReplyError) and error.code == "ERR":
                    log = ""  # The number may be behind the end of the log.
                await asyncio.sleep(RETRY_S)
            except Exception as error:  # A node of another version may send anything. The stream goes on.
                started.set()
                self._log_once(f"{address} sent an unexpected answer", error)
                await asyncio.sleep(RETRY_S)

    async def _first(self, info: EventLog, address: Address) -> int:
        """Return the number of the first event to read from a log. Raises DisqueError."""
        known = self._place.get(info.log)
        if known is not None:
            return known if known <= info.next else info.first
        if self._began_ms is None:
            return info.first  # The log has begun since the reader got its place.
        if self._began_ms == 0:
            return info.next
        try:
            return max(info.first, await self._client.events_seek(self._began_ms - CLOCK_MS, node=address))
        except NoPermissionError:
            return info.first
