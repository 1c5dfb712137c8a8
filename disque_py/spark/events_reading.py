"""Reading event logs: the driver's planning of batches, and the executors' reading of ranges.

`EventPlanner` lives in one process beside Spark's driver and talks to all nodes; it keeps nothing
that a restart would miss, since every batch is described by its offset alone (event_offsets.py).
`read_range` runs anywhere, any number of times. Neither imports Spark: events.py wraps them.

What is gone is never passed over in silence: with failOnDataLoss (the default) it is an error that
says which events of which node; without, a warning, and reading goes on *forwards* inside what was
planned, so that nothing is read twice.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from disque_py.client import Address, DisqueConnectionError
from disque_py.spark.event_lines import LineReader
from disque_py.spark.event_log import DataLossError, LogState, NoLogError, log_state, read_slice, seek
from disque_py.spark.event_offsets import (
    EventRange,
    Offset,
    Position,
    offset_of,
    plan,
    positions_of,
    ranges,
    read_json_offsets,
)
from disque_py.spark.nodes import ClusterError, Nodes
from disque_py.spark.options import CONNECTION_OPTIONS, ClusterOptions, OptionError, Options, cluster_options

OPTIONS: Final = (
    *CONNECTION_OPTIONS,
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "fetch.maxRows",
    "fetch.maxBytes",
    "fetch.timeoutMs",
    "reader",
)
FORMAT: Final = "disque-events"


@dataclass(frozen=True, slots=True)
class EventOptions:
    """What a query of the event logs wants.

    starting, ending         "earliest", "latest", or node id → number
    starting_ms              startingTimestamp, which wins over `starting`
    events_max, bytes_max    for a batch
    piece_count_min          minPartitions
    may_lose                 not failOnDataLoss
    fetch_rows, fetch_bytes  for one EVENTS READ
    fetch_timeout_s          how long a task waits for events that were announced
    reader                   the name under which the broker shows our lag
    """

    cluster: ClusterOptions
    starting: str | dict[str, Any]
    ending: str | dict[str, Any]
    starting_ms: int | None
    events_max: int | None
    bytes_max: int | None
    piece_count_min: int
    may_lose: bool
    fetch_rows: int
    fetch_bytes: int
    fetch_timeout_s: float
    reader: str


def event_options(given: Any, *, is_stream: bool) -> EventOptions:
    """The options, checked. Raises OptionError."""
    options = Options(FORMAT, given, OPTIONS)
    if is_stream and options.has("endingOffsets"):
        raise OptionError(f"{FORMAT}: option endingOffsets is for batch reads; a stream has no end")
    starting = _offsets_word(options, "startingOffsets", "latest" if is_stream else "earliest")
    if not is_stream and starting == "latest":
        raise OptionError(f"{FORMAT}: option startingOffsets can't be latest in a batch read, nothing would be read")
    return EventOptions(
        cluster=cluster_options(options),
        starting=starting,
        ending=_offsets_word(options, "endingOffsets", "latest"),
        starting_ms=options.integer_or_none("startingTimestamp"),
        events_max=options.integer_or_none("maxOffsetsPerTrigger", 1),
        bytes_max=options.integer_or_none("maxBytesPerTrigger", 1),
        piece_count_min=options.integer("minPartitions", 0),
        may_lose=not options.flag("failOnDataLoss", default=True),
        fetch_rows=options.integer("fetch.maxRows", 50_000, 1),
        fetch_bytes=options.integer("fetch.maxBytes", 16 << 20, 1 << 10),
        fetch_timeout_s=options.integer("fetch.timeoutMs", 60_000, 1) / 1000,
        reader=options.text("reader"),
    )


def _offsets_word(options: Options, name: str, default: str) -> str | dict[str, Any]:
    word = options.text(name, default).strip()
    if word.lower() in ("earliest", "latest") and not (name == "endingOffsets" and word.lower() == "earliest"):
        return word.lower()
    try:
        value = json.loads(word)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise OptionError(
            f'{FORMAT}: option {name} is earliest, latest or a JSON object such as {{"<node id>": 120}}, not {word!r}'
        )
    # A whole offset, as a checkpoint has it, is welcome too.
    return value["nodes"] if isinstance(value.get("nodes"), dict) else value


class EventPlanner:
    """Plans batches; one per query, in the process that Spark keeps for its reader."""

    def __init__(self, options: EventOptions) -> None:
        self.options = options
        self._nodes = Nodes(options.cluster)
        self._target: dict[str, LogState] | None = None
        self._initial: Offset | None = None

    def close(self) -> None:
        """Hang up; whatever is asked next connects again."""
        self._nodes.close()

    def initial(self) -> Offset:
        """Where a new query begins. Raises ClusterError, OptionError before anything is read."""
        if self._initial is None:
            states, away = self._states()
            positions = self._starts(states, away)
            self._initial = offset_of(positions, positions)
        return self._initial

    def freeze(self) -> None:
        """From now on, nothing beyond what is there now (AvailableNow)."""
        self._target, _ = self._states()

    def latest(self, start: Offset) -> Offset:
        """The end of the next batch, `start` itself when there is nothing new.

        Raises DataLossError when events that should come next are gone, and may not be lost.
        """
        states, _ = self._states(patient=True)
        begins = positions_of(start["nodes"])
        ends: dict[str, Position] = dict(begins)
        for node, state in states.items():
            place = begins.get(node)
            if place is None:
                # A node that joined: everything it still has.
                begins[node] = ends[node] = Position(state.log, state.first)
            elif place.is_pending:
                begins[node] = ends[node] = self._arrive(node, state, place)
            elif place.log != state.log:
                ends[node] = self._go_over(node, place, state)
            elif place.next < state.first:
                begins[node] = self._pass_trimmed(node, place, state.first)
            elif place.next > state.next:
                self._lose(f"node {node}: log {state.log} ends before {state.next}, we have read up to {place.next}")
        readable = {
            node: self._capped(node, state)
            for node, state in states.items()
            if ends[node].log == begins[node].log == state.log
        }
        planned = plan(begins, readable, self._limit(readable))
        ends = {node: planned[node] if node in readable else ends[node] for node in ends}
        if ends == positions_of(start["nodes"]):
            return start
        return offset_of(ends, begins)

    def report(self) -> Offset | None:
        """Where all logs end now, for the lag that Spark shows; None when nobody answers."""
        try:
            states, _ = self._states(patient=True)
        except ClusterError:
            return None
        ends = {node: Position(state.log, state.next) for node, state in states.items()}
        return {"nodes": {node: ends[node].to_json() for node in sorted(ends)}}

    def ranges(self, end: Offset) -> list[tuple[EventRange, Address]]:
        """A batch as ranges and the addresses where they can be read. Raises ClusterError when a node is away."""
        pieces = ranges(positions_of(end["from"]), positions_of(end["nodes"]), self.options.piece_count_min)
        if not pieces:
            return []
        places = self._nodes.discover()
        for piece in pieces:
            if piece.node not in places:
                raise ClusterError(
                    f"{FORMAT}: node {piece.node} has events {piece.start} to {piece.end - 1} of this batch and is no "
                    "longer known to the cluster; let it join again, or begin with a new checkpoint"
                )
        return [(piece, places[piece.node].address) for piece in pieces]

    def batch(self) -> list[tuple[EventRange, Address]]:
        """Everything between startingOffsets and endingOffsets, for a batch read."""
        states, away = self._states()
        if away and not self.options.may_lose:
            node, reason = next(iter(sorted(away.items())))
            raise ClusterError(
                f"{FORMAT}: node {node} can't be reached ({reason}); start it, or set failOnDataLoss=false to read "
                "without it"
            )
        starts = self._starts(states, {})
        ends = {node: Position(state.log, state.next) for node, state in states.items()}
        if isinstance(self.options.ending, dict):
            ends = read_json_offsets("endingOffsets", self.options.ending, states)
        for node, place in starts.items():
            state, end = states[node], ends[node]
            if place.log != state.log or end.log != state.log:
                self._lose(f"node {node}: log {place.log} is gone, the node now has {state.log}")
                starts[node] = Position(state.log, state.first)
                ends[node] = Position(state.log, state.next)
            elif place.next < state.first:
                starts[node] = self._pass_trimmed(node, place, state.first)
            if end.log == state.log and end.next > state.next:
                raise OptionError(
                    f"{FORMAT}: option endingOffsets asks node {node} for events up to {end.next}, its log ends "
                    f"before {state.next}"
                )
        return self.ranges(offset_of(ends, starts))

    def _states(self, *, patient: bool = False) -> tuple[dict[str, LogState], dict[str, str]]:
        """The logs of all nodes that answer, and why the others don't.

        A node without a log is an error when a query begins; later it is away (`patient`): the last log
        could not be written, and the next one will begin.
        """
        states: dict[str, LogState] = {}
        away: dict[str, str] = {}
        for node, place in sorted(self._nodes.discover().items()):
            try:
                states[node] = log_state(self._nodes, place.address)
            except DisqueConnectionError as error:
                away[node] = str(error)
            except NoLogError as error:
                if not patient:
                    raise
                away[node] = str(error)
        return states, away

    def _starts(self, states: dict[str, LogState], away: dict[str, str]) -> dict[str, Position]:
        options = self.options
        if options.starting_ms is not None:
            starts = {node: self._sought(node, state, options.starting_ms) for node, state in states.items()}
            return starts | {node: Position(since=options.starting_ms) for node in away}
        if isinstance(options.starting, dict):
            if away:
                node, reason = next(iter(sorted(away.items())))
                raise ClusterError(
                    f"{FORMAT}: option startingOffsets names places in logs, and node {node} can't be reached "
                    f"({reason}); start it first"
                )
            return read_json_offsets("startingOffsets", options.starting, states)
        if options.starting == "earliest":
            # Nodes that are away begin at their first event when they come.
            return {node: Position(state.log, state.first) for node, state in states.items()}
        now_ms = time.time_ns() // 1_000_000
        starts = {node: Position(state.log, state.next) for node, state in states.items()}
        return starts | {node: Position(since=now_ms) for node in away}

    def _sought(self, node: str, state: LogState, ms: int) -> Position:
        seq = seek(self._nodes, self._nodes.places[node].address, ms)
        return Position(state.log, min(max(seq, state.first), state.next))

    def _arrive(self, node: str, state: LogState, place: Position) -> Position:
        assert place.since is not None
        return self._sought(node, state, place.since)

    def _go_over(self, node: str, place: Position, state: LogState) -> Position:
        """A node has begun another log: the rest of the old one first, then the beginning of the new."""
        address = self._nodes.places[node].address
        rest = 0
        while True:
            part = read_slice(
                self._nodes, address, place.log, place.next + rest, self.options.fetch_rows, self.options.fetch_bytes
            )
            if not part.is_log_known or part.trimmed_to is not None:
                self._lose(
                    f"node {node}: log {place.log} is gone, in which we had read up to {place.next}; the node has "
                    f"begun log {state.log}"
                )
                break
            if not part.lines:
                break
            rest += part.lines.count(b"\n")
        return Position(place.log, place.next + rest) if rest else Position(state.log, state.first)

    def _pass_trimmed(self, node: str, place: Position, first: int) -> Position:
        self._lose(
            f"node {node}: events {place.next} to {first - 1} of log {place.log} were trimmed before we read them"
        )
        return Position(place.log, first)

    def _lose(self, what: str) -> None:
        if not self.options.may_lose:
            raise DataLossError(
                f"{FORMAT}: {what}; to go on with what is left set failOnDataLoss=false, and see events-max-bytes and "
                "events-max-age of the node"
            )
        warnings.warn(f"{FORMAT}: {what}; going on, because failOnDataLoss is false", stacklevel=2)

    def _capped(self, node: str, state: LogState) -> LogState:
        if self._target is None:
            return state
        target = self._target.get(node)
        if target is None or target.log != state.log:
            # Came after the query was started: its turn is the next query.
            return LogState(state.log, state.first, 0 if target is None else state.next, 0)
        return LogState(state.log, state.first, min(state.next, target.next), state.bytes)

    def _limit(self, states: dict[str, LogState]) -> int | None:
        options = self.options
        limit = options.events_max
        if options.bytes_max is not None:
            count = sum(state.next - state.first for state in states.values() if state.next)
            size = sum(state.bytes for state in states.values())
            if count > 0 and size > 0:
                by_bytes = max(1, options.bytes_max * count // size)
                limit = by_bytes if limit is None else min(limit, by_bytes)
        return limit


def read_range(options: EventOptions, piece: EventRange, address: Address) -> Iterator[pa.RecordBatch]:
    """The events of a range, in order, each exactly once.

    Nodes give slices of some thousand events; several are taken apart together, because that costs less.
    Raises DataLossError, ClusterError when the node does not give what it has announced.
    """
    reader = LineReader()
    waiting: list[bytes] = []
    first = after = piece.start
    for at, lines in _slices(options, piece, address):
        if waiting and (at != after or after - first >= options.fetch_rows):
            yield _batch(reader, piece, first, waiting)
            waiting = []
        if not waiting:
            first = at
        waiting.append(lines)
        after = at + lines.count(b"\n")
    if waiting:
        yield _batch(reader, piece, first, waiting)


def _batch(reader: LineReader, piece: EventRange, first: int, slices: list[bytes]) -> pa.RecordBatch:
    batch = reader.batch(piece.node, piece.log, b"".join(slices))
    _check(piece, first, batch)
    return batch


def _slices(options: EventOptions, piece: EventRange, address: Address) -> Iterator[tuple[int, bytes]]:
    """What the node gives, slice by slice: (number of the first event, lines)."""
    nodes = Nodes(options.cluster)
    at = piece.start
    deadline = time.monotonic() + options.fetch_timeout_s
    try:
        while at < piece.end:
            count = min(options.fetch_rows, piece.end - at)
            try:
                part = read_slice(nodes, address, piece.log, at, count, options.fetch_bytes, options.reader)
            except DisqueConnectionError as error:
                if time.monotonic() > deadline:
                    raise ClusterError(
                        f"{FORMAT}: node {piece.node} can't be reached for events {at} to {piece.end - 1} ({error}); "
                        "the batch is repeated when the query starts again"
                    ) from None
                time.sleep(0.2)
                continue
            if not part.is_log_known or part.trimmed_to is not None:
                at = _skip(options, piece, at, part.trimmed_to)
                continue
            if part.lines:
                deadline = time.monotonic() + options.fetch_timeout_s
                yield at, part.lines
                at += part.lines.count(b"\n")
            elif time.monotonic() > deadline:
                raise ClusterError(
                    f"{FORMAT}: node {piece.node} gives no event {at} of log {piece.log}, which it had announced"
                )
            else:
                time.sleep(0.05)
    finally:
        nodes.close()


def _skip(options: EventOptions, piece: EventRange, at: int, trimmed_to: int | None) -> int:
    """Go on behind what is gone, never back, never beyond the range."""
    end = piece.end if trimmed_to is None else max(at, min(trimmed_to, piece.end))
    what = f"{FORMAT}: node {piece.node}: events {at} to {end - 1} of log {piece.log} are gone, they were planned"
    if not options.may_lose:
        raise DataLossError(f"{what}; to go on without them set failOnDataLoss=false")
    warnings.warn(f"{what}; going on, because failOnDataLoss is false", stacklevel=2)
    return end


def _check(piece: EventRange, at: int, batch: pa.RecordBatch) -> None:
    """Whether these are exactly the events that were asked for: numbers without gaps, inside the range."""
    numbers = batch.column("seq").to_numpy(zero_copy_only=False)
    count = len(numbers)
    if not count or numbers[0] != at or numbers[-1] != at + count - 1 or numbers[-1] >= piece.end:
        raise ClusterError(
            f"{FORMAT}: node {piece.node} was asked for events from {at} of log {piece.log} and sent others"
        )
    if count > 1 and not (numbers[1:] - numbers[:-1] == 1).all():
        raise ClusterError(f"{FORMAT}: node {piece.node}, log {piece.log}: numbers are not in a row behind {at}")
