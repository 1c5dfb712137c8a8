"""Event lines: events as lines of JSON, for readers of the log of events.

A line has the same fields in the same order for every event of a job (docs/events.md). Unknown fields are null. `v` is
the version of the schema. Text is ASCII. Bytes of names and metadata that are not UTF-8 become U+FFFD.

This step costs more than any other in the life of an event, and each event passes it for each reader. So pieces that
many lines share, such as names of states, counters and queues, are made once and looked up.
"""

from __future__ import annotations

from json import dumps
from typing import Any, Final

from disque_py.event_format import (
    ACKED,
    ADDED,
    CODES,
    DELIVERED,
    FIELDS_OF_CHANGE,
    FIELDS_OF_DELIVERED,
    FIELDS_OF_NODE,
    MS_OF_CTIME,
    PENDING,
    SCHEMA_VERSION,
    STATUS_NAMES,
    UNKNOWN_EVENT,
    line_fields,
)

# The characters of ids. An id with other characters came from another node, and needs the slower code that escapes.
_ID_CHARS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=-"

# The most pieces of lines that are kept. With more, all pieces are dropped.
PIECES_MAX: Final = 10_000

_REST: Final = f'"error":null,"worker":null,"meta":{{}},"body_size":%s,"v":{SCHEMA_VERSION}}}\n'
_CODES: Final = CODES  # Compiled code reads its own module's names faster.
_QUOTED_STATES: Final = tuple("null" if name is None else f'"{name}"' for name in STATUS_NAMES)
_STATES: Final = len(_QUOTED_STATES)
_PENDING: Final = _QUOTED_STATES[PENDING]
_ACKED_TO: Final = f'"event":"acked","from_state":%s,"to_state":{_QUOTED_STATES[CODES[ACKED][1]]},"since":'
_RUNNING: Final = _QUOTED_STATES[CODES[DELIVERED][1]]
_DELIVERED: Final = f'"event":"delivered","from_state":{_PENDING},"to_state":{_RUNNING},"since":'
_ADDED: Final = (
    f',"version":1,"event":"added","from_state":null,"to_state":{_PENDING},"since":null'
    ',"attempt":0,"nacks":0,"deliveries":0,"priority":'
)


class Lines:
    """Converts the events of a block to lines. It keeps pieces of text, and drops them when there are too many."""

    def __init__(self) -> None:
        self._queues: dict[bytes, str] = {}
        self._counters: dict[tuple[int, int, int], str] = {}
        self._rests: dict[int, str] = {}

    def of(self, first_seq: int, ts_ms: int, events: list[Any]) -> list[str]:
        """Return one line per event, with its newline. Raise ValueError or IndexError if an event is malformed."""
        queues, counters, rests = self._queues, self._counters, self._rests
        if len(queues) + len(counters) + len(rests) > PIECES_MAX:
            queues.clear()
            counters.clear()
            rests.clear()
        seq = first_seq
        if b"".join([event[1] for event in events if len(event) > FIELDS_OF_NODE]).translate(None, _ID_CHARS):
            return [_rare_line(seq, ts_ms, event) for seq, event in enumerate(events, first_seq)]
        head = f',"ts":{ts_ms},"job_id":"'
        lines: list[str] = []
        for event in events:
            code = event[0]
            if code == ADDED:
                _, job_id, ctime, name, size = event
                queue = queues.get(name) or self._queue(name)
                rest = rests.get(size) or self._rest(size)
                lines.append(
                    f'{{"seq":{seq}{head}{job_id.decode("ascii")}","ctime":{ctime}{queue}{_ADDED}'
                    f"{ctime // MS_OF_CTIME},{rest}"
                )
            elif len(event) == FIELDS_OF_DELIVERED:
                _, job_id, version, entered, attempt, nacks, deliveries, ctime, name, size = event
                queue = queues.get(name) or self._queue(name)
                rest = rests.get(size) or self._rest(size)
                counts = counters.get((attempt, nacks, deliveries)) or self._counts(attempt, nacks, deliveries)
                lines.append(
                    f'{{"seq":{seq}{head}{job_id.decode("ascii")}","ctime":{ctime}{queue},"version":{version},'
                    f"{_DELIVERED}{entered or 'null'}{counts}{ctime // MS_OF_CTIME},{rest}"
                )
            elif len(event) == FIELDS_OF_CHANGE:
                _, job_id, version, left, entered, attempt, nacks, deliveries, ctime, name, size = event
                queue = queues.get(name) or self._queue(name)
                rest = rests.get(size) or self._rest(size)
                counts = counters.get((attempt, nacks, deliveries)) or self._counts(attempt, nacks, deliveries)
                lines.append(
                    f'{{"seq":{seq}{head}{job_id.decode("ascii")}","ctime":{ctime}{queue},"version":{version},'
                    f"{_change(code, left)}{entered or 'null'}{counts}{ctime // MS_OF_CTIME},{rest}"
                )
            else:
                lines.append(_rare_line(seq, ts_ms, event))
            seq += 1
        return lines

    def _queue(self, name: bytes) -> str:
        text = self._queues[name] = f',"queue":{dumps(name.decode("utf-8", "replace"))}'
        return text

    def _rest(self, size: int) -> str:
        text = self._rests[size] = _REST % size
        return text

    def _counts(self, attempt: int, nacks: int, deliveries: int) -> str:
        text = self._counters[(attempt, nacks, deliveries)] = (
            f',"attempt":{attempt},"nacks":{nacks},"deliveries":{deliveries},"priority":'
        )
        return text


def _change(code: int, left: int) -> str:
    state = _QUOTED_STATES[left] if left < _STATES else "null"  # A later version may have more states.
    if code == ACKED:
        return _ACKED_TO % state
    name, entered = _CODES.get(code) or UNKNOWN_EVENT
    return f'"event":"{name}","from_state":{state},"to_state":{_QUOTED_STATES[entered]},"since":'


def _rare_line(seq: int, ts_ms: int, event: Any) -> str:
    """Return the line of an event with a rare field, or of an event of the node."""
    return dumps(line_fields(seq, ts_ms, event), separators=(",", ":")) + "\n"
