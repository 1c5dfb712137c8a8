"""The queues of a whole cluster, looked at repeatedly: jobs by status, age, rates, settings, pause.

A look asks every node for the names of its queues, and one node for the figures (QSTAT CLUSTER), which count each job
once. Rates are the differences of two looks. `disque-cli --queues` and `disque-admin queue list` show the rows.
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

# The most queues in one look. With more queues, a pattern chooses among them.
QUEUES_MAX: Final = 500
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
    left_out   queues beyond QUEUES_MAX
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
        names = sorted(name for name in self._names() if matches(pattern, name))
        left_out = max(0, len(names) - QUEUES_MAX)
        names = names[:QUEUES_MAX]
        stats = self._node.run_many([commands.qstat(name, cluster=True) for name in names])
        settings = settings_of(self._node, names)
        now = time.monotonic()
        rows: list[QueueRow] = []
        missing: set[str] = set()
        for name, stat in zip(names, stats, strict=True):
            if isinstance(stat, ReplyError):
                raise OldServerError(str(stat)) if stat.code == "ERR" else stat
            missing.update(() if stat is None else stat.nodes_missing)
            row = self._row(name, stat, settings.get(name), now)
            if row is not None:
                rows.append(row)
        rows.sort(key=lambda row: (-row.pending - row.running, row.queue))
        return Look(round(1000 * time.time()), rows, sorted(missing), left_out)

    def _names(self) -> set[str]:
        """Return the names of all reachable nodes' queues, and of those with settings."""
        found = set(_queue_names(self._node))
        with suppress(ReplyError):
            with_settings = self._node.run(commands.queues_with_settings())
            found.update(with_settings)
        for info in self._node.hello.nodes:
            if info.id != self._node.hello.id and info.host and info.port:
                with suppress(ConnectError, DisqueError), self._open(info.host, info.port) as other:
                    found.update(_queue_names(other))
        return found

    def _open(self, host: str, port: int) -> OneNode:
        # A node that is away must not stall the display.
        return patient(replace(self._target.at(Address(host, port)), connect_timeout_s=1.0))

    def _row(self, name: str, stat: QueueStat | None, settings: QueueSettings | None, now: float) -> QueueRow | None:
        if stat is None and settings is None:
            return None  # The queue is gone since its name was listed.
        rate_in = rate_out = None
        if stat is not None:
            before = self._counts.get(name)
            self._counts[name] = (now, stat.jobs_in, stat.jobs_out)
            if before is not None and now > before[0]:
                rate_in = max(0, stat.jobs_in - before[1]) / (now - before[0])
                rate_out = max(0, stat.jobs_out - before[2]) / (now - before[0])
        return QueueRow(
            queue=name,
            pending=stat.len if stat is not None else 0,
            running=stat.running if stat is not None else 0,
            invisible=stat.invisible if stat is not None else 0,
            errored=stat.errored if stat is not None else 0,
            oldest_ms=stat.oldest_ms if stat is not None else None,
            rate_in=rate_in,
            rate_out=rate_out,
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
