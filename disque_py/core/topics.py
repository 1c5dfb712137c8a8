"""Topics: names whose jobs go to the queues that are bound to them. A name is a topic while a queue is bound to it.

Each binding is a separate state in the table of queue settings (queue_settings.py). So concurrent changes on several
nodes conflict only if they are about the same topic and queue. The key of the state contains topic and queue, and its
only field contains the filter. This module turns the states into a table for ADDJOB. On a node without topics, the
table is empty and costs ADDJOB nothing. fanout.py makes the jobs. Spec TP7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from disque_py.core.queue_settings import TOPIC, state_key

if TYPE_CHECKING:
    from disque_py.core.broker import Broker

TOPICS_MAX: Final = 10_000
QUEUES_MAX: Final = 1_000
# The only field of a binding. Its value is a mark, so that it is never empty, and the filter.
WHERE: Final = b"where"
MARK: Final = b"1"
LENGTH_BYTES: Final = 4

# The pairs that a job's META must have.
Pairs = dict[bytes, bytes]


def binding_key(topic: bytes, queue: bytes) -> bytes:
    """Return the key of the state of a binding."""
    return state_key(TOPIC, _packed((topic, queue)))


def filter_value(pairs: Pairs) -> bytes:
    """Return the value of a binding's field for this filter."""
    return MARK + _packed(tuple([word for pair in pairs.items() for word in pair]))


def watch(broker: Broker) -> None:
    """Keep the table of topics in step with the states."""
    broker.queue_settings.watch(TOPIC, _watcher(broker.topics))


def _watcher(topics: dict[bytes, dict[bytes, Pairs]]) -> Callable[[bytes, dict[bytes, bytes]], None]:
    def changed(name: bytes, fields: dict[bytes, bytes]) -> None:
        words = _unpacked(name)
        if len(words) != 2:
            return  # Newer versions may make such names.
        topic, queue = words
        value = fields.get(WHERE, b"")
        if value:
            pairs = _unpacked(value[len(MARK) :])
            topics.setdefault(topic, {})[queue] = dict(zip(pairs[::2], pairs[1::2], strict=False))
            return
        bound = topics.get(topic)
        if bound is not None:
            bound.pop(queue, None)
            if not bound:
                del topics[topic]

    return changed


def queues_for(bound: dict[bytes, Pairs], meta: Pairs) -> list[bytes]:
    """Return the sorted names of the bound queues whose filters match a job with this META."""
    return sorted(
        [
            queue
            for queue, pairs in bound.items()
            if not pairs or all(meta.get(name) == value for name, value in pairs.items())
        ]
    )


def _packed(words: tuple[bytes, ...]) -> bytes:
    return b"".join([len(word).to_bytes(LENGTH_BYTES, "big") + word for word in words])


def _unpacked(data: bytes) -> list[bytes]:
    """Return the words of a packed value. The bytes after a wrong length are ignored."""
    words: list[bytes] = []
    at = 0
    while at + LENGTH_BYTES <= len(data):
        length = int.from_bytes(data[at : at + LENGTH_BYTES], "big")
        at += LENGTH_BYTES
        if at + length > len(data):
            break
        words.append(data[at : at + length])
        at += length
    return words
