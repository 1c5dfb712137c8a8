"""Sending a task's rows as ADDJOBs: pipelined, repeated at another node after a failure, with every reply counted.

The guarantee is at least once. When a connection breaks, rows without a reply are sent again, to another node.
All rows of a task that Spark repeats are sent again too. A row with a key never makes a second job.

A row that the broker refuses, or that can't be a job, is never dropped silently. The option onError decides what
happens: the task fails (`fail`), the row is skipped and counted by the code of its refusal (`skip`), or the row is
returned with the reason (`route`).
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from disque_py.client import (
    Address,
    DisqueConnectionError,
    LeavingError,
    LoadingError,
    ReplyError,
    ReplyTimeoutError,
)
from disque_py.client.protocol import Reply
from disque_py.spark.job_columns import AddWords, Commands, canonical, encode, rows_refused
from disque_py.spark.nodes import ClusterError, Nodes
from disque_py.spark.options import ClusterOptions

FAIL, SKIP, ROUTE = "fail", "skip", "route"
# The code of rows that can't be jobs. All other codes come from the broker.
NULL: Final = "NULL"
# How long a task looks for a node that accepts its rows.
PATIENCE_S: Final = 30.0
PAUSE_S: Final = 0.2


class RefusedError(RuntimeError):
    """The broker refused rows, or rows can't be jobs, and onError is `fail`."""


@dataclass(slots=True)
class Tally:
    """The outcome of a task's rows.

    refused   number of rows by the code of the refusal
    routed    with onError=route: the refused rows, with `code` and `reason`, unless the sender's `keep` takes them
    """

    rows: int = 0
    added: int = 0
    bytes: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    routed: list[pa.RecordBatch] = field(default_factory=list)
    seconds: float = 0.0


