"""Reading ranges of event logs, on executors. A range gives the same events whenever and wherever it is read.

A row is one event, or a *slice*: many events, packed as the node gave them. Spark converts each column of each row
twice between a source and a sink. A query that only passes events on, as the index does, avoids that cost with
slices. Spark is not imported: events.py wraps this module.

Lost events are never skipped silently (events_planning.py).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from disque_py.client import Address, DisqueConnectionError
from disque_py.spark.event_lines import LineReader
from disque_py.spark.event_log import DataLossError, check_owner, read_slice
from disque_py.spark.event_offsets import EventRange
from disque_py.spark.event_slices import slice_of
from disque_py.spark.events_planning import CUT_SHORT, FORMAT, REPLACED, TRIMMED, EventOptions
from disque_py.spark.nodes import ClusterError, Nodes

# A user whose names are restricted gets the events of these names alone, and this one at the end (docs/users.md).
HIDDEN: Final = "hidden"
ALL_NAMES: Final = "if the names of the user are restricted, give it all names"


def read_range(options: EventOptions, piece: EventRange, address: Address) -> Iterator[pa.RecordBatch]:
    """Yield the events of a range, in order, each exactly once, as rows or as slices.

    A node gives some thousand events at a time. Several such parts are decoded or packed together, because that costs
    less. They are at most about `fetch_rows` events and `fetch_bytes` bytes, since events may have bodies. Raises
    DataLossError, and ClusterError when the node does not give the events that it has announced.
    """
    reader = LineReader()
    waiting: list[bytes] = []
    size = 0
    first = after = piece.start
    for at, end, data in _parts(options, piece, address):
        is_other = waiting and data[:1] != waiting[0][:1]
        is_full = after - first >= options.fetch_rows or size >= options.fetch_bytes
        if waiting and (at != after or is_full or is_other):
            yield _batch(options, reader, piece, first, after, waiting)
            waiting, size = [], 0
        if not waiting:
            first = at
        waiting.append(data)
        size += len(data)
        after = end
    if waiting:
        yield _batch(options, reader, piece, first, after, waiting)


def _batch(
    options: EventOptions, reader: LineReader, piece: EventRange, first: int, after: int, parts: list[bytes]
) -> pa.RecordBatch:
    if options.as_slices:
        return slice_of(piece.node, piece.log, first, after - first, parts)
    batch = reader.batch(piece.node, piece.log, b"".join(parts))
    _check(piece, first, batch)
    return batch


def _parts(options: EventOptions, piece: EventRange, address: Address) -> Iterator[tuple[int, int, bytes]]:
    """Yield the node's replies: (number of the first event, number after the last, lines or blocks)."""
    nodes = Nodes(options.cluster)
    at = piece.start
    deadline = time.monotonic() + options.fetch_timeout_s
    try:
        while at < piece.end:
            count = min(options.fetch_rows, piece.end - at)
            try:
                part = read_slice(
                    nodes, address, piece.log, at, count, options.fetch_bytes, options.reader,
                    is_packed=options.as_slices,
                )  # fmt: skip
                if not part.is_log_known:
                    check_owner(nodes, address, piece.node)
            except DisqueConnectionError as error:
                if time.monotonic() > deadline:
                    raise ClusterError(
                        f"{FORMAT}: node {piece.node} can't be reached for events {at} to {piece.end - 1} ({error}); "
                        "the batch is repeated when the query starts again"
                    ) from None
                time.sleep(0.2)
                address = _address_of(piece.node, nodes, address)
                continue
            if not part.is_log_known:
                at = _skip(options, piece, at, piece.end, "was replaced", REPLACED)
                continue
            if part.trimmed_to is not None:
                at = _skip(options, piece, at, max(at, min(part.trimmed_to, piece.end)), "was trimmed", TRIMMED)
                continue
            if part.end > at:
                deadline = time.monotonic() + options.fetch_timeout_s
                yield at, part.end, part.data
                at = part.end
            elif time.monotonic() > deadline and options.may_lose:
                at = _skip(options, piece, at, piece.end, f"ends before {at}", CUT_SHORT)
            elif time.monotonic() > deadline:
                raise ClusterError(
                    f"{FORMAT}: node {piece.node} doesn't give event {at} of log {piece.log}, which it had announced; "
                    f"{CUT_SHORT}; to go on without these events, set failOnDataLoss=false"
                )
            else:
                time.sleep(0.05)
    finally:
        nodes.close()


def _address_of(node: str, nodes: Nodes, last: Address) -> Address:
    """Return the address of a node. It is the `last` one if the cluster does not say, or can't be asked."""
    with suppress(ClusterError):
        place = nodes.discover().get(node)
        if place is not None and place.address.port:
            return place.address
    return last


def _skip(options: EventOptions, piece: EventRange, at: int, end: int, how: str, why: str) -> int:
    """Return `end`, where reading goes on after lost events. Raises DataLossError if losses are not accepted."""
    what = (
        f"{FORMAT}: node {piece.node}: events {at} to {end - 1} of the planned batch are gone, because log {piece.log} "
        f"{how}"
    )
    if not options.may_lose:
        raise DataLossError(f"{what}; {why}; to go on without them, set failOnDataLoss=false")
    warnings.warn(f"{what}; going on without {end - at} events, because failOnDataLoss is false", stacklevel=2)
    return end


def _check(piece: EventRange, at: int, batch: pa.RecordBatch) -> None:
    """Check that these are exactly the requested events: numbers without gaps, inside the range."""
    if pc.any(pc.equal(batch.column("event"), HIDDEN)).as_py():
        raise ClusterError(f"{FORMAT}: node {piece.node} hides events of log {piece.log}; {ALL_NAMES}")
    numbers = batch.column("seq").to_numpy(zero_copy_only=False)
    count = len(numbers)
    if not count or numbers[0] != at or numbers[-1] != at + count - 1 or numbers[-1] >= piece.end:
        raise ClusterError(
            f"{FORMAT}: node {piece.node} was asked for events from {at} of log {piece.log} on and sent other "
            f"ones; {ALL_NAMES}"
        )
    if count > 1 and not (numbers[1:] - numbers[:-1] == 1).all():
        raise ClusterError(
            f"{FORMAT}: node {piece.node}, log {piece.log}: the numbers from {at} on are not consecutive; {ALL_NAMES}"
        )
