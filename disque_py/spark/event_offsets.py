"""The position of a query in the event logs of all nodes, and the end of its next batch. Pure.

Spark keeps an offset in its checkpoint, as JSON:

    {"nodes": {"<node id>": {"log": "<log id>", "next": 120}, …},
     "from":  {"<node id>": {"log": "<log id>", "next": 100}, …}}

`nodes` is the end of a batch: `next` is the first number that was not planned. `from` is the beginning of the same
batch. Spark keeps only the ends of batches. When the first batch is repeated after a crash, Spark asks for the
initial offset again. By then the logs have grown, and `latest` would be another position. A batch that carries its
own beginning is the same batch every time.

A node that was never seen begins at the first number that it still has. So does a node that joins later. A query may
begin at a moment (`latest`, startingTimestamp). A node that can't be reached at that time has `{"since": <Unix ms>}`
instead, and gets its position when it answers. A node that is away keeps its position.

When a node begins its log anew, the log has another id. The query first reads the rest of the old log, if the node
still has it. Then an empty batch changes the position to the new log.

With failOnDataLoss=false, lost events are skipped and counted in the offset. So the count survives the process, and
the query's progress shows it:

     "lost": {"events": 120, "logs": 1}

`events` counts lost events whose numbers are known. `logs` counts logs that were replaced before their end was read,
or that were cut: they end before the position of the query. Such a log is read again under another name (event_log.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from disque_py.spark.event_log import LogState
from disque_py.spark.options import OptionError

Offset: TypeAlias = dict[str, Any]

# Kafka's source uses the same numbers for the two ends in its JSON.
LATEST: Final = -1
EARLIEST: Final = -2


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a node's log. `since` (Unix ms) stands for the position of a node that has not answered yet."""

    log: str = ""
    next: int = 0
    since: int | None = None

    @property
    def is_pending(self) -> bool:
        """Return whether the node has not answered yet, so that the position is a moment only."""
        return self.since is not None

    def to_json(self) -> dict[str, Any]:
        """Return the position as an offset contains it."""
        return {"since": self.since} if self.is_pending else {"log": self.log, "next": self.next}


class EventRange(NamedTuple):
    """The sequence numbers of one log from `start` up to and excluding `end`."""

    node: str
    log: str
    start: int
    end: int


def positions_of(places: Mapping[str, Any]) -> dict[str, Position]:
    """Return the positions in one half of an offset."""
    return {
        node: Position(since=place["since"]) if "since" in place else Position(place["log"], place["next"])
        for node, place in places.items()
    }


class Lost(NamedTuple):
    """The losses of a query so far: events whose numbers are known, and logs whose ends are unknown."""

    events: int = 0
    logs: int = 0

    def plus(self, other: Lost) -> Lost:
        """Return the sum of both."""
        return Lost(self.events + other.events, self.logs + other.logs)


def lost_of(offset: Mapping[str, Any]) -> Lost:
    """Return the losses that an offset counts; zeros when it has none."""
    lost = offset.get("lost") or {}
    return Lost(int(lost.get("events", 0)), int(lost.get("logs", 0)))


def offset_of(ends: Mapping[str, Position], starts: Mapping[str, Position], lost: Lost | None = None) -> Offset:
    """Return the offset of a batch. It is sorted, so that equal offsets are equal as text."""
    offset: Offset = {
        "nodes": {node: ends[node].to_json() for node in sorted(ends)},
        "from": {node: starts[node].to_json() for node in sorted(starts)},
    }
    if lost is not None and any(lost):
        offset["lost"] = lost._asdict()
    return offset


def split_limit(lags: Mapping[str, int], limit: int | None) -> dict[str, int]:
    """Return how many events of each node the batch may have: all, or `limit` in proportion to the nodes' lags.

    A node with waiting events gets at least one, so that no node starves. So the sum may exceed a limit that is
    smaller than the number of nodes.
    """
    total = sum(lags.values())
    if limit is None or total <= limit:
        return dict(lags)
    shares = {node: min(lag, max(1, limit * lag // total)) if lag else 0 for node, lag in lags.items()}
    spare = limit - sum(shares.values())
    for node in sorted(shares):
        if spare <= 0:
            break
        extra = min(spare, lags[node] - shares[node])
        shares[node] += extra
        spare -= extra
    return shares


def plan(starts: Mapping[str, Position], targets: Mapping[str, LogState], limit: int | None) -> dict[str, Position]:
    """Return where the batch ends. `targets` are the states of the reachable logs that `starts` names.

    A log may be read up to the `next` of its target. Nodes without a target stay where they are.
    """
    lags = {
        node: max(0, targets[node].next - place.next)
        for node, place in starts.items()
        if node in targets and targets[node].log == place.log
    }
    shares = split_limit(lags, limit)
    return {
        node: Position(place.log, place.next + shares[node]) if shares.get(node) else place
        for node, place in starts.items()
    }


def ranges(starts: Mapping[str, Position], ends: Mapping[str, Position], piece_count_min: int = 0) -> list[EventRange]:
    """Return the batch as ranges, at least one per node, split into about `piece_count_min` (a hint, as in Kafka)."""
    whole = []
    for node in sorted(ends):
        end = ends[node]
        start = starts.get(node)
        if start is not None and not end.is_pending and start.log == end.log and start.next < end.next:
            whole.append(EventRange(node, end.log, start.next, end.next))
    total = sum(item.end - item.start for item in whole)
    pieces = []
    for item in whole:
        count = item.end - item.start
        parts = max(1, min(count, round(piece_count_min * count / total)))
        for part in range(parts):
            first, after = count * part // parts, count * (part + 1) // parts
            pieces.append(item._replace(start=item.start + first, end=item.start + after))
    return pieces


def read_json_offsets(name: str, value: Mapping[str, Any], nodes: Mapping[str, LogState]) -> dict[str, Position]:
    """Read the option startingOffsets or endingOffsets from JSON: node id → a number, -1 (latest) or -2 (earliest).

    A value may also be an object with `log` and `next`, as in a checkpoint. Raises OptionError when the JSON lacks a
    node or names an unknown one: the position of a forgotten node would be undefined.
    """
    missing = sorted(set(nodes) - set(value))
    surplus = sorted(set(value) - set(nodes))
    if missing or surplus:
        what = f"lacks node {missing[0]}" if missing else f"names {surplus[0]}, which is not a node of this cluster"
        raise OptionError(f"disque-events: option {name} {what}; name each node of the cluster once")
    return {node: _json_position(name, node, value[node], nodes[node]) for node in sorted(value)}


def _json_position(name: str, node: str, word: Any, state: LogState) -> Position:
    if isinstance(word, dict) and isinstance(word.get("log"), str) and isinstance(word.get("next"), int):
        return Position(word["log"], word["next"])
    if not isinstance(word, int) or isinstance(word, bool) or word < EARLIEST or not word:
        raise OptionError(
            f"disque-events: option {name}: node {node} has {word!r}; write a sequence number (the first is 1), -1 "
            "for latest or -2 for earliest"
        )
    if word == LATEST:
        return Position(state.log, state.next)
    if name == "startingOffsets" and word > state.next:  # For endingOffsets, the planner has a better error.
        raise OptionError(
            f"disque-events: option {name}: node {node} has {word}, and its log {state.log} ends before {state.next}; "
            "the number may belong to an older log"
        )
    return Position(state.log, state.first if word == EARLIEST else word)
