"""Queue settings: the fields of QUEUE SET, their values, and the versions by which nodes agree on them.

A setting is a text with a version (counter, node id). The higher version wins, field by field. So two operators who set
different fields at different nodes both succeed. A new version's counter is one above the highest that its node knows
of the queue. A RESET is a version, too: fields of lower versions have their defaults again. Merging in any order, and
any number of times, gives the same state.

A field that this version does not know is kept and passed on. So is a value that only a newer version understands;
this node goes by the default then.

`QueueSettingsTable.of` gives the settings in force, parsed, for code that obeys them. This module is data: it knows no
broker, no file and no other node (settings_sync.py).

The table also carries other state that all nodes share: topics, schedules, users, batches. A *key* names a state. The
key of a queue's settings is the queue's name. Any other kind of state has a prefix (`state_key`). A node that does not
know a kind keeps its states and passes them on, as it does with fields. Spec QS1, QS2, QS9.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from cluster_bus.node import Node

INT64_MAX: Final = (1 << 63) - 1
# As DELAY, RETRY and TTL: spans are kept in milliseconds, in 64 bits.
SPAN_MS_MAX: Final = INT64_MAX // 1_000_000 * 1_000
REPLICATE_MAX: Final = 65_535
ATTEMPTS_MAX: Final = 1_000_000_000  # As of ADDJOB: other nodes and the journal take no more.
# Bounds of `rate` and `max-running`.
CAP_MAX: Final = 1_000_000_000
RATE_MS_MIN: Final = 1_000
RATE_MS_MAX: Final = 86_400_000
NAMES_MAX: Final = 8
NAME_BYTES_MAX: Final = 1_024
# `replicate quorum`: the number of copies follows the size of the cluster.
QUORUM: Final = -1

# A state of a queue counts so many bytes besides its name, and a field so many besides its name and value.
STATE_BYTES: Final = 400
FIELD_BYTES: Final = 250
# At most so many queues have settings, and their states take at most so many bytes.
QUEUES_MAX: Final = 100_000
TABLE_BYTES_MAX: Final = 256 * 1024 * 1024
NO_VERSION: Final = "ERR the settings of the queue have the highest version there is"
FULL: Final = f"ERR too many queues with settings, at most {QUEUES_MAX}"
# Bounds for one field, ours or of a newer version.
FIELD_NAME_BYTES_MAX: Final = 64
VALUE_BYTES_MAX: Final = 65_536
FIELDS_MAX: Final = 64
COUNTER_MAX: Final = 1 << 53
NODE_BYTES: Final = 20

# Fields that have one version: a change of one writes all of them.
CLAIM_FIELDS: Final = (b"type", b"exclusive-by", b"assign")

# The name of the version of a RESET, among the versions of fields.
RESET_FIELD: Final = b""

# Kinds of states. A key that begins with a zero byte says its kind behind it. Any other key is the name of a queue.
QUEUE: Final = b"q"
TOPIC: Final = b"t"
SCHEDULE: Final = b"s"
USER: Final = b"u"
BATCH: Final = b"b"
_MARK: Final = b"\0"

# Called with a name and the fields of its state, without empty ones. No fields: the state was deleted.
Watcher = Callable[[bytes, dict[bytes, bytes]], None]


def state_key(kind: bytes, name: bytes) -> bytes:
    """Return the key of a state of this kind (spec QS9)."""
    return name if kind == QUEUE and not name.startswith(_MARK) else _MARK + kind + name


def split_key(key: bytes) -> tuple[bytes, bytes]:
    """Return the kind and the name of a state."""
    return (key[1:2], key[2:]) if key.startswith(_MARK) else (QUEUE, key)


_TIME: Final = re.compile(rb"([0-9]{1,19})(ms|s|m|h|d)?")
_UNIT_MS: Final = {b"ms": 1, b"": 1_000, b"s": 1_000, b"m": 60_000, b"h": 3_600_000, b"d": 86_400_000}
_NUMBER: Final = re.compile(rb"[0-9]{1,19}")
_BACKOFF: Final = re.compile(rb"(fixed|linear|exponential):([0-9]{1,16}):([0-9]{1,16})(?::([0-9]{1,3}))?")


class QueueSettings:
    """The settings in force for one queue, as the code that obeys them reads them.

    lease_ms      RETRY of jobs that name none; 0: Disque's default
    delay_ms, ttl_ms   DELAY and TTL of jobs that name none
    replicate     REPLICATE of jobs that name none; 0: Disque's default, QUORUM: a majority of the nodes
    attempts      ATTEMPTS of jobs that name none; 0: any number
    backoff       BACKOFF of jobs that name none, as the option's text; empty: none
    maxlen        the most pending jobs in the whole cluster; 0: any number
    maxsize       the most bytes of a body; 0: any number
    dead_letter   the queue for jobs without attempts left; empty: none
    retention_ms  how long an errored job stays
    require_meta  names that the META of a job must have
    index         names of META that are indexed from the start
    exclusive_by  name of META of an exclusive queue: at most one running job per value; empty: it is none
    is_quorum     a job is handed out under a claim of its own (`assign quorum`)
    rate, rate_ms, rate_by        deliveries per time, in the cluster or per value of this name; 0: any number
    max_running, max_running_by   leases that run, likewise
    result_retention_ms   how long a result of ACKJOB stays; 0: only nodes that wait are told
    """

    __slots__ = (
        "attempts",
        "backoff",
        "dead_letter",
        "delay_ms",
        "exclusive_by",
        "index",
        "is_quorum",
        "lease_ms",
        "max_running",
        "max_running_by",
        "maxlen",
        "maxsize",
        "rate",
        "rate_by",
        "rate_ms",
        "replicate",
        "require_meta",
        "result_retention_ms",
        "retention_ms",
        "ttl_ms",
    )

    def __init__(self) -> None:
        self.lease_ms = 0
        self.delay_ms = 0
        self.ttl_ms = 86_400_000
        self.replicate = 0
        self.attempts = 0
        self.backoff = b""
        self.maxlen = 0
        self.maxsize = 0
        self.dead_letter = b""
        self.retention_ms = 7 * 86_400_000
        self.rate = 0
        self.rate_ms = 1_000
        self.rate_by = b""
        self.max_running = 0
        self.max_running_by = b""
        self.result_retention_ms = 3_600_000
        self.require_meta: tuple[bytes, ...] = ()
        self.index: tuple[bytes, ...] = ()
        self.exclusive_by = b""
        self.is_quorum = False


# Of all queues without settings.
DEFAULTS: Final = QueueSettings()


class InvalidValueError(ValueError):
    """A value that a field may not have; the text is the reason."""


# -- kinds of values: each gives the text that QUEUE GET shows, and raises InvalidValueError ---------------------------


def span_ms(value: bytes) -> int:
    """Return a time in milliseconds: a number of seconds, or a number with ms, s, m, h or d. InvalidValueError."""
    match = _TIME.fullmatch(value)
    if match is None:
        raise InvalidValueError("a time like 30, 500ms, 30s, 5m, 2h or 7d is expected")
    ms = int(match[1]) * _UNIT_MS[match[2] or b""]
    if ms > SPAN_MS_MAX:
        raise InvalidValueError(f"at most {SPAN_MS_MAX // 1000} seconds")
    return ms


def span_text(ms: int) -> bytes:
    """Return a time as QUEUE GET shows it: whole seconds as a number, anything else with ms."""
    return b"%dms" % ms if ms % 1000 else b"%d" % (ms // 1000)


def _read_span(name: bytes, value: bytes) -> bytes:
    ms = span_ms(value)
    if not ms:
        raise InvalidValueError("a time above 0 is expected")
    return span_text(ms)


def _read_delay(name: bytes, value: bytes) -> bytes:
    return span_text(span_ms(value))


def _number(value: bytes, low: int, high: int, more: str = "") -> int:
    if _NUMBER.fullmatch(value) is None or not low <= int(value) <= high:
        raise InvalidValueError(f"a number from {low} to {high}{more} is expected")
    return int(value)


def _read_replicate(name: bytes, value: bytes) -> bytes:
    if value.lower() == b"quorum":
        return b"quorum"
    return b"%d" % _number(value, 1, REPLICATE_MAX, ", or quorum,")


def _read_attempts(name: bytes, value: bytes) -> bytes:
    return b"%d" % _number(value, 0, ATTEMPTS_MAX)


def _read_size(name: bytes, value: bytes) -> bytes:
    return b"%d" % _number(value, 0, INT64_MAX)


def _read_backoff(name: bytes, value: bytes) -> bytes:
    match = _BACKOFF.fullmatch(value.lower())
    if match is None:
        raise InvalidValueError("fixed, linear or exponential is expected, as in exponential:1000:60000:20")
    base_ms, cap_ms, jitter = int(match[2]), int(match[3]), int(match[4] or b"0")
    if not 0 < base_ms <= cap_ms <= SPAN_MS_MAX:
        raise InvalidValueError("the base must be above 0 and at most the cap")
    if jitter > 100:
        raise InvalidValueError("the jitter is a percentage from 0 to 100")
    return b"%b:%d:%d:%d" % (match[1], base_ms, cap_ms, jitter) if jitter else b"%b:%d:%d" % (match[1], base_ms, cap_ms)


def _read_queue(name: bytes, value: bytes) -> bytes:
    if value == name:
        raise InvalidValueError("a queue can't be its own dead-letter queue")
    return value


def _read_names(name: bytes, value: bytes) -> bytes:
    names = value.split(b",")
    if len(names) > NAMES_MAX:
        raise InvalidValueError(f"at most {NAMES_MAX} names")
    if len(dict.fromkeys(names)) < len(names):
        raise InvalidValueError("the same name twice")
    if not all(0 < len(each) <= NAME_BYTES_MAX for each in names):
        raise InvalidValueError(f"names have 1 to {NAME_BYTES_MAX} bytes and commas between them")
    return value


def rate_of(text: bytes) -> tuple[int, int]:
    """Return number and time of a `rate` as it is kept."""
    number, has_time, span = text.partition(b"/")
    return int(number), span_ms(span) if has_time else 1_000


def _read_rate(name: bytes, value: bytes) -> bytes:
    if value.lower() == b"none" or value == b"0":
        return b"none"
    number, has_time, span = value.partition(b"/")
    count = _number(number, 0, CAP_MAX, ", as in 100 or 100/10s,")
    ms = span_ms(span) if has_time else 1_000
    if not count:
        return b"none"
    if not RATE_MS_MIN <= ms <= RATE_MS_MAX:
        raise InvalidValueError("a time from 1s to 1d is expected")
    return b"%d" % count if ms == 1_000 else b"%d/%b" % (count, span_text(ms))


def _read_running(name: bytes, value: bytes) -> bytes:
    return b"0" if value.lower() == b"none" else b"%d" % _number(value, 0, CAP_MAX)


def _read_name(name: bytes, value: bytes) -> bytes:
    if not 0 < len(value) <= NAME_BYTES_MAX:
        raise InvalidValueError(f"a name of 1 to {NAME_BYTES_MAX} bytes is expected")
    return value


def _read_type(name: bytes, value: bytes) -> bytes:
    if value.lower() not in (b"simple", b"exclusive"):
        raise InvalidValueError("simple or exclusive is expected")
    return value.lower()


def _read_assign(name: bytes, value: bytes) -> bytes:
    if value.lower() not in (b"local", b"quorum"):
        raise InvalidValueError("local or quorum is expected")
    return value.lower()


class Field(NamedTuple):
    """One field: its default as QUEUE GET shows it, and the reader of values (queue, text) -> text shown."""

    name: bytes
    default: bytes
    read: Callable[[bytes, bytes], bytes]


# In the order of QUEUE GET.
ALL_FIELDS: Final = (
    Field(b"lease", b"", _read_span),
    Field(b"delay", b"0", _read_delay),
    Field(b"ttl", b"86400", _read_span),
    Field(b"replicate", b"", _read_replicate),
    Field(b"attempts", b"0", _read_attempts),
    Field(b"backoff", b"", _read_backoff),
    Field(b"maxlen", b"0", _read_size),
    Field(b"maxsize", b"0", _read_size),
    Field(b"dead-letter", b"", _read_queue),
    Field(b"retention", b"604800", _read_span),
    Field(b"require-meta", b"", _read_names),
    Field(b"index", b"", _read_names),
    Field(b"type", b"simple", _read_type),
    Field(b"exclusive-by", b"", _read_name),
    Field(b"assign", b"local", _read_assign),
    Field(b"rate", b"none", _read_rate),
    Field(b"rate-by", b"", _read_name),
    Field(b"max-running", b"0", _read_running),
    Field(b"max-running-by", b"", _read_name),
    Field(b"result-retention", b"3600", _read_delay),
)
FIELDS: Final = {field.name: field for field in ALL_FIELDS}


def read_value(queue: bytes, field: Field, value: bytes) -> bytes:
    """Return the text of a field's value as it is kept and shown. An empty one is the default. InvalidValueError."""
    if len(value) > VALUE_BYTES_MAX:
        raise InvalidValueError(f"at most {VALUE_BYTES_MAX} bytes")
    return field.read(queue, value) if value else field.default


