"""Planning of batches of events on the driver, and the options of a query of the event logs.

`EventPlanner` lives in one process beside Spark's driver and talks to all nodes. It keeps no state that a restart
would lose: the offset alone describes a batch (event_offsets.py). events_reading.py reads the planned batches.
Spark is not imported: events.py wraps both modules.

Lost events are never skipped silently. With failOnDataLoss=true (the default) they are an error that names the node
and the events. With failOnDataLoss=false they are a warning, and reading goes on *forwards* inside the planned batch.
So no event is read twice under one name of a log.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from disque_py.client import Address, DisqueConnectionError
from disque_py.spark.event_log import (
    DataLossError,
    LogState,
    NoLogError,
    check_owner,
    log_id,
    log_state,
    name_after_cut,
    read_slice,
    seek,
)
from disque_py.spark.event_offsets import (
    EventRange,
    Lost,
    Offset,
    Position,
    lost_of,
    offset_of,
    plan,
    positions_of,
    ranges,
    read_json_offsets,
)
from disque_py.spark.nodes import AwayNodes, ClusterError, NodePlace, Nodes
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
    "rows",
)
FORMAT: Final = "disque-events"
# Every log begins with this number (docs/events.md).
FIRST_SEQ: Final = 1
# The pause between two questions for a node's new address.
PAUSE_S: Final = 0.2

# Why events may be gone, and what to do.
TRIMMED: Final = "raise events-max-bytes or events-max-age of the node, or read more often"
REPLACED: Final = (
    "a node begins another log when it can't continue the last one, because its directory was emptied, events were "
    "switched off and on, or its disk failed; the node's log file says which"
)
CUT_SHORT: Final = "either the node runs on an older copy of its directory, or the offset belongs to another cluster"


@dataclass(frozen=True, slots=True)
class EventOptions:
    """The options of a query of the event logs.

    starting, ending         "earliest", "latest", or node id → number
    starting_ms              startingTimestamp, which wins over `starting`
    events_max, bytes_max    limits of a batch; None: no limit
    piece_count_min          minPartitions
    may_lose                 the opposite of failOnDataLoss
    fetch_rows, fetch_bytes  limits of one EVENTS READ
    fetch_timeout_s          how long a task waits for events that the node has announced
    reader                   the name under which the broker shows this reader's lag
    as_slices                rows are slices (event_slices.py), not events
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
    as_slices: bool


def event_options(given: Any, *, is_stream: bool) -> EventOptions:
    """Check the options and return them. Raises OptionError."""
    options = Options(FORMAT, given, OPTIONS)
    if is_stream and options.has("endingOffsets"):
        raise OptionError(f"{FORMAT}: option endingOffsets is for batch reads; a stream has no end")
    starting = _offsets_word(options, "startingOffsets", "latest" if is_stream else "earliest")
    if not is_stream and starting == "latest":
        raise OptionError(f"{FORMAT}: option startingOffsets can't be latest in a batch read: nothing would be read")
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
        as_slices=options.choice("rows", "events", ("events", "slices")) == "slices",
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
            f'{FORMAT}: option {name} must be earliest, latest or a JSON object like {{"<node id>": 120}}, not {word!r}'
        )
    # A whole offset from a checkpoint is accepted too.
    return value["nodes"] if isinstance(value.get("nodes"), dict) else value


def _without(offsets: dict[str, Any], nodes: Collection[str]) -> dict[str, Any]:
    """Return the offsets of the other nodes."""
    return {node: offset for node, offset in offsets.items() if node not in nodes}


