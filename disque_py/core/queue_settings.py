"""Queue settings: the settings of all queues, with the versions by which nodes agree on them.

A setting is a text with a version (counter, node id). The higher version wins, field by field. So two operators who set
different fields on different nodes both succeed. The counter of a new version is one above the highest counter that its
node knows for the queue. A RESET is a version, too: fields with lower versions have their defaults again. Settings can
be merged in any order and any number of times, and the result is the same.

A node keeps and passes on fields that its software does not know, and values that only newer software understands. In
place of such a value it uses the default.

`QueueSettingsTable.of` returns the parsed settings in force, for the code that applies them (queue_fields.py). This
module is data: it knows no broker, no file and no other node (settings_sync.py).

The table also carries other state that all nodes share: topics, schedules, users and batches. A *key* names a state.
The key of a queue's settings is the queue's name. The keys of other kinds of state have a prefix (`state_key`). A node
that does not know a kind keeps its states and passes them on. Spec QS1, QS2, QS9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Final

from cluster_bus.node import Node
from disque_py.core.queue_fields import DEFAULTS, FIELDS, VALUE_BYTES_MAX, QueueSettings, settings_in_force
from disque_py.core.settings_exchange import Exchange

# A queue's state counts this many bytes plus its name, and a field this many bytes plus its name and value.
STATE_BYTES: Final = 400
FIELD_BYTES: Final = 250
# At most this many queues have settings, and their states take at most this many bytes.
QUEUES_MAX: Final = 100_000
TABLE_BYTES_MAX: Final = 256 * 1024 * 1024
NO_VERSION: Final = "ERR the settings of the queue have the highest version there is"
FULL: Final = f"ERR too many queues with settings, at most {QUEUES_MAX}"
# Bounds for one field, including fields of newer versions.
FIELD_NAME_BYTES_MAX: Final = 64
FIELDS_MAX: Final = 64
COUNTER_MAX: Final = 1 << 53
NODE_BYTES: Final = 20


# A RESET is stored as the version of a field with this name.
RESET_FIELD: Final = b""

# Kinds of states. In a key that begins with a zero byte, the second byte is the kind. Any other key is a queue's name.
QUEUE: Final = b"q"
TOPIC: Final = b"t"
SCHEDULE: Final = b"s"
USER: Final = b"u"
BATCH: Final = b"b"
_MARK: Final = b"\0"

# Is called with a name and the non-empty fields of its state. Without fields, the state was deleted.
Watcher = Callable[[bytes, dict[bytes, bytes]], None]


def state_key(kind: bytes, name: bytes) -> bytes:
    """Return the key of a state of this kind (spec QS9)."""
    return name if kind == QUEUE and not name.startswith(_MARK) else _MARK + kind + name


def split_key(key: bytes) -> tuple[bytes, bytes]:
    """Return the kind and the name of a state."""
    return (key[1:2], key[2:]) if key.startswith(_MARK) else (QUEUE, key)


# A field's value, and its version: counter, node id.
Versioned = tuple[bytes, int, bytes]
# A setting in a message or a file: queue, field, value, counter, node id.
Item = tuple[bytes, bytes, bytes, int, bytes]


def is_item(item: object) -> bool:
    """Return whether this is an Item within all bounds. Newer versions may append more positions."""
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
    """All that a node knows about one queue's settings.

    reset      the version of the last RESET; (0, b"") if there was none
    fields     name -> value and version, all above `reset`
    digest     a digest of all versions; two nodes with the same digest have the same state
    number     the table's change number at the last change (QueueSettingsTable.number)
    confirmed  node that has confirmed this state -> its `Exchange.doubts` at that time
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


def _digest(item: Item) -> int:
    name, field, value, counter, node_id = item
    head = b"%d %d %d %d " % (len(name), len(field), len(value), counter)
    return int.from_bytes(blake2b(head + name + field + value + node_id, digest_size=8).digest(), "big")


def _ignore(name: bytes) -> None:
    """Do nothing, until a function is set that handles queues whose jobs need a claim."""


class QueueSettingsTable:
    """The settings of all queues, as one node knows them.

    in_force   queue -> settings, for queues with a setting that is not the default; if empty, ADDJOB needs no look-up
    limited    queues with `maxlen`
    exclusive  queue -> settings, for queues whose jobs need a claim
    adopt      is called with the name of such a queue when its settings change
    states     key -> versions, also of queues whose settings were reset, and of other kinds of states
    digest     a digest of all versions; 0 if there are none
    number     the number of changes so far
    bytes      about the memory that the states take
    unsaved    (queue, field) of the settings that changed and have not been passed to a write of the file
    exchange   the state of the exchange with other nodes
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
        """Call a function for each present state of this kind, and after each change of one."""
        self._watchers[kind] = watcher
        for key in list(self.states):
            if split_key(key)[0] == kind:
                self._tell_watcher(key, self.states[key])

    def watch_queues(self, watcher: Callable[[bytes, QueueSettings | None], None]) -> None:
        """Call a function with a queue and its settings in force, for each present one and after each change.

        The settings are None if all of them are defaults.
        """
        self._queue_watcher = watcher
        for name, settings in list(self.in_force.items()):
            watcher(name, settings)

    def next_counter(self, name: bytes) -> int:
        """Return the counter of a new version of this queue's settings. Above COUNTER_MAX, it is not valid."""
        state = self.states.get(name)
        return 1 if state is None else state.highest() + 1

    def has_room(self, name: bytes, fields: int, value_bytes: int) -> bool:
        """Return whether there is room for this many fields of a queue.

        If necessary, forget queues that were reset, oldest first.

        value_bytes   the bytes of all names and values of the fields
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
        """Merge one setting. Return whether it changed anything. The caller has checked `is_item` and `has_room`."""
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
        """Merge one setting without effect on the settings in force. Return whether it changed anything."""
        name, field, value, counter, node_id = item
        if field == RESET_FIELD and value:
            value = b""  # A RESET has no value, and is passed on without one. With one, digests would differ.
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
            # A node in trouble may give two settings the same version. Then the value decides.
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
        """Add a version to the digests, or remove it. Both are the same operation."""
        state.digest ^= digest
        self.digest ^= digest

    def _take_effect(self, key: bytes, state: QueueState) -> None:
        kind, name = split_key(key)
        if kind == QUEUE:
            found = settings_in_force(name, [(field, known[0]) for field, known in state.fields.items()])
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
        """Return all versions of one queue. A RESET comes first."""
        state = self.states[name]
        items: list[Item] = []
        if state.reset[0]:
            items.append((name, RESET_FIELD, b"", state.reset[0], state.reset[1]))
        for field, (value, counter, node_id) in state.fields.items():
            items.append((name, field, value, counter, node_id))
        return items

    def all_items(self) -> Iterator[Item]:
        """Yield all versions of all queues. If the table changes meanwhile, later queues are yielded as changed."""
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
        """Mark these settings as unsaved again, because the file could not be written."""
        for item in items:
            self.unsaved[item[0], item[1]] = None

    def shown(self, name: bytes) -> list[tuple[bytes, bytes]]:
        """Return the fields of a queue that QUEUE GET shows, with their values."""
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