# -- versions -----------------------------------------------------------------------------------------------------

# A field's value, and its version: counter, node id.
Versioned = tuple[bytes, int, bytes]
# Queue, field, value, counter, node id: a setting on its way to a node or into a file.
Item = tuple[bytes, bytes, bytes, int, bytes]


def is_item(item: object) -> bool:
    """Return whether this is an Item within all bounds. Positions behind it are for newer versions."""
    if not isinstance(item, (list, tuple)) or len(item) < 5:
        return False
    name, field, value, counter, node_id = item[:5]
    return (
        type(name) is bytes
        and type(field) is bytes
        and type(value) is bytes
        and type(counter) is int
        and type(node_id) is bytes
        and len(field) <= FIELD_NAME_BYTES_MAX
        and len(value) <= VALUE_BYTES_MAX
        and 0 < counter <= COUNTER_MAX
        and len(node_id) == NODE_BYTES
    )


class QueueState:
    """Everything known of one queue's settings.

    reset      version of the last RESET; (0, b"") if there was none
    fields     name -> value and version, all above `reset`
    digest     of all versions: two nodes with the same digest have the same state
    number     the table's change number of the last change (QueueSettingsTable.number)
    confirmed  nodes that said that they have this state -> the doubts of them at that time (Exchange)
    """

    __slots__ = ("confirmed", "digest", "fields", "number", "reset")

    def __init__(self) -> None:
        self.reset: tuple[int, bytes] = (0, b"")
        self.fields: dict[bytes, Versioned] = {}
        self.digest = 0
        self.number = 0
        self.confirmed: dict[Node, int] = {}

    def highest(self) -> int:
        """Return the highest counter of all versions."""
        return max([self.reset[0], *[known[1] for known in self.fields.values()]])


