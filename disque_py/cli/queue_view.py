"""The queues of a whole cluster, looked at repeatedly: jobs by status, age, rates, settings, pause.

A look asks every node for the names and the figures of its queues (QSTAT … RECENT), and adds them up. Each job counts
on one node only. A node visits its jobs once for all queues. Only the rows that are shown get settings. Rates are the
differences of two looks. `disque-cli --queues` and `disque-admin queue list` show the rows.

A node may be out of reach from here, although other nodes are linked to it. Then one node is asked for the figures of
the cluster, queue by queue (QSTAT … CLUSTER). Each of these makes every node visit its jobs, so only some queues get
them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from disque_py.cli.address import Target
from disque_py.cli.cluster.view import patient
from disque_py.cli.connection import ConnectError
from disque_py.client import Address, DisqueError, QueueSettings, QueueStat, ReplyError, commands
from disque_py.client.one_node import OneNode
from disque_py.resp.glob import matches

# The most rows of one look. With more queues, a pattern chooses among them.
QUEUES_MAX: Final = 500
# QSTATs in one pipeline. They take about a millisecond of the node's time.
STATS_PER_PIPELINE: Final = 50
# The number in HELLO of a node that its peers take for healthy.
HEALTHY: Final = 1
# A QSTAT CLUSTER takes a second when a node is silent, so the answers of a look may take long.
ANSWER_S: Final = 30.0
# A page of QSCAN has about so many names.
NAMES_PER_PAGE: Final = 1000


class OldServerError(Exception):
    """The node is too old to report figures of a whole cluster."""


@dataclass(slots=True)
class QueueRow:
    """One queue in one look.

    oldest_ms         milliseconds since the oldest pending job became ready; None: none is pending
    rate_in, rate_out jobs per second since the previous look; None in the first look
    settings          settings that differ from their defaults, as QUEUE SET takes them
    """

    queue: str
    pending: int
    running: int
    invisible: int
    errored: int
    oldest_ms: int | None
    rate_in: float | None
    rate_out: float | None
    paused: str
    settings: dict[str, str]

    def as_object(self) -> dict[str, Any]:
        """Return the row for programs."""
        return asdict(self)


@dataclass(slots=True)
class Look:
    """All rows of one moment, those with the most pending jobs first.

    missing    ids of known nodes that did not answer
    left_out   queues beyond QUEUES_MAX: the shortest ones, or the last in the alphabet if QSTAT CLUSTER was needed
    """

    time_ms: int
    rows: list[QueueRow]
    missing: list[str] = field(default_factory=list)
    left_out: int = 0


class QueueWatch:
    """Looks at the queues of a cluster. Use it as a context."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._node = patient(target, ANSWER_S)
        self._counts: dict[str, tuple[float, int, int]] = {}

    def __enter__(self) -> QueueWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self._node.close()

    def look(self, pattern: str = "*") -> Look:
        """Return the queues whose names match. Raises OldServerError, ConnectionLostError, ReplyError."""
        stats, missing = self._sums(pattern) or self._clusterwide(pattern)
        rates = self._rates(stats)
        names = {name for name in self._with_settings() if matches(pattern, name)} | stats.keys()
        shown = sorted(names, key=lambda name: _rank(name, stats.get(name)))[:QUEUES_MAX]
        settings = settings_of(self._node, shown)
        rows = [_row(name, stats.get(name), settings.get(name), rates.get(name, (None, None))) for name in shown]
        return Look(
            round(1000 * time.time()),
            [row for row in rows if row is not None],
            sorted(missing),
            len(names) - len(shown),
        )

    def _sums(self, pattern: str) -> tuple[dict[str, QueueStat], set[str]] | None:
        """Return the sums over all nodes, and the ids of nodes that are away.

        None: a healthy node can't be reached from here, or one is too old.
        """
        sums: dict[str, QueueStat] = {}
        missing: set[str] = set()
        if not _add_up(sums, self._node, pattern):
            return None
        for info in self._node.hello.nodes:
            if info.id == self._node.hello.id:
                continue
            try:
                if not info.host or not info.port:
                    raise ConnectError("the node announces no address")
                with self._open(info.host, info.port) as other:
                    is_known = _add_up(sums, other, pattern)
            except (ConnectError, DisqueError):
                is_known = info.priority > HEALTHY
                missing.add(info.id)
            if not is_known:
                return None
        return sums, missing

    def _clusterwide(self, pattern: str) -> tuple[dict[str, QueueStat], set[str]]:
        """Return the answers of one node to QSTAT CLUSTER for some queues, and the ids of nodes that did not answer."""
        names = sorted(name for name in self._names() if matches(pattern, name))[:QUEUES_MAX]
        stats: dict[str, QueueStat] = {}
        for name, stat in zip(
            names, self._node.run_many([commands.qstat(name, cluster=True) for name in names]), strict=True
        ):
            if isinstance(stat, ReplyError):
                raise OldServerError(str(stat)) if stat.code == "ERR" else stat
            if stat is not None:
                stats[name] = stat
        return stats, {node_id for stat in stats.values() for node_id in stat.nodes_missing}

    def _with_settings(self) -> list[str]:
        with suppress(ReplyError):
            return self._node.run(commands.queues_with_settings())
        return []

    def _names(self) -> set[str]:
        """Return the names of all reachable nodes' queues, and of those with settings."""
        found = {*_queue_names(self._node), *self._with_settings()}
        for info in self._node.hello.nodes:
            if info.id != self._node.hello.id and info.host and info.port:
                with suppress(ConnectError, DisqueError), self._open(info.host, info.port) as other:
                    found.update(_queue_names(other))
        return found

    def _open(self, host: str, port: int) -> OneNode:
        # A node that is away must not stall the display.
        return patient(replace(self._target.at(Address(host, port)), connect_timeout_s=1.0))

    def _rates(self, stats: dict[str, QueueStat]) -> dict[str, tuple[float | None, float | None]]:
        """Return the jobs in and out per second since the previous look."""
        now = time.monotonic()
        found: dict[str, tuple[float | None, float | None]] = {}
        for name, stat in stats.items():
            before = self._counts.get(name)
            if before is not None and now > before[0]:
                span_s = now - before[0]
                found[name] = max(0, stat.jobs_in - before[1]) / span_s, max(0, stat.jobs_out - before[2]) / span_s
        self._counts = {name: (now, stat.jobs_in, stat.jobs_out) for name, stat in stats.items()}
        return found