class Adder:
    """The sender of one task's rows.

    on_error     FAIL, SKIP or ROUTE
    key_prefix   the prefix of automatic keys (job_columns.encode)
    keep         with ROUTE: takes the refused rows, batch by batch; None: the tally keeps all of them
    """

    def __init__(
        self,
        cluster: ClusterOptions,
        words: AddWords,
        on_error: str,
        key_prefix: str = "",
        keep: Callable[[pa.RecordBatch], None] | None = None,
    ) -> None:
        self.tally = Tally()
        self._keep = self.tally.routed.append if keep is None else keep
        self._nodes = Nodes(cluster)
        self._words = words
        self._on_error = on_error
        self._key_prefix = key_prefix
        self._format = cluster.format
        self._address: Address | None = None
        self._asked: Address | None = None  # The node that got rows last.
        self._silence_s = cluster.timeout_s + int(words.timeout) / 1000 if int(words.timeout) else None

    def add_all(self, batches: Iterable[pa.RecordBatch]) -> Tally:
        """Send all rows of a task. Raises RefusedError, ClusterError, SchemaError."""
        began = time.monotonic()
        try:
            for batch in batches:
                # A row's automatic key contains its number among all rows of the task.
                first = self.tally.rows
                for commands in encode(self._fit(batch), self._words, self._key_prefix, first):
                    self._add(commands)
        finally:
            self._nodes.close()
        self.tally.seconds = time.monotonic() - began
        return self.tally

    def _fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that can be jobs. Raises RefusedError for other rows, if onError is `fail`."""
        bad = rows_refused(batch, self._words)
        if not bad:
            return batch
        if self._on_error == FAIL:
            raise RefusedError(
                f"{self._format}: {len(bad)} of {len(batch)} rows can't be jobs; the first one: "
                f"{next(iter(bad.values()))}; fill in the nulls, or leave the rows out (a null in meta with "
                "map_filter()); onError=skip or onError=route goes on without them"
            )
        self.tally.rows += len(bad)
        self.tally.refused[NULL] += len(bad)
        if self._on_error == ROUTE:
            rows = batch.rename_columns([canonical(name) for name in batch.schema.names])
            self._route(rows, list(bad), [(NULL, why) for why in bad.values()])
        keep = np.ones(len(batch), bool)
        keep[list(bad)] = False
        return batch.filter(pa.array(keep))

    def _route(self, rows: pa.RecordBatch, places: list[int], reasons: list[tuple[str, str]]) -> None:
        """Keep refused rows, each with code and reason."""
        taken = rows.take(pa.array(places))
        taken = taken.append_column("code", pa.array([code for code, _ in reasons], pa.string()))
        self._keep(taken.append_column("reason", pa.array([why for _, why in reasons], pa.string())))

    def _add(self, commands: Commands) -> None:
        """Send one encoded batch, and send it again until every row has its reply."""
        waiting: list[int] | None = None  # Rows still without a reply; None: all.
        refusals: list[tuple[int, ReplyError]] = []
        deadline = time.monotonic() + PATIENCE_S
        silent: set[Address] = set()
        while waiting is None or waiting:
            replies: list[Reply] = []
            failure: Exception | None = None
            try:
                address = self._asked = self._pick()
                connection = self._nodes.connect(address)
                chunks = commands.chunks(0) if waiting is None else _some(commands, waiting)
                connection.exchange(chunks, self._silence_s, replies)
            except DisqueConnectionError as error:
                failure = error
            rows = list(range(len(commands))) if waiting is None else waiting
            again, refused = _split_replies(rows, replies)
            refusals += refused
            if failure is not None or again:
                self._change(failure)
            is_idle = len(again) == len(rows)
            if isinstance(failure, ReplyTimeoutError) and self._asked is not None and self._asked not in silent:
                # The wait for this node may have been longer than the patience. No other node was asked meanwhile.
                silent.add(self._asked)
                deadline = time.monotonic() + PATIENCE_S
            if not is_idle:
                deadline = time.monotonic() + PATIENCE_S  # The node took rows, so the patience starts again.
            waiting = again
            if waiting and time.monotonic() > deadline:
                why = failure or "every node is leaving or loading"
                raise ClusterError(
                    f"{self._format}: no node took {len(waiting)} rows within {PATIENCE_S:.0f} s ({why}); the task "
                    "may be repeated"
                )
            if waiting and is_idle:
                time.sleep(PAUSE_S)
        self._count(commands, refusals)

    def _count(self, commands: Commands, refusals: list[tuple[int, ReplyError]]) -> None:
        tally = self.tally
        tally.rows += len(commands)
        tally.added += len(commands) - len(refusals)
        tally.bytes += commands.offsets[-1] - commands.offsets[0]
        if not refusals:
            return
        tally.refused.update(error.code for _, error in refusals)
        if self._on_error == FAIL:
            row, error = min(refusals, key=lambda item: item[0])
            queue = self._words.queue.decode(errors="replace") or commands.rows.column("queue")[row].as_py()
            raise RefusedError(
                f"{self._format}: node {self._asked} refused {len(refusals)} of {len(commands)} rows, the first for "
                f"queue {queue!r} with: {error.text}; onError=skip or onError=route goes on without them"
            )
        if self._on_error == ROUTE:
            reasons = [(error.code, error.text) for _, error in refusals]
            self._route(commands.rows, [row for row, _ in refusals], reasons)

    def _pick(self) -> Address:
        """Return the node that gets the rows: a random one, so that tasks spread, then the same one while it works."""
        if self._address is None:
            try:
                places = self._nodes.discover()
            except ClusterError as error:
                raise DisqueConnectionError(str(error)) from None
            self._address = random.choice(list(places.values())).address
        return self._address

    def _change(self, failure: Exception | None) -> None:
        if self._address is not None and failure is not None:
            self._nodes.drop(self._address)
        self._address = None


def _some(commands: Commands, rows: list[int]) -> Iterator[tuple[bytes, int]]:
    for row in rows:
        yield bytes(commands.data[commands.offsets[row] : commands.offsets[row + 1]]), 1


def _split_replies(rows: list[int], replies: list[Reply]) -> tuple[list[int], list[tuple[int, ReplyError]]]:
    """Return the rows to send again, in order, and the rows that were refused."""
    again = []
    refused = []
    for row, answer in zip(rows, replies, strict=False):
        if isinstance(answer, ReplyError):
            if isinstance(answer, LeavingError | LoadingError):
                again.append(row)
            else:
                refused.append((row, answer))
    return again + rows[len(replies) :], refused