class Waiting(NamedTuple):
    """A QUEUE SET or RESET whose client waits: first for the file, then for linked nodes.

    number   the table's change number of the command
    done     answers the client
    """

    name: bytes
    number: int
    done: Callable[[OSError | None], None]


class Exchange:
    """The state of a node's conversation about settings, with its file and with other nodes (settings_sync.py).

    is_writing     the file is being written
    is_void        all settings are to be forgotten in the file, too
    is_failing     the last write failed
    retry_at_ms    when it is repeated; 0: it was not, or it is being repeated
    saved_number   the table's change number that the file has
    saved_digest   the digest of the settings that the file has: what other nodes are told
    waiting        commands that wait -> until when they wait for other nodes; 0: they wait for the file
    confirmed      node -> the change number whose state it is known to have
    digests        node -> the digest that it told last
    walks          nodes that asked for all settings, and those that they are still to be told
    walk_at_ms     when the next ones are told
    doubts         node -> how often its settings differed from ours: what it confirmed before counts no more
    asking         nodes that were asked, or are to be asked when they are linked
    wait_until_ms  after a start: until when GETJOB and ADDJOB wait for settings; 0: they don't
    lengths        queue with `maxlen` -> node -> pending jobs there
    told_lengths   queue with `maxlen` -> pending jobs here, as other nodes were told
    length_walk    the queues whose lengths are told next
    length_round_ms   when the walk over all of them began
    """

    def __init__(self) -> None:
        self.is_writing = False
        self.is_void = False
        self.is_failing = False
        self.retry_at_ms = 0
        self.saved_number = 0
        self.saved_digest = 0
        self.waiting: dict[Waiting, int] = {}
        self.confirmed: dict[Node, int] = {}
        self.digests: dict[Node, int] = {}
        self.walks: dict[Node, Iterator[Item]] = {}
        self.walk_at_ms = 0
        self.doubts: dict[Node, int] = {}
        self.asking: dict[Node, None] = {}
        self.wait_until_ms = 0
        self.lengths: dict[bytes, dict[Node, int]] = {}
        self.told_lengths: dict[bytes, int] = {}
        self.length_walk: Iterator[bytes] = iter(())
        self.length_round_ms = 0


