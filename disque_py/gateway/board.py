"""The board: figures of all nodes and queues, which one look gets for all viewers.

Lists, the console, KEDA's scaler and /metrics need figures of every node and queue. The board asks all nodes in
parallel, in a thread of its own, as disque-exporter does (metrics/watching.py). Its last picture serves every caller
until it is too old. A look at many queues costs the nodes time, so pauses grow with the duration of looks, and looks
take at most a twentieth of the time. Charts show short histories of the pictures.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from disque_py.client import AuthError, ClientOptions, ReplyError
from disque_py.client.results import QueueStat
from disque_py.gateway.metrics.selection import Selection
from disque_py.gateway.metrics.watching import Seen, Watch, Watchers
from disque_py.gateway.problems import RefusedError, refusal_of

# How long a look waits for a node.
LOOK_S: Final = 2.0
# Pictures in the history of a chart.
HISTORY: Final = 60
QUEUES_MAX: Final = 100_000
# The time from look to look is at least so many times the duration of a look.
PAUSE_LOOKS: Final = 20

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class QueueRow:
    """One queue, summed over all nodes that answered. Rates are jobs per second since the previous picture."""

    name: str
    pending: int = 0
    running: int = 0
    invisible: int = 0
    errored: int = 0
    consumers: int = 0
    jobs_in: int = 0
    jobs_out: int = 0
    oldest_ms: int | None = None
    paused: str = "none"
    rate_in: float = 0.0
    rate_out: float = 0.0

    def add(self, stat: QueueStat) -> None:
        """Add the figures of one node."""
        self.pending += stat.len
        self.running += stat.running
        self.invisible += stat.invisible
        self.errored += stat.errored
        self.consumers += stat.blocked
        self.jobs_in += stat.jobs_in
        self.jobs_out += stat.jobs_out
        if stat.oldest_ms is not None:
            self.oldest_ms = max(self.oldest_ms or 0, stat.oldest_ms)
        if stat.pause != "none":
            self.paused = stat.pause if self.paused in ("none", stat.pause) else "all"

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the answer."""
        return {name: getattr(self, name) for name in ROW_FIELDS}


@dataclass(slots=True)
class NodeRow:
    """One node, or one zone: the sums over its queues. Rates are jobs per second since the previous picture.

    name   the node's address, or the zone
    zone   data centre and zone, such as `eu/a`; empty: none
    """

    name: str
    zone: str = ""
    is_up: bool = False
    error: str = ""
    pending: int = 0
    running: int = 0
    errored: int = 0
    jobs_in: int = 0
    jobs_out: int = 0
    oldest_ms: int | None = None
    rate_in: float = 0.0
    rate_out: float = 0.0
    memory: int = 0
    clients: int = 0

    def add(self, other: NodeRow) -> None:
        """Add the figures of a node to those of its zone."""
        self.pending += other.pending
        self.running += other.running
        self.errored += other.errored
        self.rate_in += other.rate_in
        self.rate_out += other.rate_out
        self.memory += other.memory
        self.clients += other.clients
        if other.oldest_ms is not None:
            self.oldest_ms = max(self.oldest_ms or 0, other.oldest_ms)


ROW_FIELDS: Final = tuple(QueueRow.__slots__)


@dataclass(slots=True)
class Picture:
    """All nodes at one moment.

    at       monotonic seconds
    seconds  the longest time that a node took to answer
    nodes    each node's look, or the reason why there is none
    queues   by name
    rows     the sums of each node
    """

    at: float = 0.0
    seconds: float = 0.0
    nodes: list[Seen] = field(default_factory=list)
    queues: dict[str, QueueRow] = field(default_factory=dict)
    rows: list[NodeRow] = field(default_factory=list)

    @property
    def is_ready(self) -> bool:
        """Whether a majority of the nodes that the cluster names answered."""
        up = [seen.look for seen in self.nodes if seen.look is not None]
        known = max((len(look.hello.nodes) for look in up if look.hello is not None), default=len(self.nodes))
        return bool(up) and 2 * len(up) > known

    @property
    def has_answer(self) -> bool:
        """Whether a node answered."""
        return any(seen.look is not None for seen in self.nodes)

    @property
    def refuses_login(self) -> bool:
        """Whether a node refused the gateway's login."""
        return any(isinstance(seen.cause, AuthError) for seen in self.nodes)

    def check(self) -> None:
        """Refuse to show the picture if no node answered: it would look like an empty cluster. Raises RefusedError."""
        if self.has_answer:
            return
        for seen in self.nodes:
            if isinstance(seen.cause, ReplyError):
                refused = refusal_of(seen.cause)
                if isinstance(seen.cause, AuthError):
                    raise RefusedError(refused.code, f"the nodes refuse the gateway's login: {refused.text}")
                raise refused
        raise RefusedError("NONODE", f"no node answers: {self.reasons()}")

    def reasons(self) -> str:
        """Return the addresses of the nodes that did not answer, with the reasons."""
        return "; ".join(f"{seen.address}: {seen.error}" for seen in self.nodes if seen.look is None)