def _rank(name: str, stat: QueueStat | None) -> tuple[int, str]:
    return (0 if stat is None else -stat.len - stat.running), name


def _add_up(sums: dict[str, QueueStat], node: OneNode, pattern: str) -> bool:
    """Add the figures of a node's queues. Return whether it has the command. Raises its other refusals."""
    names = [name for name in _queue_names(node) if matches(pattern, name)]
    for at in range(0, len(names), STATS_PER_PIPELINE):
        some = names[at : at + STATS_PER_PIPELINE]
        for name, stat in zip(some, node.run_many([commands.qstat(each, recent=True) for each in some]), strict=True):
            if isinstance(stat, ReplyError):
                if stat.code == "ERR":
                    return False
                raise stat
            if stat is not None:
                known = sums.get(name)
                sums[name] = stat if known is None else _sum_of(known, stat)
    return True


def _sum_of(one: QueueStat, other: QueueStat) -> QueueStat:
    """Return the figures of two nodes together, as far as a row has them."""
    oldest = [stat.oldest_ms for stat in (one, other) if stat.oldest_ms is not None]
    pauses = {one.pause, other.pause} - {"none"}
    return replace(
        one,
        len=one.len + other.len,
        running=one.running + other.running,
        invisible=one.invisible + other.invisible,
        errored=one.errored + other.errored,
        jobs_in=one.jobs_in + other.jobs_in,
        jobs_out=one.jobs_out + other.jobs_out,
        oldest_ms=max(oldest, default=None),
        pause="none" if not pauses else pauses.pop() if len(pauses) == 1 else "all",
    )


def _row(
    name: str, stat: QueueStat | None, settings: QueueSettings | None, rates: tuple[float | None, float | None]
) -> QueueRow | None:
    if stat is None and settings is None:
        return None  # The settings are gone since their names were listed.
    return QueueRow(
        queue=name,
        pending=stat.len if stat is not None else 0,
        running=stat.running if stat is not None else 0,
        invisible=stat.invisible if stat is not None else 0,
        errored=stat.errored if stat is not None else 0,
        oldest_ms=stat.oldest_ms if stat is not None else None,
        rate_in=rates[0],
        rate_out=rates[1],
        paused=stat.pause if stat is not None else "none" if settings is None else settings.paused,
        settings=changed_settings(settings),
    )


def _queue_names(node: OneNode) -> Iterable[str]:
    cursor = 0
    while True:
        cursor, names = node.run(commands.qscan_page(cursor, count=NAMES_PER_PAGE))
        yield from names
        if cursor == 0:
            return


def settings_of(node: OneNode, names: Iterable[str]) -> dict[str, QueueSettings]:
    """Return the settings of the queues that have any; empty if the node does not support settings."""
    try:
        known = node.run(commands.queues_with_settings())
    except ReplyError:
        return {}
    wanted = [name for name in names if name in known]
    found = node.run_many([commands.queue_settings(name) for name in wanted])
    return {name: one for name, one in zip(wanted, found, strict=True) if isinstance(one, QueueSettings)}


# Fields of QueueSettings that are not settings.
_OTHERS: Final = ("paused", "version", "behind", "more")


def all_settings(settings: QueueSettings) -> dict[str, str]:
    """Return every setting as QUEUE SET takes it, "" for a default without a value."""
    shown: dict[str, str] = {}
    for name, value in asdict(settings).items():
        if name not in _OTHERS:
            shown[name.replace("_", "-")] = _as_set(value)
    return {**shown, **{name: str(value) for name, value in settings.more.items()}}


def changed_settings(settings: QueueSettings | None) -> dict[str, str]:
    """Return the settings that differ from their defaults. Unknown settings are included if they have a value."""
    if settings is None:
        return {}
    return {name: value for name, value in all_settings(settings).items() if value not in ("", DEFAULTS.get(name))}


DEFAULTS: Final = {
    "delay": "0s",
    "ttl": "1d",
    "attempts": "0",
    "retention": "7d",
    "result-retention": "1h",
    "maxlen": "0",
    "maxsize": "0",
    "rate": "none",
    "max-running": "0",
    "type": "simple",
    "assign": "local",
}
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def _as_set(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return ",".join(value)
    if hasattr(value, "total_seconds"):
        return span_text(round(1000 * value.total_seconds()))
    return str(value)


def span_text(milliseconds: int) -> str:
    """Return a time as QUEUE SET takes it, in the largest unit that has no fraction: `90s`, `2h`."""
    for unit, size in _UNITS:
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return "0s"