def _digest(item: Item) -> int:
    name, field, value, counter, node_id = item
    head = b"%d %d %d %d " % (len(name), len(field), len(value), counter)
    return int.from_bytes(blake2b(head + name + field + value + node_id, digest_size=8).digest(), "big")


def _in_force(name: bytes, state: QueueState) -> QueueSettings | None:
    """Return a queue's settings in force; None if all of them are defaults."""
    texts: dict[bytes, bytes] = {}
    for field_name, (value, _, _) in state.fields.items():
        field = FIELDS.get(field_name)
        if field is None or not value:
            continue
        try:
            text = field.read(name, value)
        except InvalidValueError:
            continue  # A newer version allows it.
        if text != field.default:
            texts[field_name] = text
    return _parsed(texts) if texts else None


def _parsed(texts: dict[bytes, bytes]) -> QueueSettings:
    found = QueueSettings()
    for name, text in texts.items():
        if name == b"lease":
            found.lease_ms = span_ms(text)
        elif name == b"delay":
            found.delay_ms = span_ms(text)
        elif name == b"ttl":
            found.ttl_ms = span_ms(text)
        elif name == b"retention":
            found.retention_ms = span_ms(text)
        elif name == b"rate":
            found.rate, found.rate_ms = rate_of(text)
        elif name == b"rate-by":
            found.rate_by = text
        elif name == b"max-running":
            found.max_running = int(text)
        elif name == b"max-running-by":
            found.max_running_by = text
        elif name == b"result-retention":
            found.result_retention_ms = span_ms(text)
        elif name == b"replicate":
            found.replicate = QUORUM if text == b"quorum" else int(text)
        elif name == b"attempts":
            found.attempts = min(int(text), ATTEMPTS_MAX)
        elif name == b"backoff":
            found.backoff = text
        elif name == b"maxlen":
            found.maxlen = int(text)
        elif name == b"maxsize":
            found.maxsize = int(text)
        elif name == b"dead-letter":
            found.dead_letter = text
        elif name == b"require-meta":
            found.require_meta = tuple(text.split(b","))
        elif name == b"index":
            found.index = tuple(text.split(b","))
        elif name == b"assign":
            found.is_quorum = text == b"quorum"
    if texts.get(b"type") == b"exclusive":
        found.exclusive_by = texts.get(b"exclusive-by", b"")
    return found