class Report:
    """The log of changes: nodes that refuse the gateway's login, and whether any node answers."""

    def __init__(self) -> None:
        self._has_answer = True
        self._refusals: dict[str, str] = {}

    def write(self, picture: Picture) -> None:
        """Log the differences from the previous picture."""
        for seen in picture.nodes:
            address = str(seen.address)
            if isinstance(seen.cause, AuthError):
                if self._refusals.get(address) != seen.error:
                    _log.error("%s refuses the gateway's login: %s", address, seen.cause)
                self._refusals[address] = seen.error
            elif seen.look is not None and self._refusals.pop(address, None) is not None:
                _log.info("%s accepts the gateway's login again", address)
        if picture.has_answer and not self._has_answer:
            _log.info("nodes answer again")
        elif self._has_answer and not picture.has_answer and not self._refusals:
            _log.error("no node answers: %s", picture.reasons())
        self._has_answer = picture.has_answer


class Board:
    """The picture of a cluster, for any number of viewers.

    options   options of connections to the nodes; the seeds are the nodes that are asked first
    poll_s    seconds between two looks
    """

    def __init__(self, options: ClientOptions, poll_s: float) -> None:
        all_queues = Selection(limit=QUEUES_MAX, is_for_labels=False)
        self._watchers = Watchers(options.seeds, options, all_queues, discovers=options.discover)
        self._poll_s = poll_s
        self._thread = ThreadPoolExecutor(1, "look")  # There is one look at a time.
        self._picture = Picture()
        self._report = Report()
        self._look: asyncio.Task[Picture] | None = None
        self._loop_task: asyncio.Task[None] | None = None
        self.totals: deque[tuple[int, float, float, int]] = deque(maxlen=HISTORY)
        self.histories: dict[str, deque[int]] = {}
        # Jobs in and out per second, of queues with traffic only.
        self.rates: dict[str, deque[tuple[float, float]]] = {}

    async def picture(self, age_s: float | None = None) -> Picture:
        """Return a picture that is not older than `age_s` seconds; by default one of the last two.

        By default the time between two looks is the limit. When it is over, a look begins, and the previous picture is
        returned until it ends, because with many queues a look takes longer than a page may.
        """
        limit_s = max(self._poll_s if age_s is None else age_s, PAUSE_LOOKS * self._picture.seconds)
        age = time.monotonic() - self._picture.at
        if self._picture.nodes and age <= limit_s:
            return self._picture
        if self._look is None:
            self._look = asyncio.create_task(self._looking())
        if self._picture.nodes and age_s is None and age <= 2 * limit_s:
            return self._picture
        return await asyncio.shield(self._look)

    def watches(self) -> list[Watch]:
        """Return the nodes that are asked."""
        return self._watchers.watches()

    def start(self) -> None:
        """Begin to look at intervals, so that histories continue without a viewer."""
        if self._loop_task is None:
            self._loop_task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End the looks, and close the connections."""
        for task in (self._loop_task, self._look):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._watchers.close()

    async def _run(self) -> None:
        while True:
            picture = await self.picture(self._poll_s)
            await asyncio.sleep(max(self._poll_s, PAUSE_LOOKS * picture.seconds))

    async def _looking(self) -> Picture:
        try:
            seen = await asyncio.get_running_loop().run_in_executor(self._thread, self._watchers.scrape, LOOK_S)
            # The wait for a node that does not answer is left out, because it costs that node no work.
            seconds = max((each.look.seconds for each in seen if each.look is not None), default=0.0)
            picture = Picture(time.monotonic(), seconds, seen, queues_of(seen), [node_row(each) for each in seen])
            set_rates(picture, self._picture)
            self._picture = picture
            self._remember(picture)
            self._report.write(picture)
            return picture
        finally:
            self._look = None

    def _remember(self, picture: Picture) -> None:
        rows = picture.queues.values()
        self.totals.append(
            (
                sum(row.pending for row in rows),
                sum(row.rate_in for row in rows),
                sum(row.rate_out for row in rows),
                sum(row.errored for row in rows),
            )
        )
        for name in [name for name in self.histories if name not in picture.queues]:
            del self.histories[name]
        for row in rows:
            history = self.histories.get(row.name)
            if history is None:
                history = self.histories[row.name] = deque(maxlen=HISTORY)
            history.append(row.pending)
            if row.rate_in or row.rate_out or row.name in self.rates:
                self.rates.setdefault(row.name, deque(maxlen=HISTORY)).append((row.rate_in, row.rate_out))
        for name in [
            name for name, found in self.rates.items() if name not in picture.queues or not any(map(any, found))
        ]:
            del self.rates[name]


def queues_of(nodes: list[Seen]) -> dict[str, QueueRow]:
    """Return the queues of all nodes, summed by name."""
    rows: dict[str, QueueRow] = {}
    for seen in nodes:
        for stat in seen.look.stats if seen.look is not None else ():
            row = rows.get(stat.name)
            if row is None:
                row = rows[stat.name] = QueueRow(stat.name)
            row.add(stat)
    return rows


def node_row(seen: Seen) -> NodeRow:
    """Return the sums of one node."""
    look = seen.look
    if look is None:
        return NodeRow(str(seen.address), error=seen.error)
    zone = "/".join(
        str(look.cluster[name]) for name in ("cluster_datacenter", "cluster_zone") if look.cluster.get(name)
    )
    row = NodeRow(str(seen.address), zone, is_up=True)
    for stat in look.stats:
        row.pending += stat.len
        row.running += stat.running
        row.errored += stat.errored
        row.jobs_in += stat.jobs_in
        row.jobs_out += stat.jobs_out
        if stat.oldest_ms is not None:
            row.oldest_ms = max(row.oldest_ms or 0, stat.oldest_ms)
    memory, clients = look.info.get("used_memory"), look.info.get("connected_clients")
    row.memory = memory if isinstance(memory, int) else 0
    row.clients = clients if isinstance(clients, int) else 0
    return row


def _comparable(picture: Picture, before: Picture) -> tuple[dict[str, QueueRow], dict[str, QueueRow]]:
    """Return the queues of both pictures, summed over the nodes that are in both.

    A node that missed the previous look would add all jobs that it has ever counted to the rates of one look.
    """
    ups = [{str(seen.address): seen for seen in each.nodes if seen.look is not None} for each in (picture, before)]
    if ups[0].keys() == ups[1].keys():
        return picture.queues, before.queues
    both = ups[0].keys() & ups[1].keys()
    new, old = (queues_of([up[address] for address in both]) for up in ups)
    return new, old


def set_rates(picture: Picture, before: Picture) -> None:
    """Set the rates of a picture's queues. A node that restarted counts from 0 again, so no rate is below 0."""
    seconds = picture.at - before.at
    if not before.nodes or seconds <= 0:
        return
    new_rows, old_rows = _comparable(picture, before)
    for name, row in picture.queues.items():
        new, old = new_rows.get(name), old_rows.get(name)
        if new is not None and old is not None:
            row.rate_in = round(max(0.0, (new.jobs_in - old.jobs_in) / seconds), 2)
            row.rate_out = round(max(0.0, (new.jobs_out - old.jobs_out) / seconds), 2)
    nodes = {row.name: row for row in before.rows if row.is_up}
    for node in picture.rows:
        known = nodes.get(node.name)
        if known is not None and node.is_up:
            node.rate_in = round(max(0.0, (node.jobs_in - known.jobs_in) / seconds), 2)
            node.rate_out = round(max(0.0, (node.jobs_out - known.jobs_out) / seconds), 2)
