"""Where a query stands in the event logs of all nodes, and how far the next batch goes. Pure.

An offset is what Spark keeps in its checkpoint, as JSON:

    {"nodes": {"<node id>": {"log": "<log id>", "next": 120}, …},
     "from":  {"<node id>": {"log": "<log id>", "next": 100}, …}}

`nodes` is where the batch that ends here ends: `next` is the first number that was not planned. `from`
is where that batch begins. Spark keeps only the ends of batches, and asks for the initial offset
again when the first batch is repeated after a crash; then the logs have grown, and `latest` would
be another place. A batch that carries its own beginning is the same batch every time.

A node that was never seen begins at the first number it still has; so does one that joins later. A
node that could not be reached when the query began has `{"since": <Unix ms>}` where a moment
counts, and gets its place when it answers. A node that is away keeps its place.

A log that was begun anew has another id. Going over to it is a step of its own, without rows: what
is left of the old log is read first where it can be.

What was lost and passed over (failOnDataLoss is false) is counted in the offset, so that the count
outlives the process and everybody who sees the query's progress sees it:

     "lost": {"events": 120, "logs": 1}

`events` are those whose numbers are known, `logs` were replaced before their end was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from disque_py.spark.event_log import LogState
from disque_py.spark.options import OptionError

Offset: TypeAlias = dict[str, Any]

# What Kafka's source calls the two ends in its JSON.
LATEST: Final = -1
EARLIEST: Final = -2


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a node's log; `since` (Unix ms) stands for the place of a node that has not answered yet."""

    log: str = ""
    next: int = 0
    since: int | None = None

    @property
    def is_pending(self) -> bool:
        """Whether the node has yet to say which place this is."""
        return self.since is not None

    def to_json(self) -> dict[str, Any]:
        """As it stands in an offset."""
        return {"since": self.since} if self.is_pending else {"log": self.log, "next": self.next}


class EventRange(NamedTuple):
    """Sequence numbers from `start` up to, without, `end` of one log."""

    node: str
    log: str
    start: int
    end: int


def positions_of(places: Mapping[str, Any]) -> dict[str, Position]:
    """The positions in one half of an offset."""
    return {
        node: Position(since=place["since"]) if "since" in place else Position(place["log"], place["next"])
        for node, place in places.items()
    }


class Lost(NamedTuple):
    """What a query has passed over so far: events of known numbers, and logs whose end nobody knows."""

    events: int = 0
    logs: int = 0

    def plus(self, other: Lost) -> Lost:
        """Both together."""
        return Lost(self.events + other.events, self.logs + other.logs)


def lost_of(offset: Mapping[str, Any]) -> Lost:
    """What stands in an offset; nothing in most."""
    lost = offset.get("lost") or {}
    return Lost(int(lost.get("events", 0)), int(lost.get("logs", 0)))


def offset_of(ends: Mapping[str, Position], starts: Mapping[str, Position], lost: Lost | None = None) -> Offset:
    """The offset of a batch; sorted, so that equal ones are equal as text."""
    offset: Offset = {
        "nodes": {node: ends[node].to_json() for node in sorted(ends)},
        "from": {node: starts[node].to_json() for node in sorted(starts)},
    }
    if lost is not None and any(lost):
        offset["lost"] = lost._asdict()
    return offset


def split_limit(lags: Mapping[str, int], limit: int | None) -> dict[str, int]:
    """How many events of each node the batch may have: all, or `limit` in proportion to what each has waiting.

    A node that has something waiting gets at least one, so that none starves; the sum may exceed a
    limit that is smaller than the number of nodes.
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
    """Where the batch ends: `targets` are the states of logs that were reached, of the same ids as in `starts`.

    `next` of a target is how far that log may be read. Nodes without a target stay where they are.
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
    """The batch as ranges, one per node at least, split until there are `piece_count_min` (a hint, as Kafka's)."""
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
    """The option startingOffsets or endingOffsets as JSON: node id → a number, -1 (latest) or -2 (earliest).

    A value may also be an object with `log` and `next`, as in a checkpoint. Raises OptionError when
    a node is missing or there is one too many: a forgotten node would otherwise be read from
    anywhere.
    """
    missing = sorted(set(nodes) - set(value))
    surplus = sorted(set(value) - set(nodes))
    if missing or surplus:
        what = f"lacks node {missing[0]}" if missing else f"names {surplus[0]}, which is no node of this cluster"
        raise OptionError(f"disque-events: option {name} {what}; name each node of the cluster once")
    return {node: _json_position(name, node, value[node], nodes[node]) for node in sorted(value)}


def _json_position(name: str, node: str, word: Any, state: LogState) -> Position:
    if isinstance(word, dict) and isinstance(word.get("log"), str) and isinstance(word.get("next"), int):
        return Position(word["log"], word["next"])
    if not isinstance(word, int) or isinstance(word, bool) or word < EARLIEST:
        raise OptionError(
            f"disque-events: option {name}: node {node} has {word!r}; write a sequence number, -1 for latest or "
            "-2 for earliest"
        )
    if word == LATEST:
        return Position(state.log, state.next)
    if name == "startingOffsets" and word > state.next:  # Of endingOffsets, planning says more.
        raise OptionError(
            f"disque-events: option {name}: node {node} has {word}, and its log {state.log} ends before {state.next}; "
            "the number may be of an older log"
        )
    return Position(state.log, state.first if word == EARLIEST else word)