def _ignore(name: bytes) -> None:
    """Do nothing: no code looks after queues whose jobs need a claim."""


class QueueSettingsTable:
    """The settings of all queues, as one node knows them.

    in_force   queue -> its settings, for queues that have any that is no default. Empty: ADDJOB looks no further
    limited    queues with `maxlen`
    exclusive  queues whose jobs need a claim, and their settings
    adopt      is called with the name of such a queue when its settings change
    states     key -> versions, also of queues whose settings were reset, and of other kinds of states
    digest     of all versions; 0 if there are none
    number     counts changes
    bytes      about the memory that the states take
    unsaved    settings that changed and are not given to the file yet, by queue and field
    exchange   the conversation about them
    """

    def __init__(self) -> None:
        self._watchers: dict[bytes, Watcher] = {}
        self._queue_watcher: Callable[[bytes, QueueSettings | None], None] | None = None
        self.in_force: dict[bytes, QueueSettings] = {}
        self.limited: dict[bytes, None] = {}
        self.exclusive: dict[bytes, QueueSettings] = {}
        self.adopt: Callable[[bytes], None] = _ignore
        self.states: dict[bytes, QueueState] = {}
        self.digest = 0
        self.number = 0
        self.bytes = 0
        self.unsaved: dict[tuple[bytes, bytes], None] = {}
        self.exchange = Exchange()
        self._reset_names: dict[bytes, None] = {}

    def of(self, name: bytes) -> QueueSettings:
        """Return a queue's settings in force. Queues without settings share one object."""
        in_force = self.in_force
        return in_force.get(name, DEFAULTS) if in_force else DEFAULTS

    def watch(self, kind: bytes, watcher: Watcher) -> None:
        """Have a function called after each change of a state of this kind. It hears of all present states at once."""
        self._watchers[kind] = watcher
        for key in list(self.states):
            if split_key(key)[0] == kind:
                self._tell_watcher(key, self.states[key])

    def watch_queues(self, watcher: Callable[[bytes, QueueSettings | None], None]) -> None:
        """Have a function called with a queue and its settings in force after each change. None: all are defaults."""
        self._queue_watcher = watcher
        for name, settings in list(self.in_force.items()):
            watcher(name, settings)

    def next_counter(self, name: bytes) -> int:
        """Return the counter of a new version of this queue's settings. Above COUNTER_MAX: there is none."""
        state = self.states.get(name)
        return 1 if state is None else state.highest() + 1

    def has_room(self, name: bytes, fields: int, value_bytes: int) -> bool:
        """Return whether so many fields of a queue can be remembered. Queues that were reset make room, oldest first.

        value_bytes   of all names and values of the fields
        """
        more = fields * FIELD_BYTES + value_bytes
        is_new = name not in self.states
        if is_new:
            more += STATE_BYTES + len(name)
        if more > TABLE_BYTES_MAX:
            return False
        while self._reset_names and not self._is_within(more, is_new=is_new):
            oldest = next(iter(self._reset_names))
            if oldest == name:
                break
            self._drop(oldest)
        return self._is_within(more, is_new=is_new)

    def _is_within(self, more: int, *, is_new: bool) -> bool:
        return len(self.states) + is_new <= QUEUES_MAX and self.bytes + more <= TABLE_BYTES_MAX

    def _drop(self, name: bytes) -> None:
        state = self.states.pop(name)
        self._reset_names.pop(name, None)
        self.digest ^= state.digest
        self.bytes -= STATE_BYTES + len(name)
        for field, known in state.fields.items():
            self.bytes -= _field_bytes(field, known[0])

    def merge(self, item: Item) -> bool:
        """Merge one setting. Return whether it is news. The caller has checked `is_item` and `has_room`."""
        if not self.merge_version(item):
            return False
        name = item[0]
        self.unsaved[name, item[1]] = None
        self._take_effect(name, self.states[name])
        return True

    def load(self, items: list[Item]) -> None:
        """Merge the settings of a file."""
        for item in items:
            self.merge_version(item)
        for name in dict.fromkeys([item[0] for item in items]):
            self._take_effect(name, self.states[name])

    def merge_version(self, item: Item) -> bool:
        """Merge one setting without effect on the settings in force. Return whether it is news."""
        name, field, value, counter, node_id = item
        if field == RESET_FIELD and value:
            value = b""  # A RESET has none: with one, it would be another state here than where it is told on.
            item = (name, field, value, counter, node_id)
        state = self.states.get(name)
        if state is None:
            state = self.states[name] = QueueState()
            self.bytes += STATE_BYTES + len(name)
        elif (counter, node_id) <= state.reset:
            return False
        if field == RESET_FIELD:
            self._note(state, _digest(item))
            if state.reset[0]:
                self._note(state, _digest((name, RESET_FIELD, b"", *state.reset)))
            state.reset = (counter, node_id)
            for each in [each for each, known in state.fields.items() if (known[1], known[2]) <= state.reset]:
                self._forget_field(name, state, each)
        else:
            known = state.fields.get(field)
            # The value decides between two settings that a node in trouble gave one version.
            if known is not None and (known[1], known[2], known[0]) >= (counter, node_id, value):
                return False
            if known is not None:
                self._forget_field(name, state, field)
            elif len(state.fields) >= FIELDS_MAX:
                return False
            state.fields[field] = (value, counter, node_id)
            self.bytes += _field_bytes(field, value)
            self._note(state, _digest(item))
        self.number += 1
        state.number = self.number
        state.confirmed.clear()
        return True

    def _forget_field(self, name: bytes, state: QueueState, field: bytes) -> None:
        value, counter, node_id = state.fields.pop(field)
        self.bytes -= _field_bytes(field, value)
        self._note(state, _digest((name, field, value, counter, node_id)))

    def _note(self, state: QueueState, digest: int) -> None:
        """Add a version to the digests, or take it out: both are the same operation."""
        state.digest ^= digest
        self.digest ^= digest

    def _take_effect(self, key: bytes, state: QueueState) -> None:
        kind, name = split_key(key)
        if kind == QUEUE:
            found = _in_force(name, state)
            if found is None:
                self.in_force.pop(name, None)
            else:
                self.in_force[name] = found
            if found is not None and found.maxlen:
                self.limited[name] = None
            else:
                self.limited.pop(name, None)
            if found is not None and (found.exclusive_by or found.is_quorum):
                self.exclusive[name] = found
                self.adopt(name)
            else:
                self.exclusive.pop(name, None)
            if self._queue_watcher is not None:
                self._queue_watcher(name, found)
        self._tell_watcher(key, state)
        self._reset_names.pop(key, None)
        if not state.fields:
            self._reset_names[key] = None

    def _tell_watcher(self, key: bytes, state: QueueState) -> None:
        kind, name = split_key(key)
        watcher = self._watchers.get(kind)
        if watcher is not None:
            watcher(name, {field: known[0] for field, known in state.fields.items() if known[0]})

    def items_of(self, name: bytes) -> list[Item]:
        """Return all versions of one queue, the RESET first."""
        state = self.states[name]
        items: list[Item] = []
        if state.reset[0]:
            items.append((name, RESET_FIELD, b"", state.reset[0], state.reset[1]))
        for field, (value, counter, node_id) in state.fields.items():
            items.append((name, field, value, counter, node_id))
        return items

    def all_items(self) -> Iterator[Item]:
        """Yield all versions of all queues, as they are when they are reached. The table may change meanwhile."""
        for name in list(self.states):
            if name in self.states:
                yield from self.items_of(name)

    def take_unsaved(self) -> list[Item]:
        """Return the settings that changed since the last call."""
        unsaved, self.unsaved = self.unsaved, {}
        items: list[Item] = []
        for name, field in unsaved:
            state = self.states.get(name)
            if state is None:
                continue
            if field == RESET_FIELD:
                items.append((name, RESET_FIELD, b"", state.reset[0], state.reset[1]))
            elif field in state.fields:
                items.append((name, field, *state.fields[field]))
        return items

    def put_back(self, items: list[Item]) -> None:
        """Note again that these settings are not in the file: it could not be written."""
        for item in items:
            self.unsaved[item[0], item[1]] = None

    def shown(self, name: bytes) -> list[tuple[bytes, bytes]]:
        """Return the fields that QUEUE GET shows of a queue, with their values."""
        state = self.states.get(state_key(QUEUE, name))
        fields = state.fields if state is not None else {}
        return [(each, (fields[each][0] if each in fields else b"") or field.default) for each, field in FIELDS.items()]

    def clear(self) -> None:
        """Forget all settings."""
        keys = list(self.states)
        self.in_force.clear()
        self.limited.clear()
        self.exclusive.clear()
        self.states.clear()
        self.digest = 0
        self.number += 1
        self.bytes = 0
        self.unsaved.clear()
        self._reset_names.clear()
        for key in keys:
            kind, name = split_key(key)
            if kind in self._watchers:
                self._watchers[kind](name, {})
            if kind == QUEUE and self._queue_watcher is not None:
                self._queue_watcher(name, None)


def _field_bytes(field: bytes, value: bytes) -> int:
    return FIELD_BYTES + len(field) + len(value)