class EventPlanner:
    """A planner of batches; one per query, in the process that Spark keeps for its reader."""

    def __init__(self, options: EventOptions) -> None:
        self.options = options
        self._nodes = Nodes(options.cluster)
        self._target: dict[str, LogState] | None = None
        self._initial: Offset | None = None
        # Losses so far, and the nodes that were already reported as gone.
        self._lost = Lost()
        self._gone: set[str] = set()
        self._away = AwayNodes(FORMAT, "its events are read when it answers again")
        # The last log of each node that was confirmed to belong to that node.
        self._own: dict[str, str] = {}
        # The names of the logs in the last offset: a log that was cut has another name than its id.
        self._names: dict[str, str] = {}

    def close(self) -> None:
        """Close the connections. The next request connects again."""
        self._nodes.close()

    def reach(self) -> dict[str, str]:
        """Return the nodes that can't be read from, with the reasons.

        Raises ClusterError when no node can be read from, or when one refuses the password.
        """
        states, away = self._states(patient=True)
        if not states:
            raise ClusterError(next(iter(away.values())))
        return self._with_own_address(away)

    def initial(self) -> Offset:
        """Return where a new query begins. Raises ClusterError, OptionError before anything is read."""
        if self._initial is None:
            states, away = self._states()
            self._away.report(self._with_own_address(away))
            positions = self._starts(states, away)
            self._initial = offset_of(positions, positions)
        return self._initial

    def freeze(self) -> None:
        """Limit the query to the events that exist now (AvailableNow)."""
        self._target, away = self._states()
        self._away.report(self._with_own_address(away))

    def latest(self, start: Offset) -> Offset:
        """Return the end of the next batch, or `start` itself when there is nothing new.

        Raises DataLossError when the next events are gone and failOnDataLoss is true.
        """
        states, away = self._states(patient=True)
        self._away.report(self._with_own_address(away))
        begins = positions_of(start["nodes"])
        self._lost = lost_of(start)
        self._report_gone(begins)
        ends: dict[str, Position] = dict(begins)
        for node, state in self._named(states, begins).items():
            try:
                begins[node], ends[node] = self._next_of(node, state, begins.get(node))
            except DisqueConnectionError:
                del states[node]  # It has gone away since it was asked. It keeps its position.
        readable = {
            node: self._up_to_target(node, state)
            for node, state in self._named(states, ends).items()
            if ends[node].log == begins[node].log == state.log
        }
        planned = plan(begins, readable, self._limit(readable))
        ends = {node: planned[node] if node in readable else ends[node] for node in ends}
        if ends == positions_of(start["nodes"]):
            return start
        return offset_of(ends, begins, self._lost)

    def _next_of(self, node: str, state: LogState, place: Position | None) -> tuple[Position, Position]:
        """Return where a node's next events begin, and the end, which is only beyond it in a log that has ended.

        Raises DisqueConnectionError, and DataLossError as `latest`.
        """
        if place is None:
            # The node has joined: read everything that it still has.
            place = Position(state.log, state.first)
        elif place.is_pending:
            place = self._first_position(node, state, place)
        elif place.log != state.log:
            return place, self._change_log(node, place, state)
        elif place.next < state.first:
            return self._pass_trimmed(node, place, state.first), place
        elif place.next > state.next:
            place = self._pass_cut(node, place, state)
        return place, place

    def _named(self, states: Mapping[str, LogState], places: Mapping[str, Position]) -> dict[str, LogState]:
        """Return the states with the names that the logs have at these places."""
        self._names.update({node: place.log for node, place in places.items() if place.log})
        names = {node: self._names.get(node, "") for node in states}
        return {
            node: replace(state, log=names[node]) if log_id(names[node]) == state.log else state
            for node, state in states.items()
        }

    def report(self) -> Offset | None:
        """Return where all logs end now, for the lag that Spark shows; None when no node answers."""
        try:
            states, _ = self._states(patient=True)
        except ClusterError:
            return None
        ends = {node: Position(state.log, state.next) for node, state in self._named(states, {}).items()}
        return {"nodes": {node: ends[node].to_json() for node in sorted(ends)}}

    def ranges(self, end: Offset) -> list[tuple[EventRange, Address]]:
        """Return the ranges of a batch with their nodes' addresses.

        Raises ClusterError when the cluster no longer knows a node or its address, and failOnDataLoss is true. When it
        is false, the node's events are left out, with a warning.
        """
        pieces = ranges(positions_of(end["from"]), positions_of(end["nodes"]), self.options.piece_count_min)
        if not pieces:
            return []
        places = self._places_of({piece.node for piece in pieces})
        for piece in pieces:
            if piece.node not in places:
                what = (
                    f"{FORMAT}: node {piece.node}, which has events {piece.start} to {piece.end - 1} of this batch, is "
                    "no longer known to the cluster, or has lost its address to another node"
                )
                if not self.options.may_lose:
                    raise ClusterError(
                        f"{what}; let it join again, set failOnDataLoss=false to go on without these events, or begin "
                        "with a new checkpoint"
                    )
                warnings.warn(f"{what}; going on without them, because failOnDataLoss is false", stacklevel=2)
        return [(piece, places[piece.node].address) for piece in pieces if piece.node in places]

    def _places_of(self, wanted: set[str]) -> dict[str, NodePlace]:
        """Return the nodes that have an address.

        A node without one has lost it to another node: its directory was emptied. A node that moves to another address
        looks the same for a moment, so wait for the wanted nodes as long as a task waits for a node.
        """
        deadline = time.monotonic() + self.options.fetch_timeout_s
        while True:
            known = self._nodes.discover()
            places = {node: place for node, place in known.items() if place.address.port}
            if not (wanted & known.keys() - places.keys()) or time.monotonic() > deadline:
                return places
            time.sleep(PAUSE_S)

    def batch(self) -> list[tuple[EventRange, Address]]:
        """Return everything between startingOffsets and endingOffsets as ranges, for a batch read."""
        states, away = self._states()
        if away and not self.options.may_lose:
            node, reason = next(iter(sorted(away.items())))
            raise ClusterError(
                f"{FORMAT}: node {node} can't be reached ({reason}); start it, or set failOnDataLoss=false to read "
                "without it"
            )
        starts = self._starts(states, {}, left_out=away)
        states = self._named(states, starts)
        ends = {node: Position(state.log, state.next) for node, state in states.items()}
        if isinstance(self.options.ending, dict):
            ends = read_json_offsets("endingOffsets", _without(self.options.ending, away), states)
        for node, place in starts.items():
            state, end = states[node], ends[node]
            if place.log != state.log or end.log != state.log:
                self._lose(f"node {node}: log {place.log} is gone; the node now has {state.log}", REPLACED, logs=1)
                starts[node] = Position(state.log, state.first)
                ends[node] = Position(state.log, state.next)
            elif place.next < state.first:
                starts[node] = self._pass_trimmed(node, place, state.first)
            elif place.next > state.next:
                starts[node] = self._pass_cut(node, place, state)
                end = ends[node] = replace(end, log=starts[node].log)
            if log_id(end.log) == log_id(state.log) and end.next > state.next:
                raise OptionError(
                    f"{FORMAT}: option endingOffsets asks node {node} for events up to {end.next}, but its log ends "
                    f"before {state.next}"
                )
        return self.ranges(offset_of(ends, starts))

    def _states(self, *, patient: bool = False) -> tuple[dict[str, LogState], dict[str, str]]:
        """Return the logs of all nodes that answer, and for each other node the reason why it doesn't.

        A node without a log is an error when a query begins. Later (`patient`) it counts as away, because its last
        log could not be written and it will begin another.
        """
        states: dict[str, LogState] = {}
        away: dict[str, str] = {}
        for node, place in sorted(self._nodes.discover().items()):
            try:
                state = log_state(self._nodes, place.address)
                # A node whose directory was emptied comes back under a new id, at the address that other nodes still
                # have for its old id.
                if state.log != self._own.get(node):
                    check_owner(self._nodes, place.address, node)
                    self._own[node] = state.log
                states[node] = state
            except DisqueConnectionError as error:
                away[node] = str(error)
            except NoLogError as error:
                if not patient:
                    raise
                away[node] = str(error)
        return states, away

    def _with_own_address(self, away: dict[str, str]) -> dict[str, str]:
        """Leave out nodes whose address now belongs to another node: `_report_gone` reports those."""
        return {node: reason for node, reason in away.items() if self._nodes.places[node].address.port}

    def _starts(
        self, states: dict[str, LogState], away: dict[str, str], left_out: Collection[str] = ()
    ) -> dict[str, Position]:
        """Return where a query begins. Nodes that are `left_out` are away, and a batch read goes on without them."""
        options = self.options
        if options.starting_ms is not None:
            starts = {node: self._position_at(node, state, options.starting_ms) for node, state in states.items()}
            return starts | {node: Position(since=options.starting_ms) for node in away}
        if isinstance(options.starting, dict):
            if away:
                node, reason = next(iter(sorted(away.items())))
                raise ClusterError(
                    f"{FORMAT}: option startingOffsets names positions in logs, and node {node} can't be reached "
                    f"({reason}); start it first"
                )
            return read_json_offsets("startingOffsets", _without(options.starting, left_out), states)
        if options.starting == "earliest":
            # Nodes that are away begin at their first event when they answer.
            return {node: Position(state.log, state.first) for node, state in states.items()}
        now_ms = time.time_ns() // 1_000_000
        starts = {node: Position(state.log, state.next) for node, state in states.items()}
        return starts | {node: Position(since=now_ms) for node in away}

    def _position_at(self, node: str, state: LogState, ms: int) -> Position:
        seq = seek(self._nodes, self._nodes.places[node].address, ms)
        return Position(state.log, min(max(seq, state.first), state.next))

    def _first_position(self, node: str, state: LogState, place: Position) -> Position:
        assert place.since is not None
        return self._position_at(node, state, place.since)

    def _change_log(self, node: str, place: Position, state: LogState) -> Position:
        """Return the end for a node that has begun another log: the rest of the old log first, then the new one.

        The rest is planned within the limit of a batch, taken for this node alone. Raises DisqueConnectionError.
        """
        address = self._nodes.places[node].address
        limit = self._limit({node: state})
        rest = 0
        while rest != limit:
            count = self.options.fetch_rows if limit is None else min(self.options.fetch_rows, limit - rest)
            part = read_slice(self._nodes, address, place.log, place.next + rest, count, self.options.fetch_bytes)
            if not part.is_log_known or part.trimmed_to is not None:
                check_owner(self._nodes, address, node)
                self._lose(
                    f"node {node}: log {place.log} is gone; it was read up to {place.next + rest}; the node has begun "
                    f"log {state.log}",
                    REPLACED,
                    logs=1,
                )
                break
            if part.end == place.next + rest:
                break
            rest = part.end - place.next
        if rest:
            return Position(place.log, place.next + rest)
        if state.first > FIRST_SEQ:
            self._lose(
                f"node {node}: events {FIRST_SEQ} to {state.first - 1} of log {state.log}, which follows log "
                f"{place.log}, were trimmed before they were read",
                TRIMMED,
                events=state.first - FIRST_SEQ,
            )
        return Position(state.log, state.first)

    def _pass_trimmed(self, node: str, place: Position, first: int) -> Position:
        self._lose(
            f"node {node}: events {place.next} to {first - 1} of log {place.log} were trimmed before they were read",
            TRIMMED,
            events=first - place.next,
        )
        return Position(place.log, first)

    def _pass_cut(self, node: str, place: Position, state: LogState) -> Position:
        """Return the first event of a log that ends before the position: it was cut (docs/events.md).

        Its later events have numbers of events that the query has read, and nothing says which ones. So the query reads
        the whole log again, under another name.
        """
        self._lose(
            f"node {node}: log {place.log} ends before {state.next}, but event {place.next} comes next",
            CUT_SHORT,
            then="to read this log again from its first event",
            logs=1,
        )
        return Position(name_after_cut(place.log), state.first)

    def _lose(
        self, what: str, why: str, *, then: str = "to go on without these events", events: int = 0, logs: int = 0
    ) -> None:
        """Handle lost events: end the query, or warn and count them in the offset."""
        if not self.options.may_lose:
            raise DataLossError(f"{FORMAT}: {what}; {why}; {then}, set failOnDataLoss=false")
        self._lost = self._lost.plus(Lost(events, logs))
        warnings.warn(
            f"{FORMAT}: {what}; going on, because failOnDataLoss is false; lost so far: {self._lost.events} events "
            f"with known numbers, and the ends of {self._lost.logs} logs",
            stacklevel=2,
        )

    def _report_gone(self, begins: dict[str, Position]) -> None:
        """Report nodes that the cluster no longer knows, or whose address belongs to another node now.

        Most of them are nodes whose directory was emptied. But leaving is no error, and a node with a new address
        looks the same for a moment. So the line only says that the node may have had more events.
        """
        known = self._nodes.places
        missing = {node for node in begins if node not in known or not known[node].address.port}
        for node in sorted(missing - self._gone):
            place = begins[node]
            why = "has lost its address to another node" if node in known else "is no longer known to the cluster"
            # This is not a warning: if the node left on purpose, there is nothing to do.
            print(
                f"{FORMAT}: node {node} {why}; the next event to read of its log {place.log or '(not seen yet)'} is "
                f"{place.next}. If the node was emptied or replaced, its events from there on are lost. If it comes "
                "back, reading goes on there",
                file=sys.stderr,
            )
        self._gone = missing

    def _up_to_target(self, node: str, state: LogState) -> LogState:
        if self._target is None:
            return state
        target = self._target.get(node)
        if target is None or target.log != log_id(state.log):
            # The node or its log appeared after the query was started. The next query reads it.
            return LogState(state.log, state.first, 0, 0)
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
